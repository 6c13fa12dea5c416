/* Rounds of targets: window by window, each evaluated by one sweep. */
#include "distill/objective_trajectory_impl.h"

/* What a micro-batch begins with: see wd_window_begin_fn. */
static void begin_states(void *context, const int64_t *states, int64_t count)
{
    wd_trajectory_objective *o = context;
    const wd_target_info *info = o->info + o->own;
    const int64_t at = o->at + o->own;
    for (int64_t i = 0; i < count; i++) {
        const int64_t state = states[i];
        if (o->shipments) {
            wd_targets_take_until(o, o->slot_shipment[info[state].slot]);
            o->begun[at + state] = true;
        } else if (info[state].step == 0) {
            wd_states_noise(o, state);
        }
    }
    wd_states_begin(o, info, at, states, count);
}

/* What a sweep gave is a step to make, and a target that batches wait for. */
static void note_targets(wd_trajectory_objective *o, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        o->pending[o->info[i].slot] = (wd_pending_step){o->at + i, o->delivered[i]};
        if (!i || o->delivered[i] != o->delivered[i - 1])
            wd_event_wait_on(o->queue, o->delivered[i]);
    }
}

/* Which targets a window has, and what follows from their numbers alone. */
static void open_window(wd_trajectory_objective *o, int64_t first, int64_t count)
{
    o->first = first;
    o->at = wd_target_place(o, first);
    wd_event_wait(o->window_uploaded);
    for (int64_t i = 0; i < count; i++) {
        wd_target_info *t = &o->info[i];
        *t = wd_trajectory_target(&o->options.trajectory, first + i);
        o->host_timestep[i] = t->timestep;
        o->host_prompt[i] = t->prompt;
        o->host_dt[i] = t->sigma_next - t->sigma;
        if (o->shipments && t->step == 0) wd_states_noise(o, i); /* whoever begins it */
    }
    wd_queue_copy(o->home, o->dt + o->at, o->host_dt, (size_t)count * sizeof(float));
}

/* The targets [first, first + count) of one round, by one sweep. */
static wd_status run_window(wd_trajectory_objective *o, int64_t first, int64_t count, wd_err *err)
{
    const wd_comm *comm = o->shipments ? o->options.comm : NULL;
    const bool shared = comm && wd_sweep_is_shared(o->sweep), each = comm && !shared;
    const int64_t n = o->options.state_count;
    open_window(o, first, count);
    o->own = each ? count * comm->rank / comm->ranks : 0;
    const int64_t end = each ? count * (comm->rank + 1) / comm->ranks : count;
    const wd_window window = {.count = end - o->own,
                              .queue = o->home,
                              .latents = o->pool_latents + (o->at + o->own) * n,
                              .velocity = o->pool_target + (o->at + o->own) * n,
                              .timestep = o->host_timestep + o->own,
                              .prompt = o->host_prompt + o->own,
                              .begin = begin_states,
                              .end = shared ? wd_targets_send_batch : NULL,
                              .context = o,
                              .delivered = o->delivered + o->own};
    if (each) wd_sweep_announce(o->sweep, o->host_timestep, count, o->own, end);
    if (window.count) WD_TRY(wd_sweep_run(o->sweep, &window, err));
    if (each)
        wd_targets_send_window(o, count);
    else if (!shared)
        note_targets(o, count);
    wd_event_record(o->window_uploaded, o->home);
    return WD_OK;
}

/* Only a round before all have begun may lie around the ring's end, where a sweep more is needed.
 */
wd_status wd_targets_round(wd_trajectory_objective *o, wd_err *err)
{
    int64_t next = o->base.targets;
    int64_t end = wd_trajectory_first_target(&o->options.trajectory, o->round + 1);
    while (next < end) {
        int64_t count = end - next, whole = o->capacity - wd_target_place(o, next);
        if (count > o->options.window) count = o->options.window;
        if (count > whole) count = whole; /* the ring's end */
        WD_TRY(run_window(o, next, count, err));
        next += count;
    }
    o->round++;
    o->base.targets = end;
    return WD_OK;
}
