/* The order of streamed stages: see teacher/stage_order.h. */
#include "teacher/stage_order.h"

#include <pthread.h>

#include "core/memory.h"
#include "core/require.h"

enum { SWEEPS = 8 }; /* that the sequence has room for */

struct wd_stage_order {
    wd_placed_part part; /* the stages that come */
    int64_t most;        /* stages of a sweep, at most */
    bool leaving;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    wd_stage_turn *turn; /* [turns], by number modulo turns */
    int64_t turns;
    int64_t announced, end; /* numbers: behind what is announced, and behind what is expected */
    int64_t next[WD_FOLLOWERS];
    wd_sweep_experts expected; /* of the sweep that is expected */
};

wd_status wd_stage_order_open(wd_stage_order **out, const wd_placed_part *part, bool reads,
                              wd_err *err)
{
    wd_stage_order *o;
    WD_TRY(wd_alloc((void **)&o, 1, sizeof *o, "stages in order", err));
    o->part = *part;
    o->most = (int64_t)part->placement->experts * part->placement->stages;
    if (!reads) o->next[WD_FOLLOWER_READS] = INT64_MAX; /* it needs nothing */
    o->turns = SWEEPS * o->most;
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->changed, NULL);
    const wd_status status =
        wd_alloc((void **)&o->turn, (size_t)o->turns, sizeof *o->turn, "stages in order", err);
    if (status == WD_OK)
        *out = o;
    else
        wd_stage_order_close(o);
    return status;
}

void wd_stage_order_close(wd_stage_order *order)
{
    if (!order) return;
    pthread_cond_destroy(&order->changed);
    pthread_mutex_destroy(&order->lock);
    wd_free(order->turn);
    wd_free(order);
}

static wd_stage_turn *turn_at(wd_stage_order *o, int64_t number)
{
    return &o->turn[number % o->turns];
}

/* Adds at most `most` stages of a sweep, but its first `skip`. */
static void append(wd_stage_order *o, wd_sweep_experts sweep, int64_t skip, int64_t most)
{
    for (int e = 0, s = -1; most > 0 && wd_placed_part_next(&o->part, &e, &s);) {
        if (!(sweep.all >> e & 1) || skip-- > 0) continue;
        *turn_at(o, o->end) = (wd_stage_turn){
            .number = o->end, .expert = e, .stage = s, .wanted = sweep.own >> e & 1, .read = true};
        o->end++;
        most--;
    }
}

/* The first number that a follower still needs. */
static int64_t first_needed(const wd_stage_order *o)
{
    const int64_t brings = o->next[WD_FOLLOWER_BRINGS], reads = o->next[WD_FOLLOWER_READS];
    return reads < brings ? reads : brings;
}

void wd_stage_order_add(wd_stage_order *o, wd_sweep_experts sweep, wd_sweep_experts next)
{
    pthread_mutex_lock(&o->lock);
    while (o->end + 2 * o->most - first_needed(o) > o->turns && !o->leaving)
        pthread_cond_wait(&o->changed, &o->lock);
    const bool as_expected = sweep.all == o->expected.all;
    WD_REQUIRE(!as_expected || !(sweep.own & ~o->expected.own) || o->end == o->announced,
               "a sweep of experts %x was announced where %x were expected", sweep.own,
               o->expected.own);
    for (int64_t n = o->announced; n < o->end; n++) {
        wd_stage_turn *turn = turn_at(o, n);
        turn->read = as_expected;
        turn->wanted = as_expected && sweep.own >> turn->expert & 1;
    }
    append(o, sweep, as_expected ? o->end - o->announced : 0, o->most);
    o->announced = o->end;
    o->expected = next;
    append(o, next, 0, o->part.placement->buffers + 1);
    pthread_cond_broadcast(&o->changed);
    pthread_mutex_unlock(&o->lock);
}

bool wd_stage_order_next(wd_stage_turn *out, wd_stage_order *o, wd_stage_follower who)
{
    pthread_mutex_lock(&o->lock);
    while (o->next[who] == o->end && !o->leaving) pthread_cond_wait(&o->changed, &o->lock);
    const bool goes_on = !o->leaving;
    if (goes_on) *out = *turn_at(o, o->next[who]++);
    pthread_cond_broadcast(&o->changed);
    pthread_mutex_unlock(&o->lock);
    return goes_on;
}

bool wd_stage_order_wants(wd_stage_order *o, int64_t number)
{
    pthread_mutex_lock(&o->lock);
    const bool wanted = turn_at(o, number)->wanted;
    pthread_mutex_unlock(&o->lock);
    return wanted;
}

void wd_stage_order_leave(wd_stage_order *o)
{
    pthread_mutex_lock(&o->lock);
    o->leaving = true;
    pthread_cond_broadcast(&o->changed);
    pthread_mutex_unlock(&o->lock);
}
