/* The memory that a sweep needs on a device beside weights, found by dry runs. */
#ifndef WD_TEACHER_SWEEP_NEED_H
#define WD_TEACHER_SWEEP_NEED_H

#include "teacher/placement.h"
#include "teacher/sweep_options.h"

/* *out = the memory that a sweep needs on a device beside weights; flops = those of each kind of
 * stage for one state, of both streams where it is guided. Both are found by running stages dry:
 * `target` is not touched. The window does not matter. */
wd_status wd_sweep_need_of(wd_sweep_need *out, double flops[WD_STAGE_KINDS],
                           const wd_sweep_options *options, wd_device *target, wd_err *err);

/* As wd_sweep_need_of, for a sweep that is about to run: the target makes its kernels for each
 * shape now. */
wd_status wd_sweep_rehearse(wd_sweep_need *out, const wd_sweep_options *options, wd_device *target,
                            wd_err *err);

#endif
