/* What to do when a run does not fit: the plans that would, as commands. */
#ifndef WD_API_SUGGESTIONS_H
#define WD_API_SUGGESTIONS_H

#include "api/memory_report.h"
#include "api/train_plan.h"

/* WD_DOES_NOT_FIT where the memory plan does not fit; logs what is missing, where, and up to five
 * commands whose plans fit, the fewest changes first, then the fastest. */
wd_status wd_suggestions_check(const wd_train_plan *plan, const wd_memory_plan *memory,
                               const wd_train_setup *setup, wd_err *err);

/* Logs what there is to say when an allocation has failed all the same, for others took the memory:
 * what was asked for and by whom (`error`), every device's memory at that moment (where there are
 * ranks, the watch says it of all of them), and the commands that take clearly less. */
void wd_suggestions_report(const wd_train_plan *plan, const wd_train_setup *setup,
                           const wd_memory_witness *witness, const wd_err *error);

#endif
