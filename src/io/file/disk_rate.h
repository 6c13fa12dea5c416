/* How fast a file is read from its medium. */
#ifndef WD_IO_FILE_DISK_RATE_H
#define WD_IO_FILE_DISK_RATE_H

#include "core/error.h"

/* Bytes/s of reading the file `path` from its medium: pages of the file that are in the page cache
 * are dropped first, where the system allows it. A file that cannot be read is WD_IO. */
wd_status wd_rate_of_disk(double *bytes_per_s, const char *path, wd_err *err);

#endif
