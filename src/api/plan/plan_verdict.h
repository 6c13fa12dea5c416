/* What a plan comes to: whether the run fits, what it takes, and the command that starts it. */
#ifndef WD_API_PLAN_PLAN_VERDICT_H
#define WD_API_PLAN_PLAN_VERDICT_H

#include "api/plan/plan_print.h"
#include "api/plan/train_plan.h"
#include "core/text.h"
#include "teacher/plan/strategy_plan.h"
#include "train/targets/chord.h"
#include "wandistiller.h"

/* ---- the length of a run ---- */

enum { WD_RUN_LENGTH_TEXT = 448 };

/* The predicted time of a run, with the figures from which it follows: "1600 steps (10 epochs of
 * 320 prompts), 1600 targets, each seen twice: 1.27 hours at 2.86 s per step; a million samples
 * take 24.8 hours". Returns `out`. */
const char *wd_run_length_text(char out[WD_RUN_LENGTH_TEXT], const wd_train_plan *plan,
                               const wd_train_setup *setup, const wd_strategy_plan *candidate);

/* ---- how long a step may take ---- */

/* Seconds that a step of several ranks may take before the watch (job/watch/watch.h) ends the job:
 * --step_timeout, or else far more than the plan predicts. */
double wd_step_limit(const wd_train_options *options, const wd_strategy_plan *plan);

/* Seconds that the first step of a phase may take beyond that, three times what is predicted
 * for its first targets. 0 with --step_timeout. */
double wd_step_limit_first(const wd_train_options *options, const wd_trajectory_options *trajectory,
                           const wd_strategy_plan *plan);

/* ---- the verdict ---- */

/* Sets in *out the options of `train` for the run that `options` plan: a published model's Hub id
 * for a preset, and names for the file of prompts and for the output folder where none is given.
 * With simulated devices the command is for a machine that has such ones, so it names neither them
 * nor --host_memory. Strings belong to `options` or are literals. */
void wd__plan_command_options(wd_train_options *out, const wd_plan_options *options,
                              const wd_device_list *devices);

/* Prints the verdict of the strategy that the table shows. */
void wd__plan_verdict_say(wd_text_builder *builder, const wd_plan_table *table);

/* The same as JSON: strategy, fits, steps, samples and seconds (null: not known), seconds of a
 * million samples, command (null: it does not fit). */
json_t *wd__plan_verdict_json(const wd_plan_table *table);

#endif
