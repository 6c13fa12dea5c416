/* Phases of a run: which one is under way, and when the next one begins. See train/loop/phases.h.
 */
#include <inttypes.h>

#include "core/log.h"
#include "train/loop/trainer_impl.h"

static int64_t end_step(const wd_trainer *t)
{
    const wd_trainer_options *o = t->options;
    return wd_phase_end_step(&o->machine.phases, t->phase.phase, o->steps);
}

/* 0: time does not end the phase. */
static double end_seconds(const wd_trainer *t)
{
    const wd_trainer_options *o = t->options;
    return wd_phase_end_seconds(&o->machine.phases, t->phase.phase, o->seconds_max);
}

int64_t wd_trainer_last_step(const wd_trainer *t)
{
    const int64_t end = end_step(t), stop = t->options->stop_at_step;
    return stop && (!end || stop < end) ? stop : end;
}

wd_machine_options wd_trainer_machine(const wd_trainer *t)
{
    return wd_machine_of_phase(&t->options->machine, &t->phase, wd_trainer_last_step(t));
}

double wd_trainer_progress(const wd_trainer *t)
{
    const double steps = (double)(end_step(t) - t->phase.step);
    const double seconds = end_seconds(t) - t->phase.seconds;
    const double by_steps = steps > 0 ? (double)(t->step - t->phase.step) / steps : 0;
    const double by_time = seconds > 0 ? (t->elapsed_s - t->phase.seconds) / seconds : 0;
    const double progress = by_steps > by_time ? by_steps : by_time;
    return progress < 1 ? progress : 1;
}

bool wd_trainer_phase_is_over(const wd_trainer *t)
{
    const int64_t step = end_step(t);
    const double seconds = end_seconds(t);
    if (t->phase.phase + 1 >= t->options->machine.phases.count) return false;
    return (step && t->step >= step) || (seconds > 0 && t->elapsed_s >= seconds);
}

wd_status wd_trainer_next_phase(wd_trainer *t, wd_err *err)
{
    WD_TRY(wd_trainer_take_results(t, 0, err)); /* which are of the phase that ends */
    t->phase =
        (wd_phase_begin){.phase = t->phase.phase + 1, .step = t->step, .seconds = t->elapsed_s};
    const wd_machine_options machine = wd_trainer_machine(t);
    WD_TRY(wd_machine_enter_phase(t->machine, &machine, err));
    if (wd_trainer_writes(t))
        wd_log(WD_LOG_INFO, "after step %" PRId64 " the student learns by recipe %s", t->step,
               machine.recipe->name);
    return WD_OK;
}
