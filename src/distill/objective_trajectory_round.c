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
        o->arrival[o->at + i] = o->delivered[i];
    }
}

void wd_targets_await(wd_trajectory_objective *o, int64_t end)
{
    const wd_event *last = NULL;
    for (; o->awaited < end; o->awaited++) {
        wd_event *arrival = o->arrival[wd_target_place(o, o->awaited)];
        if (arrival && arrival != last) wd_event_wait_on(o->queue, arrival);
        last = arrival;
    }
}

/* Which targets a window has, and what follows from their numbers alone. */
static void open_window(wd_trajectory_objective *o, int64_t first, int64_t count)
{
    o->first = first;
    o->at = wd_target_place(o, first);
    float *dt = o->host_dt + wd_window_place(o) * o->options.window;
    wd_event_wait(o->window_uploaded[wd_window_place(o)]);
    for (int64_t i = 0; i < count; i++) {
        wd_target_info *t = &o->info[i];
        *t = wd_trajectory_target(&o->options.trajectory, first + i);
        o->host_timestep[i] = t->timestep;
        o->host_prompt[i] = t->prompt;
        dt[i] = t->sigma_next - t->sigma;
        if (o->shipments && t->step == 0) wd_states_noise(o, i); /* whoever begins it */
    }
    wd_queue_copy(o->home, o->dt + o->at, dt, (size_t)count * sizeof(float));
}

static int64_t end_of_round(const wd_trajectory_objective *o, int64_t round)
{
    return wd_trajectory_first_target(&o->options.trajectory, round + 1);
}

/* Targets of the window that begins with target `first`, of `round`. Only in a round before all
 * have begun does one lie around the ring's end, where a sweep more is needed. */
static int64_t window_at(const wd_trajectory_objective *o, int64_t round, int64_t first)
{
    const int64_t left = end_of_round(o, round) - first;
    const int64_t whole = o->capacity - wd_target_place(o, first);
    int64_t count = o->options.window;
    if (count > left) count = left;
    return count < whole ? count : whole;
}

/* The window after the one that ends with `first`; 0: it ends the run. */
static int64_t next_window(const wd_trajectory_objective *o, int64_t first)
{
    const wd_trajectory_objective_options *p = &o->options;
    if (first < end_of_round(o, o->round)) return window_at(o, o->round, first);
    if (p->samples_end && first > wd_stream_target_last(p->samples_end, p->reuse)) return 0;
    return window_at(o, o->round + 1, first);
}

/* A window as all ranks have it, where each has its share, or all have all of it. */
static wd_window_ahead ahead_of(const wd_trajectory_objective *o, const float *timestep,
                                int64_t count, bool each)
{
    const wd_comm *comm = o->options.comm;
    if (!each) return (wd_window_ahead){timestep, count, 0, count};
    return (wd_window_ahead){timestep, count, count * comm->rank / comm->ranks,
                             count * (comm->rank + 1) / comm->ranks};
}

/* Says which window comes, and what after it; returns the first. */
static wd_window_ahead announce(wd_trajectory_objective *o, int64_t count, bool each)
{
    const int64_t after = next_window(o, o->first + count);
    const wd_window_ahead window = ahead_of(o, o->host_timestep, count, each);
    const wd_window_ahead next = ahead_of(o, o->next_timestep, after, each);
    for (int64_t i = 0; i < after; i++)
        o->next_timestep[i] =
            wd_trajectory_target(&o->options.trajectory, o->first + count + i).timestep;
    wd_sweep_announce(o->sweep, &window, &next);
    return window;
}

/* The targets [first, first + count) of one round, by one sweep. */
static wd_status run_window(wd_trajectory_objective *o, int64_t first, int64_t count, wd_err *err)
{
    const bool shared = o->shipments && wd_sweep_is_shared(o->sweep);
    const bool each = o->shipments && !shared;
    const int64_t n = o->options.state_count;
    open_window(o, first, count);
    const wd_window_ahead ahead = announce(o, count, each);
    o->own = ahead.first;
    const wd_window window = {.count = ahead.end - ahead.first,
                              .queue = o->home,
                              .latents = o->pool_latents + (o->at + o->own) * n,
                              .velocity = o->pool_target + (o->at + o->own) * n,
                              .timestep = o->host_timestep + o->own,
                              .prompt = o->host_prompt + o->own,
                              .begin = begin_states,
                              .end = shared ? wd_targets_send_batch : NULL,
                              .context = o,
                              .delivered = o->delivered + o->own};
    if (window.count) WD_TRY(wd_sweep_run(o->sweep, &window, err));
    if (each)
        wd_targets_send_window(o, count);
    else if (!shared)
        note_targets(o, count);
    wd_event_record(o->window_uploaded[wd_window_place(o)], o->home);
    o->windows++;
    return WD_OK;
}

wd_status wd_targets_window(wd_trajectory_objective *o, wd_err *err)
{
    const int64_t first = o->base.targets, count = window_at(o, o->round, first);
    WD_TRY(run_window(o, first, count, err));
    o->base.targets = first + count;
    o->round += o->base.targets == end_of_round(o, o->round);
    return WD_OK;
}

wd_status wd_targets_complete(wd_trajectory_objective *o, wd_err *err)
{
    while (o->base.targets > wd_trajectory_first_target(&o->options.trajectory, o->round))
        WD_TRY(wd_targets_window(o, err));
    return WD_OK;
}
