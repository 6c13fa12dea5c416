/* Progress of a job, told to the function that asked for it, or to the log: see wd_progress_to in
 * wandistiller.h. A job has parts that follow one another:
 *
 *   wd_progress_part part = wd_progress_begin("encoding prompts", "prompt", 0, count);
 *   for (...) {
 *       ...
 *       wd_progress_at(&part, i + 1);
 *   }
 */
#ifndef WD_CORE_PROGRESS_H
#define WD_CORE_PROGRESS_H

#include "wandistiller.h"

typedef struct wd_progress_part {
    wd_progress now;    /* what is told */
    int64_t first;      /* `done` when the part began */
    double begun, said; /* clock: its beginning, and its last line in the log */
    double seconds_max; /* it ends after so many seconds, whatever is done by then; 0: no limit */
    int sharers; /* lines name the memory of the host that is each of so many processes'; 0: none */
} wd_progress_part;

/* Tells that a part begins. `what` and `unit` (singular) are borrowed as long as it lasts. `done`
 * is more than 0 where earlier work counts; total 0: not known. */
wd_progress_part wd_progress_begin(const char *what, const char *unit, int64_t done, int64_t total);

/* Tells that `done` are done. Of several ranks only the first tells anything. A zeroed part tells
 * nothing: it is that of a dry run. */
void wd_progress_at(wd_progress_part *part, int64_t done);

/* "training: step  120/2000  loss 0.0312  8.4 steps/s  ETA 3:44  memory 412 MB" into `out`; memory
 * 0: not named. Returns `out`. */
const char *wd_progress_text(char *out, size_t out_bytes, const wd_progress *progress,
                             size_t memory_bytes);

/* Shows a picture that has been written to `path` to the function that asked for pictures. */
void wd_picture_show(const char *path, const uint8_t *rgb, int64_t height, int64_t width);

#endif
