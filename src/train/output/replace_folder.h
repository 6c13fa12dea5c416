/* Puts a finished folder in its place. */
#ifndef WD_TRAIN_OUTPUT_REPLACE_FOLDER_H
#define WD_TRAIN_OUTPUT_REPLACE_FOLDER_H

#include "core/error.h"

/* The prefix of a folder that makes room for another one of its name. */
#define WD_FOLDER_ASIDE ".old-"

/* Renames folder `fresh` to `path`, both on one file system. A folder that was at `path` changes
 * places with it in one step where the system can (Linux renameat2), and is removed. Where it
 * cannot, the older folder is called .old-<name> for a moment: after a kill in that moment
 * wd__folder_restore gives it its name back. Returns when both parents are on disk. */
wd_status wd__folder_replace(const char *path, const char *fresh, wd_err *err);

/* After a kill: if the folder that made room for `path` is still there, it is called `path` again,
 * or is removed where the new one has come. */
wd_status wd__folder_restore(const char *path, wd_err *err);

/* Waits until the folder's own entries (names, not contents of files) are on disk. */
wd_status wd__folder_sync(const char *path, wd_err *err);

#endif
