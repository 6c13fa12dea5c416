/* Whether a student can learn from a store of targets, and how much there is for it to learn. */
#ifndef WD_TRAIN_TARGETS_STORED_FIT_H
#define WD_TRAIN_TARGETS_STORED_FIT_H

#include "train/targets/source.h"

static inline bool wd__stored_learns_chords(const wd_source_options *options)
{
    return options->trajectory.student_steps > 0;
}

/* The store's trajectories, cut into the chords that this run's student learns. */
wd_trajectory_options wd__stored_trajectory(const wd_source_options *options);

#endif
