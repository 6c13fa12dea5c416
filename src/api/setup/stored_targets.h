/* What --save_targets and --targets mean for a run: folders of targets, and the options that must
 * be those of the run which made them (train/targets/target_store.h). */
#ifndef WD_API_SETUP_STORED_TARGETS_H
#define WD_API_SETUP_STORED_TARGETS_H

#include "api/setup/train_setup.h"

/* Opens the store of --targets. Options that decide its targets and are not given take its values;
 * WD_INVALID_ARGUMENT names one that contradicts it. The teacher is open, the student not yet. Sets
 * setup->teacher_key, so that no weights of a teacher are read. */
wd_status wd__stored_targets_open(wd_train_setup *setup, wd_err *err);

/* The file of prompts of the store, if no --data_path is given; "": none. */
wd_status wd__stored_targets_prompts(char out[WD_PATH_MAX], const wd_train_setup *setup,
                                     wd_err *err);

/* Sets setup->text_dir: the cache folder; of a run with targets, which is given none, a folder
 * beside these. */
wd_status wd__stored_targets_text_dir(wd_train_setup *setup, wd_err *err);

/* Checks, of rank 0, that the folder of --save_targets is new, or of the run that is resumed. */
wd_status wd__stored_targets_check_folder(const wd_train_setup *setup, wd_err *err);

/* Checks the trainer's settings, which are filled in: what the student can learn from the store,
 * and whether its run can store targets. Says how often targets are seen. */
wd_status wd__stored_targets_check(wd_train_setup *setup, wd_err *err);

/* Compares the prompts of the run, whose keys are known, with those of the store. */
wd_status wd_stored_targets_compare(const wd_train_setup *setup, wd_err *err);

/* Sets what a store of this run's targets will say of it, when all keys are known. */
wd_status wd_stored_targets_describe(wd_train_setup *setup, wd_err *err);

#endif
