/* What a checkpoint says of the run that it is of. Private to trainer*.c. */
#ifndef WD_DISTILL_TRAINER_SAVED_H
#define WD_DISTILL_TRAINER_SAVED_H

#include "distill/trainer.h"

/* Adds to `run`, an object of wd_machine_save, the seconds of training and all that
 * wd_trainer_resume_options compares. */
wd_status wd_trainer_save_run(json_t *run, const wd_trainer_options *options, double seconds,
                              wd_err *err);

#endif
