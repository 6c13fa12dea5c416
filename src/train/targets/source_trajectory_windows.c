/* How the trajectory source makes its targets: window by window, each by one sweep.
 *
 * Data flow of a window: its targets' numbers -> sigma steps and noise, copied to the device ->
 * micro-batch by micro-batch its states, brought into the ring -> the sweep -> velocities in the
 * ring; with several ranks, gathered by all of them. On-policy trajectories go on from where the
 * student's own steps lead (train/targets/rollouts.h). */
#include "core/memory.h"
#include "core/random.h"
#include "train/targets/source_trajectory_impl.h"

/* ---- on-policy trajectories ---- */

wd_status wd__trajectory_source_open_rollouts(wd_trajectory_source *s, wd_err *err)
{
    const wd_source_options *o = &s->options;
    if (!(o->trajectory.on_policy_share > 0)) return WD_OK;
    WD_TRY(wd__rollouts_open(&s->rollouts, &o->rollouts, s->home, err));
    /* every rank makes all rollouts, and its share of the samples */
    s->base.flops_per_sample = (o->comm ? o->comm->ranks : 1) *
                               wd__stream_rollouts_each(&o->trajectory, o->reuse) *
                               wd__rollouts_flops(s->rollouts);
    return WD_OK;
}

/* Whether that state begins a block where the student's own step leads. */
static bool is_rolled_out(const wd_trajectory_options *o, const wd_target_info *state)
{
    const bool begins = state->step > 0 && state->step % wd_chord_length(o) == 0;
    return begins && wd__trajectory_is_on_policy(o, state->pair);
}

/* The student's step over the block that ends at this state. */
static wd_rollout rollout_to(wd_trajectory_source *s, const wd_target_info *state)
{
    const wd_trajectory_options *o = &s->options.trajectory;
    const int64_t length = wd_chord_length(o);
    const int64_t number = wd__trajectory_number(o, state->round - length, state->slot);
    const wd_target_info begin = wd__trajectory_target(o, number);
    return (wd_rollout){.begin = s->ring.latents +
                                 wd__targets_ring_index(&s->ring, number) * s->ring.state_count,
                        .end = wd__trajectory_states_set(&s->states, state->slot),
                        .timestep = begin.timestep,
                        .dt = state->sigma - begin.sigma,
                        .prompt = begin.prompt};
}

/* As wd__trajectory_states_begin; on-policy trajectories whose block has ended go where the student
 * takes them, once there is a snapshot. */
static void bring_states(wd_trajectory_source *s, const wd_target_info *info, int64_t ring_index,
                         const int64_t *states, int64_t count)
{
    for (int64_t i = 0; s->base.snapshot && i < count; i++) {
        const wd_target_info *state = &info[states[i]];
        if (!is_rolled_out(&s->options.trajectory, state)) continue;
        const wd_rollout rollout = rollout_to(s, state);
        wd__rollouts_put(s->rollouts, &rollout);
    }
    if (s->base.snapshot) wd__rollouts_finish(s->rollouts);
    wd__trajectory_states_begin(&s->states, info, ring_index, states, count);
}

/* ---- several ranks ----
 *
 * All have the same trajectories and the same ring. Each evaluates its share of a window, or, where
 * they share a teacher, they evaluate it together; what a rank has not evaluated comes with a
 * gather (train/targets/gathers.h). */

/* Takes the oldest gather: begins those of its states that this rank has not begun, and brings the
 * other ranks' velocities into the ring. */
static void take_oldest(wd_trajectory_source *s)
{
    wd_target_exchange *x = &s->exchange;
    const wd_trajectory_options *t = &s->options.trajectory;
    const wd_gather *gather = wd__gathers_await(x->gathers);
    const int rank = s->options.comm->rank;
    const int64_t count = gather->first[s->options.comm->ranks];
    for (int64_t i = 0, n; i < count; i += n) { /* neighbours that are to be begun go together */
        const int64_t ring_index = gather->place[i];
        for (n = 0;
             i + n < count && gather->place[i + n] == ring_index + n && !x->begun[ring_index + n];
             n++)
            x->info[n] = wd__trajectory_target(t, gather->target[i + n]);
        bring_states(s, x->info, ring_index, x->state, n);
        for (int64_t k = 0; k < n; k++)
            wd__trajectory_states_expect(&s->states, x->info[k].slot, ring_index + k, NULL);
        if (n) continue;
        const bool mine = i >= gather->first[rank] && i < gather->first[rank + 1];
        if (!mine)
            wd__trajectory_states_expect(
                &s->states, wd__trajectory_target(t, gather->target[i]).slot, ring_index, NULL);
        x->begun[ring_index] = false;
        n = 1;
    }
    wd__gathers_take(x->gathers, s->ring.velocity, s->queue);
}

