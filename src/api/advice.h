/* Advice for a run that does not fit, or that would be much faster with a little less memory. */
#ifndef WD_API_ADVICE_H
#define WD_API_ADVICE_H

#include "api/train_plan.h"

/* Whether auto has chosen a strategy, and another one would take half the time or less, but lacks
 * memory. */
bool wd_advice_is_slow(const wd_train_plan *plan);

/* If so, or if auto has found no strategy that fits, plans the run with options that need less
 * memory and make no worse student (api/memory_changes.h). Logs a warning that names those with
 * which the run is fastest: half the time or less. The plans leave memory behind: not for a run. */
void wd_advice_log(const wd_train_plan *plan, const wd_train_setup *setup);

#endif
