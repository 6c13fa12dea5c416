/* Residency: brings a teacher's weights, stage by stage, to where they are used.
 *
 * A sweep is announced, then acquires one stage after another, uses it, and releases it. Where
 * weights live between uses, and when they move, is known here only: streamed ones come as soon as
 * there is room for them, in the order of their use. */
#ifndef WD_TEACHER_RESIDENCY_H
#define WD_TEACHER_RESIDENCY_H

#include "core/progress.h"
#include "dist/comm.h"
#include "teacher/placement.h"
#include "wan/dit_table.h"
#include "wan/pipeline.h"

typedef struct wd_residency wd_residency;

/* The experts of which a sweep has states, bit e for expert e: of any rank, and of this rank. */
typedef struct wd_sweep_experts {
    unsigned all, own;
} wd_sweep_experts;

/* The functions of one kind of residency; `self` is its wd_residency. */
typedef struct wd_residency_vtable {
    /* As wd_residency_begin. NULL: all stages are there anyway. */
    void (*begin)(wd_residency *self, wd_sweep_experts sweep, wd_sweep_experts next);
    /* Work that is launched on `queue` from now on finds the stage's weights at *out; widened ones,
     * until another stage is acquired. On a dry queue only the addresses count. */
    wd_status (*acquire)(wd_residency *self, wd_dit_stage *out, int expert, int stage,
                         wd_queue *queue, wd_err *err);
    /* Work launched on `queue` so far was the last to use them. */
    void (*release)(wd_residency *self, int expert, int stage, wd_queue *queue);
    void (*close)(wd_residency *self);
} wd_residency_vtable;

struct wd_residency {
    const wd_residency_vtable *vtable;
    int experts;         /* 1 or 2; expert 0 is the high-noise one */
    int stages;          /* of each */
    int64_t acquires;    /* calls so far */
    size_t mapped_bytes; /* of weights that are used where checkpoint files are mapped */
    size_t host_bytes;   /* of host memory for weights; of memory that the ranks of a host share, an
                          * equal part for each of them */
};

/* Announces a sweep, which then acquires all stages of this rank's experts, expert by expert, each
 * stage once. `next`: the sweep after it, so that its first stages come early; of no experts where
 * nobody knows. Where ranks share a reader, all of them announce all sweeps in the same order, also
 * those in which they have no part. */
void wd_residency_begin(wd_residency *residency, wd_sweep_experts sweep, wd_sweep_experts next);

wd_status wd_residency_acquire(wd_residency *residency, wd_dit_stage *out, int expert, int stage,
                               wd_queue *queue, wd_err *err);
void wd_residency_release(wd_residency *residency, int expert, int stage, wd_queue *queue);
void wd_residency_close(wd_residency *residency); /* NULL is allowed */

/* ---- what all kinds share ---- */

/* The number of experts of a pipeline's teacher: 2 with a boundary and a second transformer,
 * else 1. */
int wd_teacher_experts(const wd_pipeline *pipeline);

/* The dtype that a teacher stored in `storage` computes in: F16 is a storage type, widened to F32
 * stage by stage; F32 and BF16 compute as they are. */
wd_dtype wd_teacher_compute_dtype(wd_dtype storage);

/* The stages that a residency has: those of one home on one device. NULL: all. */
typedef struct wd_residency_part {
    const wd_placement *placement; /* borrowed during the call */
    wd_home home;
    int device;
    wd_comm *sharers; /* the ranks that all open this part: those of a host share its host memory.
                       * Borrowed; NULL: there are no others */
} wd_residency_part;

bool wd_residency_part_has(const wd_residency_part *part, int expert, int stage);

/* Begins to report the progress of loading a part's stages. */
wd_progress_part wd_residency_loading(const wd_residency *residency, const wd_residency_part *part);

#endif
