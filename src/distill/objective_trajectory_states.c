/* Where trajectories are: noise, and steps along their ODE, made when the state is wanted. */
#include "core/random.h"
#include "dev/ops.h"
#include "distill/objective_trajectory_impl.h"

/* Moves `count` trajectories from slot `first` on one step along their ODE, whose targets follow
 * one another in the pool. */
static void step_slots(wd_trajectory_objective *o, int64_t first, int64_t count)
{
    int64_t n = o->options.state_count, at = o->pending[first].at;
    for (int64_t slot = first; slot < first + count; slot++) {
        if (o->pending[slot].delivered) wd_event_wait_on(o->home, o->pending[slot].delivered);
        o->pending[slot].at = -1;
    }
    wd_op_step_samples(o->home, &(wd_step_samples_args){.x = o->latents + first * n,
                                                        .v = o->pool_target + at * n,
                                                        .dt = o->dt + at,
                                                        .samples = count,
                                                        .width = n});
}

/* The step of a slot, together with those of up to `most` slots behind it that can go with it;
 * returns how many these are. */
static int64_t make_steps(wd_trajectory_objective *o, int64_t slot, int64_t most)
{
    int64_t count = 1;
    while (count < most && o->pending[slot + count].at == o->pending[slot].at + count) count++;
    step_slots(o, slot, count);
    return count;
}

/* Trajectories that follow one another in window and slots from states[0] on, all of which have a
 * step to make. */
static int64_t together(const wd_target_info *info, const int64_t *states, int64_t count)
{
    int64_t n = 1;
    while (n < count && states[n] == states[0] + n &&
           info[states[n]].slot == info[states[0]].slot + n && info[states[n]].step > 0)
        n++;
    return n;
}

void wd_states_noise(wd_trajectory_objective *o, int64_t state)
{
    int64_t n = o->options.state_count;
    const wd_random key = {.seed = o->options.trajectory.seed,
                           .stream = WD_RANDOM_TRAJECTORY,
                           .index = (uint64_t)o->info[state].serial};
    float *noise = o->host_noise + (wd_window_place(o) * o->options.window + state) * n;
    wd_random_normal(noise, n, key, 0);
    wd_queue_copy(o->home, o->pool_latents + (o->at + state) * n, noise, wd_state_bytes(o));
}

void wd_states_begin(wd_trajectory_objective *o, const wd_target_info *info, int64_t at,
                     const int64_t *states, int64_t count)
{
    int64_t n = o->options.state_count;
    for (int64_t i = 0; i < count; i++) {
        const wd_target_info *t = &info[states[i]];
        float *now = o->latents + t->slot * n, *to = o->pool_latents + (at + states[i]) * n;
        if (t->step == 0) {
            wd_queue_copy(o->home, now, to, wd_state_bytes(o));
            o->pending[t->slot].at = -1; /* the last step of the one before leads nowhere */
            continue;
        }
        if (o->pending[t->slot].at >= 0)
            make_steps(o, t->slot, together(info, states + i, count - i));
        wd_queue_copy(o->home, to, now, wd_state_bytes(o));
    }
}

void wd_states_settle(wd_trajectory_objective *o)
{
    int64_t slots = o->options.trajectory.slots;
    if (o->shipments) wd_targets_take_until(o, wd_shipments_sent(o->shipments));
    for (int64_t slot = 0; slot < slots;)
        slot += o->pending[slot].at >= 0 ? make_steps(o, slot, slots - slot) : 1;
    wd_queue_wait(o->home);
}
