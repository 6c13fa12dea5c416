/* On-policy trajectories: at the ends of their blocks they go on from where the student's own steps
 * lead. See train/targets/rollouts.h. */
#include "train/targets/source_trajectory_impl.h"

wd_status wd_trajectory_source_open_rollouts(wd_trajectory_source *s, wd_err *err)
{
    const wd_source_options *o = &s->options;
    if (!(o->trajectory.on_policy_share > 0)) return WD_OK;
    WD_TRY(wd_rollouts_open(&s->rollouts, &o->rollouts, s->home, err));
    /* every rank makes all rollouts, and its share of the samples */
    s->base.flops_per_sample = (o->comm ? o->comm->ranks : 1) *
                               wd_stream_rollouts_each(&o->trajectory, o->reuse) *
                               wd_rollouts_flops(s->rollouts);
    return WD_OK;
}

/* Whether that state begins a block where the student's own step leads. */
static bool is_rolled_out(const wd_trajectory_options *o, const wd_target_info *state)
{
    const bool begins = state->step > 0 && state->step % wd_chord_length(o) == 0;
    return begins && wd_trajectory_is_on_policy(o, state->pair);
}

/* The student's step over the block that ends at this state. */
static wd_rollout rollout_to(wd_trajectory_source *s, const wd_target_info *state)
{
    const wd_trajectory_options *o = &s->options.trajectory;
    const int64_t length = wd_chord_length(o);
    const int64_t number = wd_trajectory_number(o, state->round - length, state->slot);
    const wd_target_info begin = wd_trajectory_target(o, number);
    return (wd_rollout){.begin = s->ring.latents +
                                 wd_targets_ring_index(&s->ring, number) * s->ring.state_count,
                        .end = wd_trajectory_states_set(&s->states, state->slot),
                        .timestep = begin.timestep,
                        .dt = state->sigma - begin.sigma,
                        .prompt = begin.prompt};
}

void wd_trajectory_source_begin_states(wd_trajectory_source *s, const wd_target_info *info,
                                       int64_t ring_index, const int64_t *states, int64_t count)
{
    for (int64_t i = 0; s->base.snapshot && i < count; i++) {
        const wd_target_info *state = &info[states[i]];
        if (!is_rolled_out(&s->options.trajectory, state)) continue;
        const wd_rollout rollout = rollout_to(s, state);
        wd_rollouts_put(s->rollouts, &rollout);
    }
    if (s->base.snapshot) wd_rollouts_finish(s->rollouts);
    wd_trajectory_states_begin(&s->states, info, ring_index, states, count);
}

wd_status wd_trajectory_source_begin_step(wd_source *self, int64_t step, double progress,
                                          wd_err *err)
{
    wd_trajectory_source *s = (wd_trajectory_source *)self;
    const wd_trajectory_options *o = &s->options.trajectory;
    const bool ended = progress >= o->on_policy_end;
    if (!s->rollouts || (ended ? !self->snapshot : step % o->on_policy_every != 0)) return WD_OK;
    WD_TRY(wd_trajectory_source_make_round(s, err));
    /* states that other ranks evaluate are begun when their velocities are taken */
    if (s->exchange.gathers)
        wd_trajectory_source_take_until(s, wd_gathers_posted(s->exchange.gathers));
    if (!ended) wd_rollouts_take_snapshot(s->rollouts, s->queue);
    self->snapshot = ended ? NULL : wd_rollouts_snapshot(s->rollouts);
    return WD_OK;
}
