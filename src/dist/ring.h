/* Buffers that come round: one rank of a host fills them, all its ranks use what is in each, in
 * the same order.
 *
 * Data flow: the first rank of a host: wd_ring_begin_fill(n) waits until all have done with
 * n - buffers, wd_ring_filled(n) hands it out. Every rank: wd_ring_await(n), wd_ring_done(n), for
 * n = 0, 1, 2 ... No lock is ever held: a rank that dies leaves nothing locked, and who waits for
 * it does so until the job is ended, or until itself leaves. */
#ifndef WD_DIST_RING_H
#define WD_DIST_RING_H

#include "dist/comm.h"

typedef struct wd_ring wd_ring;

/* Of memory that a host's ranks have together. */
size_t wd_ring_memory(int host_ranks, int buffers, size_t buffer_bytes);

/* All ranks of the job call it, as wd_shared_open; *out is NULL on a host of one rank. */
wd_status wd_ring_open(wd_ring **out, wd_comm *comm, int buffers, size_t buffer_bytes,
                       const char *what, wd_err *err);

/* All of its memory, *bytes, as this rank has it: for a device that is to copy from there. */
void *wd_ring_whole(const wd_ring *ring, size_t *bytes);

/* ---- the first rank of a host ---- */

/* Where buffer n is; NULL: this rank has left. */
void *wd_ring_begin_fill(wd_ring *ring, int64_t n);
void wd_ring_filled(wd_ring *ring, int64_t n);

/* Nothing more will be filled, for this reason. */
void wd_ring_fail(wd_ring *ring, const wd_err *why);

/* ---- every rank ---- */

/* *out is what buffer n was filled with. An error: that of wd_ring_fail; or
 * WD_INTERRUPTED, if who fills has left, or this rank has. */
wd_status wd_ring_await(const void **out, wd_ring *ring, int64_t n, wd_err *err);

/* This rank needs nothing any more of buffers up to n, whether they were filled or not. */
void wd_ring_done(wd_ring *ring, int64_t n);

/* This rank waits for nothing any more, and nobody for it. Any thread may call it, more than once;
 * calls that wait return. */
void wd_ring_leave(wd_ring *ring);

/* For this rank, which has left. NULL is allowed. */
void wd_ring_close(wd_ring *ring);

#endif
