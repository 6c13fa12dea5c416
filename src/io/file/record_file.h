/* Files that grow record by record. The file contains whole records only: when a write fails
 * half-way, as on a full disk, the file is cut back to the end of the previous record. */
#ifndef WD_IO_FILE_RECORD_FILE_H
#define WD_IO_FILE_RECORD_FILE_H

#include "io/file/file.h"

typedef struct wd_record_file {
    int fd;
    bool torn;     /* the file has part of a record after `bytes`, which could not be cut off yet */
    int64_t bytes; /* of whole records */
    char path[WD_PATH_MAX];
} wd_record_file;

/* Opens `path` to append to its content; creates it if it is missing. A symbolic link and
 * what is no file are refused with WD_IO. The descriptor may be read, too: its position is the
 * file's begin. *out needs no close after a failure. */
wd_status wd_record_file_open(wd_record_file *out, const char *path, wd_err *err);

/* Cuts the file back to its first `bytes` bytes, which end with a whole record. */
wd_status wd_record_file_cut(wd_record_file *file, int64_t bytes, wd_err *err);
void wd_record_file_close(wd_record_file *file);

/* Writes one record. After a failure the caller may try the next record: the disk may have free
 * space again. */
wd_status wd_record_file_write(wd_record_file *file, const void *record, size_t bytes, wd_err *err);

#endif
