/* How long a plan's steps take: the teacher's sweeps, played through, beside the student's. */
#ifndef WD_TEACHER_PLAN_PLANNER_PREDICT_H
#define WD_TEACHER_PLAN_PLANNER_PREDICT_H

#include "teacher/plan/strategy_plan.h"

/* Fills in the times of a plan and what limits them, from its placement, window and micro-batch.
 * `size` and `cluster` say what such sweeps need, and whether mapped weights are read again. */
wd_status wd__planner_predict(wd_strategy_plan *plan, const wd_planner_input *input,
                              const wd_teacher_size *size, const wd_cluster *cluster, wd_err *err);

/* The load of a rank's sweep over `states` states of one expert under the plan, where such sweeps
 * follow one another and no student trains. `states`: at most wd_placed_window of the plan's
 * window.
 */
wd_sweep_load wd_planner_load_alone(const wd_strategy_plan *plan, const wd_planner_input *input,
                                    int expert, int64_t states);

/* *out = the bytes that move in a step, link by link. FLOPs and rates do not matter. */
void wd__planner_move(wd_traffic *out, const wd_strategy_plan *plan, const wd_planner_input *input,
                      const wd_teacher_size *size, const wd_cluster *cluster);

#endif
