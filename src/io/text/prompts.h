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

/* Reads the prompts at `path`:
 * - a text file (UTF-8, with or without a byte order mark): one prompt a line, blank lines skipped;
 * - a .jsonl or .ndjson file: one object a line, the prompt under "prompt", "caption" or "text";
 * - a folder: its prompts.txt, else its metadata.jsonl, else its caption files: each *.txt is one
 *   prompt, its lines joined with spaces, blank ones left out; in the order of their names.
 * It logs which of these was read. Errors name file and line. A path without any prompt is an
 * error. */
wd_status wd_prompts_open(wd_prompts *out, const char *path, wd_err *err);
/* Whether `text` is the name of a file of prompts rather than a prompt: a file of that name exists,
 * or it ends in .txt or .jsonl. */
bool wd_prompts_is_file(const char *text);
void wd_prompts_close(wd_prompts *prompts);

/* Cleans `text` for the tokenizer as diffusers' prompt_clean does (pipeline_wan.py): ftfy.fix_text
 * without its repair of mojibake, html.unescape twice, white space collapsed and trimmed. `text`
 * has at most WD_PROMPT_BYTES_MAX bytes. The caller frees *out with wd_free. */
wd_status wd_prompt_clean(char **out, const char *text, wd_err *err);

#endif
