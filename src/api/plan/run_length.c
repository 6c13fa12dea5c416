/* The time of a run: see api/plan/run_length.h. */
#include "api/plan/run_length.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* A first step that takes longer is named. */
static const double LONG_S = 20;

const char *wd_duration_text(char out[WD_DURATION_TEXT], double seconds)
{
    if (seconds < 120)
        snprintf(out, WD_DURATION_TEXT, "%.3g s", seconds);
    else if (seconds < 120 * 60)
        snprintf(out, WD_DURATION_TEXT, "%.3g minutes", seconds / 60);
    else if (seconds < 72 * 3600)
        snprintf(out, WD_DURATION_TEXT, "%.3g hours", seconds / 3600);
    else
        snprintf(out, WD_DURATION_TEXT, "%.3g days", seconds / 86400);
    return out;
}

/* The number of targets, or chords, that the samples of `steps` steps of a phase are drawn from. */
static double targets_of(const wd_train_plan *plan, const wd_phase *phase, int64_t steps)
{
    return ceil((double)steps * plan->step_samples / (double)phase->reuse);
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

/* Writes "12 chords, each seen twice" for every phase, and with several ", 4 targets, ..., then 12
 * chords, ..." */
static void targets_text(char *out, size_t out_bytes, const wd_train_plan *plan,
                         const wd_phases *phases, int64_t steps)
{
    char seen[32];
    int64_t begun = 0;
    for (int i = 0; i < phases->count; i++) {
        const wd_phase *phase = &phases->phase[i];
        const int64_t end = wd_phase_end_step(phases, i, steps);
        const size_t used = i ? strlen(out) : 0;
        snprintf(out + used, out_bytes - used, "%s%.0f %s, each seen %s", i ? ", then " : "",
                 targets_of(plan, phase, end - begun),
                 phase->recipe == &wd_recipe_chord ? "chords" : "targets",
                 times_text(seen, phase->reuse));
        begun = end;
    }
}

wd_run_length wd_run_length_of(const wd_train_plan *plan, const wd_train_setup *setup,
                               const wd_strategy_plan *candidate)
{
    const wd_train_options *o = &setup->options;
    const double step_s = candidate->step_seconds, limit_s = 60 * o->max_minutes;
    const bool by_epochs =
        o->num_steps && o->num_steps == wd_train_epoch_steps(setup) * o->num_epochs;
    wd_run_length r = {.steps = o->num_steps, .why = by_epochs ? "" : "--num_steps"};
    r.seconds = (double)r.steps * step_s;
    if (limit_s > 0 && (!r.steps || r.seconds > limit_s))
        r = (wd_run_length){(int64_t)(limit_s / step_s), limit_s, 0, "--max_minutes"};
    r.samples = (double)r.steps * plan->step_samples;
    return r;
}

const char *wd_run_length_text(char out[WD_RUN_LENGTH_TEXT], const wd_train_plan *plan,
                               const wd_train_setup *setup, const wd_strategy_plan *candidate)
{
    char time[WD_DURATION_TEXT], targets[128], why[96];
    const wd_train_options *o = &setup->options;
    const double step_s = candidate->step_seconds;
    const wd_run_length r = wd_run_length_of(plan, setup, candidate);
    if (!r.steps && !(o->max_minutes > 0)) {
        snprintf(out, WD_RUN_LENGTH_TEXT,
                 "%" PRId64 " epochs of the prompts, which --data_path names; 1000 steps take %s "
                 "at %.3g s per step",
                 o->num_epochs, wd_duration_text(time, 1000 * step_s), step_s);
        return out;
    }
    snprintf(why, sizeof why, "%s", r.why);
    if (!*why)
        snprintf(why, sizeof why, "%" PRId64 " epoch%s of %" PRId64 " prompts", o->num_epochs,
                 o->num_epochs == 1 ? "" : "s", setup->data.count);
    targets_text(targets, sizeof targets, plan, &setup->phases, r.steps);
    const int n = snprintf(
        out, WD_RUN_LENGTH_TEXT, "%" PRId64 " step%s (%s), %s: %s at %.3g s per step", r.steps,
        r.steps == 1 ? "" : "s", why, targets, wd_duration_text(time, r.seconds), step_s);
    const double first_s = wd_first_targets_seconds(&setup->trainer.machine.trajectory, candidate);
    if (n > 0 && n < WD_RUN_LENGTH_TEXT && first_s > LONG_S && first_s > 2 * step_s)
        snprintf(out + n, (size_t)(WD_RUN_LENGTH_TEXT - n),
                 "; the first step makes a store of targets, in up to %s",
                 wd_duration_text(time, first_s));
    return out;
}

/* ---- how long a step may take ---- */

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
