/* Reads ranges of large files again and again without filling the page cache with them. */
#ifndef WD_IO_FILE_READER_H
#define WD_IO_FILE_READER_H

#include "core/error.h"

typedef struct wd_file_reader wd_file_reader;

/* Files are opened at their first read and stay open. One thread at a time uses a reader. */
wd_status wd_file_reader_open(wd_file_reader **out, wd_err *err);
void wd_file_reader_close(wd_file_reader *reader); /* NULL is allowed */

/* Bytes [offset, offset + bytes) of the file `path`; fewer is an error that names file and range.
 * The kernel is told that it need not keep them. */
wd_status wd_file_reader_read(wd_file_reader *reader, void *to, const char *path, uint64_t offset,
                              size_t bytes, wd_err *err);

#endif
