/* The ring of targets: see train/targets/targets.h. */
#include "train/targets/targets.h"

#include "core/memory.h"

wd_status wd__targets_open(wd_targets *out, const wd_trajectory_options *options, int64_t needed,
                           int64_t state_count, wd_device *device, wd_err *err)
{
    wd_status status;
    const int64_t slots = options->slots;
    const int64_t ramp = /* targets before all trajectories have begun */
        wd_trajectory_first_target(options, options->steps - 1);
    *out = (wd_targets){.device = device,
                        .capacity = (needed + slots - 1) / slots * slots,
                        .shift = slots - ramp % slots,
                        .state_count = state_count};
    const size_t capacity = (size_t)out->capacity;
    const size_t bytes = capacity * (size_t)state_count * sizeof(float);
    WD_TRY_OUT(wd_device_alloc((void **)&out->latents, device, bytes, "targets", err));
    WD_TRY_OUT(wd_device_alloc((void **)&out->velocity, device, bytes, "targets", err));
    WD_TRY_OUT(
        wd_device_alloc((void **)&out->dt, device, capacity * sizeof(float), "trajectories", err));
    status = wd_alloc((void **)&out->arrival, capacity, sizeof *out->arrival, "targets", err);
out:
    if (status != WD_OK) wd__targets_close(out);
    return status;
}

void wd__targets_close(wd_targets *targets)
{
    if (!targets->device) return;
    wd_device_free(targets->device, targets->latents);
    wd_device_free(targets->device, targets->velocity);
    wd_device_free(targets->device, targets->dt);
    wd_free(targets->arrival);
    *targets = (wd_targets){0};
}

void wd__targets_await(wd_targets *targets, int64_t end, wd_queue *queue)
{
    const wd_event *last = NULL;
    for (; targets->awaited < end; targets->awaited++) {
        wd_event *arrival = targets->arrival[wd__targets_ring_index(targets, targets->awaited)];
        if (arrival && arrival != last) wd_event_wait_on(queue, arrival);
        last = arrival;
    }
}
