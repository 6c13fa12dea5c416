/* The states on which a student is validated: those of some prompts that it does not train on, with
 * what the teacher says there. They are made once, before the first step, and never change, so that
 * errors of different steps can be compared.
 *
 * Data flow: noise of a prompt, as `sample` and `eval` draw it -> the teacher's trajectory, sweep
 * by sweep -> at each noise level a state and its target, in host memory.
 *
 * A student of velocities gets those of the teacher's own sampler in WD_VALIDATION_LEVELS steps:
 * the states on which `eval --steps 8` measures velocity_error. A student of few steps gets the
 * chords (train/targets/chord.h) of trajectories as it trains on, and the states at which its own
 * steps begin. With a diversity gain each prompt has a pair of trajectories. */
#ifndef WD_TRAIN_TARGETS_VALIDATION_STATES_H
#define WD_TRAIN_TARGETS_VALIDATION_STATES_H

#include "model/sampling/schedule.h"
#include "teacher/run/sweep.h"
#include "train/targets/chord.h"

enum {
    WD_VALIDATION_LEVELS = 8, /* noise levels of velocities; of chords as many as student_steps */
    WD_VALIDATION_LEVELS_MAX = 64
};

typedef struct wd_validation_states_options {
    wd_trajectory_options trajectory; /* what the student learns, and the seed */
    wd_scheduler_config scheduler;    /* the teacher's */
    wd_dtype teacher_dtype; /* that it computes in, which the sampler's rounding follows */
    int64_t prompts, state_count;
    int64_t text_first; /* the number of the first of them among the run's prompts */
} wd_validation_states_options;

typedef struct wd_validation_states {
    wd_validation_states_options options;
    int64_t levels, trajectories;
    float sigma[WD_VALIDATION_LEVELS_MAX], timestep[WD_VALIDATION_LEVELS_MAX]; /* [levels] */
    float *latents, *target; /* [levels, trajectories, state_count] host; NULL: of a rank that has
                              * none; owned */
} wd_validation_states;

/* Finds the noise levels. `keeps`: with memory for the states, which are zeros. */
wd_status wd_validation_states_open(wd_validation_states *out,
                                    const wd_validation_states_options *options, bool keeps,
                                    wd_err *err);
void wd_validation_states_close(wd_validation_states *states); /* a zeroed struct is allowed */

/* Asked before each sweep; a status other than WD_OK ends the making with it. */
typedef wd_status wd_validation_look_fn(void *context, int64_t done, int64_t total, wd_err *err);

/* Makes them: `sweep` NULL, or a dry device: only memory is counted. `window`: how many
 * trajectories a sweep that is not there would advance together. `queue`: that of the sweep's
 * latents. All ranks with the same arguments; those that keep no states help the others' sweeps.
 * WD_NOT_FINITE: the teacher's values are not. */
wd_status wd_validation_states_make(wd_validation_states *states, wd_sweep *sweep, int64_t window,
                                    wd_queue *queue, wd_validation_look_fn *look, void *context,
                                    wd_err *err);

/* *out = the noise levels along which the teacher goes, for wd_schedule_close. */
wd_status wd_validation_states_schedule(wd_schedule *out, const wd_validation_states *states,
                                        wd_err *err);

/* The number among the run's prompts of a trajectory's prompt. */
static inline int64_t wd_validation_prompt(const wd_validation_states *states, int64_t trajectory)
{
    const int64_t prompts = states->options.prompts;
    return states->options.text_first + trajectory % prompts;
}

/* Bytes of all states and targets. */
size_t wd_validation_states_bytes(const wd_validation_states *states);

/* ---- files ---- */

/* Writes them to `path`, as the states that `key` names. */
wd_status wd_validation_states_save(const wd_validation_states *states, const char *path,
                                    const char *key, wd_err *err);

/* Reads them. WD_NOT_FOUND: there is no such file. WD_BAD_FORMAT: it is damaged, or of other
 * states; then *states has no values that mean anything. */
wd_status wd_validation_states_load(wd_validation_states *states, const char *path, const char *key,
                                    wd_err *err);

#endif
