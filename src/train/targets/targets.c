/* The ring of targets, and where trajectories are: see train/targets/targets.h. */
#include "train/targets/targets.h"

#include "core/memory.h"
#include "dev/ops.h"

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

/* ---- where trajectories are ---- */

static size_t state_bytes(const wd_trajectory_states *s)
{
    return (size_t)s->targets->state_count * sizeof(float);
}

wd_status wd__trajectory_states_open(wd_trajectory_states *out, int64_t slots, wd_targets *targets,
                                     wd_queue *queue, wd_err *err)
{
    wd_status status;
    *out = (wd_trajectory_states){.targets = targets, .queue = queue, .slots = slots};
    WD_TRY_OUT(wd_device_alloc((void **)&out->latents, wd_queue_device(queue),
                               (size_t)slots * state_bytes(out), "trajectories", err));
    WD_TRY_OUT(
        wd_alloc((void **)&out->pending, (size_t)slots, sizeof *out->pending, "trajectories", err));
    for (int64_t i = 0; i < slots; i++) out->pending[i].ring_index = -1;
out:
    if (status != WD_OK) wd__trajectory_states_close(out);
    return status;
}

void wd__trajectory_states_close(wd_trajectory_states *states)
{
    if (!states->queue) return;
    wd_device_free(wd_queue_device(states->queue), states->latents);
    wd_free(states->pending);
    *states = (wd_trajectory_states){0};
}

/* Moves `count` trajectories from slot `first` on one step along their ODE, whose targets follow
 * one another in the ring. */
static void step_slots(wd_trajectory_states *s, int64_t first, int64_t count)
{
    const int64_t n = s->targets->state_count, ring_index = s->pending[first].ring_index;
    for (int64_t slot = first; slot < first + count; slot++) {
        if (s->pending[slot].delivered) wd_event_wait_on(s->queue, s->pending[slot].delivered);
        s->pending[slot].ring_index = -1;
    }
    wd_op_step_samples(s->queue, &(wd_step_samples_args){.x = s->latents + first * n,
                                                         .v = s->targets->velocity + ring_index * n,
                                                         .dt = s->targets->dt + ring_index,
                                                         .samples = count,
                                                         .width = n});
}

/* The step of a slot, together with those of up to `most` slots behind it that can go with it;
 * returns how many these are. */
static int64_t make_steps(wd_trajectory_states *s, int64_t slot, int64_t most)
{
    int64_t count = 1;
    while (count < most &&
           s->pending[slot + count].ring_index == s->pending[slot].ring_index + count)
        count++;
    step_slots(s, slot, count);
    return count;
}

/* Trajectories that follow one another in window and slots from states[0] on, all of which have a
 * step to make. */
static int64_t count_neighbours(const wd_target_info *info, const int64_t *states, int64_t count)
{
    int64_t n = 1;
    while (n < count && states[n] == states[0] + n &&
           info[states[n]].slot == info[states[0]].slot + n && info[states[n]].step > 0)
        n++;
    return n;
}

void wd__trajectory_states_begin(wd_trajectory_states *s, const wd_target_info *info,
                                 int64_t ring_index, const int64_t *states, int64_t count)
{
    const int64_t n = s->targets->state_count;
    for (int64_t i = 0; i < count; i++) {
        const wd_target_info *t = &info[states[i]];
        float *now = s->latents + t->slot * n;
        float *target = s->targets->latents + (ring_index + states[i]) * n;
        if (t->step == 0) {
            wd_queue_copy(s->queue, now, target, state_bytes(s));
            s->pending[t->slot].ring_index = -1; /* the last step of the one before leads nowhere */
            continue;
        }
        if (s->pending[t->slot].ring_index >= 0)
            make_steps(s, t->slot, count_neighbours(info, states + i, count - i));
        wd_queue_copy(s->queue, target, now, state_bytes(s));
    }
}

void wd__trajectory_states_finish(wd_trajectory_states *s)
{
    for (int64_t slot = 0; slot < s->slots;)
        slot += s->pending[slot].ring_index >= 0 ? make_steps(s, slot, s->slots - slot) : 1;
    wd_queue_wait(s->queue);
}
