/* The options that place the teacher: see api/options/teacher_choice.h. */
#include "api/options/teacher_choice.h"

#include <string.h>

#include "core/error.h"
#include "core/log.h"

/* Whether `strategy` is neither `own` nor auto, so that an option of `own` has no effect. */
static bool is_other(const char *strategy, const char *own)
{
    return strategy && strcmp(strategy, own) && strcmp(strategy, "auto");
}

static bool map_is_unread(const wd_train_options *o)
{
    return o->teacher_device_map && is_other(o->teacher_device_strategy, "custom");
}

static bool rank_is_unread(const wd_train_options *o)
{
    return o->teacher_rank >= 0 && is_other(o->teacher_device_strategy, "gpu0");
}

/* Whether both options are given without a strategy, so that they choose different ones. */
static bool both_choose(const wd_train_options *o)
{
    return o->teacher_device_map && o->teacher_rank >= 0 && !o->teacher_device_strategy;
}

wd_status wd__teacher_choice_check(const wd_train_options *o, const char *strategy, wd_err *err)
{
    if (map_is_unread(o))
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "--%s (%s) and --teacher_device_map contradict one another: a map is for "
                       "the strategy custom; leave one of them out",
                       strategy, o->teacher_device_strategy);
    if (rank_is_unread(o))
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "--%s (%s) and --teacher_rank contradict one another: a rank is for the "
                       "strategy gpu0; leave one of them out",
                       strategy, o->teacher_device_strategy);
    if (both_choose(o))
        return wd_fail(
            err, WD_INVALID_ARGUMENT,
            "--teacher_device_map and --teacher_rank contradict one another: a map means "
            "the strategy custom, a rank gpu0; leave one of them out");
    return WD_OK;
}

static bool is_consistent(const wd_train_options *o)
{
    return !map_is_unread(o) && !rank_is_unread(o) && !both_choose(o);
}

/* Adds the earlier options to those of `said`, one by one, and leaves out those that contradict. */
void wd__teacher_choice_yield(wd_train_options *o, const wd_train_options *said)
{
    wd_train_options all = *said;
    if (!all.teacher_device_strategy) all.teacher_device_strategy = o->teacher_device_strategy;
    if (!is_consistent(&all)) all.teacher_device_strategy = NULL;
    if (!all.teacher_device_map) all.teacher_device_map = o->teacher_device_map;
    if (!is_consistent(&all)) all.teacher_device_map = NULL;
    if (all.teacher_rank < 0) all.teacher_rank = o->teacher_rank;
    if (!is_consistent(&all)) all.teacher_rank = -1;
    o->teacher_device_strategy = all.teacher_device_strategy;
    o->teacher_device_map = all.teacher_device_map;
    o->teacher_rank = all.teacher_rank;
}

void wd_teacher_choose(wd_train_options *o, const char *strategy)
{
    o->teacher_device_strategy = strategy;
    if (map_is_unread(o)) o->teacher_device_map = NULL;
    if (rank_is_unread(o)) o->teacher_rank = -1;
}

wd_strategy wd_teacher_choice_on_processor(wd_strategy asked)
{
    if (asked != WD_STRATEGY_offload) return asked;
    wd_log_once(WD_LOG_INFO, "--teacher_device_strategy offload: there is no GPU to which weights "
                             "could be brought, so cpu is meant");
    return WD_STRATEGY_cpu;
}
