/* Targets of several ranks: all have the same trajectories and the same ring. Each evaluates its
 * share of a window, or, where they share a teacher, they evaluate it together; what a rank has not
 * evaluated comes with a gather (train/targets/gathers.h). */
#include "core/memory.h"
#include "train/targets/source_trajectory_impl.h"

/* Takes the oldest gather: begins those of its states that this rank has not begun, and brings the
 * other ranks' velocities into the ring. */
static void take_oldest(wd_trajectory_source *s)
{
    wd_target_exchange *x = &s->exchange;
    const wd_trajectory_options *t = &s->options.trajectory;
    const wd_gather *gather = wd_gathers_await(x->gathers);
    const int rank = s->options.comm->rank;
    const int64_t count = gather->first[s->options.comm->ranks];
    for (int64_t i = 0, n; i < count; i += n) { /* neighbours that are to be begun go together */
        const int64_t ring_index = gather->place[i];
        for (n = 0;
             i + n < count && gather->place[i + n] == ring_index + n && !x->begun[ring_index + n];
             n++)
            x->info[n] = wd_trajectory_target(t, gather->target[i + n]);
        wd_trajectory_source_begin_states(s, x->info, ring_index, x->state, n);
        for (int64_t k = 0; k < n; k++)
            wd_trajectory_states_expect(&s->states, x->info[k].slot, ring_index + k, NULL);
        if (n) continue;
        const bool mine = i >= gather->first[rank] && i < gather->first[rank + 1];
        if (!mine)
            wd_trajectory_states_expect(&s->states, wd_trajectory_target(t, gather->target[i]).slot,
                                        ring_index, NULL);
        x->begun[ring_index] = false;
        n = 1;
    }
    wd_gathers_take(x->gathers, s->ring.velocity, s->queue);
}

void wd_trajectory_source_take_until(wd_trajectory_source *s, int64_t gather)
{
    while (wd_gathers_taken(s->exchange.gathers) < gather) take_oldest(s);
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
    if (wd_gathers_is_full(s->exchange.gathers)) take_oldest(s);
    *packed = 0;
    for (int64_t i = 0; i < count; i++) *packed += is_new(states, i);
    wd_gather *gather = wd_gathers_pack(s->exchange.gathers, *packed);
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
        if (delivered != last) wd_gathers_wait_on(x->gathers, delivered);
        last = delivered;
    }
    wd_gathers_post(x->gathers, s->ring.velocity);
    const int64_t number = wd_gathers_posted(x->gathers);
    for (int64_t i = 0; i < gather->first[s->options.comm->ranks]; i++) {
        const int64_t state = gather->target[i] - w->first, ring_index = gather->place[i];
        const int64_t slot = w->info[state].slot;
        const bool mine = i >= gather->first[rank] && i < gather->first[rank + 1];
        x->gather[ring_index] = number;
        if (mine && x->begun[ring_index])
            wd_trajectory_states_expect(&s->states, slot, ring_index, w->delivered[state]);
        else
            x->awaited[slot] = number;
    }
}

void wd_trajectory_source_send_window(wd_trajectory_source *s, int64_t count)
{
    const int ranks = s->options.comm->ranks;
    int64_t packed;
    wd_gather *gather = pack(s, NULL, count, &packed);
    for (int r = 0; r <= ranks; r++) gather->first[r] = count * r / ranks;
    send(s, gather);
}

void wd_trajectory_source_send_batch(void *context, const int64_t *states, int64_t count, int rank)
{
    wd_trajectory_source *s = context;
    int64_t packed;
    wd_gather *gather = pack(s, states, count, &packed);
    for (int r = 0; r <= s->options.comm->ranks; r++) gather->first[r] = r <= rank ? 0 : packed;
    send(s, gather);
}

/* Gathers have room for the targets of two rounds. */
wd_status wd_trajectory_source_open_exchange(wd_trajectory_source *s, wd_err *err)
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
    return wd_gathers_open(&x->gathers, o->comm, s->home, 2 * ((slots + states - 1) / states),
                           states, s->ring.state_count, err);
}

void wd_trajectory_source_close_exchange(wd_trajectory_source *s)
{
    wd_target_exchange *x = &s->exchange;
    void *host[] = {x->begun, x->gather, x->awaited, x->info, x->state};
    for (size_t i = 0; i < sizeof host / sizeof *host; i++) wd_free(host[i]);
}