void wd__trajectory_source_take_until(wd_trajectory_source *s, int64_t gather)
{
    while (wd__gathers_taken(s->exchange.gathers) < gather) take_oldest(s);
}

/* Whether states[i] is not the state before it once more. */
static bool is_new(const int64_t *states, int64_t i)
{
    return !states || !i || states[i] != states[i - 1];
}

/* Packs a gather with these states of the window (NULL: with its first `count`). A state may be
 * listed more than once in a row. */
static wd_gather *pack(wd_trajectory_source *s, const int64_t *states, int64_t count,
                       int64_t *packed)
{
    if (wd__gathers_is_full(s->exchange.gathers)) take_oldest(s);
    *packed = 0;
    for (int64_t i = 0; i < count; i++) *packed += is_new(states, i);
    wd_gather *gather = wd__gathers_pack(s->exchange.gathers, *packed);
    for (int64_t i = 0, n = 0; i < count; i++) {
        const int64_t state = states ? states[i] : i;
        if (!is_new(states, i)) continue;
        gather->target[n] = s->window.first + state;
        gather->place[n++] = s->window.ring_index + state;
    }
    return gather;
}

/* Posts the gather. A step from a state that this rank has begun and evaluated need not wait for
 * it. */
static void send(wd_trajectory_source *s, const wd_gather *gather)
{
    wd_target_exchange *x = &s->exchange;
    const wd_target_window *w = &s->window;
    const int rank = s->options.comm->rank;
    const wd_event *last = NULL;
    for (int64_t i = gather->first[rank]; i < gather->first[rank + 1]; i++) {
        wd_event *delivered = w->delivered[gather->target[i] - w->first];
        if (delivered != last) wd__gathers_wait_on(x->gathers, delivered);
        last = delivered;
    }
    wd__gathers_post(x->gathers, s->ring.velocity);
    const int64_t number = wd__gathers_posted(x->gathers);
    for (int64_t i = 0; i < gather->first[s->options.comm->ranks]; i++) {
        const int64_t state = gather->target[i] - w->first, ring_index = gather->place[i];
        const int64_t slot = w->info[state].slot;
        const bool mine = i >= gather->first[rank] && i < gather->first[rank + 1];
        x->gather[ring_index] = number;
        if (mine && x->begun[ring_index])
            wd__trajectory_states_expect(&s->states, slot, ring_index, w->delivered[state]);
        else
            x->awaited[slot] = number;
    }
}

/* Where every rank has a teacher: the window's first `count` targets are sent as a whole. */
static void send_window(wd_trajectory_source *s, int64_t count)
{
    const int ranks = s->options.comm->ranks;
    int64_t packed;
    wd_gather *gather = pack(s, NULL, count, &packed);
    for (int r = 0; r <= ranks; r++) gather->first[r] = count * r / ranks;
    send(s, gather);
}

/* Where ranks share one: a micro-batch, when this rank has done its part (a wd_window's `end`). */
static void send_batch(void *context, const int64_t *states, int64_t count, int rank)
{
    wd_trajectory_source *s = context;
    int64_t packed;
    wd_gather *gather = pack(s, states, count, &packed);
    for (int r = 0; r <= s->options.comm->ranks; r++) gather->first[r] = r <= rank ? 0 : packed;
    send(s, gather);
}

