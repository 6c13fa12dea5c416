/* Changes to a run's options that let it take less memory. */
#ifndef WD_API_PLAN_MEMORY_CHANGES_H
#define WD_API_PLAN_MEMORY_CHANGES_H

#include "train/loop/machine.h"
#include "wandistiller.h"

/* A set of changes, in the order of their costs. The last two make a worse student. */
typedef struct wd_memory_change {
    bool bf16_teacher, bf16_student, checkpointing, small_replay, off_policy;
    int halvings; /* how often the batch is halved and the accumulation doubled */
} wd_memory_change;

/* Sets *out to set number n; set 0 has no change. Sets with small_replay and then those with
 * off_policy, too, follow all others. False: there are no more. */
bool wd_memory_change_at(wd_memory_change *out, int n);

/* Applies the changes to both; false: one of them has no effect on these options. */
bool wd_memory_change_apply(wd_train_options *options, wd_machine_options *machine,
                            const wd_memory_change *change);

#endif
