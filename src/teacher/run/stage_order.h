/* The order in which streamed stages are brought to their device.
 *
 * Data flow: sweeps, as they are announced -> one sequence of turns, the experts of a sweep one
 * after another, each from its first stage to its last -> threads that bring the stages one by one.
 * The sequence runs ahead of the announced sweep by the first stages of the sweep that is expected
 * next. If a sweep of other experts is announced, also of none, these turns stay in the sequence,
 * and nobody uses their stages. A sweep of the expected experts must have states of the same ones
 * on this rank as was expected.
 *
 * Ranks that share a reader announce the same sweeps, so that a stage has the same number in the
 * sequences of all of them, whether a rank uses it or not. */
#ifndef WD_TEACHER_RUN_STAGE_ORDER_H
#define WD_TEACHER_RUN_STAGE_ORDER_H

#include "core/error.h"
#include "teacher/plan/placement.h"

/* The experts of which a sweep has states, bit e for expert e: of any rank, and of this rank. */
typedef struct wd_sweep_experts {
    unsigned all, own;
} wd_sweep_experts;

typedef struct wd_stage_turn {
    int64_t number; /* in the sequence */
    int expert, stage;
    bool wanted; /* this rank brings the stage */
} wd_stage_turn;

/* Plain data: whoever uses it from several threads has a lock. */
typedef struct wd_stage_order {
    wd_placed_stages part; /* the streamed stages; its placement is borrowed */
    int64_t sweep_turns;   /* turns of a sweep, at most */
    wd_stage_turn *turn;   /* [turns], by number modulo turns: the latest ones */
    int64_t turns;
    int64_t announced, end; /* numbers of the first turn that is not announced, and of the first
                             * one that is not even expected */
    wd_sweep_experts expected;
} wd_stage_order;

/* The sequence has one stage more of the next sweep than the placement has buffers for blocks. */
wd_status wd__stage_order_open(wd_stage_order *out, const wd_placed_stages *part, wd_err *err);
void wd__stage_order_close(wd_stage_order *order); /* a zeroed one is fine */

/* Whether a sweep may be added without loss of the turns from `first` on. */
bool wd__stage_order_has_room(const wd_stage_order *order, int64_t first);

/* Adds a sweep; `next`: the sweep that is expected after it, of no experts where nobody knows. */
void wd__stage_order_add(wd_stage_order *order, wd_sweep_experts sweep, wd_sweep_experts next);

/* The turn of a number below `end`. */
const wd_stage_turn *wd__stage_order_at(const wd_stage_order *order, int64_t number);

#endif
