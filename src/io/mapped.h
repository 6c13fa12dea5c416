/* The files that are mapped into memory, so that an access that fails can be told by name.
 *
 * A page of a mapped file that cannot be read (the file was cut short meanwhile, or its disk fails)
 * raises SIGBUS in whoever touches it. wd_mapped_file_at (wandistiller.h) says which file it was.
 */
#ifndef WD_IO_MAPPED_H
#define WD_IO_MAPPED_H

#include <stddef.h>

/* Notes that [begin, begin + bytes) is the file `path`, which the caller keeps until it calls
 * wd_mapped_forget, before munmap. Any thread. Beyond some hundreds of files no more are noted. */
void wd_mapped_note(const void *begin, size_t bytes, const char *path);
void wd_mapped_forget(const void *begin);

#endif
