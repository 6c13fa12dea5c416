/* The folder of a run's checkpoints: names in it, and what a kill leaves there.
 *
 * A checkpoint is the folder step-<step>. While one of the same step takes its place, on a file
 * system that cannot exchange two names at once, the older one is called .old-step-<step>; after a
 * kill it is the only one, so it is read under that name, too. */
#ifndef WD_TRAIN_OUTPUT_CHECKPOINT_FOLDER_H
#define WD_TRAIN_OUTPUT_CHECKPOINT_FOLDER_H

#include "io/file/file.h"

/* The prefix of a checkpoint that is being written or removed. */
#define WD_CHECKPOINT_UNFINISHED ".tmp-"

/* The path in `folder` of the checkpoint of `step`; `prefix` goes in front of its name. */
wd_status wd_checkpoint_folder_path(char out[WD_PATH_MAX], const char *folder, const char *prefix,
                                    int64_t step, wd_err *err);

/* The step of the checkpoint that is called `name` ("step-00000020"); -1: no checkpoint has such a
 * name. */
int64_t wd__checkpoint_folder_step(const char *name);

/* Clears up what a kill left: removes checkpoints that were being written or removed, and gives a
 * checkpoint that had made room for another one its name back where the other one never came. For
 * the one process that writes. A folder that is not there is fine. */
wd_status wd__checkpoint_folder_tidy(const char *folder, wd_err *err);

#endif
