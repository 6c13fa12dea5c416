/* Fuzz target: any bytes as files of prompts: lines, JSON, tables, and a folder of captions. What
 * is read must be UTF-8 and not empty. */
#include "fuzzing.h"

#include "core/unicode.h"
#include "io/text/prompts.h"

static void read_prompts(const char *path)
{
    wd_err err;
    wd_prompts prompts;
    if (wd_prompts_open(&prompts, path, NULL, &err) != WD_OK) return;
    if (prompts.count < 1) abort();
    for (int64_t i = 0; i < prompts.count; i++)
        if (!*prompts.text[i] || wd_utf8_check(prompts.text[i], strlen(prompts.text[i])) >= 0)
            abort();
    wd_prompts_close(&prompts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const names[] = {
        "lines.txt",          "lines.jsonl", "folder/a.txt", "folder/metadata.jsonl",
        "folder/prompts.txt", "array.json",  "table.csv",    "table.tsv"};
    wd_fuzz_files(names, 8, data, bytes);
    read_prompts(wd_fuzz_path("lines.txt"));
    read_prompts(wd_fuzz_path("lines.jsonl"));
    read_prompts(wd_fuzz_path("array.json"));
    read_prompts(wd_fuzz_path("table.csv"));
    read_prompts(wd_fuzz_path("table.tsv"));
    read_prompts(wd_fuzz_path("folder"));
    return 0;
}
