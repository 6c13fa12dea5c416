/* What --validation_prompts means for a run: which prompts it is validated on, and that it does not
 * train on them. */
#ifndef WD_API_SETUP_VALIDATION_PROMPTS_H
#define WD_API_SETUP_VALIDATION_PROMPTS_H

#include "api/setup/train_setup.h"

/* Chooses the prompts, once setup->data is read (`given`; else only their number is planned): a
 * number of the data's, by the seed alone, or those of a file. Prompts of the data that are the
 * same text, after cleaning, are left out of setup->data. Sets setup->held_out and
 * setup->validation.prompts. */
wd_status wd__validation_prompts_choose(wd_train_setup *setup, bool given, wd_err *err);

/* Checks the options beside it, which mean nothing without it, and what --keep_best would replace.
 */
wd_status wd__validation_check(const wd_train_setup *setup, wd_err *err);

/* Writes the texts to validation-prompts.jsonl in the output folder, where there are any, so that
 * `eval --prompts` can be given the same. */
wd_status wd_validation_prompts_write(const wd_train_setup *setup, const char *folder, wd_err *err);

#endif
