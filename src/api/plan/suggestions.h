/* Suggestions for a run that does not fit, which are commands whose plans fit, and advice for one
 * that would be much faster with another strategy or a little less memory. Both try the same
 * changes to the options that let a run take less memory. */
#ifndef WD_API_PLAN_SUGGESTIONS_H
#define WD_API_PLAN_SUGGESTIONS_H

#include "api/plan/train_plan.h"
#include "api/setup/memory_report.h"
#include "train/loop/stepper.h"
#include "wandistiller.h"

/* ---- suggestions ---- */

/* Logs up to five commands whose plans fit, the fastest first, and returns WD_DOES_NOT_FIT. Those
 * that would make a worse student are last. */
wd_status wd__suggestions_refuse(const wd_train_plan *plan, const wd_train_setup *setup,
                                 wd_err *err);

/* Returns WD_OK if the memory plan fits. If not, it logs how much is missing on which device, and
 * goes on as wd__suggestions_refuse does. */
wd_status wd_suggestions_check(const wd_train_plan *plan, const wd_memory_plan *memory,
                               const wd_train_setup *setup, wd_err *err);

/* Logs a report after an allocation failed although the plan fits, because another program took the
 * memory: the message of `error`, every device's memory at that time (with several ranks the watch
 * reports it for all of them), and commands that need clearly less memory. */
void wd_suggestions_report(const wd_train_plan *plan, const wd_train_setup *setup,
                           const wd_memory_witness *witness, const wd_err *error);

/* ---- advice ---- */

/* For a run, before it begins: warns if a strategy that fits takes half the time or less of the one
 * that was asked for, or if auto has chosen one, and another that lacks memory would. Only rank 0
 * logs. */
void wd_advice_of_run(const wd_train_plan *plan);

/* For `plan`: warns as wd_advice_of_run does. Where memory is what is missing, it plans the run
 * with options that need less memory, and names those with which the run is fastest, half the time
 * or less: first options that make no worse student, then others. Where none helps it says what the
 * faster strategy lacks. The plans leave memory behind: not for a run. */
void wd__advice_log(const wd_train_plan *plan, const wd_train_setup *setup);

#endif
