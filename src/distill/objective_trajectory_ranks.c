/* Targets of several ranks: all have the same trajectories and the same pool. Each evaluates its
 * share of a window, or, where they share a teacher, they evaluate it together; what a rank has not
 * evaluated comes by shipment (distill/shipment.h). A state that this rank has no part in is begun
 * when its velocity is taken, so that it keeps nobody waiting. */
#include "distill/objective_trajectory_impl.h"

/* The oldest shipment: its states that were not begun here are, its velocities come. */
static void take_oldest(wd_trajectory_objective *o)
{
    const wd_shipment *of = wd_shipments_await(o->shipments);
    const int rank = o->options.comm->rank;
    const int64_t count = of->first[o->options.comm->ranks];
    for (int64_t i = 0, n; i < count; i += n) { /* neighbours that are to be begun go together */
        n = 0;
        while (i + n < count && !o->begun[of->place[i + n]] &&
               of->place[i + n] == of->place[i] + n) {
            o->come_info[n] = wd_trajectory_target(&o->options.trajectory, of->target[i + n]);
            o->come_state[n] = n;
            n++;
        }
        wd_states_begin(o, o->come_info, of->place[i], o->come_state, n);
        for (int64_t k = i; k < i + n; k++)
            o->pending[o->come_info[k - i].slot] = (wd_pending_step){of->place[k], NULL};
        if (n) continue;
        const bool mine = i >= of->first[rank] && i < of->first[rank + 1];
        if (!mine)
            o->pending[wd_trajectory_target(&o->options.trajectory, of->target[i]).slot] =
                (wd_pending_step){of->place[i], NULL};
        o->begun[of->place[i]] = false;
        n = 1;
    }
    wd_shipments_take(o->shipments, o->pool_target, o->queue);
}

void wd_targets_take_until(wd_trajectory_objective *o, int64_t shipment)
{
    while (wd_shipments_taken(o->shipments) < shipment) take_oldest(o);
}

/* Whether states[i] is not the state before it once more. */
static bool is_new(const int64_t *states, int64_t i)
{
    return !states || !i || states[i] != states[i - 1];
}

/* Those states of the window, each of which may come more than once in a row, will be sent. */
static wd_shipment *pack(wd_trajectory_objective *o, const int64_t *states, int64_t count,
                         int64_t *packed)
{
    if (wd_shipments_is_full(o->shipments)) take_oldest(o);
    *packed = 0;
    for (int64_t i = 0; i < count; i++) *packed += is_new(states, i);
    wd_shipment *to = wd_shipments_pack(o->shipments, *packed);
    for (int64_t i = 0, n = 0; i < count; i++) {
        const int64_t state = states ? states[i] : i;
        if (!is_new(states, i)) continue;
        to->target[n] = o->first + state;
        to->place[n++] = o->at + state;
    }
    return to;
}

/* Steps that follow from what this rank has begun and evaluated need not wait for the shipment. */
static void send(wd_trajectory_objective *o, const wd_shipment *packed)
{
    const int rank = o->options.comm->rank;
    const wd_event *last = NULL;
    for (int64_t i = packed->first[rank]; i < packed->first[rank + 1]; i++) {
        wd_event *delivered = o->delivered[packed->target[i] - o->first];
        if (delivered != last) wd_shipments_wait_on(o->shipments, delivered);
        last = delivered;
    }
    wd_shipments_send(o->shipments, o->pool_target);
    const int64_t number = wd_shipments_sent(o->shipments);
    for (int64_t i = 0; i < packed->first[o->options.comm->ranks]; i++) {
        const int64_t state = packed->target[i] - o->first, place = packed->place[i];
        const int64_t slot = o->info[state].slot;
        const bool mine = i >= packed->first[rank] && i < packed->first[rank + 1];
        o->shipment[place] = number;
        if (mine && o->begun[place])
            o->pending[slot] = (wd_pending_step){place, o->delivered[state]};
        else
            o->slot_shipment[slot] = number;
    }
}

void wd_targets_send_window(wd_trajectory_objective *o, int64_t count)
{
    const int ranks = o->options.comm->ranks;
    int64_t packed;
    wd_shipment *to = pack(o, NULL, count, &packed);
    for (int r = 0; r <= ranks; r++) to->first[r] = count * r / ranks;
    send(o, to);
}

void wd_targets_send_batch(void *context, const int64_t *states, int64_t count, int rank)
{
    wd_trajectory_objective *o = context;
    int64_t packed;
    wd_shipment *to = pack(o, states, count, &packed);
    for (int r = 0; r <= o->options.comm->ranks; r++) to->first[r] = r <= rank ? 0 : packed;
    send(o, to);
}
