/* Options as data: finding, setting, checking and showing them by their tables.
 *
 * A line of a table has the offset of its field in the options struct, and its type. Every function
 * here takes a struct and a line, so a new option needs only a field and a line. All values are
 * given as text: by the command line, a config file (api/options/config.c) and the defaults of the
 * tables.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/options/by_name.h"
#include "api/options/tables.h"
#include "api/options/teacher_choice.h"
#include "core/error.h"
#include "core/locale.h"
#include "core/text.h"

/* ---- jobs and their tables ---- */

static wd_option_table table_of(wd_job job)
{
    switch (job) {
    case WD_JOB_TRAIN:
        return wd__table_train();
    case WD_JOB_PLAN:
        return wd__table_plan();
    case WD_JOB_SAMPLE:
        return wd__table_sample();
    case WD_JOB_EVAL:
        return wd__table_eval();
    case WD_JOB_INSPECT:
        return wd__table_inspect();
    case WD_JOB_CONVERT:
        return wd__table_convert();
    case WD_JOB_REPORT:
        return wd__table_report();
    case WD_JOB_TELL:
        return wd__table_tell();
    case WD_JOB_FORWARD:
        return wd__table_forward();
    case WD_JOB_BENCH:
        return wd__table_bench();
    case WD_JOB_COMMON:
        break;
    }
    return wd__table_common();
}

const char *wd_job_name(wd_job job)
{
    static const char *const name[] = {
#define X(job, name, summary) #name,
        WD_JOB_MAP(X)
#undef X
    };
    return (unsigned)job < WD_JOB_COUNT ? name[job] : "";
}

const char *wd_job_summary(wd_job job)
{
    static const char *const text[] = {
#define X(job, name, summary) summary,
        WD_JOB_MAP(X)
#undef X
    };
    return (unsigned)job < WD_JOB_COUNT ? text[job] : "";
}

const wd_option *wd_options_of(wd_job job, int64_t *count)
{
    const wd_option_table table = table_of(job);
    *count = table.count;
    return table.option;
}

size_t wd_options_bytes(wd_job job)
{
    return table_of(job).bytes;
}

/* ---- values ---- */

static wd_status not_usable(wd_err *err, const wd_option *o, const char *value,
                            const char *expected)
{
    return wd_fail(err, WD_INVALID_ARGUMENT, "--%s: expected %s, found \"%s\"", o->name, expected,
                   value);
}

static const char *range_text(char *out, size_t bytes, const wd_option *o)
{
    const char *what = o->type == WD_OPTION_INT ? "a whole number" : "a number";
    size_t used = 0;
    for (const char *const *c = o->choices; c && *c; c++)
        used = wd_append_text(out, bytes, used, "%s or ", *c);
    if (o->max >= WD_INT_MAX)
        wd_append_text(out, bytes, used, "%s of at least %.12g", what, o->min);
    else
        wd_append_text(out, bytes, used, "%s from %.12g to %.12g", what, o->min, o->max);
    return out;
}

/* Writes "a, b or c" into `out`. */
static const char *choices_text(char *out, size_t bytes, const wd_option *o)
{
    size_t used = 0;
    out[0] = 0;
    for (const char *const *c = o->choices; *c; c++) {
        const char *between = c == o->choices ? "" : c[1] ? ", " : " or ";
        used = wd_append_text(out, bytes, used, "%s%s", between, *c);
    }
    return out;
}

/* The choice with this name, as the table has it; NULL: there is none. */
static const char *choice_of(const wd_option *o, const char *value)
{
    const char *const *c = o->choices;
    while (*c && strcmp(*c, value)) c++;
    return *c;
}

/* Other names of dtypes, which are understood wherever they are no choice themselves. */
static const struct {
    const char *alias, *choice;
} dtypes[] = {
    {"bf16", "bfloat16"}, {"bfloat16", "bf16"}, {"fp16", "float16"},      {"float16", "fp16"},
    {"fp32", "float32"},  {"fp32", "no"},       {"fp8", "float8_e4m3fn"}, {"float32", "no"},
};

static wd_status set_choice(const char **field, const wd_option *o, const char *value, wd_err *err)
{
    char expected[256];
    const char *choice = choice_of(o, value);
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes && !choice; i++)
        if (!strcmp(dtypes[i].alias, value)) choice = choice_of(o, dtypes[i].choice);
    if (!choice) return not_usable(err, o, value, choices_text(expected, sizeof expected, o));
    *field = choice;
    return WD_OK;
}

/* *out = the number that a word of a WD_OPTION_INT stands for; false: it is no such word. */
static bool number_of_word(int64_t *out, const wd_option *o, const char *value)
{
    for (int64_t i = 0; o->choices && o->choices[i]; i++) {
        if (strcmp(o->choices[i], value)) continue;
        *out = -1 - i;
        return true;
    }
    return false;
}

