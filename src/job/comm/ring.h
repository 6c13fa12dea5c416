/* A ring of buffers in memory shared by the ranks of a host: one rank fills them, all ranks read
 * them in the same order.
 *
 * Data flow: the first rank of a host calls wd_ring_begin_fill(n), which waits until all ranks have
 * called wd_ring_done(n - buffers), fills the buffer, and calls wd_ring_filled(n). Every rank calls
 * wd_ring_await(n), reads, and calls wd_ring_done(n), for n = 0, 1, 2 ... There are no locks, so a
 * rank that dies leaves nothing locked. A rank that waits for it waits until the job is ended, or
 * until it calls wd_ring_leave itself. */
#ifndef WD_JOB_COMM_RING_H
#define WD_JOB_COMM_RING_H

#include "job/comm/comm.h"

typedef struct wd_ring wd_ring;

/* The bytes of shared memory that such a ring takes on a host. */
size_t wd_ring_memory(int host_ranks, int buffers, size_t buffer_bytes);

/* All ranks of the job call it, like wd_shared_open; *out is NULL on a host of one rank. `what`
 * names the memory in errors. */
wd_status wd_ring_open(wd_ring **out, wd_comm *comm, int buffers, size_t buffer_bytes,
                       const char *what, wd_err *err);

/* The whole memory of the ring, *bytes long, at this rank's address: a device that copies from
 * there registers it. */
void *wd_ring_whole(const wd_ring *ring, size_t *bytes);

/* ---- the first rank of a host ---- */

/* Waits until buffer n may be filled, and returns it; NULL: this rank has left. */
void *wd_ring_begin_fill(wd_ring *ring, int64_t n);

/* Hands buffer n out to all ranks. */
void wd_ring_filled(wd_ring *ring, int64_t n);

/* No further buffers will be filled: all ranks that wait get this error. */
void wd_ring_fail(wd_ring *ring, const wd_err *why);

/* ---- every rank ---- */

/* Waits until buffer n is filled, and points *out at it. Errors: that of wd_ring_fail;
 * WD_INTERRUPTED if the first rank or this one has left. */
wd_status wd_ring_await(const void **out, wd_ring *ring, int64_t n, wd_err *err);

/* This rank no longer needs buffers up to n, whether they were filled or not. */
void wd_ring_done(wd_ring *ring, int64_t n);

/* From now on this rank waits for no buffer, and no rank waits for it. Any thread may call it, more
 * than once; its calls that wait return. */
void wd_ring_leave(wd_ring *ring);

/* Frees the ring of this rank, which has left. NULL is allowed. */
void wd_ring_close(wd_ring *ring);

#endif
