/* Files that grow record by record. A record is in the file as a whole or not at all, also where a
 * write fails half-way, as on a full disk: the file is then cut back to the record before. */
#ifndef WD_IO_APPEND_H
#define WD_IO_APPEND_H

#include "io/file.h"

typedef struct wd_append {
    int fd;
    bool torn;     /* part of a record is behind `bytes`, and could not be cut off yet */
    int64_t bytes; /* of whole records */
    char path[WD_PATH_MAX];
} wd_append;

/* Opens `path` to append to what is there; creates it if it is missing. *out needs no close after a
 * failure. */
wd_status wd_append_open(wd_append *out, const char *path, wd_err *err);
void wd_append_close(wd_append *append);

/* Writes one record. After a failure the next record may be written: the disk may have room
 * again. */
wd_status wd_append_write(wd_append *append, const void *record, size_t bytes, wd_err *err);

#endif
