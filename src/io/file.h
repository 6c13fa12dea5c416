/* Files: paths, folders, and writing so that a reader never sees half a file. */
#ifndef WD_IO_FILE_H
#define WD_IO_FILE_H

#include "core/error.h"

enum { WD_PATH_MAX = 4096 };

/* "folder/name" into `out`; a path that is too long is an error. */
wd_status wd_path_join(char out[WD_PATH_MAX], const char *folder, const char *name, wd_err *err);

/* The path of `name` in the folder that `path` is in. */
wd_status wd_path_beside(char out[WD_PATH_MAX], const char *path, const char *name, wd_err *err);

/* The last name of a path: what is behind its last slash. */
const char *wd_path_name(const char *path);

bool wd_path_exists(const char *path);
bool wd_path_is_folder(const char *path);

/* Whether `path` is `folder` or lies in it, by whatever names. What is not there yet lies where the
 * nearest folder above it does. */
bool wd_path_is_inside(const char *path, const char *folder);

/* Creates the folder and its parents where missing. */
wd_status wd_folder_make(const char *path, wd_err *err);

/* Removes a folder and all in it; a folder that is not there is fine. */
wd_status wd_folder_remove(const char *path, wd_err *err);

/* Copies one file's bytes; the target appears whole or not at all. */
wd_status wd_file_copy(const char *to, const char *from, wd_err *err);

/* The whole of a small file, with a '\0' behind it; larger than `bytes_max` is an error. *out is
 * the caller's to wd_free. */
wd_status wd_file_read(char **out, size_t *bytes, const char *path, size_t bytes_max, wd_err *err);

/* Replaces `path`: temporary file beside it, fsync, rename, fsync of the folder. */
wd_status wd_file_write(const char *path, const void *data, size_t bytes, wd_err *err);

/* The same in two steps, for writers that stream. *fd is a new empty file beside `path`, to write
 * to and to close, and `temporary` gets its name, which is not to be opened again: in a folder that
 * others may write to it may be another file by then. commit flushes it and renames it to `path`,
 * or removes it on failure; abandon removes it. */
wd_status wd_file_temporary(int *fd, char temporary[WD_PATH_MAX], const char *path, wd_err *err);
wd_status wd_file_commit(const char *temporary, const char *path, wd_err *err);
void wd_file_abandon(const char *temporary);

/* Removes temporary files in `folder`, of paths that begin so, which have not been written to for a
 * day: their writers were killed. */
void wd_file_remove_abandoned(const char *folder, const char *begin);

/* XXH3-128 of a file's content as 32 hex digits. */
wd_status wd_file_hash(char out[33], const char *path, wd_err *err);

#endif
