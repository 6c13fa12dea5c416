/* See api/plan/targets_plan.h. */
#include "api/plan/targets_plan.h"

#include <inttypes.h>
#include <stdio.h>

#include "api/setup/memory_report.h"
#include "core/memory.h"

/* The stepper's options as they are in the run's only phase. */
static wd_stepper_options phase_of(const wd_train_setup *s)
{
    return wd_stepper_in_phase_of_most_targets(&s->trainer.stepper);
}

/* The number of targets that the run stores until its step `steps`. */
static double count_until(const wd_train_setup *s, double steps)
{
    const wd_stepper_options m = phase_of(s);
    /* a checkpoint completes the round of the last one */
    return steps > 0 ? steps * wd_stepper_step_targets(&m) + (double)m.trajectory.slots : 0;
}

static double bytes_of(const wd_train_setup *s, double targets)
{
    return wd_target_store_size(&s->saving.shape, targets);
}

double wd__targets_plan_bytes(const wd_train_setup *s, double steps)
{
    return bytes_of(s, count_until(s, steps));
}

/* The predicted seconds of a step of the same run without its teacher; 0: not known. */
static double student_seconds(const wd_train_plan *plan, const wd_train_setup *setup)
{
    wd_train_variant *alone;
    if (!plan->chosen.fits) return 0;
    if (wd_alloc((void **)&alone, 1, sizeof *alone, "a plan", NULL) != WD_OK) return 0;
    wd__train_variant_begin(alone, setup);
    alone->setup.no_teacher = true;
    const double seconds =
        wd__train_variant_fits(alone, plan) ? alone->plan.chosen.step_seconds : 0;
    wd_free(alone);
    return seconds;
}

static void say_saved(char out[WD_TARGETS_TEXT], const wd_train_plan *plan, const wd_train_setup *s)
{
    char each[32], all[32], count[96] = "", time[96] = "";
    const double steps = (double)s->options.num_steps, targets = count_until(s, steps);
    const double seconds = student_seconds(plan, s);
    if (steps > 0)
        snprintf(count, sizeof count, ", about %.0f of them, %s", targets,
                 wd_bytes_text(all, sizeof all, (size_t)bytes_of(s, targets)));
    if (seconds > 0)
        snprintf(time, sizeof time, "; a step of a run from them takes %.3g s, not %.3g", seconds,
                 plan->chosen.step_seconds);
    snprintf(out, WD_TARGETS_TEXT, "targets: %s each%s, are written to %s%s",
             wd_bytes_text(each, sizeof each, (size_t)bytes_of(s, 1)), count,
             s->options.save_targets, time);
}

const char *wd_targets_plan_text(char out[WD_TARGETS_TEXT], const wd_train_plan *plan,
                                 const wd_train_setup *s)
{
    char bytes[32];
    *out = 0;
    if (s->options.save_targets)
        say_saved(out, plan, s);
    else if (s->store)
        snprintf(out, WD_TARGETS_TEXT,
                 "targets: %" PRId64 ", %s, are read from %s; no teacher is in memory",
                 wd_target_store_count(s->store),
                 wd_bytes_text(bytes, sizeof bytes, (size_t)wd_target_store_bytes(s->store)),
                 s->options.targets);
    return out;
}

json_t *wd__targets_plan_json(const wd_train_plan *plan, const wd_train_setup *s)
{
    const double steps = (double)s->options.num_steps;
    if (s->options.save_targets)
        return json_pack("{s:o, s:f, s:f, s:f, s:f}", "saved_to",
                         wd_json_string(s->options.save_targets), "bytes_each", bytes_of(s, 1),
                         "count", count_until(s, steps), "bytes", wd__targets_plan_bytes(s, steps),
                         "seconds_per_step_from_them", student_seconds(plan, s));
    if (!s->store) return json_null();
    return json_pack("{s:o, s:I, s:I}", "read_from", wd_json_string(s->options.targets), "count",
                     (json_int_t)wd_target_store_count(s->store), "bytes",
                     (json_int_t)wd_target_store_bytes(s->store));
}
