/* A warning for a run that would be much faster with a little less memory. */
#ifndef WD_API_FASTER_H
#define WD_API_FASTER_H

#include "api/train_plan.h"

/* Logs a warning if auto has chosen a strategy, and options that need less memory
 * (api/memory_changes.h) would let a strategy fit that takes half the time or less. The warning
 * names the options of the first such set, and both times. All ranks call it. */
void wd_faster_warn(const wd_train_plan *plan, const wd_train_setup *setup);

#endif
