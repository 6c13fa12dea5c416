/* The sweep: one pass over the teacher's weights, for a window of states at once.
 *
 * Data flow: states (latents, timestep, prompt) -> sorted by expert -> per expert: stage by stage,
 * acquire, run every micro-batch's conditional and unconditional stream through it, release ->
 * guided velocity of every state.
 *
 * A block's weights are fetched once per sweep and expert, whatever the window; the next stage is
 * asked for while this one is used. The value of a velocity does not depend on what else is in the
 * window, nor on the micro-batch. */
#ifndef WD_TEACHER_SWEEP_H
#define WD_TEACHER_SWEEP_H

#include "teacher/residency.h"
#include "wan/dit.h"

/* Gives the embedding of a prompt: text_tokens rows of text_dim, zeros behind the prompt's own, in
 * `dtype`. Prompt -1 is the negative prompt. */
typedef void wd_sweep_text_fn(void *context, void *out, int64_t prompt, wd_dtype dtype);

typedef struct wd_sweep_options {
    wd_dit_config config;
    wd_dtype dtype;                     /* compute dtype */
    int64_t frames, height, width;      /* of the latents */
    int64_t text_tokens, text_repeat;   /* as in wd_dit_shape */
    int64_t window_max;                 /* states of one sweep at most */
    int64_t micro_batch;                /* states that go through a stage together */
    double boundary_timestep;           /* expert 0 from this timestep on; 0: there is one expert */
    double guidance_scale[2];           /* per expert; scale[0] <= 1: no unconditional pass */
    wd_sweep_text_fn *text;
    void *text_context;
} wd_sweep_options;

/* The states of one sweep. Expert and embedding are chosen on the host; latents and velocities are
 * on the device. */
typedef struct wd_window {
    int64_t count;           /* <= window_max */
    const float *latents;    /* [count, C, F, H, W] */
    float *velocity;         /* [count, C, F, H, W], = */
    const float *timestep;   /* [count], host */
    const int64_t *prompt;   /* [count], host */
} wd_window;

/* States that go through a stage together when nobody says otherwise: enough tokens to keep matrix
 * products efficient, no more, since their activations exist at once. */
int64_t wd_sweep_micro_batch(const wd_dit_config *config, int64_t frames, int64_t height,
                             int64_t width);

typedef struct wd_sweep wd_sweep;

/* `residency` and `queue` are borrowed. All device memory that sweeps need is allocated here. */
wd_status wd_sweep_open(wd_sweep **out, const wd_sweep_options *options, wd_residency *residency,
                        wd_queue *queue, wd_err *err);
void wd_sweep_close(wd_sweep *sweep); /* NULL is allowed */

/* One sweep. Returns when everything is launched; the window's host arrays may then be reused. */
wd_status wd_sweep_run(wd_sweep *sweep, const wd_window *window, wd_err *err);

/* What a sweep of window_max states needs on `target`, found by running it dry, with the addresses
 * that `residency` gives (so that products over adjacent weights are planned as they will run). */
typedef struct wd_sweep_plan {
    size_t device_bytes; /* allocated by wd_sweep_open */
    size_t host_bytes;
    size_t workspace_bytes;
    double flops;        /* of one such sweep, all states at the first expert */
} wd_sweep_plan;

wd_status wd_sweep_plan_for(wd_sweep_plan *out, const wd_sweep_options *options,
                            wd_residency *residency, wd_device *target, wd_err *err);

#endif
