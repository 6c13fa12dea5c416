/* The option tables, one per job. Each is the only place that knows an option's name, type, range,
 * default and help. */
#ifndef WD_API_TABLES_H
#define WD_API_TABLES_H

#include "wandistiller.h"

typedef struct wd_option_table {
    const wd_option *option;
    int64_t count;
    size_t bytes;    /* of the options struct */
    size_t bytes_at; /* of the struct's field that says so */
} wd_option_table;

wd_option_table wd_table_train(void);
wd_option_table wd_table_plan(void);
wd_option_table wd_table_sample(void);
wd_option_table wd_table_eval(void);
wd_option_table wd_table_inspect(void);
wd_option_table wd_table_convert(void);
wd_option_table wd_table_forward(void);
wd_option_table wd_table_bench(void);
wd_option_table wd_table_common(void);

/* Whether an option has the same value in two of its job's structs: for texts the same letters. */
bool wd_option_same(const wd_option *option, const void *a, const void *b);

/* Lines of a table, for a struct that OPTIONS names. */
#define WD_FIELD(field) .name = #field, .offset = offsetof(OPTIONS, field)
#define WD_TEXT_LINE(field, default_, metavar_)                                                    \
    WD_FIELD(field), .type = WD_OPTION_TEXT, .default_text = default_, .metavar = metavar_
#define WD_INT_LINE(field, default_, min_, max_)                                                   \
    WD_FIELD(field), .type = WD_OPTION_INT, .default_text = default_, .min = min_, .max = max_,    \
                     .metavar = "N"
#define WD_FLOAT_LINE(field, default_, min_, max_)                                                 \
    WD_FIELD(field), .type = WD_OPTION_FLOAT, .default_text = default_, .min = min_, .max = max_,  \
                     .metavar = "X"
#define WD_CHOICES(...)                                                                            \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }
#define WD_CHOICE_LINE(field, default_, ...)                                                       \
    WD_FIELD(field), .type = WD_OPTION_CHOICE, .default_text = default_,                           \
                     .choices = WD_CHOICES(__VA_ARGS__)
#define WD_FLAG_LINE(field)                                                                        \
    WD_FIELD(field), .type = WD_OPTION_FLAG, .default_text = "false", .bare = "true"

#define WD_INT_MAX 1e15 /* exact as a double */

#endif
