/* Progress of a job, reported to the function of wd_progress_to (wandistiller_status.h) or to the
 * log. A job consists of parts that follow one another:
 *
 *   wd_progress_task task = wd_progress_begin("encoding prompts", "prompt", 0, count);
 *   for (...) {
 *       ...
 *       wd_progress_at(&task, i + 1);
 *   }
 */
#ifndef WD_CORE_PROGRESS_H
#define WD_CORE_PROGRESS_H

#include "wandistiller_status.h"

typedef struct wd_progress_task {
    wd_progress now;    /* the latest report */
    int64_t first;      /* `done` when the task began */
    double begun, said; /* clock seconds of its beginning, and of its last line in the log */
    double seconds_max; /* the task ends after this time at the latest; 0: no limit */
    int sharers;        /* lines show host memory, shared pages divided by this; 0: no memory */
} wd_progress_task;

/* Reports that a task begins. `what` and `unit` (singular) are borrowed until the task ends. `done`
 * is more than 0 if earlier work counts; total 0: not known. */
wd_progress_task wd_progress_begin(const char *what, const char *unit, int64_t done, int64_t total);

/* Reports that `done` units are done. Of several ranks only rank 0 reports. A zeroed task, as in a
 * dry run, reports nothing. */
void wd_progress_at(wd_progress_task *task, int64_t done);

/* "training: step  120/2000  loss 0.0312  8.4 steps/s  ETA 3:44  memory 412 MB" into `out`;
 * memory_bytes 0: without the memory. Returns `out`. */
const char *wd__progress_text(char *out, size_t out_bytes, const wd_progress *progress,
                              size_t memory_bytes);

/* Shows a picture that has been written to `path` to the function that asked for pictures. */
void wd_picture_show(const char *path, const uint8_t *rgb, int64_t height, int64_t width);

#endif
