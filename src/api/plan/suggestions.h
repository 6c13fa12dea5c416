/* Suggestions for a run that does not fit: commands whose plans fit. */
#ifndef WD_API_PLAN_SUGGESTIONS_H
#define WD_API_PLAN_SUGGESTIONS_H

#include "api/plan/train_plan.h"
#include "api/setup/memory_report.h"

/* Logs up to five commands whose plans fit, the fastest first, and returns WD_DOES_NOT_FIT. Those
 * that would make a worse student are last. */
wd_status wd_suggestions_refuse(const wd_train_plan *plan, const wd_train_setup *setup,
                                wd_err *err);

/* Returns WD_OK if the memory plan fits. If not, it logs how much is missing on which device, and
 * goes on as wd_suggestions_refuse does. */
wd_status wd_suggestions_check(const wd_train_plan *plan, const wd_memory_plan *memory,
                               const wd_train_setup *setup, wd_err *err);

/* Logs a report after an allocation failed although the plan fits, because another program took the
 * memory: the message of `error`, every device's memory at that time (with several ranks the watch
 * reports it for all of them), and commands that need clearly less memory. */
void wd_suggestions_report(const wd_train_plan *plan, const wd_train_setup *setup,
                           const wd_memory_witness *witness, const wd_err *error);

#endif
