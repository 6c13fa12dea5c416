/* The output folder of a run: which folders may be one, and that one run at a time has it.
 *
 * A folder may be one if nothing is in it under the names that a run writes, or if it is a run's
 * already: its run.json says so, or its transformer is a student, or it has a checkpoint. What else
 * lies in it stays as it is. While a run lives it holds a lock on <folder>/.lock; the system takes
 * that back however the run ends. */
#ifndef WD_STUDENT_OUTPUT_H
#define WD_STUDENT_OUTPUT_H

#include "io/file.h"
#include "wan/pipeline.h"

typedef struct wd_output {
    char path[WD_PATH_MAX];
    bool locked;
    int lock; /* the descriptor of .lock, where it is locked */
} wd_output;

/* Refuses a folder that is not for a run to write into: the teacher's, one inside it, one with
 * other things under the names that a run writes, or one that another run has. A folder that is not
 * there yet is fine, and is not made. Ends a move of an earlier run that was interrupted. */
wd_status wd_output_open(wd_output *out, const char *path, const wd_pipeline *teacher,
                         wd_err *err);
void wd_output_close(wd_output *output); /* a zeroed one is fine */

/* Makes the folder and locks it; then moves aside what a run made in it at step `first_step` and
 * later (earlier.h), 0: all. */
wd_status wd_output_begin(wd_output *output, int64_t first_step, wd_err *err);

#endif
