/* Prompts in records: tables, JSON lines, and JSON arrays. Used by io/text/prompts.c. */
#ifndef WD_IO_TEXT_PROMPT_RECORDS_H
#define WD_IO_TEXT_PROMPT_RECORDS_H

#include "io/file/file.h"

/* Prompts as they are read. */
typedef struct wd_prompt_builder {
    const char *column; /* NULL: a usual one; borrowed */
    char found[64];     /* the column, or key, of the first prompt, for the log; "": none */
    char *bytes;        /* the prompts, each with its '\0' */
    size_t used, capacity;
    int64_t count, blank;
    size_t begin;              /* of the caption under way */
    int64_t lines;             /* of captions, without blank ones */
    const char *noun, *source; /* what was read: "prompt", ", one a line, from" */
    char path[WD_PATH_MAX];
} wd_prompt_builder;

typedef struct wd_prompt_line {
    const char *text; /* not terminated */
    size_t bytes;
    const char *path;
    int64_t number;  /* from 1 */
    int64_t element; /* of an array, from 1; 0: it is a line */
} wd_prompt_line;

/* ---- of prompts.c ---- */

bool wd__prompt_is_blank(const char *text, size_t bytes);

/* Refuses a line with bytes that are no text in UTF-8. */
wd_status wd__prompt_check_line(const wd_prompt_line *line, wd_err *err);

/* Appends a prompt, which must be UTF-8, unless it is blank. */
wd_status wd__prompts_add(wd_prompt_builder *builder, const char *text, size_t bytes,
                          const wd_prompt_line *line, wd_err *err);

/* ---- of prompt_records.c ---- */

/* Reads a line with one object or text; blank ones are skipped. */
wd_status wd__prompts_read_json_line(wd_prompt_builder *builder, const wd_prompt_line *line,
                                     wd_err *err);

/* Reads an array of objects and texts, and a table whose first record names its columns. `text` is
 * overwritten. */
wd_status wd__prompts_read_array(wd_prompt_builder *builder, char *text, size_t bytes,
                                 const char *path, wd_err *err);
wd_status wd__prompts_read_table(wd_prompt_builder *builder, char *text, size_t bytes,
                                 const char *path, char separator, wd_err *err);

#endif
