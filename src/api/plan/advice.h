/* Advice for a run that would be much faster with another strategy, or with a little less memory.
 */
#ifndef WD_API_PLAN_ADVICE_H
#define WD_API_PLAN_ADVICE_H

#include "api/plan/train_plan.h"

/* For a run, before it begins: warns if a strategy that fits takes half the time or less of the one
 * that was asked for, or if auto has chosen one, and another that lacks memory would. Only rank 0
 * logs. */
void wd_advice_of_run(const wd_train_plan *plan);

/* For `plan`: warns as wd_advice_of_run does. Where memory is what is missing, it plans the run
 * with options that need less memory and make no worse student (api/plan/suggestions.h), and
 * names those with which the run is fastest: half the time or less. The plans leave memory behind:
 * not for a run. */
void wd_advice_log(const wd_train_plan *plan, const wd_train_setup *setup);

#endif
