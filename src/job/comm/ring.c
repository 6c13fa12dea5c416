/* See job/comm/ring.h.
 *
 * The shared memory has a counter for each rank, which only that rank writes. A rank that has
 * changed its counter wakes the others by a futex, because a mutex or condition that several
 * processes share stays locked if one of them is killed. */
#include "job/comm/ring.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/checked.h"
#include "core/memory.h"
#include "job/comm/shared.h"

enum { ALIGN = 4096 };

/* The start of the shared memory. */
typedef struct head {
    _Atomic uint32_t changes;
    _Atomic bool ended; /* no further buffers will be filled; `why` is set */
    wd_err why;
    _Atomic int64_t filled; /* buffers filled so far */
    _Atomic int64_t done[]; /* [host_ranks]: buffers that each rank has used */
} head;

struct wd_ring {
    wd_shared *shared;
    head *head;
    int rank, ranks; /* of this host */
    int buffers;
    size_t head_bytes, buffer_bytes;
    _Atomic bool has_left;  /* this rank called wd_ring_leave */
    _Atomic bool has_ended; /* this rank has set head->why */
};

void *wd_ring_whole(const wd_ring *ring, size_t *bytes)
{
    *bytes = ring->head_bytes + (size_t)ring->buffers * ring->buffer_bytes;
    return ring->head;
}

/* ---- waiting ---- */

/* Wakes all ranks that wait. */
static void wake_all(wd_ring *ring)
{
    atomic_fetch_add(&ring->head->changes, 1);
    syscall(SYS_futex, &ring->head->changes, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Waits until a counter changes. Returns at once if one has changed since `seen`; may also return
 * without a change. */
static void wait_for_change(wd_ring *ring, uint32_t seen)
{
    syscall(SYS_futex, &ring->head->changes, FUTEX_WAIT, seen, NULL, NULL, 0);
}

/* Whether no rank needs the earlier contents of buffer n any more. */
static bool is_free(const wd_ring *ring, int64_t n)
{
    for (int r = 0; r < ring->ranks; r++)
        if (atomic_load(&ring->head->done[r]) + ring->buffers <= n) return false;
    return true;
}

static void *buffer(const wd_ring *ring, int64_t n)
{
    return (char *)ring->head + ring->head_bytes + (size_t)(n % ring->buffers) * ring->buffer_bytes;
}

/* ---- the first rank ---- */

void *wd_ring_begin_fill(wd_ring *ring, int64_t n)
{
    for (;;) {
        const uint32_t seen = atomic_load(&ring->head->changes);
        if (atomic_load(&ring->has_left)) return NULL;
        if (is_free(ring, n)) return buffer(ring, n);
        wait_for_change(ring, seen);
    }
}

void wd_ring_filled(wd_ring *ring, int64_t n)
{
    atomic_store(&ring->head->filled, n + 1);
    wake_all(ring);
}

void wd_ring_fail(wd_ring *ring, const wd_err *why)
{
    if (atomic_exchange(&ring->has_ended, true)) return; /* the first reason counts */
    ring->head->why = *why;
    atomic_store(&ring->head->ended, true);
    wake_all(ring);
}

/* ---- every rank ---- */

wd_status wd_ring_await(const void **out, wd_ring *ring, int64_t n, wd_err *err)
{
    for (;;) {
        const uint32_t seen = atomic_load(&ring->head->changes);
        if (atomic_load(&ring->has_left))
            return wd_fail(err, WD_INTERRUPTED, "this rank has ended");
        if (atomic_load(&ring->head->filled) > n) {
            *out = buffer(ring, n);
            return WD_OK;
        }
        if (atomic_load(&ring->head->ended)) {
            if (err) *err = ring->head->why;
            return ring->head->why.status;
        }
        wait_for_change(ring, seen);
    }
}

void wd_ring_done(wd_ring *ring, int64_t n)
{
    _Atomic int64_t *done = &ring->head->done[ring->rank];
    int64_t before = atomic_load(done);
    while (before <= n && !atomic_compare_exchange_weak(done, &before, n + 1)) continue;
    wake_all(ring);
}

void wd_ring_leave(wd_ring *ring)
{
    wd_err why;
    atomic_store(&ring->has_left, true);
    atomic_store(&ring->head->done[ring->rank], INT64_MAX / 2);
    wd_fail(&why, WD_INTERRUPTED, "the first rank of the host has ended, which reads for all");
    if (!ring->rank) wd_ring_fail(ring, &why);
    wake_all(ring);
}

/* ---- open and close ---- */

static size_t head_bytes(int host_ranks)
{
    return wd_round_up(sizeof(head) + (size_t)host_ranks * sizeof(int64_t), ALIGN);
}

size_t wd_ring_memory(int host_ranks, int buffers, size_t buffer_bytes)
{
    return head_bytes(host_ranks) + (size_t)buffers * wd_round_up(buffer_bytes, ALIGN);
}

wd_status wd_ring_open(wd_ring **out, wd_comm *comm, int buffers, size_t buffer_bytes,
                       const char *what, wd_err *err)
{
    wd_ring *r;
    wd_shared *shared;
    *out = NULL;
    WD_TRY(wd_shared_open(&shared, comm, wd_ring_memory(comm->host_ranks, buffers, buffer_bytes),
                          what, err));
    if (!shared) return WD_OK;
    const wd_status status = wd_alloc((void **)&r, 1, sizeof *r, "a ring", err);
    if (status != WD_OK) {
        wd_shared_close(shared);
        return status;
    }
    r->shared = shared;
    r->head = wd_shared_data(shared);
    r->rank = comm->host_rank;
    r->ranks = comm->host_ranks;
    r->buffers = buffers;
    r->head_bytes = head_bytes(comm->host_ranks);
    r->buffer_bytes = wd_round_up(buffer_bytes, ALIGN);
    *out = r;
    return WD_OK;
}

void wd_ring_close(wd_ring *ring)
{
    if (!ring) return;
    wd_shared_close(ring->shared);
    wd_free(ring);
}
