/* Memory for tests that is inaccessible unless it is opened, so that a test on it proves who
 * dereferences it. */
#ifndef WD_DEV_GUARDED_MEMORY_H
#define WD_DEV_GUARDED_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/* Maps a block, which is closed. It ends at the end of a page, to `alignment` (a power of two, at
 * most a page), and the page after it is never accessible: an access beyond the block faults, too.
 * NULL: the system has no such memory. */
void *wd_guarded_map(size_t bytes, size_t alignment);
void wd_guarded_unmap(void *block, size_t bytes);

/* Makes the pages of a block accessible, or inaccessible. */
void wd_guarded_set_open(void *block, size_t bytes, bool open);

#endif
