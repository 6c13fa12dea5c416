/* Folder teacher/plan. Where the teacher's weights are and what that costs, in bytes and seconds;
 * it launches nothing.
 *
 * The planner: for every strategy the plan it makes of a teacher and a machine, and which is best.
 *
 * Data flow: sizes of stages, budgets, sweeps' options -> per strategy: window and micro-batch ->
 * placement -> bytes per device and host, seconds per step. Nothing is loaded; what sweeps need is
 * found by running their stages dry, so devices are there, but untouched. */
#ifndef WD_TEACHER_PLAN_PLANNER_H
#define WD_TEACHER_PLAN_PLANNER_H

#include "teacher/plan/strategy_plan.h"

typedef struct wd_planner wd_planner;

/* `input` is copied. */
wd_status wd_planner_open(wd_planner **out, const wd_planner_input *input, wd_err *err);
void wd_planner_close(wd_planner *planner); /* NULL is allowed */

/* Plans one strategy, or for auto all of them, of which *out is the best plan. Where no window was
 * asked for, it is the largest of all trajectories, half of them, a quarter, ... that fits, unless
 * a smaller one is faster. WD_UNSUPPORTED: these devices cannot serve the strategy; the message
 * names those that they can. */
wd_status wd_planner_plan(wd_strategy_plan *out, wd_planner *planner, wd_strategy strategy,
                          wd_err *err);

/* Whether `a` is the better plan: it fits and `b` does not, or it is faster (as three digits show
 * it), or moves fewer bytes, or takes fewer. Of two that do not fit, the better one lacks fewer
 * bytes at its worst place, or everywhere together. */
bool wd_planner_is_better(const wd_strategy_plan *a, const wd_strategy_plan *b);

/* *out = the plans of all strategies but auto, [WD_STRATEGY_auto], which belong to the planner. */
wd_status wd_planner_all(const wd_strategy_plan **out, wd_planner *planner, wd_err *err);

/* The best of these plans; of equally good ones the first in the order of wd_strategy. */
const wd_strategy_plan *wd_planner_best(const wd_strategy_plan *all);

/* The bytes per step that are copied to devices, from them, and between them. */
double wd_planner_copied(const wd_strategy_plan *plan);

/* The bytes that move in a step of the plan, link by link; valid until the planner's next call. */
const wd_traffic *wd_planner_traffic(wd_planner *planner, const wd_strategy_plan *plan);

/* Plays the plan's sweeps with a load, which is plan->load or another one: see
 * teacher/plan/timeline.h.
 */
wd_status wd_planner_play(wd_timeline *out, wd_planner *planner, const wd_strategy_plan *plan,
                          const wd_sweep_load *load, wd_timeline_fn *fn, void *context,
                          wd_err *err);

/* ---- how long a plan's steps take: planner_predict.c ---- */

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
