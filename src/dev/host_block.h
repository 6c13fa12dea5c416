/* Blocks of host memory that pools are made of. Private to src/dev. */
#ifndef WD_DEV_HOST_BLOCK_H
#define WD_DEV_HOST_BLOCK_H

#include "core/error.h"

/* Blocks are few and large (arenas): each is a mapping of its own, zeroed, in huge pages as far as
 * it spans some, or rows that lie a stride apart would miss the TLB as often as the cache.
 * `bytes` > 0. */
wd_status wd_host_block_map(void **out, size_t bytes, wd_err *err);
void wd_host_block_unmap(void *block, size_t bytes);

#endif
