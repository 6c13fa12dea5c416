/* How often the student trains on a target, where --target_reuse auto leaves it to the plan. */
#ifndef WD_API_PLAN_TARGET_REUSE_H
#define WD_API_PLAN_TARGET_REUSE_H

#include "api/plan/sheets.h"

enum { WD_TARGET_REUSE_TEXT = 160 };

/* Decides, if the options leave it open. It starts with the usual number, and doubles it as long as
 * that shortens a step enough, by this plan's rates (docs/recipe.md has the runs from which the
 * rule comes). Sets the option and the stepper's phases, and replaces *plan. `asked`: the sheets
 * before the decision about them, which is made anew. A run that does not fit keeps the usual
 * number. All ranks call it. */
wd_status wd__target_reuse_choose(wd_train_plan *plan, wd_train_setup *setup, wd_asked_sheets asked,
                                  wd_err *err);

/* Writes one line that says what was chosen, and why, into `out`; "" if the options say it, or the
 * run does not fit. Returns `out`. */
const char *wd_target_reuse_text(char out[WD_TARGET_REUSE_TEXT], const wd_train_plan *plan,
                                 const wd_train_setup *setup);

#endif
