/* Where the optimiser's moments, the EMA and master weights are (--optimizer_device, --ema_device):
 * on the student's device, or in host memory (train/network/optimizer_host.h). */
#ifndef WD_API_PLAN_OPTIMIZER_PLACE_H
#define WD_API_PLAN_OPTIMIZER_PLACE_H

#include "api/plan/train_plan.h"

enum { WD_OPTIMIZER_PLACE_TEXT = 160 };

/* Whether the options --optimizer_device and --ema_device leave this place open. */
bool wd__state_may_be(wd_state_place place, const wd_train_options *options);

/* Puts a run's state to a place: sets the stepper's, and both options so that they leave no other
 * open. */
void wd__state_put(wd_state_place place, wd_train_options *options, wd_stepper_options *stepper);

/* "device" or "host": where moments and, in bf16, master weights are; where the EMA is. */
const char *wd__optimizer_device_of(wd_state_place place);
const char *wd__ema_device_of(wd_state_place place);

/* Decides about sample sheets (wd__sheets_choose), and, if the options leave it open, where the
 * state is: on the device, unless the run or its sheets fit only with some of it in host memory, or
 * steps are faster so by a twentieth; the EMA alone is moved if that is enough. *plan is the plan
 * with what may be there on the device; if it is not, *plan is replaced, and setup changed. All
 * ranks call it. */
wd_status wd__optimizer_place_choose(wd_train_plan *plan, wd_train_setup *setup, wd_err *err);

/* Writes one line that says what is in host memory, and why, into `out`; "" if nothing is.
 * Returns `out`. */
const char *wd_optimizer_place_text(char out[WD_OPTIMIZER_PLACE_TEXT], const wd_train_plan *plan,
                                    const wd_train_setup *setup);

#endif
