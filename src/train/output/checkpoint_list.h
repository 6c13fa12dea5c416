/* The checkpoints of a run: which there are in its folder (train/output/checkpoint_folder.h), which
 * one is the newest, which stay. */
#ifndef WD_TRAIN_OUTPUT_CHECKPOINT_LIST_H
#define WD_TRAIN_OUTPUT_CHECKPOINT_LIST_H

#include "train/output/checkpoint.h"

/* *out = whether there is a checkpoint in `folder`; no hash is checked. WD_IO: that cannot be told,
 * since one cannot be read. */
wd_status wd__checkpoint_list_has_one(bool *out, const char *folder, wd_err *err);

/* *out = how many checkpoints of steps before `end` are in `folder`, by their names. */
wd_status wd_checkpoint_list_count(int *out, const char *folder, int64_t end, wd_err *err);

/* Opens the newest checkpoint in `folder` that is whole; the log warns of damaged ones that were
 * passed over. WD_NOT_FOUND: there is none at all. WD_BAD_FORMAT: all of them are damaged; the
 * message has their names. WD_IO: one cannot be read at this time, which does not mean that it is
 * damaged; none is passed over for that. */
wd_status wd_checkpoint_open_latest(wd_checkpoint *out, const char *folder, wd_err *err);

/* Removes whole checkpoints, but for the newest `keep` >= 1 of them. A damaged one does not count,
 * and stays for the user to look at. Checkpoints of step `first_verified_step` and later are whole,
 * as the caller knows, who wrote or opened them; hashes are read of the others only. For the one
 * process that writes. */
wd_status wd_checkpoint_prune(const char *folder, int keep, int64_t first_verified_step,
                              wd_err *err);

/* Removes the oldest whole checkpoint, unless it is the only one; *step = its step, -1: none was
 * removed. Otherwise like wd_checkpoint_prune. */
wd_status wd_checkpoint_remove_oldest(int64_t *step, const char *folder,
                                      int64_t first_verified_step, wd_err *err);

#endif
