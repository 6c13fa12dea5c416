/* A record of the files that are mapped into memory, so that a failed access can be reported by
 * name.
 *
 * A page of a mapped file that cannot be read (the file was cut short meanwhile, or its disk fails)
 * raises SIGBUS in the thread that reads it. wd_mapped_file_at (wandistiller_status.h) says which
 * file it was. */
#ifndef WD_IO_FILE_MAPPED_H
#define WD_IO_FILE_MAPPED_H

#include <stddef.h>

/* Records that [begin, begin + bytes) is the file `path`. The caller keeps the string `path` and
 * calls wd_mapped_forget before munmap. May be called from any thread. After 16,384 files
 * no more are recorded. */
void wd_mapped_note(const void *begin, size_t bytes, const char *path);
void wd_mapped_forget(const void *begin);

#endif
