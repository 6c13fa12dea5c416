/* The order in which streamed stages come.
 *
 * Data flow: sweeps, as they are announced -> one sequence of stages, the experts of a sweep one
 * after another, each from its first stage to its last -> a thread that brings them one by one.
 * The sequence runs ahead of the announced sweep by the first stages of the sweep that is expected
 * next. If a sweep of other experts is announced, also of none, these are not wanted any more. A
 * sweep of the expected experts must not have one of which this rank expected no state, since the
 * rank may have passed over its stages.
 *
 * Ranks that share a reader announce the same sweeps, so that a stage has the same number in the
 * sequences of all of them, whether it is wanted there or not. */
#ifndef WD_TEACHER_STAGE_ORDER_H
#define WD_TEACHER_STAGE_ORDER_H

#include "core/error.h"
#include "teacher/placement.h"

/* The experts of which a sweep has states, bit e for expert e: of any rank, and of this rank. */
typedef struct wd_sweep_experts {
    unsigned all, own;
} wd_sweep_experts;

typedef struct wd_stage_order wd_stage_order;

typedef struct wd_stage_turn {
    int64_t number; /* in the sequence */
    int expert, stage;
    bool wanted; /* this rank uses the stage */
    bool read;   /* some rank does */
} wd_stage_turn;

/* The threads that follow the sequence, each at its own pace. */
typedef enum wd_stage_follower {
    WD_FOLLOWER_BRINGS, /* to the device */
    WD_FOLLOWER_READS,  /* from the files for all ranks of a host; only where there is one */
    WD_FOLLOWERS
} wd_stage_follower;

/* `part`: the stages that come; its placement is borrowed. The sequence has one stage more of the
 * next sweep than the placement has buffers for blocks. `reads`: there is a thread that reads. */
wd_status wd_stage_order_open(wd_stage_order **out, const wd_placed_part *part, bool reads,
                              wd_err *err);
void wd_stage_order_close(wd_stage_order *order); /* NULL is allowed */

/* Adds a sweep; `next`: the sweep that is expected after it, of no experts where nobody knows.
 * Waits while a follower is several sweeps behind. */
void wd_stage_order_add(wd_stage_order *order, wd_sweep_experts sweep, wd_sweep_experts next);

/* Waits for the follower's next turn. false: wd_stage_order_leave was called. */
bool wd_stage_order_next(wd_stage_turn *out, wd_stage_order *order, wd_stage_follower who);

/* Whether this rank still uses a stage that came, now that more is announced. */
bool wd_stage_order_wants(wd_stage_order *order, int64_t number);

/* Ends all waiting, for good. */
void wd_stage_order_leave(wd_stage_order *order);

#endif