/* Gathers have room for the targets of two rounds. */
wd_status wd__trajectory_source_open_exchange(wd_trajectory_source *s, wd_err *err)
{
    wd_target_exchange *x = &s->exchange;
    const wd_source_options *o = &s->options;
    const int64_t slots = o->trajectory.slots;
    const bool shared = s->sweep && wd_sweep_is_shared(s->sweep);
    const int64_t states = shared ? wd_sweep_options_of(s->sweep)->micro_batch : o->window;
    const size_t capacity = (size_t)s->ring.capacity;
    const char *what = "targets on their way";
    if (!o->comm || o->comm->ranks == 1) return WD_OK;
    WD_TRY(wd_alloc((void **)&x->begun, capacity, sizeof *x->begun, what, err));
    WD_TRY(wd_alloc((void **)&x->gather, capacity, sizeof *x->gather, what, err));
    WD_TRY(wd_alloc((void **)&x->awaited, (size_t)slots, sizeof *x->awaited, what, err));
    WD_TRY(wd_alloc((void **)&x->info, (size_t)states, sizeof *x->info, what, err));
    WD_TRY(wd_alloc((void **)&x->state, (size_t)states, sizeof *x->state, what, err));
    for (int64_t i = 0; i < states; i++) x->state[i] = i;
    return wd__gathers_open(&x->gathers, o->comm, s->home, 2 * ((slots + states - 1) / states),
                            states, s->ring.state_count, err);
}

void wd__trajectory_source_close_exchange(wd_trajectory_source *s)
{
    wd_target_exchange *x = &s->exchange;
    void *host[] = {x->begun, x->gather, x->awaited, x->info, x->state};
    for (size_t i = 0; i < sizeof host / sizeof *host; i++) wd_free(host[i]);
}

/* ---- windows ---- */

/* The window's place in the staging, which copies read. */
static int64_t staging_place(const wd_target_window *w)
{
    return w->number % w->places;
}

/* The noise that the trajectory of a state begins with comes into the ring: the opposite noise for
 * the second of a pair. */
static void bring_noise(wd_trajectory_source *s, int64_t state)
{
    const wd_target_window *w = &s->window;
    const wd_target_info *t = &w->info[state];
    const int64_t n = s->ring.state_count;
    const wd_random key = {.seed = s->options.trajectory.seed,
                           .stream = WD_RANDOM_TRAJECTORY,
                           .index = (uint64_t)t->pair};
    float *noise = w->noise + (staging_place(w) * s->options.window + state) * n;
    wd_random_normal(noise, n, key, 0);
    if (t->second)
        for (int64_t i = 0; i < n; i++) noise[i] = -noise[i];
    wd_queue_copy(s->home, s->ring.latents + (w->ring_index + state) * n, noise,
                  (size_t)n * sizeof(float));
}

/* Brings the states of a micro-batch into the ring, before the sweep reads them: see
 * wd_window_begin_fn. */
static void begin_states(void *context, const int64_t *states, int64_t count)
{
    wd_trajectory_source *s = context;
    const wd_target_info *info = s->window.info + s->window.own;
    const int64_t ring_index = s->window.ring_index + s->window.own;
    for (int64_t i = 0; i < count; i++) {
        const int64_t state = states[i];
        if (s->exchange.gathers) {
            wd__trajectory_source_take_until(s, s->exchange.awaited[info[state].slot]);
            s->exchange.begun[ring_index + state] = true;
        } else if (info[state].step == 0) {
            bring_noise(s, state);
        }
    }
    bring_states(s, info, ring_index, states, count);
    if (s->saving.writer) wd__trajectory_source_round_states(s, states, count);
}

/* Notes, for each state of the window, the step that its velocity leads to, and the event that
 * batches wait for. */
static void note_targets(wd_trajectory_source *s, int64_t count)
{
    const wd_target_window *w = &s->window;
    for (int64_t i = 0; i < count; i++) {
        wd__trajectory_states_expect(&s->states, w->info[i].slot, w->ring_index + i,
                                     w->delivered[i]);
        s->ring.arrival[w->ring_index + i] = w->delivered[i];
    }
}

