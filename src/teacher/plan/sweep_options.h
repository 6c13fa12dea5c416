/* The options of a sweep, and the micro-batches that its windows are cut into. */
#ifndef WD_TEACHER_PLAN_SWEEP_OPTIONS_H
#define WD_TEACHER_PLAN_SWEEP_OPTIONS_H

#include "job/comm/comm.h"
#include "model/dit/dit.h"
#include "model/files/pipeline.h"
#include "teacher/plan/placement.h"

/* Gives the embedding of a prompt: text_tokens rows of text_dim, zeros after the prompt's own, in
 * `dtype`. Prompt -1 is the negative prompt. */
typedef void wd_sweep_text_fn(void *context, void *out, int64_t prompt, wd_dtype dtype);

typedef struct wd_sweep_options {
    wd_dit_config config;
    wd_dtype dtype;                   /* compute dtype */
    int64_t frames, height, width;    /* of the latents */
    int64_t text_tokens, text_repeat; /* as in wd_dit_shape */
    int64_t window_max;               /* states of one sweep at most */
    int64_t micro_batch;              /* states that go through a stage together, at most */
    double boundary_timestep;         /* expert 0 from this timestep on; 0: there is one expert */
    double guidance_scale[2];         /* per expert; scale[0] <= 1: no unconditional pass */
    wd_device *latents_device;        /* has the latents and velocities of windows, borrowed; NULL:
                                       * the device of the first queue */
    int64_t sweeps_apart;             /* from one sweep that a state is in to its next; 0 is 1 */
    wd_sweep_text_fn *text;
    void *text_context;
    wd_comm *comm; /* of the ranks that share the teacher, borrowed; NULL: there is one rank */
} wd_sweep_options;

/* Elements and bytes of one state's latents [C, F, H, W] fp32; its velocity has as many. */
static inline int64_t wd_sweep_latent_count(const wd_sweep_options *options)
{
    return options->config.in_channels * options->frames * options->height * options->width;
}

static inline size_t wd_sweep_latent_bytes(const wd_sweep_options *options)
{
    return (size_t)wd_sweep_latent_count(options) * sizeof(float);
}

/* Bytes of one state's text [S, text_dim]. */
static inline size_t wd_sweep_text_bytes(const wd_sweep_options *options)
{
    return wd_dtype_size(options->dtype, options->text_tokens * options->config.text_dim);
}

/* The options of a sweep over a pipeline's experts that computes in `dtype`, for pictures; their
 * sizes, window, guidance and text are not set. */
wd_sweep_options wd_sweep_options_for(const wd_pipeline *pipeline, wd_dtype dtype);

/* The default micro-batch, in states: enough tokens to keep matrix products efficient, no more,
 * since their activations exist at once. */
int64_t wd_sweep_micro_batch(const wd_dit_config *config, int64_t frames, int64_t height,
                             int64_t width);

/* The micro-batch that a sweep has: no larger than the window, and a multiple of
 * wd_dit_samples_step, as the sizes of all its micro-batches are. */
int64_t wd_sweep_fitted(int64_t micro_batch, int64_t window_max);

/* How many sweeps after one sweep a state has its next, if windows of `window` go round `states`.
 */
static inline int64_t wd_sweeps_apart(int64_t states, int64_t window)
{
    return (states + window - 1) / window;
}

/* Streams of a micro-batch: the conditional one, and with guidance the unconditional one. */
int wd_sweep_streams(const wd_sweep_options *options);

/* The context of a pass of `samples` states, without rope, queue and arena. `negative`: of the
 * unconditional stream, whose states share one text. */
wd_dit_context wd_sweep_dit_context(const wd_sweep_options *options, int64_t samples,
                                    bool negative);

/* How many tensors of a wd_dit_stream (in the order x, temb, tp, ctx) the next stage reads. */
static inline int wd_sweep_stream_tensors(wd_stage_kind next)
{
    return next == WD_STAGE_HEAD ? 2 : 4;
}

/* Bytes that the next stage reads of a micro-batch of `samples` states, of all its streams. */
size_t wd_sweep_packed_bytes(const wd_sweep_options *options, int64_t samples, wd_stage_kind next);

/* Micro-batches of an expert in one sweep, at most. */
int wd_sweep_batches(const wd_sweep_options *options);

#endif
