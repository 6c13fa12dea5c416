/* The memory that a sweep needs on a device beside weights, found by dry runs. */
#ifndef WD_TEACHER_RUN_SWEEP_NEED_H
#define WD_TEACHER_RUN_SWEEP_NEED_H

#include "teacher/plan/placement.h"
#include "teacher/plan/sweep_options.h"

/* How a dry device is opened: wd_device_open_dry for a plan, wd_device_open_rehearsed for a sweep
 * that is about to run, so that the target makes its kernels for each shape now. */
typedef wd_status wd_sweep_open_dry_fn(wd_device **out, wd_device *target, wd_err *err);

/* *out = what a sweep needs on a device beside weights, found by running stages dry. The window
 * does not matter. */
wd_status wd_sweep_need_of(wd_sweep_need *out, const wd_sweep_options *options, wd_device *target,
                           wd_sweep_open_dry_fn *open_dry, wd_err *err);

/* The same on a device that wd_device_open_dry opens, as planners ask for it. */
wd_status wd_sweep_plan_need(wd_sweep_need *out, const wd_sweep_options *options, wd_device *target,
                             wd_err *err);

#endif
