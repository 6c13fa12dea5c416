/* Folder job/comm. Exchange between the ranks of a job: operations, sums of gradients, memory
 * shared by a host.
 *
 * The communicator: operations by which the ranks of a job exchange data.
 *
 * A lane is a queue of operations. A caller posts an operation on a lane and goes on; it waits for
 * the operation's ticket before it reads the received bytes or overwrites the sent ones. Operations
 * of one lane begin in the order in which they were posted, which must be the same on all ranks;
 * lanes do not wait for one another. All memory named here is host memory: the caller copies data
 * of a device there first, and `after` is the event of that copy.
 *
 * Operations return no error: a rank that fails ends the whole job (job/watch/watch.h), so that an
 * operation either completes or nobody is left to wait for it. Offsets, sizes and ranks that do not
 * fit together end the process, in release builds too (core/error.h). Each kind of communicator
 * is a file beside this one: threads.c (also for a run without ranks), mpi.c, dry.c. */
#ifndef WD_JOB_COMM_COMM_H
#define WD_JOB_COMM_COMM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dev/peers.h"

typedef enum wd_lane {
    WD_LANE_CONTROL,     /* a few bytes once a step */
    WD_LANE_GRADIENTS,   /* gradients, and weights with --shard_optimizer */
    WD_LANE_TARGETS,     /* velocities, from the rank that computed them to all */
    WD_LANE_ACTIVATIONS, /* activations, from one stage of the teacher to the next */
    WD_LANES
} wd_lane;

/* What a rank may wait for: an operation of a lane (the lane's number), or the rank of its host
 * that reads the teacher's weights for all ranks there (WD_WAIT_READER). */
enum { WD_WAIT_READER = WD_LANES, WD_WAITS };

enum { WD_LANE_DEPTH = 256 }; /* unfinished operations per lane; a further post waits */

typedef enum wd_comm_kind {
    WD_COMM_EXCHANGE,
    WD_COMM_GATHER_ALL,
    WD_COMM_SEND,
    WD_COMM_RECEIVE
} wd_comm_kind;

/* The ranks that take part in an operation: first, first + step, ... (`count` of them). */
typedef struct wd_group {
    int first, step, count;
} wd_group;

static inline int wd__group_rank(const wd_group *group, int member)
{
    return group->first + member * group->step;
}

/* The parts of an operation's memory: the part of member i of its group is the bytes
 * [at[i * step], at[i * step + 1]). The offsets ascend. */
typedef struct wd_comm_parts {
    const size_t *at;
    int step;
} wd_comm_parts;

static inline size_t wd__comm_part_begin(const wd_comm_parts *parts, int member)
{
    return parts->at[member * parts->step];
}

static inline size_t wd__comm_part_bytes(const wd_comm_parts *parts, int member)
{
    return parts->at[member * parts->step + 1] - parts->at[member * parts->step];
}

typedef struct wd_ticket {
    wd_lane lane;
    int64_t number;
} wd_ticket;

/* An operation, as a kind of communicator gets it. It borrows all memory until it is complete. */
typedef struct wd_comm_op {
    wd_comm_kind kind;
    wd_lane lane;
    void *to;
    const void *from;
    wd_group group; /* of exchange and gather_all */
    int member;     /* this rank's number in the group */
    wd_comm_parts to_parts, from_parts;
    size_t bytes;
    int peer;        /* the other rank of send and receive */
    wd_event *after; /* the operation begins after this event; NULL: at once */
} wd_comm_op;

typedef struct wd_comm wd_comm;

typedef struct wd_comm_vtable {
    wd_ticket (*post)(wd_comm *self, const wd_comm_op *op);
    void (*wait)(wd_comm *self, wd_ticket ticket);
    void (*close)(wd_comm *self);
} wd_comm_vtable;

struct wd_comm {
    const wd_comm_vtable *vtable;
    const char *name; /* "mpi" */
    int rank, ranks;
    int host, hosts;             /* the number of this rank's machine, and of machines */
    int host_rank, host_ranks;   /* this rank's number on its machine, and the ranks there */
    bool in_blocks;              /* each machine has as many ranks, with successive numbers */
    int64_t sent[WD_LANES];      /* bytes posted for other ranks */
    _Atomic int64_t collectives; /* operations posted on all lanes but send and receive */
    _Atomic int64_t brought;     /* stages that its host's reader has brought; 0: no reader */
    wd_peers *peers;             /* this rank's, which exchange gradients directly from device
                                  * to device; NULL: they do not (job/launch/rank_peers.h) */
    /* wd_clock_s() at which this rank began to wait for a lane or the reader; 0: it does not */
    _Atomic double waits_since[WD_WAITS];
};

