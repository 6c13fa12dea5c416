/* Folder model/sampling. From noise to a picture: schedules, solvers, the sampling loop, and
 * the painter that makes pictures with it (painter.h).
 *
 * The sampling loop: makes latents from noise, with a function that computes guided velocities. */
#ifndef WD_MODEL_SAMPLING_SAMPLER_H
#define WD_MODEL_SAMPLING_SAMPLER_H

#include "dev/device.h"
#include "model/sampling/schedule.h"

/* Fills latents (host, =) with the standard normal noise from which pictures [first, first + count)
 * are drawn, `each` elements per picture. */
void wd_sampler_noise(float *latents, uint64_t seed, int64_t first, int64_t count, int64_t each);

/* Computes the guided velocity [B, C, F, H, W] F32 (device, =) at latents F32 (device) and
 * timestep. */
typedef wd_status wd_velocity_fn(void *context, float *velocity, const float *latents,
                                 float timestep, wd_err *err);

/* Is called with the latents before the first step (step 0) and after each step (1 ... steps); may
 * be NULL. A status other than WD_OK ends the loop. */
typedef wd_status wd_sampler_look_fn(void *context, int64_t step, const float *latents,
                                     wd_err *err);

wd_status wd_sampler_run(float *latents, /* [count], device: noise in, clean latents out */
                         int64_t count, const wd_schedule *schedule, wd_dtype model_dtype,
                         wd_velocity_fn *velocity, void *velocity_context, wd_sampler_look_fn *look,
                         void *look_context, wd_queue *queue, wd_err *err);

#endif
