/* Host memory from inside: what copies of queues may use, and blocks for pools on the host. Private
 * to src/dev. */
#ifndef WD_DEV_PINNED_H
#define WD_DEV_PINNED_H

#include "dev/device.h"

/* Ends the process unless [address, address + bytes) is in a pool of the queue's kind of device, or
 * is host memory that was allocated for or registered with this kind. */
void wd__pinned_require(const wd_queue *queue, const void *address, size_t bytes);

/* Removes the device's host memory from the list if it was not freed or unregistered: memory to
 * which other devices may still write is not freed when a job ends early. */
void wd__pinned_close(const wd_device *device);

/* Maps a zeroed block. Blocks are few and large (arenas). They use huge pages as far as possible,
 * since rows that are a stride apart would otherwise miss the TLB as often as the cache. `bytes` >
 * 0. */
wd_status wd_host_block_map(void **out, size_t bytes, wd_err *err);
void wd_host_block_unmap(void *block, size_t bytes);

#endif
