/* The sampling loop: latents from noise, for whoever can give a guided velocity. */
#ifndef WD_WAN_SAMPLER_H
#define WD_WAN_SAMPLER_H

#include "wan/schedule.h"

/* velocity [B, C, F, H, W] F32 (device, =) at latents (device) and timestep, guidance included. */
typedef wd_status wd_velocity_fn(void *context, float *velocity, const float *latents,
                                 float timestep, wd_err *err);

/* Called with the latents before the first step (step 0) and after each (1 ... steps); NULL: nobody
 * looks. A status other than WD_OK ends the loop. */
typedef wd_status wd_sampler_look_fn(void *context, int64_t step, const float *latents,
                                     wd_err *err);

wd_status wd_sampler_run(float *latents, /* [count], device: noise in, clean latents out */
                         int64_t count, const wd_schedule *schedule, wd_dtype model_dtype,
                         wd_velocity_fn *velocity, void *velocity_context,
                         wd_sampler_look_fn *look, void *look_context, wd_queue *queue,
                         wd_err *err);

#endif
