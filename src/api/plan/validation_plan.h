/* Validation (train/loop/validation.h): how often it is, and the time that it takes. */
#ifndef WD_API_PLAN_VALIDATION_PLAN_H
#define WD_API_PLAN_VALIDATION_PLAN_H

#include "api/plan/train_plan.h"

enum { WD_VALIDATION_TEXT = 160 };

/* Chooses the interval where --validation_interval is 0 and a resumed run says none: the first of
 * 1, 2, 5, 10, 20, ... steps with which a validation takes less than 2 % of the student's
 * multiplications in between, and so of the time. It follows from sizes alone, so that it is the
 * same on all ranks and machines. */
void wd__validation_plan_choose(const wd_train_plan *plan, wd_train_setup *setup);

/* Writes "validation: 16 prompts at 8 noise levels, every 500 steps, 1.4 % of the time; ..." into
 * `out`; "" where there is none. Returns `out`. */
const char *wd_validation_plan_text(char out[WD_VALIDATION_TEXT], const wd_train_plan *plan,
                                    const wd_train_setup *setup);

/* An object with the same; null where there is none. The caller owns it. NULL: no memory. */
json_t *wd__validation_plan_json(const wd_train_plan *plan, const wd_train_setup *setup);

/* Bytes of the file of states that a run writes; 0 where there is none. */
uint64_t wd__validation_plan_bytes(const wd_train_setup *setup);

#endif