/* Notes which targets the window has, and what follows from their numbers alone. */
static void begin_window(wd_trajectory_source *s, int64_t first, int64_t count)
{
    wd_target_window *w = &s->window;
    w->first = first;
    w->count = count;
    w->ring_index = wd__targets_ring_index(&s->ring, first);
    float *dt = w->dt + staging_place(w) * s->options.window;
    wd_event_wait(w->uploaded[staging_place(w)]);
    for (int64_t i = 0; i < count; i++) {
        wd_target_info *t = &w->info[i];
        *t = wd__trajectory_target(&s->options.trajectory, first + i);
        w->timestep[i] = t->timestep;
        w->prompt[i] = t->prompt;
        dt[i] = t->sigma_next - t->sigma;
        if (s->exchange.gathers && t->step == 0) bring_noise(s, i); /* whoever begins it */
    }
    wd_queue_copy(s->home, s->ring.dt + w->ring_index, dt, (size_t)count * sizeof(float));
}

static int64_t round_end(const wd_trajectory_source *s, int64_t round)
{
    return wd_trajectory_first_target(&s->options.trajectory, round + 1);
}

/* How many targets the window has that begins with target `first`, of `round`. Only in a round
 * before all have begun does one lie around the ring's end, where a sweep more is needed. */
static int64_t window_count(const wd_trajectory_source *s, int64_t round, int64_t first)
{
    const int64_t left = round_end(s, round) - first;
    const int64_t whole = s->ring.capacity - wd__targets_ring_index(&s->ring, first);
    int64_t count = s->options.window;
    if (count > left) count = left;
    return count < whole ? count : whole;
}

/* How many targets the next window has, which begins with target `first`; 0: the run ends before.
 */
static int64_t next_count(const wd_trajectory_source *s, int64_t first)
{
    const wd_source_options *o = &s->options;
    if (first < round_end(s, s->round)) return window_count(s, s->round, first);
    if (o->samples_end && first >= wd__stream_targets(&o->trajectory, o->samples_end, o->reuse))
        return 0;
    return window_count(s, s->round + 1, first);
}

/* Describes a window to the sweep: with `each`, every rank sweeps its share of it, else all of it.
 */
static wd_window_ahead ahead_of(const wd_trajectory_source *s, const float *timestep, int64_t count,
                                bool each)
{
    const wd_comm *comm = s->options.comm;
    if (!each) return (wd_window_ahead){timestep, count, 0, count};
    return (wd_window_ahead){timestep, count, count * comm->rank / comm->ranks,
                             count * (comm->rank + 1) / comm->ranks};
}

/* Announces the window and the next one, whose weights can then be fetched in time; returns the
 * description of the window. */
static wd_window_ahead announce(wd_trajectory_source *s, int64_t count, bool each)
{
    wd_target_window *w = &s->window;
    const int64_t after = next_count(s, w->first + count);
    const wd_window_ahead window = ahead_of(s, w->timestep, count, each);
    const wd_window_ahead next = ahead_of(s, w->next_timestep, after, each);
    for (int64_t i = 0; i < after; i++)
        w->next_timestep[i] =
            wd__trajectory_target(&s->options.trajectory, w->first + count + i).timestep;
    wd_sweep_announce(s->sweep, &window, &next);
    return window;
}

/* Shows how many of the first targets have been launched: of those of this window as many as of its
 * work. */
static void show_progress(void *context, int64_t done, int64_t total)
{
    wd_trajectory_source *s = context;
    wd_progress_at(&s->progress, s->base.targets + s->window.count * done / total);
}

/* Makes the targets [first, first + count) of one round, by one sweep. */
static wd_status run_window(wd_trajectory_source *s, int64_t first, int64_t count, wd_err *err)
{
    wd_target_window *w = &s->window;
    const bool shared = s->exchange.gathers && wd_sweep_is_shared(s->sweep);
    const bool each = s->exchange.gathers && !shared;
    const int64_t n = s->ring.state_count;
    WD_TRY(wd__trajectory_source_save_window(s, err));
    begin_window(s, first, count);
    const wd_window_ahead ahead = announce(s, count, each);
    w->own = ahead.first;
    const wd_window window = {.count = ahead.end - ahead.first,
                              .queue = s->home,
                              .latents = s->ring.latents + (w->ring_index + w->own) * n,
                              .velocity = s->ring.velocity + (w->ring_index + w->own) * n,
                              .timestep = w->timestep + w->own,
                              .prompt = w->prompt + w->own,
                              .begin = begin_states,
                              .end = shared ? send_batch : NULL,
                              .launched = s->progress.now.total ? show_progress : NULL,
                              .context = s,
                              .delivered = w->delivered + w->own};
    if (window.count) WD_TRY(wd_sweep_run(s->sweep, &window, err));
    if (s->saving.writer) wd__trajectory_source_round_velocities(s);
    if (each)
        send_window(s, count);
    else if (!shared)
        note_targets(s, count);
    wd_event_record(w->uploaded[staging_place(w)], s->home);
    w->number++;
    return WD_OK;
}

