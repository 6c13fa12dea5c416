/* Phases: a run may let the student learn one thing after another.
 *
 * `velocity,chord` first shows it the teacher's velocities at all noise levels, and then the chords
 * of the few steps that it is made for. Each phase has a share of the run's steps, or of its time.
 * Networks, optimizers and the teacher's sweep go on from one phase to the next; the trajectories
 * begin anew, with noise that the phases before have not had, and so does the learning rate's
 * schedule. */
#ifndef WD_TRAIN_LOOP_PHASES_H
#define WD_TRAIN_LOOP_PHASES_H

#include "train/loop/recipe.h"

enum { WD_PHASES_MAX = 2, WD_PHASES_TEXT = 64 };

typedef struct wd_phase {
    const wd_recipe *recipe;
    int64_t reuse; /* student samples per target */
    double share;  /* of the run's steps, or of its time; those of all phases add up to 1 */
} wd_phase;

typedef struct wd_phases {
    wd_phase phase[WD_PHASES_MAX];
    int count; /* 0: there is one, which the stepper's options describe */
} wd_phases;

/* Where a phase began. */
typedef struct wd_phase_begin {
    int phase;      /* 0: the first */
    int64_t step;   /* steps before it */
    double seconds; /* of training before it */
} wd_phase_begin;

/* Reads recipes and shares: "velocity", "velocity,chord", "velocity:3,chord:1". Shares are in
 * proportion to the numbers; without numbers they are the defaults. Sets only recipe and share.
 * WD_INVALID_ARGUMENT: there is no such recipe, or no such order of recipes. */
wd_status wd_phases_parse(wd_phases *out, const char *text, wd_err *err);

/* How many steps of a run of `steps` are done when phase `phase` ends; 0 if the run's length is
 * unknown (`steps` 0). Each phase has a step at least, if there are as many. */
int64_t wd_phase_end_step(const wd_phases *phases, int phase, int64_t steps);

/* The seconds of training, of a run of `seconds`, after which phase `phase` ends. */
double wd__phase_end_seconds(const wd_phases *phases, int phase, double seconds);

#endif
