/* The student learns, at the states where blocks of the teacher's trajectories begin, the slopes of
 * the chords to their ends (distill/chord.h), by mean squared error: see distill/recipe.h. It is
 * trained as it is on velocities: that its targets are chords follows from the trajectories'
 * student_steps. */
#include "distill/machine_impl.h"

const wd_recipe wd_recipe_chord = {.name = "chord",
                                   .open = wd_machine_open_student,
                                   .begin = wd_machine_begin_student,
                                   .train = wd_machine_train_student};
