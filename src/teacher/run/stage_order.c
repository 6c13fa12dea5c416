/* The order of streamed stages: see teacher/run/stage_order.h. */
#include "teacher/run/stage_order.h"

#include "core/error.h"
#include "core/memory.h"

enum { SWEEPS = 8 }; /* that the sequence has room for */

wd_status wd__stage_order_open(wd_stage_order *out, const wd_placed_stages *part, wd_err *err)
{
    const int64_t sweep_turns = (int64_t)part->placement->experts * part->placement->stages;
    *out =
        (wd_stage_order){.part = *part, .sweep_turns = sweep_turns, .turns = SWEEPS * sweep_turns};
    return wd_alloc((void **)&out->turn, (size_t)out->turns, sizeof *out->turn, "stages in order",
                    err);
}

void wd__stage_order_close(wd_stage_order *order)
{
    wd_free(order->turn);
}

const wd_stage_turn *wd__stage_order_at(const wd_stage_order *order, int64_t number)
{
    return &order->turn[number % order->turns];
}

bool wd__stage_order_has_room(const wd_stage_order *order, int64_t first)
{
    return order->end + 2 * order->sweep_turns - first <= order->turns;
}

/* Adds at most `most` stages of a sweep, but its first `skip`. */
static void append(wd_stage_order *o, wd_sweep_experts sweep, int64_t skip, int64_t most)
{
    for (int e = 0, s = -1; most > 0 && wd_placed_stages_next(&o->part, &e, &s);) {
        if (!(sweep.all >> e & 1) || skip-- > 0) continue;
        o->turn[o->end % o->turns] = (wd_stage_turn){o->end, e, s, sweep.own >> e & 1};
        o->end++;
        most--;
    }
}

void wd__stage_order_add(wd_stage_order *o, wd_sweep_experts sweep, wd_sweep_experts next)
{
    const bool as_expected = sweep.all == o->expected.all;
    WD_REQUIRE(!as_expected || sweep.own == o->expected.own,
               "a sweep of experts %x was announced where %x were expected", sweep.own,
               o->expected.own);
    append(o, sweep, as_expected ? o->end - o->announced : 0, o->sweep_turns);
    o->announced = o->end;
    o->expected = next;
    append(o, next, 0, o->part.placement->buffers + 1);
}
