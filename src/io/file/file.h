/* Folder io/file. Files and folders: reading, mapping, writing whole or not at all, space on disk,
 * the Hub cache.
 *
 * Files: paths, folders, and writes that a reader never sees half done. */
#ifndef WD_IO_FILE_FILE_H
#define WD_IO_FILE_FILE_H

#include <dirent.h>
#include <stddef.h>

#include "core/error.h"

enum { WD_PATH_MAX = 4096 };

/* Writes "folder/name" into `out`; a path that is too long is an error. */
wd_status wd_path_join(char out[WD_PATH_MAX], const char *folder, const char *name, wd_err *err);

/* Writes into `out` the path of `name` in the folder of `path`. */
wd_status wd_path_beside(char out[WD_PATH_MAX], const char *path, const char *name, wd_err *err);

/* The last component of a path, after its last slash. */
const char *wd_path_name(const char *path);

bool wd_path_exists(const char *path);
bool wd_path_is_folder(const char *path);

/* Whether `path` is `folder` or is inside it, with symbolic links resolved. A path that does not
 * exist yet is inside if its nearest existing parent is. */
bool wd_path_is_inside(const char *path, const char *folder);

/* Creates the folder and its parents where missing. */
wd_status wd_folder_make(const char *path, wd_err *err);

/* Removes a folder and its content; a missing folder is no error. */
wd_status wd_folder_remove(const char *path, wd_err *err);

/* Copies one file. The target appears under its name only when it is complete. */
wd_status wd_file_copy(const char *to, const char *from, wd_err *err);

/* Reads a small file whole, and appends a '\0'; a file larger than `bytes_max` is an error. The
 * caller frees *out with wd_free. */
wd_status wd_file_read(char **out, size_t *bytes, const char *path, size_t bytes_max, wd_err *err);

/* Replaces `path` by way of a temporary file in the same folder, fsync, rename, and fsync of the
 * folder. */
wd_status wd_file_write(const char *path, const void *data, size_t bytes, wd_err *err);

/* Replaces a file in two steps, for writers that stream. *fd is a new empty file in the folder of
 * `path`, which the caller writes and closes; `temporary` gets its name. Do not open this name
 * again: in a folder that other users may write to it may be another file by then. commit flushes
 * the file and renames it to `path`, or removes it on failure; abandon removes it. */
wd_status wd_file_temporary(int *fd, char temporary[WD_PATH_MAX], const char *path, wd_err *err);

/* The same with a file that has no name yet, so that nothing is left of it if the process is
 * killed: `temporary` is "". false: the file system has no such files. Name it, as `temporary`,
 * before commit; without a name, closing it removes it. */
bool wd_file_unnamed(int *fd, char temporary[WD_PATH_MAX], const char *path);
wd_status wd_file_name(char temporary[WD_PATH_MAX], int fd, const char *path, wd_err *err);

wd_status wd_file_commit(const char *temporary, const char *path, wd_err *err);

/* *fd is a new empty file in the folder of `path`, to be written and read, which has no name:
 * closing it removes it, and nothing is left of it if the process is killed. */
wd_status wd_file_scratch(int *fd, const char *path, wd_err *err);

/* As commit, for files that several processes may make at the same time: if `path` is there by now,
 * it stays as it is, and *is_first is false. Where the file system has no hard links, a file that
 * comes between the check and the renaming is replaced. */
wd_status wd_file_commit_first(bool *is_first, const char *temporary, const char *path,
                               wd_err *err);

void wd_file_abandon(const char *temporary);

/* Removes temporary files in `folder` whose names start with `begin` and that nobody has written to
 * for a day: their writers were killed. */
void wd_file_remove_abandoned(const char *folder, const char *begin);

/* XXH3-128 of a file's content as 32 hex digits. */
wd_status wd_file_hash(char out[33], const char *path, wd_err *err);

/* ---- the names in a folder ---- */

typedef struct wd_folder_list {
    struct dirent **entry; /* [count], each with its d_name; scandir's memory */
    int count;
} wd_folder_list;

/* Lists the entries of `folder` for which `filter` returns 1, in the order of `compare` (arguments
 * as of scandir). A missing folder has no entries. */
wd_status wd_folder_list_open(wd_folder_list *out, const char *folder,
                              int (*filter)(const struct dirent *),
                              int (*compare)(const struct dirent **, const struct dirent **),
                              wd_err *err);
void wd_folder_list_close(wd_folder_list *list); /* a zeroed list is allowed */

/* ---- mapped files ----
 *
 * A record of the files that are mapped into memory, so that a failed access can be reported by
 * name.
 *
 * A page of a mapped file that cannot be read (the file was cut short meanwhile, or its disk fails)
 * raises SIGBUS in the thread that reads it. wd_mapped_file_at (wandistiller_status.h) says which
 * file it was. */

/* Records that [begin, begin + bytes) is the file `path`. The caller keeps the string `path` and
 * calls wd_mapped_forget before munmap. May be called from any thread. After 16,384 files no more
 * are recorded. */
void wd_mapped_note(const void *begin, size_t bytes, const char *path);
void wd_mapped_forget(const void *begin);

#endif
