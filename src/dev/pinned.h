/* Blocks of host memory for pools. Private to src/dev. */
#ifndef WD_DEV_PINNED_H
#define WD_DEV_PINNED_H

#include "core/error.h"

/* Maps a zeroed block. Blocks are few and large (arenas). They use huge pages as far as possible,
 * since rows that are a stride apart would otherwise miss the TLB as often as the cache. `bytes` >
 * 0. */
wd_status wd_host_block_map(void **out, size_t bytes, wd_err *err);
void wd_host_block_unmap(void *block, size_t bytes);

#endif