const char *wd__option_word(const wd_option *o, int64_t value)
{
    for (int64_t i = 0; o->choices && o->choices[i]; i++)
        if (value == -1 - i) return o->choices[i];
    return NULL;
}

static wd_status set_int(int64_t *field, const wd_option *o, const char *value, wd_err *err)
{
    char *end, expected[256];
    errno = 0;
    if (number_of_word(field, o, value)) return WD_OK;
    const long long v = strtoll(value, &end, 10);
    if (end == value || *end || errno || (double)v < o->min || (double)v > o->max)
        return not_usable(err, o, value, range_text(expected, sizeof expected, o));
    *field = v;
    return WD_OK;
}

/* strtoull takes "-1" for the largest number. */
static wd_status set_seed(uint64_t *field, const wd_option *o, const char *value, wd_err *err)
{
    char *end;
    errno = 0;
    const unsigned long long v = strtoull(value, &end, 10);
    if (end == value || *end || errno || strchr(value, '-'))
        return not_usable(err, o, value, "a whole number from 0 to 18446744073709551615");
    *field = v;
    return WD_OK;
}

static wd_status set_float(double *field, const wd_option *o, const char *value, wd_err *err)
{
    char *end, expected[128];
    const double v = strtod(value, &end);
    if (end == value || *end || !(v >= o->min && v <= o->max))
        return not_usable(err, o, value, range_text(expected, sizeof expected, o));
    *field = v;
    return WD_OK;
}

static wd_status set_flag(bool *field, const wd_option *o, const char *value, wd_err *err)
{
    const bool yes = !strcmp(value, "true") || !strcmp(value, "1");
    if (!yes && strcmp(value, "false") && strcmp(value, "0"))
        return not_usable(err, o, value, "true or false");
    *field = yes;
    return WD_OK;
}

/* Checks a list that a caller has made. */
static wd_status check_texts(const wd_texts *texts, const wd_option *o, wd_err *err)
{
    if (texts->count < 0 || texts->count > WD_TEXTS_MAX)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "--%s: expected a list of 0 to %d texts, found a count of %" PRId64, o->name,
                       WD_TEXTS_MAX, texts->count);
    for (int64_t i = 0; i < texts->count; i++)
        if (!texts->item[i])
            return wd_fail(err, WD_INVALID_ARGUMENT,
                           "--%s: expected %" PRId64 " texts, found NULL as item[%" PRId64 "]",
                           o->name, texts->count, i);
    return WD_OK;
}

wd_status wd_option_set(void *options, const wd_option *option, const char *value, wd_err *err)
{
    WD_C_LOCALE;
    void *field = (char *)options + option->offset;
    switch (option->type) {
    case WD_OPTION_FLAG:
        return set_flag(field, option, value, err);
    case WD_OPTION_INT:
        return set_int(field, option, value, err);
    case WD_OPTION_SEED:
        return set_seed(field, option, value, err);
    case WD_OPTION_FLOAT:
        return set_float(field, option, value, err);
    case WD_OPTION_CHOICE:
        return set_choice(field, option, value, err);
    case WD_OPTION_TEXT:
        *(const char **)field = value;
        return WD_OK;
    case WD_OPTION_TEXTS:
        break;
    }
    wd_texts *texts = field;
    WD_TRY(check_texts(texts, option, err));
    if (texts->count == WD_TEXTS_MAX)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "--%s: expected at most %d texts, found more; put them into a file, one per "
                       "line, and give that",
                       option->name, WD_TEXTS_MAX);
    texts->item[texts->count++] = value;
    return WD_OK;
}

/* The field of the options struct with the struct's size. */
static size_t *bytes_of(void *options, const wd_option_table *table)
{
    return (size_t *)(void *)((char *)options + table->bytes_at);
}

void wd_options_default(void *options, size_t bytes, wd_job job)
{
    WD_C_LOCALE;
    const wd_option_table table = table_of(job);
    memset(options, 0, bytes);
    if (bytes != table.bytes) return;
    *bytes_of(options, &table) = bytes;
    if (job == WD_JOB_PLAN) ((wd_plan_options *)options)->train.bytes = sizeof(wd_train_options);
    for (int64_t i = 0; i < table.count; i++) {
        const wd_option *o = &table.option[i];
        if (*o->default_text) {
            wd_status status = wd_option_set(options, o, o->default_text, NULL);
            assert(status == WD_OK);
            (void)status;
        } else if (o->type == WD_OPTION_FLOAT) {
            *(double *)((char *)options + o->offset) = NAN;
        }
    }
}

