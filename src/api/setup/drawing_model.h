/* A model that samples: transformer, guidance and schedule, which turn noise into latents. `sample`
 * and `eval` use it. */
#ifndef WD_API_SETUP_DRAWING_MODEL_H
#define WD_API_SETUP_DRAWING_MODEL_H

#include "model/sampling/painter.h"
#include "model/text_cache/prompt_embeds.h"
#include "teacher/plan/strategy.h"
#include "teacher/run/residency.h"

typedef struct wd_drawing_model_options {
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
    wd_queue *processor; /* of offload: borrowed while the model is opened; else NULL */
} wd_drawing_model_options;

/* The pictures of all prompts. */
static inline int64_t wd_drawing_model_pictures(const wd_drawing_model_options *options)
{
    return options->embeds->count *
           (options->images_per_prompt > 1 ? options->images_per_prompt : 1);
}

/* Checks that the pipeline has all components for sampling, with undamaged weights: experts,
 * scheduler, VAE. */
wd_status wd_drawing_model_check(const wd_pipeline *pipeline, wd_err *err);

typedef struct wd_drawing_model wd_drawing_model;

/* Opened with a dry queue, a model reads no weights and draws nothing: this plans its memory. */
wd_status wd_drawing_model_open(wd_drawing_model **out, const wd_drawing_model_options *options,
                                wd_queue *queue, wd_err *err);
void wd_drawing_model_close(wd_drawing_model *model); /* NULL is allowed */

/* From now on the model draws in `steps` steps of the same scheduler. */
wd_status wd_drawing_model_set_steps(wd_drawing_model *model, int64_t steps, wd_err *err);

int64_t wd_drawing_model_batch(const wd_drawing_model *model); /* pictures at a time */

/* The pictures at a time that wd_drawing_model_open would choose. */
int64_t wd_drawing_model_usual_batch(const wd_drawing_model_options *options);

/* The weights of an open model, and the memory that they take. */
const wd_residency_info *wd_drawing_model_weights(const wd_drawing_model *model);

/* Samples pictures [first, first + count), count <= the batch. latents [count, C, 1, H, W] fp32
 * (host) are noise before the call and clean latents after it; WD_NOT_FINITE if these are not
 * finite. `trace` may be NULL. */
wd_status wd_drawing_model_run(wd_drawing_model *model, float *latents,
                               const wd_painter_trace *trace, int64_t first, int64_t count,
                               wd_err *err);

/* Computes the guided velocity [count, C, 1, H, W] at latents (both fp32, host) of pictures [first,
 * first + count). */
wd_status wd_drawing_model_velocity(wd_drawing_model *model, float *velocity, const float *latents,
                                    float timestep, int64_t first, int64_t count, wd_err *err);

#endif
