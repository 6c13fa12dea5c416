/* Checks whether a file or folder can be written, before the work begins whose result will be
 * written there. */
#ifndef WD_IO_FILE_WRITABLE_H
#define WD_IO_FILE_WRITABLE_H

#include <stdbool.h>

#include "core/error.h"

/* Whether `path` ends with `ending` (".png"), in letters of either case, behind something else. */
bool wd_path_has_ending(const char *path, const char *ending);

/* Refuses a path with one of the `endings`, of which the last is NULL: they belong to other formats
 * than what is written there, and programs go by them. `expected`: "a .svg file". */
wd_status wd_path_refuse_endings(const char *path, const char *option, const char *const *endings,
                                 const char *expected, wd_err *err);

/* Checks that the file `path` can be created or replaced, by doing so with a small file beside it,
 * which is removed again: it is written, flushed, renamed and mapped. Errors name `option`:
 * "--trace". */
wd_status wd_file_check_writable(const char *path, const char *option, wd_err *err);

/* WD_INVALID_ARGUMENT: `path` is there, and is no file that begins with `begin`, as each `what`
 * ("page") of this program does. A link is none. */
wd_status wd_file_check_replaced(const char *path, const char *begin, const char *what,
                                 wd_err *err);

/* Checks that files can be created in the folder `path`. If the folder does not exist yet, its
 * nearest existing parent is checked, and a name such as "x.safetensors" or "x.png" is refused,
 * which somebody gave who expects a file. */
wd_status wd_folder_check_writable(const char *path, const char *option, wd_err *err);

#endif
