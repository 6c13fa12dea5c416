/* Folders for files that are removed with the process that uses them. The process keeps a file in
 * the folder locked. If it is killed, the folder stays, without a lock, and the next process of the
 * same user and host that wants such a folder removes it. */
#ifndef WD_CORE_TEMPORARY_FOLDER_H
#define WD_CORE_TEMPORARY_FOLDER_H

#include <stddef.h>

/* Makes a new folder `place`/`prefix`XXXXXX, mode 0700, and writes its path to `path`. Returns a
 * descriptor, which holds the lock until it is closed here and in all programs that this process
 * starts, which inherit it; -1: no folder can be made, with errno. */
int wd_temporary_folder_make(char *path, size_t path_bytes, const char *place, const char *prefix);

/* Removes the folder and what is in it, as far as it can be removed. */
void wd_temporary_folder_remove(const char *path);

/* Removes all folders in `place` that this function's counterpart has made for this user on this
 * host, and that no process has locked. Folders that are only named like them stay. */
void wd_temporary_folder_remove_abandoned(const char *place, const char *prefix);

#endif
