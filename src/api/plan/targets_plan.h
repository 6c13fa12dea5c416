/* What --save_targets and --targets mean for a plan: bytes of targets, and the time that a run from
 * them takes. */
#ifndef WD_API_PLAN_TARGETS_PLAN_H
#define WD_API_PLAN_TARGETS_PLAN_H

#include "api/plan/train_plan.h"

enum { WD_TARGETS_TEXT = 512 + WD_PATH_MAX };

/* The bytes on disk of the targets that the run stores until its step `steps`. */
double wd__targets_plan_bytes(const wd_train_setup *setup, double steps);

/* A line about the targets that the run stores, or reads; "": it does neither. Returns `out`. */
const char *wd_targets_plan_text(char out[WD_TARGETS_TEXT], const wd_train_plan *plan,
                                 const wd_train_setup *setup);

/* An object with the same, or null; the caller owns it. */
json_t *wd__targets_plan_json(const wd_train_plan *plan, const wd_train_setup *setup);

#endif
