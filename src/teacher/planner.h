/* The planner: for every strategy the plan it makes of a teacher and a machine, and which is best.
 *
 * Data flow: sizes of stages, budgets, sweeps' options -> per strategy: window and micro-batch ->
 * placement -> bytes per device and host, seconds per step. Nothing is loaded; what sweeps need is
 * found by running their stages dry, so devices are there, but untouched. */
#ifndef WD_TEACHER_PLANNER_H
#define WD_TEACHER_PLANNER_H

#include "teacher/strategy_plan.h"

typedef struct wd_planner wd_planner;

/* `input` is copied. */
wd_status wd_planner_open(wd_planner **out, const wd_planner_input *input, wd_err *err);
void wd_planner_close(wd_planner *planner); /* NULL is allowed */

/* Of one strategy other than auto. Where no window was asked for: the largest of all trajectories,
 * half of them, a quarter, ... that fits, unless a smaller one is faster. */
wd_status wd_planner_plan(wd_strategy_plan *out, wd_planner *planner, wd_strategy strategy,
                          wd_err *err);

/* The same, but what cannot be had is an error: WD_UNSUPPORTED, with the strategies that can. */
wd_status wd_planner_need(wd_strategy_plan *out, wd_planner *planner, wd_strategy strategy,
                          wd_err *err);

/* Whether weights that are used where they are mapped are more than the page cache can keep, so
 * that each sweep reads them from disk again. */
bool wd_planner_is_uncached(const wd_strategy_plan *plan);

/* What fits, then what is faster (by what three digits show), moves fewer bytes, takes fewer; of
 * what does not fit, what lacks less at its worst place, then at all together. */
bool wd_planner_is_better(const wd_strategy_plan *a, const wd_strategy_plan *b);

/* All strategies that placements can have, without auto: [WD_STRATEGY_auto], the planner's own. */
wd_status wd_planner_all(const wd_strategy_plan **out, wd_planner *planner, wd_err *err);

/* The best of all of them; of equally good ones the first by wd_strategy. */
wd_strategy_plan wd_planner_best(const wd_strategy_plan *all);

/* The same, planned for it. */
wd_status wd_planner_auto(wd_strategy_plan *out, wd_planner *planner, wd_err *err);

/* Over the links of devices: all that is copied to them, from them and between them. */
double wd_planner_copied(const wd_strategy_plan *plan);

/* What moves in a step of the plan, link by link; good until the planner is asked for something
 * else. */
const wd_traffic *wd_planner_traffic(wd_planner *planner, const wd_strategy_plan *plan);

/* *out = how long a rank's sweep over `states` states of one expert takes under the plan, of sweeps
 * that follow one another while no student trains: `states` is at most what of a window a rank's
 * sweep has (wd_placed_window). */
wd_status wd_planner_sweep_seconds(double *out, wd_planner *planner, const wd_strategy_plan *plan,
                                   int expert, int64_t states, wd_err *err);

/* Plays the plan's sweeps once more, for `fn` to see: see teacher/timeline.h. */
wd_status wd_planner_play(wd_planner *planner, const wd_strategy_plan *plan, wd_timeline_fn *fn,
                          void *context, wd_err *err);

#endif
