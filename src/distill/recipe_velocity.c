/* The student learns the teacher's guided velocity at states along the teacher's trajectories, by
 * mean squared error: see distill/recipe.h. */
#include "distill/machine_impl.h"

const wd_recipe wd_recipe_velocity = {.name = "velocity",
                                      .open = wd_machine_open_student,
                                      .begin = wd_machine_begin_student,
                                      .train = wd_machine_train_student};
