/* A network's pass over a micro-batch: forward, and backward from the gradients of its outputs.
 *
 * Data flow: latents, timesteps, text -> embedding -> blocks -> head -> outputs -> (a loss, see
 * train/network/loss.h, writes the outputs' gradients) -> head, blocks and embedding backward,
 * which add to the gradients of wd_params. Each stage's gradients are reported as soon as they are
 * final, head first, embedding last, so that they may be sent while the rest is computed.
 *
 * Memory: one arena, sized by running the same code on a dry device. With checkpointing only each
 * block's input is kept, and the block is run again when its gradients are wanted. */
#ifndef WD_TRAIN_NETWORK_PASS_H
#define WD_TRAIN_NETWORK_PASS_H

#include "model/dit/dit.h"
#include "train/network/params.h"

typedef enum wd_pass_mode {
    WD_PASS_TRAIN,            /* keeps all that backward needs */
    WD_PASS_TRAIN_CHECKPOINT, /* keeps the blocks' inputs */
    WD_PASS_FORWARD /* forward only, also of fewer samples, by multiples of wd_dit_samples_step */
} wd_pass_mode;

typedef struct wd_pass wd_pass;

/* The device memory of a pass of this shape, without wd_params, and its FLOPs. */
typedef struct wd_pass_plan {
    size_t arena_bytes;     /* activations */
    size_t rope_bytes;      /* tables */
    size_t workspace_bytes; /* the queue's scratch memory */
    double flops;           /* of one pass */
} wd_pass_plan;

/* Runs the pass on a dry device for `target`. */
wd_status wd__pass_plan_for(wd_pass_plan *out, const wd_dit_config *config,
                            const wd_dit_shape *shape, wd_dtype dtype, wd_pass_mode mode,
                            wd_device *target, wd_err *err);

/* Passes of one shape over `params` (borrowed), on `queue` (borrowed): plans, allocates the arena,
 * reserves the queue's workspace. */
wd_status wd_pass_open(wd_pass **out, wd_params *params, const wd_dit_shape *shape,
                       wd_pass_mode mode, wd_queue *queue, wd_err *err);
void wd_pass_close(wd_pass *pass); /* NULL is allowed */

const wd_pass_plan *wd_pass_planned(const wd_pass *pass);

/* The inputs of a network for one micro-batch, all on the device. */
typedef struct wd_pass_inputs {
    const float *latents;  /* [B, C, F, H, W] */
    const float *timestep; /* [B] */
    const void *text;      /* [T, S, text_dim] compute dtype */
} wd_pass_inputs;

/* The outputs of a forward pass, in device memory of the pass. */
typedef struct wd_pass_outputs {
    const void *velocity; /* [samples, width] dtype; width: C F H W */
    void *dvelocity;      /* [samples, width] dtype, =: its gradient, for a loss to write */
    wd_dtype dtype;       /* compute dtype */
    int64_t samples, width;
} wd_pass_outputs;

/* The gradients of `stage` are final, once the work launched so far is done. */
typedef void wd_pass_ready_fn(void *context, int stage);

/* Runs the forward pass, and keeps what the backward pass needs. The outputs are valid until
 * wd_pass_backward, which must be called before the next pass of any kind. */
wd_pass_outputs wd_pass_forward(wd_pass *pass, const wd_pass_inputs *inputs);

/* Runs the backward pass from the gradients of the outputs, and adds to the gradients of params.
 * `ready` may be NULL: another micro-batch of this step follows. */
void wd_pass_backward(wd_pass *pass, wd_pass_ready_fn *ready, void *ready_context);

/* velocity [B, C, F, H, W] F32 = network(inputs), with the weights that params show; nothing is
 * kept. In any mode. */
void wd_pass_velocity(float *velocity, wd_pass *pass, const wd_pass_inputs *inputs);

/* As wd_pass_velocity, of a micro-batch of `samples` samples, at most those of the pass's shape. */
void wd_pass_velocity_of(float *velocity, wd_pass *pass, const wd_pass_inputs *inputs,
                         int64_t samples);

#endif
