/* The predicted time of a run as text, with the figures from which it follows. */
#ifndef WD_API_PLAN_RUN_LENGTH_H
#define WD_API_PLAN_RUN_LENGTH_H

#include "api/plan/train_plan.h"
#include "teacher/plan/strategy_plan.h"
#include "train/targets/chord.h"
#include "wandistiller.h"

enum { WD_RUN_LENGTH_TEXT = 384, WD_DURATION_TEXT = 32 };

typedef struct wd_run_length {
    int64_t steps;   /* 0: not known, since no prompts are, of which epochs are counted */
    double seconds;  /* of all steps */
    double samples;  /* that all ranks train on */
    const char *why; /* the option that ends the run, such as "--num_steps"; "": epochs */
} wd_run_length;

/* The length of the run under this strategy. */
wd_run_length wd_run_length_of(const wd_train_plan *plan, const wd_train_setup *setup,
                               const wd_strategy_plan *candidate);

/* "18.2 hours". Returns `out`. */
const char *wd_duration_text(char out[WD_DURATION_TEXT], double seconds);

/* "1600 steps (10 epochs of 320 prompts), 1600 targets, each seen twice: 1.27 hours at 2.86 s per
 * step"; if no prompts are known yet, the time of 1000 steps. Returns `out`. */
const char *wd_run_length_text(char out[WD_RUN_LENGTH_TEXT], const wd_train_plan *plan,
                               const wd_train_setup *setup, const wd_strategy_plan *candidate);

/* ---- the limit: how long a step of several ranks may take before the watch (job/watch/watch.h)
 * ends the job ---- */

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
