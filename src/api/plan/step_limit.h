/* How long a step of several ranks may take before the watch (job/watch/watch.h) ends the job. */
#ifndef WD_API_PLAN_STEP_LIMIT_H
#define WD_API_PLAN_STEP_LIMIT_H

#include "teacher/plan/strategy_plan.h"
#include "train/targets/chord.h"
#include "wandistiller.h"

/* Seconds: --step_timeout, or else far more than the plan predicts. */
double wd_step_limit(const wd_train_options *options, const wd_strategy_plan *plan);

/* The predicted seconds, at most, until the first targets of a phase are made: before the first one
 * of a student of few steps is known, the teacher makes a whole chord along each trajectory. */
double wd_first_targets_seconds(const wd_trajectory_options *trajectory,
                                const wd_strategy_plan *plan);

/* Seconds that the first step of a phase may take beyond that, three times what is predicted
 * for its first targets. 0 with --step_timeout. */
double wd_step_limit_first(const wd_train_options *options, const wd_trajectory_options *trajectory,
                           const wd_strategy_plan *plan);

#endif