/* ---- operations ----
 *
 * `at` arrays are [ranks + 1] ascending offsets in bytes: part r is [at[r], at[r + 1]). An
 * operation begins after the event `after` (NULL: at once), which must not be recorded again until
 * the operation is complete. */

/* Sends part r of `from` to each rank r, and receives rank r's part for this rank as part r of
 * `to`. All ranks post it. */
wd_ticket wd__comm_exchange(wd_comm *comm, wd_lane lane, void *to, const size_t *to_at,
                            const void *from, const size_t *from_at, wd_event *after);

/* Every rank sends part `rank` of its `data` to all and receives the other parts. All ranks post
 * it, with the same `at`. */
wd_ticket wd_comm_gather_all(wd_comm *comm, wd_lane lane, void *data, const size_t *at,
                             wd_event *after);

/* wd__comm_exchange and wd_comm_gather_all among the members of a group, which this rank is in:
 * part i is that of member i. Every rank of the job posts as many such operations as the others,
 * each in its own group. */
wd_ticket wd__comm_exchange_within(wd_comm *comm, wd_lane lane, wd_group group, void *to,
                                   wd_comm_parts to_parts, const void *from,
                                   wd_comm_parts from_parts, wd_event *after);
wd_ticket wd__comm_gather_within(wd_comm *comm, wd_lane lane, wd_group group, void *data,
                                 wd_comm_parts parts, wd_event *after);

/* Send `bytes` from one rank to another. The n-th receive from a rank on a lane takes the n-th send
 * of that rank, which must have the same size. */
wd_ticket wd_comm_send(wd_comm *comm, wd_lane lane, const void *from, size_t bytes, int to,
                       wd_event *after);
wd_ticket wd_comm_receive(wd_comm *comm, wd_lane lane, void *to, size_t bytes, int from);

/* Returns once the operation is complete: its memory can be read and reused. */
void wd_comm_wait(wd_comm *comm, wd_ticket ticket);

/* Counts so many operations that ranks do together, and the bytes of this one for the others, which
 * go another way than by the communicator. */
void wd__comm_count(wd_comm *comm, wd_lane lane, int operations, int64_t bytes);

/* Gives every rank the records of all: `all` is [ranks, bytes], of which the caller has filled in
 * its own record. All ranks call it. Uses WD_LANE_CONTROL; returns once all records are there. */
void wd_comm_allgather_small(wd_comm *comm, void *all, size_t bytes);

/* Waits until all ranks have called it. */
void wd_comm_barrier(wd_comm *comm);

/* ---- kinds ---- */

/* The communicator of a job of one rank. */
wd_status wd_comm_open_single(wd_comm **out, wd_err *err);

/* Communicators out[ranks] for ranks that are threads of this process. The caller closes each. */
wd_status wd_comm_open_threads(wd_comm **out, int ranks, wd_err *err);

/* WD_UNSUPPORTED in a build without MPI. */
wd_status wd_comm_need_mpi(wd_err *err);

/* The communicator of the ranks that MPI has started. It waits for all of them without end, for
 * which the start-up deadline ends the process (job/watch/deadline.h). WD_UNSUPPORTED in a build
 * without MPI. */
wd_status wd_comm_open_mpi(wd_comm **out, wd_err *err);

/* The communicator of a dry run, whose rank `like` describes (the fields `rank` to `host_ranks`; no
 * vtable is needed). It transfers nothing. A gather_all on WD_LANE_CONTROL gives all ranks the part
 * of this rank; received memory of all other operations is left as it is. */
wd_status wd_comm_open_dry(wd_comm **out, const wd_comm *like, wd_err *err);

/* Waits until all ranks have completed their operations, and frees it. NULL is allowed. */
void wd_comm_close(wd_comm *comm);

/* For tests: the largest message that mpi.c sends as single bytes, INT_MAX bytes by default; a
 * larger one is composed of units of this size. It must be the same on all ranks. */
extern size_t wd_comm_mpi_count_max;

#endif
