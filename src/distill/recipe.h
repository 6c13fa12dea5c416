/* Recipes: which networks are trained on which batches by which losses.
 *
 * A recipe is a file beside this one, with a few functions that the machine (distill/machine.h)
 * calls; steps, rounds, ranks and checkpoints are the machine's, and the same for all. */
#ifndef WD_DISTILL_RECIPE_H
#define WD_DISTILL_RECIPE_H

#include "distill/source.h"

typedef struct wd_machine wd_machine;
typedef struct wd_machine_teacher wd_machine_teacher;

typedef struct wd_recipe {
    const char *name;
    /* Opens the networks, the student first, and the source of batches, with the functions of
     * machine_impl.h. The machine closes them. `teacher` NULL: there is none. */
    wd_status (*open)(wd_machine *machine, const wd_machine_teacher *teacher, wd_err *err);
    /* Fills in the weights that a new run begins with. */
    wd_status (*begin)(wd_machine *machine, wd_err *err);
    /* Launches passes, losses and backward passes of one micro-batch, for all networks. The losses
     * of the student's samples go to the machine's `loss`. */
    void (*train)(wd_machine *machine, const wd_batch *batch);
} wd_recipe;

/* One student learns the teacher's velocities. */
extern const wd_recipe wd_recipe_velocity;

/* One student of few steps learns chords of the teacher's trajectories. */
extern const wd_recipe wd_recipe_chord;

#endif
