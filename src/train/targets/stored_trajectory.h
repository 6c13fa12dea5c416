/* What a store of targets says of the trajectories that its targets are of: the JSON object
 * "trajectory" of its targets.json, written by one run and read by others. */
#ifndef WD_TRAIN_TARGETS_STORED_TRAJECTORY_H
#define WD_TRAIN_TARGETS_STORED_TRAJECTORY_H

#include "io/json/json.h"
#include "train/targets/trajectory.h"

/* *out = a new object with what numbers of targets mean. */
wd_status wd_stored_trajectory_json(json_t **out, const wd_trajectory_options *options,
                                    wd_err *err);

/* Reads and checks such an object, whose file is `where`: with *out all functions of trajectory.h
 * and chord.h may be called. */
wd_status wd__stored_trajectory_read(wd_trajectory_options *out, const json_t *object,
                                     const char *where, wd_err *err);

#endif