wd_status wd__trajectory_source_make_window(wd_trajectory_source *s, wd_err *err)
{
    const int64_t first = s->base.targets, count = window_count(s, s->round, first);
    WD_TRY(run_window(s, first, count, err));
    s->base.targets = first + count;
    s->round += s->base.targets == round_end(s, s->round);
    return WD_OK;
}

int64_t wd__trajectory_source_targets_after(const wd_trajectory_source *s, int64_t needed)
{
    int64_t targets = s->base.targets, round = s->round;
    while (targets < needed) {
        targets += window_count(s, round, targets);
        round += targets == round_end(s, round);
    }
    return targets;
}

wd_status wd__trajectory_source_make_round(wd_trajectory_source *s, wd_err *err)
{
    while (s->base.targets > wd_trajectory_first_target(&s->options.trajectory, s->round))
        WD_TRY(wd__trajectory_source_make_window(s, err));
    return WD_OK;
}

wd_status wd__trajectory_source_begin_step(wd_source *self, int64_t step, double progress,
                                           wd_err *err)
{
    wd_trajectory_source *s = (wd_trajectory_source *)self;
    const wd_trajectory_options *o = &s->options.trajectory;
    const bool ended = progress >= o->on_policy_end;
    if (!s->rollouts || (ended ? !self->snapshot : step % o->on_policy_every != 0)) return WD_OK;
    WD_TRY(wd__trajectory_source_make_round(s, err));
    /* states that other ranks evaluate are begun when their velocities are taken */
    if (s->exchange.gathers)
        wd__trajectory_source_take_until(s, wd__gathers_posted(s->exchange.gathers));
    if (!ended) wd__rollouts_take_snapshot(s->rollouts, s->queue);
    self->snapshot = ended ? NULL : wd__rollouts_snapshot(s->rollouts);
    return WD_OK;
}

/* ---- open and close ---- */

wd_status wd__trajectory_source_open_window(wd_trajectory_source *s, wd_err *err)
{
    wd_target_window *w = &s->window;
    wd_device *device = wd_queue_device(s->home);
    const char *what = "staging of trajectories";
    w->places = wd_device_places(device, WD_WINDOWS_UNDER_WAY);
    const size_t window = (size_t)s->options.window, staging = (size_t)w->places * window;
    const size_t state = (size_t)s->ring.state_count;
    WD_TRY(wd_host_alloc((void **)&w->dt, device, staging * sizeof(float), what, err));
    WD_TRY(wd_host_alloc((void **)&w->noise, device, staging * state * sizeof(float), what, err));
    WD_TRY(wd_alloc((void **)&w->info, window, sizeof *w->info, what, err));
    WD_TRY(wd_alloc((void **)&w->timestep, window, sizeof *w->timestep, what, err));
    WD_TRY(wd_alloc((void **)&w->next_timestep, window, sizeof *w->next_timestep, what, err));
    WD_TRY(wd_alloc((void **)&w->prompt, window, sizeof *w->prompt, what, err));
    WD_TRY(wd_alloc((void **)&w->delivered, window, sizeof *w->delivered, what, err));
    for (int i = 0; i < WD_WINDOWS_UNDER_WAY; i++)
        WD_TRY(wd_event_open(&w->uploaded[i], device, err));
    return WD_OK;
}

void wd__trajectory_source_close_window(wd_trajectory_source *s)
{
    wd_target_window *w = &s->window;
    void *host[] = {w->info, w->timestep, w->next_timestep, w->prompt, w->delivered};
    wd_host_free(wd_queue_device(s->home), w->dt);
    wd_host_free(wd_queue_device(s->home), w->noise);
    for (size_t i = 0; i < sizeof host / sizeof *host; i++) wd_free(host[i]);
    for (int i = 0; i < WD_WINDOWS_UNDER_WAY; i++) wd_event_close(w->uploaded[i]);
}
