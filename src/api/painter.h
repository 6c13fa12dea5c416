/* A model that paints: transformer, guidance and schedule, ready to turn noise into latents. What
 * `sample` and `eval` share. */
#ifndef WD_API_PAINTER_H
#define WD_API_PAINTER_H

#include "api/prompt_embeds.h"
#include "wan/sampler.h"

typedef struct wd_painter_options {
    const wd_pipeline *pipeline;          /* borrowed */
    const wd_prompt_embeds *embeds;       /* borrowed */
    const wd_scheduler_config *scheduler; /* instead of the pipeline's, or NULL */
    wd_dtype dtype;                       /* F32 or BF16 */
    int64_t steps;
    double guidance_scale[2]; /* of the high-noise (or only) and low-noise expert */
    int64_t height, width;    /* of the latents */
    int64_t batch_max;        /* pictures at a time; 0: chosen */
} wd_painter_options;

/* What painting with a model needs is there and whole: experts, scheduler, VAE, with weights. */
wd_status wd_painter_check_model(const wd_pipeline *pipeline, wd_err *err);

typedef struct wd_painter wd_painter;

wd_status wd_painter_open(wd_painter **out, const wd_painter_options *options, wd_queue *queue,
                          wd_err *err);
void wd_painter_close(wd_painter *painter); /* NULL is allowed */

/* Paints with so many steps of the same scheduler from now on. */
wd_status wd_painter_set_steps(wd_painter *painter, int64_t steps, wd_err *err);

int64_t wd_painter_batch(const wd_painter *painter); /* pictures at a time */

/* What a run leaves behind on its way: host arrays, each [count, C, 1, H, W]; NULL: not wanted. */
typedef struct wd_painter_trace {
    float *const *latents;  /* [steps + 1]: before the first step and after each */
    float *const *velocity; /* [steps]: guided velocity at latents[i] */
} wd_painter_trace;

/* Paints prompts [first, first + count), count <= the batch: latents [count, C, 1, H, W] (host),
 * noise in, clean latents out; WD_NOT_FINITE if these are not finite. `trace` may be NULL. */
wd_status wd_painter_run(wd_painter *painter, float *latents, const wd_painter_trace *trace,
                         int64_t first, int64_t count, wd_err *err);

/* Guided velocity [count, C, 1, H, W] of latents (both host) of prompts [first, ...). */
wd_status wd_painter_velocity(wd_painter *painter, float *velocity, const float *latents,
                              float timestep, int64_t first, int64_t count, wd_err *err);

/* Standard normal noise of pictures [first, first + count), `each` elements per picture. */
void wd_painter_noise(float *latents, uint64_t seed, int64_t first, int64_t count, int64_t each);

#endif
