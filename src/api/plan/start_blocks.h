/* The blocks of --init_student that a shallower student starts from: chosen once, kept in the cache
 * folder. */
#ifndef WD_API_PLAN_START_BLOCKS_H
#define WD_API_PLAN_START_BLOCKS_H

#include "api/setup/train_setup.h"
#include "train/loop/block_choice.h"

/* Adds the memory of choosing, where a run with this setup chooses. */
wd_status wd_start_blocks_plan(wd_memory_plan *plan, const wd_train_setup *setup,
                               const wd_devices *devices, wd_err *err);

/* Chooses on the student's device, and sets the stepper's blocks: on rank 0, whose choice all ranks
 * take. Prompts are encoded. Where blocks are spread evenly it does nothing. WD_INTERRUPTED, on all
 * ranks: a stop was requested. All ranks. */
wd_status wd_start_blocks_choose(wd_train_setup *setup, const wd_devices *devices, wd_err *err);

/* Whether the file has a choice of `layers` blocks of `of`, ascending, with the first and the last
 * one; one that is damaged is a warning. */
bool wd__start_blocks_read(int64_t *block, const char *path, int64_t layers, int64_t of);

#endif
