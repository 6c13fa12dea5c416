/* Declarations that both ways of exchanging gradients share. Private to src/job/comm.
 *
 * reduce.c: rounds, and which ranks add what; reduce_host.c: by way of host memory and the
 * communicator; reduce_direct.c: from device to device, by peers.
 *
 * A tier is a group of ranks, and the pieces of the bucket that each of them is to have of the
 * group's. Flat, there is one: all ranks, and each has its own piece. By hosts the first are the
 * ranks of a host: the l-th has the l-th piece of every host's, which are not neighbours in the
 * bucket, so each host's pieces are an operation; the second are the l-th ranks of all hosts. */
#ifndef WD_JOB_COMM_REDUCE_IMPL_H
#define WD_JOB_COMM_REDUCE_IMPL_H

#include "job/comm/reduce.h"

enum { WD_REDUCE_TIERS = 2, WD_REDUCE_STAGES = 2 * WD_REDUCE_TIERS };

/* Piece i of operation o is [at[o * op_step + first + i * step], ...) of a bucket's `at`, which are
 * [ranks + 1] offsets in bytes. */
typedef struct wd_reduce_tier {
    wd_group group;
    int ops, op_step, first, step, member;
} wd_reduce_tier;

static inline wd_comm_parts wd__reduce_parts(const size_t *at, const wd_reduce_tier *tier, int op)
{
    return (wd_comm_parts){at + op * tier->op_step + tier->first, tier->step};
}

/* A way of exchanging. */
typedef struct wd_reduce_kind {
    /* A bucket of the round is final: later work of `own` finds it in `data`. */
    void (*post)(wd_reduce *reduce, int64_t bucket);
    /* All buckets of the last round are posted: later work of `own` finds the sums. */
    void (*finish)(wd_reduce *reduce);
    /* wd_reduce_gather on `own`. */
    void (*gather)(wd_reduce *reduce, void *data, size_t element_bytes);
    /* Frees it, but for what reduce.c has in it. */
    void (*close)(wd_reduce *reduce);
} wd_reduce_kind;

/* The first member of the struct of each kind. */
struct wd_reduce {
    const wd_reduce_kind *kind;
    wd_reduce_options options;
    wd_device *device; /* borrowed */
    wd_queue *own;     /* owned: copies, or exchanges and sums */
    wd_event *ready, *done;
    wd_queue *queue; /* borrowed: of the round */
    char *data;
    unsigned round;
    int64_t next; /* the bucket that is posted next, from the last to the first; -1: all are */
    wd_reduce_tier flat, by_host[WD_REDUCE_TIERS];
    const wd_reduce_tier *tier[WD_REDUCE_STAGES]; /* of each stage: those that add, then those that
                                                   * gather */
    int adds, stages;
};

/* Where pieces of a bucket begin: at [ranks + 1] bytes from the bucket's begin. */
void wd__reduce_lay_out(size_t *at, const wd_pieces *pieces, int64_t bucket, size_t element_bytes);

/* Bytes of so many elements of the data. */
static inline size_t wd__reduce_bytes(const wd_reduce *reduce, int64_t elements)
{
    return wd_dtype_size(reduce->options.type, elements);
}

/* This rank's piece of a bucket. */
wd_range wd__reduce_own(const wd_reduce *reduce, int64_t bucket);

static inline bool wd__reduce_gathers(const wd_reduce *reduce, unsigned round)
{
    return round & WD_ROUND_LAST && !reduce->options.scatter;
}

/* ---- the kinds: allocate their own struct, with all that is not in the common part ---- */

wd_status wd__reduce_open_host(wd_reduce **out, const wd_reduce_options *options, wd_device *device,
                               wd_err *err);
wd_status wd__reduce_open_direct(wd_reduce **out, const wd_reduce_options *options,
                                 wd_device *device, wd_err *err);

/* Buckets that may be in one of so many stages, by way of host memory. */
int wd__reduce_most_in(int stages);

#endif
