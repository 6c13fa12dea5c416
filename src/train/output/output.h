/* The output folder of a run: which folders may be one, and that one run at a time has it.
 *
 * A folder may be one if nothing is in it under the names that a run writes, or if it is a run's
 * already: its run.json says so, or its transformer is a student, or it has a checkpoint. What else
 * lies in it stays as it is. While a run lives it holds a lock on <folder>/.lock; the system takes
 * that back however the run ends. */
#ifndef WD_TRAIN_OUTPUT_OUTPUT_H
#define WD_TRAIN_OUTPUT_OUTPUT_H

#include "io/file/file.h"
#include "model/files/pipeline.h"

typedef struct wd_output {
    char path[WD_PATH_MAX]; /* where the folder is, as far as is known */
    bool locked;
    int lock;   /* where it is locked: the descriptor of .lock, */
    int folder; /* and of the folder itself */
} wd_output;

/* Refuses a folder that is not for a run to write into: the teacher's, one inside it, one with
 * other things under the names that a run writes, or one that another run has. A folder that is not
 * there yet is fine, and is not made. Ends a move of an earlier run that was interrupted. */
wd_status wd_output_open(wd_output *out, const char *path, const wd_pipeline *teacher, wd_err *err);
void wd_output_close(wd_output *output); /* a zeroed one is fine */

/* Makes the folder and locks it. What an earlier run made in it stays where it is, but must be such
 * that wd_output_begin can move it. */
wd_status wd_output_lock(wd_output *output, int64_t first_step, wd_err *err);

/* For a run that has something to write: moves aside what a run made in the locked folder at step
 * `first_step` and later (earlier.h), 0: all. */
wd_status wd_output_begin(wd_output *output, int64_t first_step, wd_err *err);

/* Whether a run has `folder` now. False where its file system has no locks. */
bool wd_output_is_running(const char *folder);

/* Looks where the locked folder is now: output->path is its new place after it was moved. If it, or
 * .lock in it, is gone, it is made and locked anew at its last place: WD_INVALID_ARGUMENT if
 * another run has that. Call it before writing. */
wd_status wd_output_follow(wd_output *output, wd_err *err);

#endif
