/* The time of a run: see api/run_length.h. */
#include "api/run_length.h"

#include <inttypes.h>
#include <stdio.h>

#include "distill/trajectory.h"

static const char *duration_text(char out[32], double seconds)
{
    if (seconds < 120)
        snprintf(out, 32, "%.3g s", seconds);
    else if (seconds < 120 * 60)
        snprintf(out, 32, "%.3g minutes", seconds / 60);
    else if (seconds < 72 * 3600)
        snprintf(out, 32, "%.3g hours", seconds / 3600);
    else
        snprintf(out, 32, "%.3g days", seconds / 86400);
    return out;
}

/* The number of targets, or chords, that the samples of `steps` steps are drawn from: each is used
 * --target_reuse times. */
static int64_t targets_of(const wd_train_plan *plan, const wd_train_options *o, int64_t steps)
{
    const int64_t samples = steps * (int64_t)plan->step_samples;
    return samples ? wd_stream_target_last(samples, o->target_reuse) + 1 : 0;
}

static const char *times_text(char out[32], int64_t times)
{
    if (times == 1)
        snprintf(out, 32, "once");
    else if (times == 2)
        snprintf(out, 32, "twice");
    else
        snprintf(out, 32, "%" PRId64 " times", times);
    return out;
}

const char *wd_run_length_text(char out[WD_RUN_LENGTH_TEXT], const wd_train_plan *plan,
                               const wd_train_setup *setup, const wd_strategy_plan *candidate)
{
    char time[32], seen[32], why[96] = "--num_steps";
    const wd_train_options *o = &setup->options;
    const double step_s = candidate->step_seconds, limit_s = 60 * o->max_minutes;
    int64_t steps = o->num_steps;
    double seconds = (double)steps * step_s;
    if (!steps && !(limit_s > 0)) {
        snprintf(out, WD_RUN_LENGTH_TEXT,
                 "%" PRId64 " epochs of the prompts, which --data_path names; 1000 steps take %s "
                 "at %.3g s per step",
                 o->num_epochs, duration_text(time, 1000 * step_s), step_s);
        return out;
    }
    if (steps && steps == wd_train_epoch_steps(setup) * o->num_epochs)
        snprintf(why, sizeof why, "%" PRId64 " epoch%s of %" PRId64 " prompts", o->num_epochs,
                 o->num_epochs == 1 ? "" : "s", setup->data.count);
    if (limit_s > 0 && (!steps || seconds > limit_s)) {
        seconds = limit_s;
        steps = (int64_t)(limit_s / step_s);
        snprintf(why, sizeof why, "--max_minutes");
    }
    snprintf(out, WD_RUN_LENGTH_TEXT,
             "%" PRId64 " step%s (%s), %" PRId64 " %s, each seen %s: %s at %.3g s per step", steps,
             steps == 1 ? "" : "s", why, targets_of(plan, o, steps),
             o->student_steps ? "chords" : "targets", times_text(seen, o->target_reuse),
             duration_text(time, seconds), step_s);
    return out;
}
