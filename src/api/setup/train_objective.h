/* What a student learns: the options of train's group Objective, and batch size and learning rate,
 * which follow from the picture's size and the student's width. */
#ifndef WD_API_SETUP_TRAIN_OBJECTIVE_H
#define WD_API_SETUP_TRAIN_OBJECTIVE_H

#include "api/setup/train_setup.h"

/* Chooses values for those that are open, and refuses those that contradict one another. Teacher,
 * student and the picture's size are known. */
wd_status wd__train_objective_resolve(wd_train_setup *setup, wd_err *err);

#endif
