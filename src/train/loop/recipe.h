/* Recipes: which networks are trained on which batches by which losses.
 *
 * A recipe names the source of its batches (train/targets/source.h), and has a few functions that
 * the stepper (train/loop/stepper.h) calls; steps, rounds, ranks and checkpoints are the stepper's,
 * and the same for all. Recipes that train one student are in recipe_student.c. */
#ifndef WD_TRAIN_LOOP_RECIPE_H
#define WD_TRAIN_LOOP_RECIPE_H

#include "train/targets/source.h"

typedef struct wd_stepper wd_stepper;
typedef struct wd_stepper_options wd_stepper_options;

typedef struct wd_recipe {
    const char *name;
    const wd_source_vtable *source; /* of its batches */
    /* Sets those of a run's options that follow from the recipe and from options->phase. */
    void (*adjust)(wd_stepper_options *options);
    /* Opens the networks, the student first, with wd__stepper_add_network. The stepper closes them,
     * and opens the sweep and the source after them. */
    wd_status (*open)(wd_stepper *stepper, wd_err *err);
    /* Fills in the weights that a new run begins with. */
    wd_status (*begin)(wd_stepper *stepper, wd_err *err);
    /* Launches passes, losses and backward passes of one micro-batch, for all networks. The losses
     * of the student's samples go to the stepper's `loss`. */
    void (*train)(wd_stepper *stepper, const wd_batch *batch);
} wd_recipe;

/* One student learns the teacher's velocities. */
extern const wd_recipe wd_recipe_velocity;

/* One student of few steps learns chords of the teacher's trajectories. */
extern const wd_recipe wd_recipe_chord;

#endif
