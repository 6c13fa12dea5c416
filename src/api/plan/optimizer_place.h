/* Where the optimiser's moments, the EMA and master weights are (--optimizer_device): on the
 * student's device, or in host memory (train/network/optimizer_host.h). */
#ifndef WD_API_PLAN_OPTIMIZER_PLACE_H
#define WD_API_PLAN_OPTIMIZER_PLACE_H

#include "api/plan/train_plan.h"

enum { WD_OPTIMIZER_PLACE_TEXT = 160 };

/* Decides about sample sheets (wd__sheets_choose), and, if --optimizer_device is auto, where the
 * state is: on the device, unless the run or its sheets fit only with it in host memory, or steps
 * are faster so by a twentieth. *plan is the plan with the state on the device; if it is not, *plan
 * is replaced, and setup's stepper changed. All ranks call it. */
wd_status wd__optimizer_place_choose(wd_train_plan *plan, wd_train_setup *setup, wd_err *err);

/* Writes one line that says that they are in host memory, and why, into `out`; "" if they are not.
 * Returns `out`. */
const char *wd_optimizer_place_text(char out[WD_OPTIMIZER_PLACE_TEXT], const wd_train_plan *plan,
                                    const wd_train_setup *setup);

#endif
