/* The options that place the teacher: a strategy, and two options that belong to one strategy each
 * (--teacher_rank to gpu0, --teacher_device_map to custom). Without a strategy they choose theirs.
 * With auto, which may choose it, they are allowed; with any other strategy they would have no
 * effect, so that is an error. */
#ifndef WD_API_OPTIONS_TEACHER_CHOICE_H
#define WD_API_OPTIONS_TEACHER_CHOICE_H

#include "teacher/plan/strategy.h"
#include "wandistiller.h"

/* Returns WD_INVALID_ARGUMENT, naming both options, if two contradict. `strategy` is the name of
 * the option that gave the strategy, which may be an alias. */
wd_status wd__teacher_choice_check(const wd_train_options *options, const char *strategy,
                                   wd_err *err);

/* Resets those of *options that contradict `said`, the options of a later source, and sets those of
 * `said`. */
void wd__teacher_choice_yield(wd_train_options *options, const wd_train_options *said);

/* Changes the strategy, and resets the option that does not belong to it. */
void wd_teacher_choose(wd_train_options *options, const char *strategy);

/* The strategy that is meant where the processor is the only device: offload means cpu, which it
 * logs once. */
wd_strategy wd_teacher_choice_on_processor(wd_strategy asked);

#endif
