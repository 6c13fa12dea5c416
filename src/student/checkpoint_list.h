/* The checkpoints of a run: which there are in its folder, which one is the newest, which stay.
 *
 * A checkpoint is the folder step-<step>. While one of the same step takes its place, on a file
 * system that cannot exchange two names at once, the older one is called .old-step-<step>; after a
 * kill it is the only one, so it is read under that name, too. */
#ifndef WD_STUDENT_CHECKPOINT_LIST_H
#define WD_STUDENT_CHECKPOINT_LIST_H

#include "student/checkpoint.h"

/* The prefix of a checkpoint that is being written or removed. */
#define WD_CHECKPOINT_UNFINISHED ".tmp-"

/* The path in `folder` of the checkpoint of `step`; `prefix` goes in front of its name. */
wd_status wd_checkpoint_list_path(char out[WD_PATH_MAX], const char *folder, const char *prefix,
                                  int64_t step, wd_err *err);

/* The step of the checkpoint that is called `name` ("step-00000020"); -1: no checkpoint has such a
 * name. */
int64_t wd_checkpoint_list_step(const char *name);

/* Clears up what a kill left: removes checkpoints that were being written or removed, and gives a
 * checkpoint that had made room for another one its name back where the other one never came. For
 * the one process that writes. A folder that is not there is fine. */
wd_status wd_checkpoint_list_tidy(const char *folder, wd_err *err);

/* *out = whether there is a checkpoint in `folder`; no hash is checked. WD_IO: that cannot be told,
 * since one cannot be read. */
wd_status wd_checkpoint_list_has_one(bool *out, const char *folder, wd_err *err);

/* Opens the newest checkpoint in `folder` that is whole; the log warns of damaged ones that were
 * passed over. WD_NOT_FOUND: there is none at all. WD_BAD_FORMAT: all of them are damaged; the
 * message has their names. WD_IO: one cannot be read at this time, which does not mean that it is
 * damaged; none is passed over for that. */
wd_status wd_checkpoint_open_latest(wd_checkpoint *out, const char *folder, wd_err *err);

/* Removes whole checkpoints, but for the newest `keep` >= 1 of them. A damaged one does not count,
 * and stays for the user to look at. Checkpoints of step `whole_from` and later are whole, as the
 * caller knows, who wrote or opened them; hashes are read of the others only. For the one process
 * that writes. */
wd_status wd_checkpoint_prune(const char *folder, int keep, int64_t whole_from, wd_err *err);

#endif
