/* Suggestions for a run that does not fit: commands whose plans fit. */
#ifndef WD_API_SUGGESTIONS_H
#define WD_API_SUGGESTIONS_H

#include "api/memory_report.h"
#include "api/train_plan.h"

/* Returns WD_DOES_NOT_FIT if the memory plan does not fit, and logs how much is missing on which
 * device, and up to five commands whose plans fit, with the fewest changes first, then the fastest.
 */
wd_status wd_suggestions_check(const wd_train_plan *plan, const wd_memory_plan *memory,
                               const wd_train_setup *setup, wd_err *err);

/* Logs a report after an allocation failed although the plan fits, because another program took the
 * memory: the message of `error`, every device's memory at that time (with several ranks the watch
 * reports it for all of them), and commands that need clearly less memory. */
void wd_suggestions_report(const wd_train_plan *plan, const wd_train_setup *setup,
                           const wd_memory_witness *witness, const wd_err *error);

#endif
