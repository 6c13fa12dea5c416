/* Residency: brings a teacher's weights, stage by stage, to where they are used.
 *
 * The sweep acquires a stage, uses it, releases it, and says early what comes next. Where weights
 * live between uses, and what moves when, is known here only: strategies are residencies. */
#ifndef WD_TEACHER_RESIDENCY_H
#define WD_TEACHER_RESIDENCY_H

#include "dev/device.h"
#include "wan/dit_table.h"

typedef struct wd_residency wd_residency;

/* Experts that a sweep has states of, bit e for expert e: whatever rank's, and this rank's. */
typedef struct wd_sweep_experts {
    unsigned all, own;
} wd_sweep_experts;

/* The functions of one kind of residency; `self` is its wd_residency. */
typedef struct wd_residency_vtable {
    /* NULL: it does not matter. */
    void (*begin)(wd_residency *self, wd_sweep_experts sweep, unsigned next);
    /* May start to bring the stage, where nothing has to go for it; returns at once. */
    void (*prefetch)(wd_residency *self, int expert, int stage);
    /* Work that is launched on `queue` from now on sees the stage's weights at *out; if they are
     * widened, until another stage is acquired. On a dry queue only the addresses count. */
    wd_status (*acquire)(wd_residency *self, wd_dit_stage *out, int expert, int stage,
                         wd_queue *queue, wd_err *err);
    /* Work launched on `queue` so far was the last to use them. */
    void (*release)(wd_residency *self, int expert, int stage, wd_queue *queue);
    void (*close)(wd_residency *self);
} wd_residency_vtable;

struct wd_residency {
    const wd_residency_vtable *vtable;
    const char *name;    /* "cpu" */
    int experts;         /* 1 or 2; expert 0 is the high-noise one */
    int stages;          /* of each */
    int64_t acquires;    /* calls so far */
    size_t mapped_bytes; /* of checkpoint files, read in place */
    size_t host_bytes;   /* of host memory that it has allocated for weights; of what the ranks of
                          * a host share, this rank's part: what it has, divided by their number */
};

/* Where ranks share a reader, each says what comes before every sweep that any of them has a part
 * in, in the same order; `next`: experts that one of them has states of in the sweep after it, 0:
 * nobody knows. It then acquires the stages of its own experts, in their order, and all of them. */
void wd_residency_begin(wd_residency *residency, wd_sweep_experts sweep, unsigned next);

void wd_residency_prefetch(wd_residency *residency, int expert, int stage);
wd_status wd_residency_acquire(wd_residency *residency, wd_dit_stage *out, int expert, int stage,
                               wd_queue *queue, wd_err *err);
void wd_residency_release(wd_residency *residency, int expert, int stage, wd_queue *queue);
void wd_residency_close(wd_residency *residency); /* NULL is allowed */

#endif