static bool is_given(const void *field, const wd_option *o)
{
    switch (o->type) {
    case WD_OPTION_FLOAT:
        return !isnan(*(const double *)field);
    case WD_OPTION_TEXT:
    case WD_OPTION_CHOICE:
        return *(const char *const *)field != NULL;
    case WD_OPTION_TEXTS:
        return ((const wd_texts *)field)->count != 0;
    case WD_OPTION_FLAG:
    case WD_OPTION_INT:
    case WD_OPTION_SEED:
        break;
    }
    return true;
}

static void int_text(char *out, size_t bytes, const wd_option *o, int64_t value)
{
    const char *word = wd__option_word(o, value);
    if (word)
        snprintf(out, bytes, "%s", word);
    else
        snprintf(out, bytes, "%lld", (long long)value);
}

/* Writes the number with the fewest digits that are read as the same number. */
static void float_text(char *out, size_t bytes, double value)
{
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(out, bytes, "%.*g", digits, value);
        if (strtod(out, NULL) == value) break;
    }
}

const char *wd_option_text(char *out, size_t out_bytes, const void *options,
                           const wd_option *option)
{
    WD_C_LOCALE;
    const void *field = (const char *)options + option->offset;
    out[0] = 0;
    if (!is_given(field, option)) return out;
    switch (option->type) {
    case WD_OPTION_FLAG:
        snprintf(out, out_bytes, "%s", *(const bool *)field ? "true" : "false");
        break;
    case WD_OPTION_INT:
        int_text(out, out_bytes, option, *(const int64_t *)field);
        break;
    case WD_OPTION_SEED:
        snprintf(out, out_bytes, "%llu", (unsigned long long)*(const uint64_t *)field);
        break;
    case WD_OPTION_FLOAT:
        float_text(out, out_bytes, *(const double *)field);
        break;
    case WD_OPTION_TEXT:
    case WD_OPTION_CHOICE:
        snprintf(out, out_bytes, "%s", *(const char *const *)field);
        break;
    case WD_OPTION_TEXTS: {
        const wd_texts *texts = field;
        size_t used = 0;
        for (int64_t i = 0; i < texts->count; i++)
            used = wd_append_text(out, out_bytes, used, "%s%s", i ? ", " : "", texts->item[i]);
        break;
    }
    }
    return out;
}

static bool same_text(const char *a, const char *b)
{
    return a && b ? !strcmp(a, b) : a == b;
}

bool wd__option_same(const wd_option *option, const void *a, const void *b)
{
    const void *x = (const char *)a + option->offset, *y = (const char *)b + option->offset;
    const wd_texts *list = x, *other = y;
    bool same = true;
    switch (option->type) {
    case WD_OPTION_FLAG:
        return *(const bool *)x == *(const bool *)y;
    case WD_OPTION_INT:
        return *(const int64_t *)x == *(const int64_t *)y;
    case WD_OPTION_SEED:
        return *(const uint64_t *)x == *(const uint64_t *)y;
    case WD_OPTION_FLOAT:
        return is_given(x, option) ? *(const double *)x == *(const double *)y
                                   : !is_given(y, option);
    case WD_OPTION_TEXT:
    case WD_OPTION_CHOICE:
        return same_text(*(const char *const *)x, *(const char *const *)y);
    case WD_OPTION_TEXTS:
        break;
    }
    same = list->count == other->count;
    for (int64_t i = 0; i < list->count && same; i++)
        same = same_text(list->item[i], other->item[i]);
    return same;
}

/* ---- checks ---- */

/* Checks a value, which may have been put into the struct without wd_option_set. */
static wd_status check_value(const void *field, const wd_option *o, wd_err *err)
{
    char text[64], expected[256];
    double v = 0;
    switch (o->type) {
    case WD_OPTION_INT:
        if (wd__option_word(o, *(const int64_t *)field)) return WD_OK;
        v = (double)*(const int64_t *)field;
        break;
    case WD_OPTION_FLOAT:
        v = *(const double *)field;
        break;
    case WD_OPTION_CHOICE:
        if (choice_of(o, *(const char *const *)field)) return WD_OK;
        return not_usable(err, o, *(const char *const *)field,
                          choices_text(expected, sizeof expected, o));
    case WD_OPTION_TEXT: /* an empty path would mean the current folder, or / */
        if (!(o->flags & WD_OPTION_FILE) || **(const char *const *)field) return WD_OK;
        return not_usable(err, o, "", "a path");
    case WD_OPTION_TEXTS:
        return check_texts(field, o, err);
    default:
        return WD_OK;
    }
    if (v >= o->min && v <= o->max) return WD_OK;
    snprintf(text, sizeof text, "%.15g", v);
    return not_usable(err, o, text, range_text(expected, sizeof expected, o));
}

