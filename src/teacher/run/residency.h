/* Residency: brings a teacher's weights, stage by stage, to where they are used.
 *
 * A sweep is announced, then acquires one stage after another, uses it, and releases it. Where
 * weights live between uses, and when they move, is known here only: streamed ones come as soon as
 * there is room for them, in the order of their use. A residency is made of parts
 * (teacher/run/residency_part.h), one for each device of this rank and home of weights that has
 * stages.
 */
#ifndef WD_TEACHER_RUN_RESIDENCY_H
#define WD_TEACHER_RUN_RESIDENCY_H

#include "job/comm/comm.h"
#include "model/files/pipeline.h"
#include "model/tables/dit_table.h"
#include "teacher/run/stage_order.h"

typedef struct wd_residency wd_residency;

typedef struct wd_residency_info {
    wd_placement placement;
    size_t mapped_bytes; /* of weights that are used where checkpoint files are mapped */
    size_t host_bytes;   /* of host memory for weights; of memory that the ranks of a host share, an
                          * equal part for each of them */
} wd_residency_info;

/* Which weights a residency has, and what they take; valid while it is open. */
const wd_residency_info *wd_residency_info_of(const wd_residency *residency);

/* Every stage of this rank is where the placement says: it stays on a device, in dtype `storage`
 * (fp32 islands stay fp32), or it is streamed, from host memory (laid out there as on the device)
 * or from the files (read for every sweep by a thread that reads ahead, without filling the page
 * cache). A tensor that a processor can use in the mapped file, as it is, is used there. Others are
 * copied stage by stage, so that at no time more than one stage exists twice. On a dry device no
 * page of the files is read: this plans it.
 *
 * `pipeline` is borrowed during the call. `queues`: a queue of each of the rank's devices,
 * borrowed; those that the placement does not use may be NULL. `processor`: a queue of the
 * processor, used during the call; NULL where no stage is in host memory. `comm`: the ranks of the
 * job, borrowed, which must all call it; NULL: there is one rank. WD_INTERRUPTED, on all ranks: a
 * stop was requested of one of them meanwhile (wd_request_stop); at most some tens of megabytes are
 * brought after that. */
wd_status wd_residency_open_placed(wd_residency **out, const wd_pipeline *pipeline,
                                   const wd_placement *placement, wd_dtype storage,
                                   wd_queue *const *queues, wd_queue *processor, wd_comm *comm,
                                   wd_err *err);

/* All stages stay where `queue`'s device computes. `only`: this component is the only expert; NULL:
 * the teacher's experts. */
wd_status wd_residency_open_resident(wd_residency **out, const wd_pipeline *pipeline,
                                     const wd_component *only, wd_dtype storage, wd_queue *queue,
                                     wd_err *err);

/* Announces a sweep, which then acquires all stages of this rank's experts, expert by expert, each
 * stage once. `next`: the sweep after it, so that its first stages come early; of no experts where
 * nobody knows. If another sweep was expected, this waits until the first stages of that one have
 * come, and takes their buffers back. Where ranks share a reader, all of them announce all sweeps
 * in the same order, also those in which they have no part. */
void wd__residency_begin(wd_residency *residency, wd_sweep_experts sweep, wd_sweep_experts next);

/* Work that is launched on `queue` from now on finds the stage's weights at *out; widened ones,
 * until another stage is acquired. On a dry queue only the addresses count. */
wd_status wd_residency_acquire(wd_residency *residency, wd_dit_stage *out, int expert, int stage,
                               wd_queue *queue, wd_err *err);

/* Work launched on `queue` so far was the last to use them. */
void wd_residency_release(wd_residency *residency, int expert, int stage, wd_queue *queue);
void wd_residency_close(wd_residency *residency); /* NULL is allowed */

/* The number of experts of a pipeline's teacher: 2 with a boundary and a second transformer,
 * else 1. */
int wd_teacher_experts(const wd_pipeline *pipeline);

/* The dtype that a teacher stored in `storage` computes in: F16 is a storage type, widened to F32
 * stage by stage; F32 and BF16 compute as they are. */
wd_dtype wd_teacher_compute_dtype(wd_dtype storage);

#endif
