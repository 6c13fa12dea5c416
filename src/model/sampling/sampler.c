/* The sampling loop: velocity, solver step, callback. The velocity stays on the device. */
#include "model/sampling/sampler.h"

static wd_status run(float *latents, float *v, wd_solver *solver, const wd_schedule *schedule,
                     wd_velocity_fn *velocity, void *velocity_context, wd_sampler_look_fn *look,
                     void *look_context, wd_err *err)
{
    if (look) WD_TRY(look(look_context, 0, latents, err));
    for (int64_t i = 0; i < schedule->steps; i++) {
        WD_TRY(velocity(velocity_context, v, latents, schedule->timestep[i], err));
        wd__solver_step(solver, latents, v);
        if (look) WD_TRY(look(look_context, i + 1, latents, err));
    }
    return WD_OK;
}

wd_status wd_sampler_run(float *latents, int64_t count, const wd_schedule *schedule,
                         wd_dtype model_dtype, wd_velocity_fn *velocity, void *velocity_context,
                         wd_sampler_look_fn *look, void *look_context, wd_queue *queue, wd_err *err)
{
    wd_device *device = wd_queue_device(queue);
    wd_solver *solver = NULL;
    float *v = NULL;
    wd_status status;
    WD_TRY_OUT(wd_device_alloc((void **)&v, device, (size_t)count * sizeof *v, "velocity", err));
    WD_TRY_OUT(wd__solver_open(&solver, schedule, count, model_dtype, queue, err));
    status = run(latents, v, solver, schedule, velocity, velocity_context, look, look_context, err);
out:
    wd__solver_close(solver); /* waits for the queue */
    wd_device_free(device, v);
    return status;
}
