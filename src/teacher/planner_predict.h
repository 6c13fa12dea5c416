/* How long a plan's steps take: the teacher's sweeps, played through, beside the student's. */
#ifndef WD_TEACHER_PLANNER_PREDICT_H
#define WD_TEACHER_PLANNER_PREDICT_H

#include "teacher/strategy_plan.h"

/* What takes more of the time of another plan than this is no faster. */
#define WD_PLANNER_FASTER 0.999

/* Fills in all of a plan that is of time and what limits it, from its placement, window and
 * micro-batch. `size` and `cluster`: with what sweeps of these need, and whether mapped weights are
 * read again. */
wd_status wd_planner_predict(wd_strategy_plan *plan, const wd_planner_input *input,
                             const wd_teacher_size *size, const wd_cluster *cluster, wd_err *err);

/* What a sweep over `states` states of one expert has to do under the plan, while no student
 * trains. */
wd_sweep_load wd_planner_load_alone(const wd_strategy_plan *plan, const wd_planner_input *input,
                                    int expert, int64_t states);

/* What moves, link by link; of `size` and `cluster` neither FLOPs nor rates are looked at. */
void wd_planner_move(wd_traffic *out, const wd_strategy_plan *plan, const wd_planner_input *input,
                     const wd_teacher_size *size, const wd_cluster *cluster);

#endif
