/* What a checkpoint says of the run that it is of. Private to trainer*.c. */
#ifndef WD_DISTILL_TRAINER_SAVED_H
#define WD_DISTILL_TRAINER_SAVED_H

#include "distill/trainer.h"

/* *out = a new object: `stream` (the objective's state, taken whatever happens), seconds of
 * training, steps of the optimiser, and all that wd_trainer_resume_options compares. */
wd_status wd_trainer_save_run(json_t **out, const wd_trainer_options *options, json_t *stream,
                              double seconds, int64_t optimizer_steps, wd_err *err);

#endif
