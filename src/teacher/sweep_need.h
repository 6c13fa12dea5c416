/* What a sweep needs on a device beside weights, found by dry runs. */
#ifndef WD_TEACHER_SWEEP_NEED_H
#define WD_TEACHER_SWEEP_NEED_H

#include "teacher/placement.h"
#include "teacher/sweep_options.h"

/* What a sweep needs on a device, and the FLOPs of its stages for one state, both streams. Found by
 * running them dry: `target` is not touched. The window does not matter. */
wd_status wd_sweep_need_of(wd_sweep_need *out, double flops[WD_STAGE_KINDS],
                           const wd_sweep_options *options, wd_device *target, wd_err *err);

/* The same for a sweep that is about to run: what the target makes once per shape it makes now. */
wd_status wd_sweep_rehearse(wd_sweep_need *out, const wd_sweep_options *options, wd_device *target,
                            wd_err *err);

#endif
