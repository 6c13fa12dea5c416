/* Checks whether a file or folder can be written, before the work begins whose result will be
 * written there. */
#ifndef WD_IO_WRITABLE_H
#define WD_IO_WRITABLE_H

#include "core/error.h"

/* Checks that the file `path` can be created or replaced, by doing so with a small file beside it,
 * which is removed again: it is written, flushed, renamed and mapped. Errors name `option`:
 * "--trace". */
wd_status wd_file_check_writable(const char *path, const char *option, wd_err *err);

/* Checks that files can be created in the folder `path`. If the folder does not exist yet, its
 * nearest existing parent is checked. */
wd_status wd_folder_check_writable(const char *path, const char *option, wd_err *err);

#endif
