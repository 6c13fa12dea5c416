/* Folder io/text. Prompts and tokens.
 *
 * Reading prompts from files, and cleaning them as diffusers' Wan pipeline does. */
#ifndef WD_IO_TEXT_PROMPTS_H
#define WD_IO_TEXT_PROMPTS_H

#include "core/error.h"

enum { WD_PROMPT_BYTES_MAX = 1 << 20 };

typedef struct wd_prompts {
    int64_t count;
    char **text; /* [count] UTF-8 as written in the file, never blank; see wd_prompt_clean */
    char *bytes; /* the memory that `text` points into */
} wd_prompts;

/* Reads the prompts at `path`, in UTF-8 with or without a byte order mark:
 * - a .csv or .tsv file, whose first line names the columns (RFC 4180);
 * - a .jsonl or .ndjson file: an object or a text a line; or a .json file: an array of these;
 * - any other file: one prompt a line;
 * - a folder: its prompts.txt, else its metadata.jsonl, else its caption files: each *.txt is one
 *   prompt, its lines joined with spaces, in the order of their names; else its metadata.csv.
 * `column` is the column of a table, or the key of an object, that has the prompt; NULL: the first
 * of prompt, caption and text that is there. Blank prompts are left out. It logs what was read, and
 * how many prompts are blank or repeated. Errors name file and line. A path without any prompt is
 * an error. */
wd_status wd_prompts_open(wd_prompts *out, const char *path, const char *column, wd_err *err);
/* Whether `text` is the name of a file of prompts rather than a prompt: a file of that name exists,
 * or it ends in .txt, .jsonl, .ndjson, .json, .csv or .tsv. */
bool wd_prompts_is_file(const char *text);
/* Whether a file of this name has columns or keys, by its ending. */
bool wd_prompts_have_columns(const char *path);
void wd_prompts_close(wd_prompts *prompts);

/* Writes prompts as a .jsonl file, which wd_prompts_open reads. */
wd_status wd_prompts_write(const char *path, const char *const *prompts, int64_t count,
                           wd_err *err);

/* Cleans `text` for the tokenizer as diffusers' prompt_clean does (pipeline_wan.py): ftfy.fix_text
 * without its repair of mojibake, html.unescape twice, white space collapsed and trimmed. `text`
 * has at most WD_PROMPT_BYTES_MAX bytes. The caller frees *out with wd_free. */
wd_status wd_prompt_clean(char **out, const char *text, wd_err *err);

#endif
