/* The student's whole pass over a micro-batch: forward, loss, backward; or forward alone.
 *
 * Data flow: latents, timesteps, text -> embedding -> blocks -> head -> mean squared error against
 * the target -> head, blocks and embedding backward, which add to the gradients of wd_params. Each
 * stage's gradients are reported as soon as they are final, head first, embedding last, so that
 * they may be sent while the rest is computed.
 *
 * Memory: one arena, sized by running the same code on a dry device. With checkpointing only each
 * block's input is kept, and the block is run again when its gradients are wanted. */
#ifndef WD_STUDENT_MODEL_H
#define WD_STUDENT_MODEL_H

#include "student/params.h"
#include "wan/dit.h"

typedef enum wd_student_mode {
    WD_STUDENT_TRAIN,            /* keeps all that backward needs */
    WD_STUDENT_TRAIN_CHECKPOINT, /* keeps the blocks' inputs */
    WD_STUDENT_SAMPLE            /* forward only */
} wd_student_mode;

typedef struct wd_student wd_student;

/* What a pass of this shape needs on the device, beside wd_params. */
typedef struct wd_student_plan {
    size_t arena_bytes;     /* activations */
    size_t rope_bytes;      /* tables */
    size_t workspace_bytes; /* the queue's scratch memory */
    double flops;           /* of one pass */
} wd_student_plan;

/* Runs the pass on a dry device for `target`. */
wd_status wd_student_plan_pass(wd_student_plan *out, const wd_dit_config *config,
                               const wd_dit_shape *shape, wd_dtype dtype, wd_student_mode mode,
                               wd_device *target, wd_err *err);

/* Passes of one shape over `params` (borrowed), on `queue` (borrowed): plans, allocates the arena,
 * reserves the queue's workspace. */
wd_status wd_student_open(wd_student **out, wd_params *params, const wd_dit_shape *shape,
                          wd_student_mode mode, wd_queue *queue, wd_err *err);
void wd_student_close(wd_student *student); /* NULL is allowed */

const wd_student_plan *wd_student_planned(const wd_student *student);

/* One micro-batch, all on the device. */
typedef struct wd_student_batch {
    const float *latents;  /* [B, C, F, H, W] */
    const float *timestep; /* [B] */
    const void *text;      /* [T, S, text_dim] compute dtype */
    const float *target;   /* [B, C, F, H, W] velocity */
    float factor;          /* 1 / (samples of the whole optimiser step, all ranks) */
} wd_student_batch;

/* The gradients of `stage` are final, once the work launched so far is done. */
typedef void wd_student_ready_fn(void *context, int stage);

/* loss [B] = mean squared error per sample, unscaled; the gradients of factor * sum over samples of
 * it are added to params' gradients. `ready` may be NULL: another micro-batch of this step
 * follows. */
void wd_student_forward_backward(float *loss, wd_student *student, const wd_student_batch *batch,
                                 wd_student_ready_fn *ready, void *ready_context);

/* velocity [B, C, F, H, W] F32 = student(latents, timestep, text), with the weights that params
 * show. In any mode. */
void wd_student_velocity(float *velocity, wd_student *student,
                         const float *latents,  /* [B, C, F, H, W] */
                         const float *timestep, /* [B] */
                         const void *text);     /* [T, S, text_dim] compute dtype */

#endif
