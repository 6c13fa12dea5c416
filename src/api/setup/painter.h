/* A model that samples: transformer, guidance and schedule, which turn noise into latents. `sample`
 * and `eval` use it. */
#ifndef WD_API_SETUP_PAINTER_H
#define WD_API_SETUP_PAINTER_H

#include "model/sampling/sampler.h"
#include "model/text_cache/prompt_embeds.h"
#include "teacher/plan/strategy.h"
#include "teacher/run/residency.h"

typedef struct wd_painter_options {
    const wd_pipeline *pipeline;          /* borrowed */
    const wd_prompt_embeds *embeds;       /* borrowed */
    const wd_scheduler_config *scheduler; /* NULL: the pipeline's */
    wd_dtype dtype;                       /* F32 or BF16 */
    int64_t steps;
    double guidance_scale[2];  /* of the high-noise (or only) and low-noise expert */
    int64_t height, width;     /* of the latents */
    int64_t images_per_prompt; /* 0: one; pictures of one prompt follow one another */
    int64_t batch_max;         /* pictures at a time; 0: chosen */
    /* cpu and gpu: the model stays on the device that draws; offload: in host memory; disk: in its
     * files. Never changes a picture. */
    wd_strategy strategy;
    wd_queue *processor; /* borrowed during wd_painter_open; NULL: the strategy is not offload */
} wd_painter_options;

/* The pictures of all prompts. */
static inline int64_t wd_painter_pictures(const wd_painter_options *options)
{
    return options->embeds->count *
           (options->images_per_prompt > 1 ? options->images_per_prompt : 1);
}

/* Checks that the pipeline has all components for sampling, with undamaged weights: experts,
 * scheduler, VAE. */
wd_status wd_painter_check_model(const wd_pipeline *pipeline, wd_err *err);

typedef struct wd_painter wd_painter;

/* Opened with a dry queue, a painter reads no weights and draws nothing: this plans its memory. */
wd_status wd_painter_open(wd_painter **out, const wd_painter_options *options, wd_queue *queue,
                          wd_err *err);
void wd_painter_close(wd_painter *painter); /* NULL is allowed */

/* From now on the painter uses `steps` steps of the same scheduler. */
wd_status wd_painter_set_steps(wd_painter *painter, int64_t steps, wd_err *err);

int64_t wd_painter_batch(const wd_painter *painter); /* pictures at a time */

/* The pictures at a time that wd_painter_open would choose. */
int64_t wd_painter_usual_batch(const wd_painter_options *options);

/* The weights of an open painter, and the memory that they take. */
const wd_residency_info *wd_painter_weights(const wd_painter *painter);

/* Host arrays for the intermediate results of a run, each [count, C, 1, H, W] fp32; NULL: they are
 * not stored. */
typedef struct wd_painter_trace {
    float *const *latents;  /* [steps + 1]: before the first step and after each */
    float *const *velocity; /* [steps]: guided velocity at latents[i] */
} wd_painter_trace;

/* Samples pictures [first, first + count), count <= the batch. latents [count, C, 1, H, W] fp32
 * (host) are noise before the call and clean latents after it; WD_NOT_FINITE if these are not
 * finite. `trace` may be NULL. */
wd_status wd_painter_run(wd_painter *painter, float *latents, const wd_painter_trace *trace,
                         int64_t first, int64_t count, wd_err *err);

/* Computes the guided velocity [count, C, 1, H, W] at latents (both fp32, host) of prompts [first,
 * first + count). */
wd_status wd_painter_velocity(wd_painter *painter, float *velocity, const float *latents,
                              float timestep, int64_t first, int64_t count, wd_err *err);

#endif
