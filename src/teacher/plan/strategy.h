/* Strategies: the ways of placing a teacher that have a name.
 *
 * A strategy makes the best placement of its kind; whether that fits is a question of its own
 * (wd__placement_bytes), so that one that does not can say by how much. */
#ifndef WD_TEACHER_PLAN_STRATEGY_H
#define WD_TEACHER_PLAN_STRATEGY_H

#include "core/error.h"
#include "teacher/plan/placement_bytes.h"

/* X(name, what it does) */
#define WD_STRATEGY_MAP(X)                                                                         \
    X(cpu, "in host memory, computed by the processor")                                            \
    X(gpu, "on the first device")                                                                  \
    X(gpu0, "on the device of --teacher_rank, for all")                                            \
    X(balanced, "spread over all devices, so that the slowest is as fast as possible")             \
    X(sequential, "the first device is filled, then the next")                                     \
    X(custom, "as --teacher_device_map says")                                                      \
    X(offload, "in host memory, streamed to the first device")                                     \
    X(disk, "in the checkpoint's files, streamed to the first device")                             \
    X(auto, "the fastest of those that fit")

typedef enum wd_strategy {
#define X(name, what) WD_STRATEGY_##name,
    WD_STRATEGY_MAP(X)
#undef X
        WD_STRATEGY_COUNT
} wd_strategy;

const char *wd_strategy_name(wd_strategy strategy);

/* *out = the strategy of that name; an unknown name is WD_INVALID_ARGUMENT, with all names. */
wd_status wd_strategy_of(wd_strategy *out, const char *name, wd_err *err);

/* Why such devices cannot serve `strategy`, as in "balanced needs two devices or more"; NULL: they
 * can. */
const char *wd__strategy_objection(wd_strategy strategy, const wd_cluster *cluster);

/* WD_UNSUPPORTED, naming the strategies that these devices can serve, where there is an objection.
 */
wd_status wd__strategy_check(wd_strategy strategy, const wd_cluster *cluster, wd_err *err);

/* Whether under the strategy each of several ranks has a teacher of its own. */
bool wd__strategy_is_each(wd_strategy strategy, const wd_cluster *cluster);

/* *out = the placement of a strategy other than custom and auto, after wd__strategy_check.
 * `teacher_rank`, for gpu0: the rank whose first device has the teacher, or if there is one rank,
 * the number of the device.
 *
 * Streamed stages are computed by a rank's first device that is no processor, else by the
 * processor. */
wd_status wd_strategy_place(wd_placement *out, wd_strategy strategy, const wd_teacher_size *size,
                            const wd_cluster *cluster, int teacher_rank, wd_err *err);

#endif
