/* What a student learns: the options of train's group Objective, and batch size and learning rate,
 * which follow from the picture's size, the student's width and what it starts from. */
#ifndef WD_API_SETUP_TRAIN_OBJECTIVE_H
#define WD_API_SETUP_TRAIN_OBJECTIVE_H

#include "api/setup/train_setup.h"
#include "train/targets/trajectory.h"

/* Chooses values for those that are open, and refuses those that contradict one another. Teacher,
 * student and the picture's size are known. */
wd_status wd__train_objective_resolve(wd_train_setup *setup, wd_err *err);

/* How often each target is used unless --target_reuse gives a number; of several phases, the
 * largest number. */
int64_t wd_train_usual_reuse(const wd_train_setup *setup);

/* Sets --target_reuse to a number: in the options, and in all phases. */
void wd_train_set_reuse(wd_train_setup *setup, int64_t reuse);

/* Takes the number of uses of the run whose checkpoint is resumed, where --target_reuse auto leaves
 * it open. */
void wd__train_keep_reuse(wd_train_setup *setup, const json_t *run);

/* Takes the learning rate of that run where --lr is not given. Checkpoints of earlier versions do
 * not say it: there it is 0.24 over the student's width. */
void wd__train_keep_lr(wd_train_setup *setup, const json_t *run);

/* ---- the noise levels of --trajectory_sigmas: read, and compared with the student's own steps
 * ---- */

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
