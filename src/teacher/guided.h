/* A pipeline's transformer or experts, ready to give guided velocities to a sampler: residency and
 * sweep in one. Serves teachers and finished students alike (a student is a pipeline of one expert,
 * sampled with guidance 1). */
#ifndef WD_TEACHER_GUIDED_H
#define WD_TEACHER_GUIDED_H

#include "teacher/sweep.h"

typedef struct wd_guided_options {
    wd_dtype dtype;                   /* of the weights: F32, F16, BF16 */
    int64_t frames, height, width;    /* of the latents */
    int64_t text_tokens, text_repeat; /* as in wd_dit_shape */
    int64_t pictures_max;             /* of one group */
    double guidance_scale[2];
    wd_sweep_text_fn *text;
    void *text_context;
} wd_guided_options;

typedef struct wd_guided wd_guided;

/* `pipeline` is borrowed during the call, `queue` for as long as it is open. */
wd_status wd_guided_open(wd_guided **out, const wd_pipeline *pipeline,
                         const wd_guided_options *options, wd_queue *queue, wd_err *err);
void wd_guided_close(wd_guided *guided); /* NULL is allowed */

/* The group that velocities are for from now on: pictures of prompts first, first + 1, ... */
void wd_guided_select(wd_guided *guided, int64_t first_prompt, int64_t pictures);

/* A wd_velocity_fn (wan/sampler.h); `context` is the wd_guided. */
wd_status wd_guided_velocity(void *context, float *velocity, const float *latents, float timestep,
                             wd_err *err);

/* The dtype that velocities are computed in. */
wd_dtype wd_guided_dtype(const wd_guided *guided);

#endif
