/* Moves what an earlier run left in an output folder into a folder of its own.
 *
 * The parts of a run lie side by side in its output folder: the student, checkpoints, sheets of
 * samples, metrics, run.json, and the student's evaluation where `eval` wrote it beside them or
 * into the folder `eval` there. When another run begins there they go together to
 * <folder>/earlier-<n>, which is then an output folder like any other: a run can go on in it. When
 * a run goes back to one of its checkpoints, what it made after that goes there.
 *
 * They are collected in <folder>/.tmp-earlier-from-<first step> and take their name last, so a move
 * that was interrupted is known, and is ended by wd__earlier_finish. */
#ifndef WD_TRAIN_OUTPUT_EARLIER_H
#define WD_TRAIN_OUTPUT_EARLIER_H

#include "core/error.h"

/* The name of a part of a run that is in `folder` ("transformer"); NULL: there is none. An empty
 * folder is no part, nor is an evaluation, which no run writes. */
const char *wd__earlier_part(const char *folder);

/* Whether wd__earlier_move can move what it would: only within a file system are files moved
 * without being copied. WD_UNSUPPORTED names what lies on another one, or is one. */
wd_status wd__earlier_check(const char *folder, int64_t first_step, wd_err *err);

/* Moves what the run in `folder` made at step `first_step` and later; 0: all of it. Where metrics
 * and run.json also tell of what stays, a copy of them goes. Without anything to keep (no
 * checkpoint, metrics, picture or student; from a later step on: no checkpoint) nothing is moved.
 * Says in the log what went where. Call wd__earlier_finish before. */
wd_status wd__earlier_move(const char *folder, int64_t first_step, wd_err *err);

/* Ends a move that was interrupted, if there is one. */
wd_status wd__earlier_finish(const char *folder, wd_err *err);

#endif
