/* The prompts of a run: first those of the training data, then those of its sample sheets. */
#ifndef WD_API_SETUP_TRAIN_PROMPTS_H
#define WD_API_SETUP_TRAIN_PROMPTS_H

#include "api/setup/train_setup.h"

/* Reads the prompts into setup->prompt; the teacher must be open. A plan without --data_path
 * assumes the usual number of pictures per sheet; `prompt` has at least one text. */
wd_status wd_train_prompts_read(wd_train_setup *setup, wd_err *err);

#endif
