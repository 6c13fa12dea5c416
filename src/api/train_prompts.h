/* The prompts of a run: those that it trains on, then those of its sample sheets. */
#ifndef WD_API_TRAIN_PROMPTS_H
#define WD_API_TRAIN_PROMPTS_H

#include "api/train_setup.h"

/* Reads them into setup->prompt, whose teacher is open. What is planned without --data_path has
 * sheets of as many pictures as there usually are; `prompt` has one text at least. */
wd_status wd_train_prompts_read(wd_train_setup *setup, wd_err *err);

#endif
