/* What a plan comes to: whether the run fits, what it takes, and the command that starts it. */
#ifndef WD_API_PLAN_PLAN_VERDICT_H
#define WD_API_PLAN_PLAN_VERDICT_H

#include "api/plan/plan_print.h"
#include "core/text_builder.h"
#include "wandistiller.h"

/* Sets in *out the options of `train` for the run that `options` plan: a published model's Hub id
 * for a preset, and names for the file of prompts and for the output folder where none is given.
 * With simulated devices the command is for a machine that has such ones, so it names neither them
 * nor --host_memory. Strings belong to `options` or are literals. */
void wd_plan_command_options(wd_train_options *out, const wd_plan_options *options,
                             const wd_device_list *devices);

/* Prints the verdict of the strategy that the table shows. */
void wd_plan_verdict_say(wd_text_builder *builder, const wd_plan_table *table);

/* The same as JSON: strategy, fits, steps and samples (null: not known), seconds, command (null: it
 * does not fit). */
json_t *wd_plan_verdict_json(const wd_plan_table *table);

#endif
