/* The noise levels of --trajectory_sigmas: read, and compared with the student's own steps. */
#ifndef WD_API_SETUP_TRAJECTORY_SIGMAS_H
#define WD_API_SETUP_TRAJECTORY_SIGMAS_H

#include "train/targets/trajectory.h"

/* Reads "1,0.9375,0.8333,0.625", or the same as timesteps, "1000,937.5,833.3,625". *count: how many
 * there are; sigma [WD_TRAJECTORY_SIGMAS_MAX] falls from 1, and stays above 0. WD_INVALID_ARGUMENT:
 * it is no such list. */
wd_status wd__trajectory_sigmas_parse(float *sigma, int64_t *count, const char *text, wd_err *err);

/* The flow shift with which a scheduler makes the first steps of all chords at every (count /
 * chords)th of them; *flow_shift is the one that was asked for, or NaN. WD_INVALID_ARGUMENT:
 * there is none, and no stock sampler could draw with the student. */
wd_status wd__trajectory_sigmas_shift(double *flow_shift, const float *sigma, int64_t count,
                                      int64_t chords, wd_err *err);

#endif
