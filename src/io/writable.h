/* Whether something can be written later: asked before work begins whose result goes there. */
#ifndef WD_IO_WRITABLE_H
#define WD_IO_WRITABLE_H

#include "core/error.h"

/* Checks that a file `path` can be made or replaced, by making an empty one beside it, which is
 * removed again. `option` is named in the error: "--trace". */
wd_status wd_file_check_writable(const char *path, const char *option, wd_err *err);

/* The same of files in the folder `path`, which need not exist: then the nearest folder above it
 * that does is where it will be made. */
wd_status wd_folder_check_writable(const char *path, const char *option, wd_err *err);

#endif
