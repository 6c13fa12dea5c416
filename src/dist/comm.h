/* The communicator: the ranks of a job, and what they tell one another.
 *
 * Data flow: a caller posts an operation on a lane and goes on; it waits for the ticket when it
 * needs what comes, or wants to use again what goes. Operations of one lane begin in the order in
 * which they were posted, which must be the same on all ranks; lanes do not wait for one another.
 * All memory named here is host memory: what is on a device is staged by whoever posts, and `after`
 * says when its copy is there.
 *
 * There is no error to handle: a rank that fails ends the whole job (dist/watch.h), so what is
 * posted either comes or nobody is left to wait for it. Kinds of communicator are files beside this
 * one: threads.c (a run without ranks is one of it), mpi.c. */
#ifndef WD_DIST_COMM_H
#define WD_DIST_COMM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dev/device.h"

typedef enum wd_lane {
    WD_LANE_CONTROL,     /* few bytes, once a step */
    WD_LANE_GRADIENTS,   /* and weights, of a student that is kept in shares */
    WD_LANE_TARGETS,     /* velocities, from who computed them to all */
    WD_LANE_ACTIVATIONS, /* from a teacher's stage to the next */
    WD_LANES
} wd_lane;

/* What a rank may wait for: what comes on a lane, or what a rank of its host reads for all. */
enum { WD_WAIT_READER = WD_LANES, WD_WAITS };

enum { WD_LANE_DEPTH = 256 }; /* operations of a lane that are under way: who posts more waits */

typedef enum wd_comm_kind {
    WD_COMM_EXCHANGE,
    WD_COMM_GATHER_ALL,
    WD_COMM_SEND,
    WD_COMM_RECEIVE
} wd_comm_kind;

/* The ranks that an operation is among: first, first + step, and so on. */
typedef struct wd_group {
    int first, step, count;
} wd_group;

static inline int wd_group_rank(const wd_group *group, int member)
{
    return group->first + member * group->step;
}

/* What is whose in an operation's memory: member i of its group has the bytes
 * [at[i * step], at[i * step + 1]). Ascending. */
typedef struct wd_parts {
    const size_t *at;
    int step;
} wd_parts;

static inline size_t wd_part_begin(const wd_parts *parts, int member)
{
    return parts->at[member * parts->step];
}

static inline size_t wd_part_bytes(const wd_parts *parts, int member)
{
    return parts->at[member * parts->step + 1] - parts->at[member * parts->step];
}

typedef struct wd_ticket {
    wd_lane lane;
    int64_t number;
} wd_ticket;

/* An operation, as a kind of communicator gets it. Everything is borrowed until the ticket is
 * done. */
typedef struct wd_comm_op {
    wd_comm_kind kind;
    wd_lane lane;
    void *to;
    const void *from;
    wd_group group;      /* of exchange, gather_all: this rank is its member `member` */
    int member;
    wd_parts to_parts, from_parts;
    size_t bytes;
    int peer;        /* of send, receive */
    wd_event *after; /* NULL: may begin at once */
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
    int host, hosts;             /* machines that ranks are on */
    int host_rank, host_ranks;   /* among those on this one */
    bool in_blocks;              /* as many ranks on each, and they follow one another */
    int64_t sent[WD_LANES];      /* bytes that were posted for other ranks */
    _Atomic int64_t collectives; /* posted on all lanes: who has fewer than others is behind them */
    _Atomic int64_t brought;     /* of what is read for all ranks of its host; 0: nothing is */
    _Atomic double waits_since[WD_WAITS]; /* clock, of who waits for other ranks; 0: nobody */
};

/* ---- operations ----
 *
 * `at` arrays are [ranks + 1] ascending offsets in bytes: part r is [at[r], at[r + 1]). `after`
 * (NULL: at once) must not be recorded again until the ticket is done. */

/* Part r of `from` goes to rank r; what rank r sends here becomes part r of `to`. */
wd_ticket wd_comm_exchange(wd_comm *comm, wd_lane lane, void *to, const size_t *to_at,
                           const void *from, const size_t *from_at, wd_event *after);

/* Every rank has part `rank` of `data` and gets the others. `at` is the same on all. */
wd_ticket wd_comm_gather_all(wd_comm *comm, wd_lane lane, void *data, const size_t *at,
                             wd_event *after);

/* The same among a group that this rank is in: member i is who was rank i above. Every rank of the
 * job posts as many such operations as the others, each among its own group. */
wd_ticket wd_comm_exchange_within(wd_comm *comm, wd_lane lane, wd_group group, void *to,
                                  wd_parts to_parts, const void *from, wd_parts from_parts,
                                  wd_event *after);
wd_ticket wd_comm_gather_within(wd_comm *comm, wd_lane lane, wd_group group, void *data,
                                wd_parts parts, wd_event *after);

/* From one rank to another: the n-th sent is the n-th received of the two on that lane. */
wd_ticket wd_comm_send(wd_comm *comm, wd_lane lane, const void *from, size_t bytes, int to,
                       wd_event *after);
wd_ticket wd_comm_receive(wd_comm *comm, wd_lane lane, void *to, size_t bytes, int from);

void wd_comm_wait(wd_comm *comm, wd_ticket ticket);

/* Counts so many operations that ranks do together, and the bytes of this one for the others, which
 * go another way than by the communicator. */
void wd_comm_count(wd_comm *comm, wd_lane lane, int operations, int64_t bytes);

/* What each rank has to say, to all: `all` is [ranks, bytes], of which the own record is filled in.
 * On WD_LANE_CONTROL; returns once all have said it. */
void wd_comm_tell(wd_comm *comm, void *all, size_t bytes);

/* Returns once all ranks have called it. */
void wd_comm_barrier(wd_comm *comm);

/* ---- kinds ---- */

/* A job of one rank. */
wd_status wd_comm_open_single(wd_comm **out, wd_err *err);

/* `ranks` that are threads of this process: out[ranks], one for each; every one is closed. */
wd_status wd_comm_open_threads(wd_comm **out, int ranks, wd_err *err);

/* WD_UNSUPPORTED in a build without MPI. */
wd_status wd_comm_need_mpi(wd_err *err);

/* The ranks that MPI has started; waits for them without end, for which the start-up deadline
 * ends the process (dist/deadline.h). WD_UNSUPPORTED in a build without MPI. */
wd_status wd_comm_open_mpi(wd_comm **out, wd_err *err);

/* For dry runs, a rank as `like` describes it (rank ... host_ranks; no vtable is needed): nothing
 * comes and nothing goes. What others gather on WD_LANE_CONTROL is what this rank says; what else
 * they send is never written. */
wd_status wd_comm_open_dry(wd_comm **out, const wd_comm *like, wd_err *err);

/* All that was posted is done, on all ranks. NULL is allowed. */
void wd_comm_close(wd_comm *comm);

#endif
