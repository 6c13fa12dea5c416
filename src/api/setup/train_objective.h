/* What a student learns: the options of train's group Objective, and batch size and learning rate,
 * which follow from the picture's size and the student's width. */
#ifndef WD_API_SETUP_TRAIN_OBJECTIVE_H
#define WD_API_SETUP_TRAIN_OBJECTIVE_H

#include "api/setup/train_setup.h"

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

#endif
