/* Folder model/sampling. From noise to a picture: schedules, solvers, the sampling loop.
 *
 * The sampling loop: makes latents from noise, with a function that computes guided velocities. */
#ifndef WD_MODEL_SAMPLING_SAMPLER_H
#define WD_MODEL_SAMPLING_SAMPLER_H

#include "dev/device.h"
#include "model/files/pipeline.h"
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

/* ---- from latents to pictures, the last step of the pipeline ---- */

/* Computes pixels [count, 3, H s, W s] fp32 in [0, 1] (host) from diffusion latents [count, C, 1,
 * H, W] fp32 (host, overwritten). It un-normalises, decodes with the pipeline's VAE, which is
 * loaded for this call only, and maps [-1, 1] to [0, 1] as diffusers' postprocess_video does.
 * WD_NOT_FINITE: a pixel is NaN or infinite, because the latents or the VAE's weights are. */
wd_status wd_pictures_decode(float *image, float *latents, int64_t count, int64_t height,
                             int64_t width, const wd_pipeline *pipeline, wd_queue *queue,
                             wd_err *err);

/* Checks the values of pictures [first, first + count), `each` values per picture: WD_NOT_FINITE if
 * one is not finite. The error calls the values `what` ("latents") and their origin `from`. */
wd_status wd_pictures_check(const float *values, int64_t first, int64_t count, int64_t each,
                            const char *what, const char *from, wd_err *err);

#endif