/* Refuses a struct of another size: it was built with the header of another version. */
static wd_status check_bytes(const void *options, const wd_option_table *table, wd_job job,
                             wd_err *err)
{
    size_t found;
    memcpy(&found, (const char *)options + table->bytes_at, sizeof found);
    if (found == table->bytes) return WD_OK;
    return wd_fail(err, WD_INVALID_ARGUMENT,
                   "wd_%s_options: expected %zu bytes, found %zu: start from wd_%s_defaults(), and "
                   "build with the wandistiller.h of this library, version %s",
                   wd_job_name(job), table->bytes, found, wd_job_name(job), wd_version());
}

static bool names_part(const void *options, const wd_option_table *table)
{
    for (int64_t i = 0; i < table->count; i++) {
        const wd_option *o = &table->option[i];
        if (o->flags & WD_OPTION_PART && is_given((const char *)options + o->offset, o))
            return true;
    }
    return false;
}

static bool names_targets(const void *options, const wd_option_table *table)
{
    for (int64_t i = 0; i < table->count; i++) {
        const wd_option *o = &table->option[i];
        if (!strcmp(o->name, "targets")) return is_given((const char *)options + o->offset, o);
    }
    return false;
}

/* Whether an option is not needed though it is marked as required. */
static bool is_replaced(const wd_option *o, const void *options, const wd_option_table *table)
{
    return (o->flags & WD_OPTION_OR_PARTS && names_part(options, table)) ||
           (o->flags & WD_OPTION_OR_TARGETS && names_targets(options, table));
}

wd_status wd_options_check(wd_job job, const void *options, wd_err *err)
{
    WD_C_LOCALE;
    const wd_option_table table = table_of(job);
    WD_TRY(check_bytes(options, &table, job, err));
    for (int64_t i = 0; i < table.count; i++) {
        const wd_option *o = &table.option[i];
        const void *field = (const char *)options + o->offset;
        if (is_given(field, o))
            WD_TRY(check_value(field, o, err));
        else if (o->flags & WD_OPTION_REQUIRED && !is_replaced(o, options, &table))
            return wd_fail(err, WD_INVALID_ARGUMENT, "%s needs --%s: %s", wd_job_name(job), o->name,
                           o->help);
        else if (*o->default_text)
            return wd_fail(err, WD_INVALID_ARGUMENT,
                           "--%s: expected a value, such as its default %s, found none", o->name,
                           o->default_text);
    }
    if (job != WD_JOB_TRAIN && job != WD_JOB_PLAN) return WD_OK;
    return wd__teacher_choice_check(options, "teacher_device_strategy", err);
}

/* ---- options of one source: a command line, or a file ---- */

/* The option of the source that has given the field at `offset`; NULL: none. */
static const wd_option *given(const wd_option_source *source, size_t offset)
{
    for (int64_t i = 0; i < source->count; i++)
        if (source->given[i]->offset == offset) return source->given[i];
    return NULL;
}

static void note(wd_option_source *source, const wd_option *option)
{
    int64_t i = 0;
    while (i < source->count && source->given[i]->offset != option->offset) i++;
    assert(i < WD_OPTIONS_MAX);
    source->given[i] = option;
    if (i == source->count) source->count++;
}

wd_status wd_option_give(wd_option_source *source, void *options, const wd_option *option,
                         const char *value, wd_err *err)
{
    WD_C_LOCALE;
    char before[128], after[128];
    const wd_option *other = given(source, option->offset);
    if (option->type == WD_OPTION_TEXTS && !other)
        ((wd_texts *)(void *)((char *)options + option->offset))->count = 0;
    wd_option_text(before, sizeof before, options, option);
    WD_TRY(wd_option_set(options, option, value, err));
    wd_option_text(after, sizeof after, options, option);
    if (other && strcmp(other->name, option->name) && strcmp(before, after))
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "--%s (%s) and --%s (%s) contradict one another: leave one of them out",
                       other->name, before, option->name, after);
    note(source, option);
    return WD_OK;
}

void wd__option_give_none(wd_option_source *source, void *options, const wd_option *option)
{
    ((wd_texts *)(void *)((char *)options + option->offset))->count = 0;
    note(source, option);
}

wd_status wd_option_source_end(const wd_option_source *source, wd_job job, void *options,
                               wd_err *err)
{
    WD_C_LOCALE;
    if (job != WD_JOB_TRAIN && job != WD_JOB_PLAN) return WD_OK;
    wd_train_options *all = options, said = wd_train_defaults();
    const wd_option *strategy = given(source, offsetof(wd_train_options, teacher_device_strategy));
    if (strategy) said.teacher_device_strategy = all->teacher_device_strategy;
    if (given(source, offsetof(wd_train_options, teacher_device_map)))
        said.teacher_device_map = all->teacher_device_map;
    if (given(source, offsetof(wd_train_options, teacher_rank)))
        said.teacher_rank = all->teacher_rank;
    WD_TRY(wd__teacher_choice_check(&said, strategy ? strategy->name : "", err));
    wd__teacher_choice_yield(all, &said);
    return WD_OK;
}
