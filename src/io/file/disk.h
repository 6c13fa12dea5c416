/* Disks: the file system on which a path lies or would lie, the space that is free there, and how
 * fast a file is read. */
#ifndef WD_IO_FILE_DISK_H
#define WD_IO_FILE_DISK_H

#include <sys/types.h>

#include "core/error.h"
#include "io/file/file.h"

typedef struct wd_disk_space {
    dev_t device;           /* st_dev of its files */
    uint64_t bytes_free;    /* for users who are not root; UINT64_MAX: nobody knows, or the file
                             * system has no limit */
    char path[WD_PATH_MAX]; /* the nearest folder above the path, or itself, that is there */
} wd_disk_space;

/* Looks at the nearest existing parent of `path`, which need not exist. Creates nothing. Of
 * what this user may not look at nothing is known, and the device is 0. */
wd_status wd_disk_space_of(wd_disk_space *out, const char *path, wd_err *err);

/* Bytes/s of reading the file `path` from its medium: pages of the file that are in the page cache
 * are dropped first, where the system allows it. A file that cannot be read is WD_IO. */
wd_status wd_rate_of_disk(double *bytes_per_s, const char *path, wd_err *err);

#endif
