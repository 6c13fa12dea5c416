/* Puts a finished folder in its place. */
#ifndef WD_STUDENT_SWAP_H
#define WD_STUDENT_SWAP_H

#include "core/error.h"

/* Renames folder `fresh` to `path`, both on one file system. A folder that was at `path` changes
 * places with it in one step where the file system can (Linux renameat2), and is removed. Returns
 * when both parents are on disk. */
wd_status wd_folder_swap_in(const char *path, const char *fresh, wd_err *err);

/* Waits until the folder's own entries (names, not contents of files) are on disk. */
wd_status wd_folder_sync(const char *path, wd_err *err);

#endif
