/* Prompts: read from files, and cleaned as diffusers' Wan pipeline cleans them. */
#ifndef WD_IO_PROMPTS_H
#define WD_IO_PROMPTS_H

#include "core/error.h"

enum { WD_PROMPT_BYTES_MAX = 1 << 20 };

typedef struct wd_prompts {
    int64_t count;
    char **text; /* [count] UTF-8 as written in the file, never blank; see wd_prompt_clean */
    char *bytes; /* what text points into */
} wd_prompts;

/* Reads the prompts at `path`:
 * - a text file (UTF-8, with or without a byte order mark): one prompt a line, blank lines skipped;
 * - a .jsonl or .ndjson file: one object a line, the prompt under "prompt", "caption" or "text";
 * - a folder: its prompts.txt, else its metadata.jsonl, else all its *.txt files in sorted order.
 * Errors name file and line. No prompt at all is an error. */
wd_status wd_prompts_open(wd_prompts *out, const char *path, wd_err *err);
/* Whether `text` names a file of prompts, rather than being one: it is there, or ends in .txt or
 * .jsonl. */
bool wd_prompts_is_file(const char *text);
void wd_prompts_close(wd_prompts *prompts);

/* What the tokenizer gets for `text`: diffusers' prompt_clean (pipeline_wan.py), that is
 * ftfy.fix_text, html.unescape twice, white space collapsed and trimmed. Of ftfy all but the repair
 * of mojibake. *out is the caller's to wd_free. At most WD_PROMPT_BYTES_MAX bytes. */
wd_status wd_prompt_clean(char **out, const char *text, wd_err *err);

#endif
