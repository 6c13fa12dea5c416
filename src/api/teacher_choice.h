/* The options that say where the teacher lives: a strategy, and two that are of one strategy each,
 * which they mean where no strategy is given. Under auto, which may take that one, they are good,
 * too; beside any other they would be read by nobody, so that is an error. */
#ifndef WD_API_TEACHER_CHOICE_H
#define WD_API_TEACHER_CHOICE_H

#include "wandistiller.h"

/* What contradicts: WD_INVALID_ARGUMENT that names both. `strategy` is the name that the strategy
 * was given by, an alias perhaps. */
wd_status wd_teacher_choice_check(const wd_train_options *options, const char *strategy,
                                  wd_err *err);

/* Takes back of *options what contradicts `said`, which has been said later and counts. */
void wd_teacher_choice_yield(wd_train_options *options, const wd_train_options *said);

/* The same options with this strategy, which may be another. */
void wd_teacher_choose(wd_train_options *options, const char *strategy);

#endif
