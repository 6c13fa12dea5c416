/* Reads ranges of large files repeatedly without filling the page cache. */
#ifndef WD_IO_FILE_FILE_READER_H
#define WD_IO_FILE_FILE_READER_H

#include "core/error.h"

typedef struct wd_file_reader wd_file_reader;

/* Reading is no faster than this, of each reader, to measure what a slower disk would cost; 0, the
 * default: as fast as it is. Set it while no reader is open. */
extern double wd_file_reader_bytes_per_s;

/* Files are opened at their first read and stay open. One thread at a time uses a reader. */
wd_status wd_file_reader_open(wd_file_reader **out, wd_err *err);
void wd_file_reader_close(wd_file_reader *reader); /* NULL is allowed */

/* Reads bytes [offset, offset + bytes) of the file `path` to `to`; if the file ends before, it is
 * an error that names file and range. The kernel is told to drop the pages. */
wd_status wd_file_reader_read(wd_file_reader *reader, void *to, const char *path, uint64_t offset,
                              size_t bytes, wd_err *err);

/* ---- past the page cache ---- */

enum { WD_READ_PAGE = 4096 }; /* what disks and file systems read in pieces of, or a multiple */

/* The room that `bytes` bytes at any offset need to be read as whole pages. */
size_t wd_file_reader_room(size_t bytes);

/* Where the byte at `offset` of a file lies in a room that begins with its page. */
void *wd_file_reader_place(void *room, uint64_t offset);

/* As wd_file_reader_read, to wd_file_reader_place(room, offset), of whole pages: what else these
 * have of the file comes into the room, too. The disk writes there by itself (O_DIRECT), so that no
 * byte is copied by the processor; where the file system does not do that, or `room` does not begin
 * at a multiple of WD_READ_PAGE, it is an ordinary read. */
wd_status wd_file_reader_read_pages(wd_file_reader *reader, void *room, const char *path,
                                    uint64_t offset, size_t bytes, wd_err *err);

#endif
