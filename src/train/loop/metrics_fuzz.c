/* Fuzz target: any bytes as the metrics.jsonl of a run that is resumed. What is left of it are
 * whole lines of steps up to that one. */
#include "fuzzing.h"

#include "core/memory.h"
#include "train/loop/metrics.h"

enum { STEP = 40 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    wd_err err;
    wd_metrics *metrics;
    char *text;
    size_t left;
    wd_folder_remove(wd_fuzz_path("run"), NULL); /* each run adds a file of events */
    wd_fuzz_file("run/metrics.jsonl", data, bytes);
    if (wd__metrics_open(&metrics, wd_fuzz_path("run"), STEP, &err) != WD_OK) return 0;
    wd__metrics_close(metrics);
    if (wd_file_read(&text, &left, wd_fuzz_path("run/metrics.jsonl"), bytes, &err) != WD_OK)
        abort(); /* it never grows */
    if (left && (text[left - 1] != '\n' || memcmp(text, data, left))) abort();
    wd_free(text);
    return 0;
}
