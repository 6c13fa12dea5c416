/* See api/plan/validation_plan.h. */
#include "api/plan/validation_plan.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "api/plan/sheets.h"
#include "api/plan/train_cluster.h"

/* The share of the student's work that validation may take where its interval is open. */
static const double SHARE_MAX = 0.02;

/* Of the student in a step of a rank. */
static double step_flops(const wd_train_plan *plan, const wd_train_setup *setup)
{
    const wd_stepper_options *m = &setup->trainer.stepper;
    return (double)(m->batch * m->accumulation) * plan->without_teacher[0].student_flops_per_sample;
}

/* The first of 1, 2, 5, 10, ... that is no less. */
static int64_t round_up(double steps)
{
    static const int64_t next[] = {2, 5, 10};
    for (int64_t unit = 1;; unit *= 10) {
        if (steps <= (double)unit) return unit;
        for (int i = 0; i < 3; i++)
            if (steps <= (double)(next[i] * unit)) return next[i] * unit;
    }
}

void wd__validation_plan_choose(const wd_train_plan *plan, wd_train_setup *setup)
{
    const double each = plan->without_teacher[0].validation_flops, step = step_flops(plan, setup);
    int64_t *interval = &setup->trainer.validation_interval;
    if (!setup->validation.prompts) return;
    if (!*interval && step > 0) *interval = round_up(fmin(each / (SHARE_MAX * step), 1e12));
    setup->options.validation_interval = *interval;
}

/* The states of the phase that asks most of the teacher, without memory. */
static bool states_of(wd_validation_states *out, const wd_train_setup *setup)
{
    const wd_stepper_options m = wd_stepper_in_phase_of_most_targets(&setup->trainer.stepper);
    if (!m.validation) return false;
    const wd_validation_states_options options = wd_validation_states_options_of(&m);
    return wd_validation_states_open(out, &options, false, NULL) == WD_OK;
}

uint64_t wd__validation_plan_bytes(const wd_train_setup *setup)
{
    wd_validation_states states;
    return states_of(&states, setup) ? wd_validation_states_bytes(&states) : 0;
}

/* Seconds in which the teacher makes the states; NaN: it makes none, or nobody knows. */
static double making_seconds(const wd_train_plan *plan, const wd_validation_states *states)
{
    double seconds = NAN;
    wd_schedule schedule;
    if (plan->no_teacher || !plan->chosen.fits) return NAN;
    if (wd_validation_states_schedule(&schedule, states, NULL) != WD_OK) return NAN;
    if (wd__sampling_seconds(&seconds, plan, states->trajectories, schedule.timestep,
                             schedule.steps, NULL) != WD_OK)
        seconds = NAN;
    wd_schedule_close(&schedule);
    return seconds;
}

/* Seconds of one validation, and the share of the time that they take. */
static double seconds_of(double *share, const wd_train_plan *plan, const wd_train_setup *setup)
{
    const double seconds =
        plan->without_teacher[0].validation_flops /
        wd_cluster_student_rate(&plan->input.cluster, plan->input.student.device);
    const double steps = (double)setup->trainer.validation_interval;
    const double run = (double)setup->options.num_steps;
    const double between = (run > 0 && run < steps ? run : steps) * plan->chosen.step_seconds;
    *share = seconds / (seconds + between);
    return seconds;
}

const char *wd_validation_plan_text(char out[WD_VALIDATION_TEXT], const wd_train_plan *plan,
                                    const wd_train_setup *setup)
{
    double share;
    char every[48] = "once, at the end", made[64] = "";
    wd_validation_states states;
    const int64_t interval = setup->trainer.validation_interval, run = setup->options.num_steps;
    *out = 0;
    if (!states_of(&states, setup)) return out;
    seconds_of(&share, plan, setup);
    const double seconds = making_seconds(plan, &states);
    if (!run || interval <= run) snprintf(every, sizeof every, "every %" PRId64 " steps", interval);
    if (seconds >= 0)
        snprintf(made, sizeof made, "; making its states takes %.2g s, once", seconds);
    snprintf(out, WD_VALIDATION_TEXT,
             "validation: %" PRId64 " prompt%s at %" PRId64
             " noise level%s, %s, %.2g %% of the time%s",
             setup->validation.prompts, setup->validation.prompts == 1 ? "" : "s", states.levels,
             states.levels == 1 ? "" : "s", every, 100 * share, made);
    return out;
}

json_t *wd__validation_plan_json(const wd_train_plan *plan, const wd_train_setup *setup)
{
    double share;
    wd_validation_states states;
    if (!states_of(&states, setup)) return json_null();
    const double each = seconds_of(&share, plan, setup), made = making_seconds(plan, &states);
    return json_pack(
        "{s:I, s:I, s:I, s:f, s:f, s:o, s:I}", "prompts", (json_int_t)setup->validation.prompts,
        "noise_levels", (json_int_t)states.levels, "interval",
        (json_int_t)setup->trainer.validation_interval, "seconds_each", each, "share_of_time",
        share, "seconds_to_make_states", made >= 0 ? json_real(made) : json_null(), "bytes",
        (json_int_t)wd_validation_states_bytes(&states));
}
