/* Fuzz target: any bytes as the files of a run that a page is made of. The page has the bound on
 * its size, and no byte of the files ends the page's script, begins one, or ends the page. */
#include "fuzzing.h"

#include "core/memory.h"
#include "report/report.h"

static int count_of(const char *text, const char *part)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, part)); at++) n++;
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const names[] = {"run/metrics.jsonl", "run/run.json", "run/README.md",
                                        "run/eval.json", "run/samples/step-00000001.png"};
    wd_err err;
    wd_run_page *page;
    char *text, folder[512], out[512];
    size_t left;
    snprintf(folder, sizeof folder, "%s", wd_fuzz_path("run"));
    snprintf(out, sizeof out, "%s", wd_fuzz_path("report.html"));
    wd_fuzz_files(names, 5, data, bytes);
    const wd_reported_run run[] = {
        {.folder = folder, .is_running = bytes % 2, .is_rewritten = bytes % 4 > 1},
        {.folder = folder}};
    for (int64_t runs = 1; runs <= 2; runs++) {
        if (wd_run_page_open(&page, runs, &err) != WD_OK) abort();
        const wd_status status = wd_run_page_write(page, out, run, &err);
        wd_run_page_close(page);
        if (status == WD_NOT_FOUND) return 0; /* there are no metrics */
        if (status != WD_OK || wd_file_read(&text, &left, out, 32 << 20, &err) != WD_OK) abort();
        if (strlen(text) != left || count_of(text, "<script") != 1 ||
            count_of(text, "</script") != 1 || count_of(text, "</html>") != 1)
            abort();
        wd_free(text);
    }
    return 0;
}
