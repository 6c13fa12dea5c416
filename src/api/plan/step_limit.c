/* See api/plan/step_limit.h. */
#include "api/plan/step_limit.h"

double wd_step_limit(const wd_train_options *options, const wd_strategy_plan *plan)
{
    if (options->step_timeout > 0) return options->step_timeout;
    return 60 + 10 * (plan->step_seconds + plan->timeline.sweep_seconds);
}

double wd_first_targets_seconds(const wd_trajectory_options *trajectory,
                                const wd_strategy_plan *plan)
{
    const int64_t rounds = trajectory->student_steps ? wd_chord_length(trajectory) : 1;
    const int64_t sweeps = (trajectory->slots + plan->window - 1) / plan->window;
    return (double)(rounds * sweeps) * plan->timeline.sweep_seconds;
}

double wd_step_limit_first(const wd_train_options *options, const wd_trajectory_options *trajectory,
                           const wd_strategy_plan *plan)
{
    if (options->step_timeout > 0) return 0;
    return 3 * wd_first_targets_seconds(trajectory, plan);
}
