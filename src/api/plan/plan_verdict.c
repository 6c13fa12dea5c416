/* The verdict of a plan: see api/plan/plan_verdict.h. */
#include "api/plan/plan_verdict.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/options/options.h"
#include "api/setup/memory_report.h"
#include "model/files/preset.h"

/* ---- the length of a run ---- */

enum { DURATION_TEXT = 32 };

typedef struct run_length {
    int64_t steps;   /* 0: not known, since no prompts are, of which epochs are counted */
    double seconds;  /* of all steps */
    double samples;  /* that all ranks train on */
    const char *why; /* the option that ends the run, such as "--num_steps"; "": epochs */
} run_length;

/* A first step that takes longer is named. */
static const double LONG_S = 20;

/* "18.2 hours". Returns `out`. */
static const char *duration_text(char out[DURATION_TEXT], double seconds)
{
    if (seconds < 120)
        snprintf(out, DURATION_TEXT, "%.3g s", seconds);
    else if (seconds < 120 * 60)
        snprintf(out, DURATION_TEXT, "%.3g minutes", seconds / 60);
    else if (seconds < 72 * 3600)
        snprintf(out, DURATION_TEXT, "%.3g hours", seconds / 3600);
    else
        snprintf(out, DURATION_TEXT, "%.3g days", seconds / 86400);
    return out;
}

static double million_seconds(const wd_train_plan *plan, const wd_strategy_plan *candidate)
{
    return 1e6 / wd__train_plan_samples_per_s(plan, candidate);
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

/* The length of the run under this strategy. */
static run_length run_length_of(const wd_train_plan *plan, const wd_train_setup *setup,
                                const wd_strategy_plan *candidate)
{
    const wd_train_options *o = &setup->options;
    const double step_s = candidate->step_seconds, limit_s = 60 * o->max_minutes;
    const bool by_epochs =
        o->num_steps && o->num_steps == wd_train_epoch_steps(setup) * o->num_epochs;
    run_length r = {.steps = o->num_steps, .why = by_epochs ? "" : "--num_steps"};
    r.seconds = (double)r.steps * step_s;
    if (limit_s > 0 && (!r.steps || r.seconds > limit_s))
        r = (run_length){(int64_t)(limit_s / step_s), limit_s, 0, "--max_minutes"};
    r.samples = (double)r.steps * plan->step_samples;
    return r;
}

/* The predicted seconds, at most, until the first targets of a phase are made: before the first one
 * of a student of few steps is known, the teacher makes a whole chord along each trajectory. */
static double first_targets_seconds(const wd_trajectory_options *trajectory,
                                    const wd_strategy_plan *plan)
{
    const int64_t rounds = trajectory->student_steps ? wd_chord_length(trajectory) : 1;
    const int64_t sweeps = (trajectory->slots + plan->window - 1) / plan->window;
    return (double)(rounds * sweeps) * plan->timeline.sweep_seconds;
}

const char *wd_run_length_text(char out[WD_RUN_LENGTH_TEXT], const wd_train_plan *plan,
                               const wd_train_setup *setup, const wd_strategy_plan *candidate)
{
    char time[DURATION_TEXT], million[DURATION_TEXT], targets[128], why[96];
    const wd_train_options *o = &setup->options;
    const double step_s = candidate->step_seconds;
    const run_length r = run_length_of(plan, setup, candidate);
    duration_text(million, million_seconds(plan, candidate));
    if (!r.steps && !(o->max_minutes > 0)) {
        snprintf(out, WD_RUN_LENGTH_TEXT,
                 "%" PRId64
                 " epochs of the prompts, which --data_path names, at %.3g s per step; a "
                 "million samples take %s",
                 o->num_epochs, step_s, million);
        return out;
    }
    snprintf(why, sizeof why, "%s", r.why);
    if (!*why)
        snprintf(why, sizeof why, "%" PRId64 " epoch%s of %" PRId64 " prompts", o->num_epochs,
                 o->num_epochs == 1 ? "" : "s", setup->data.count);
    targets_text(targets, sizeof targets, plan, &setup->phases, r.steps);
    const int n = snprintf(out, WD_RUN_LENGTH_TEXT,
                           "%" PRId64 " step%s (%s), %s: %s at %.3g s per step; a million samples "
                           "take %s",
                           r.steps, r.steps == 1 ? "" : "s", why, targets,
                           duration_text(time, r.seconds), step_s, million);
    const double first_s = first_targets_seconds(&setup->trainer.stepper.trajectory, candidate);
    if (n > 0 && n < WD_RUN_LENGTH_TEXT && first_s > LONG_S && first_s > 2 * step_s)
        snprintf(out + n, (size_t)(WD_RUN_LENGTH_TEXT - n),
                 "; the first step makes a store of targets, in up to %s",
                 duration_text(time, first_s));
    return out;
}

/* ---- how long a step may take ---- */

double wd_step_limit(const wd_train_options *options, const wd_strategy_plan *plan)
{
    if (options->step_timeout > 0) return options->step_timeout;
    return 60 + 10 * (plan->step_seconds + plan->timeline.sweep_seconds);
}

double wd_step_limit_first(const wd_train_options *options, const wd_trajectory_options *trajectory,
                           const wd_strategy_plan *plan)
{
    if (options->step_timeout > 0) return 0;
    return 3 * first_targets_seconds(trajectory, plan);
}

/* ---- the verdict ---- */

enum { COMMAND_MAX = 1 << 15, NUMBER = 40 };

/* A run of fewer samples is a trial: of the students of docs/a14b.md only FastWan, which has all of
 * its teacher's weights, saw fewer. */
static const double TRIAL_SAMPLES = 1e6;

void wd__plan_command_options(wd_train_options *out, const wd_plan_options *options,
                              const wd_device_list *devices)
{
    const wd_train_options usual = wd_train_defaults();
    const wd_pipeline_parts parts = WD_PARTS_OF(&options->train);
    *out = options->train;
    if (wd_parts_any(&parts))
        out->teacher_preset = options->teacher_preset;
    else if (!out->teacher_path)
        out->teacher_path = wd_preset_hub_id(options->teacher_preset);
    if (out->init_student && !wd_path_exists(out->init_student) &&
        wd_preset_hub_id(out->init_student))
        out->init_student = wd_preset_hub_id(out->init_student);
    if (!out->data_path && !out->targets)
        out->data_path = out->prompt_column ? "prompts.csv" : "prompts.txt";
    if (!strcmp(out->output_dir, usual.output_dir)) out->output_dir = "student";
    if (devices->device[0].type == WD_DEVICE_SIM) {
        out->devices = usual.devices;
        out->host_memory = NULL;
    }
    if (options->hosts == 1 && options->ranks > 1) out->nproc_per_node = options->ranks;
    if (options->hosts > 1) out->distributed = true;
}

/* "160,000" */
static const char *count_text(char out[NUMBER], double count)
{
    char digits[NUMBER];
    size_t used = 0;
    const int n = snprintf(digits, sizeof digits / 2, "%.0f", count);
    for (int i = 0; i < n && i < NUMBER / 2 - 1; i++) {
        if (i && !((n - i) % 3)) out[used++] = ',';
        out[used++] = digits[i];
    }
    out[used] = 0;
    return out;
}

/* ", 21 GiB of sim:0", or of the fullest of several devices; nothing without devices. */
static void say_device_memory(wd_text_builder *p, const wd_plan_table *t)
{
    char text[32];
    size_t most = 0;
    int pools = 0;
    const wd_devices *d = t->plan->devices;
    const char *name = "";
    for (int i = 0; i < d->count; i++) {
        if (i == d->processor) continue;
        const size_t peak = wd__train_plan_peak(t->plan, t->shown, i);
        pools++;
        if (peak >= most) most = peak, name = d->name[i];
    }
    if (!pools) return;
    wd_bytes_text(text, sizeof text, most);
    if (pools > 1)
        wd_text_builder_say(p, ", %s of the fullest device (%s)", text, name);
    else
        wd_text_builder_say(p, ", %s of %s", text, name);
}

/* The time, or the time of a million samples if the number of steps is not known. */
static void say_time(wd_text_builder *p, const wd_plan_table *t, const run_length *length)
{
    char time[DURATION_TEXT];
    if (length->steps)
        wd_text_builder_say(p, "%s", duration_text(time, length->seconds));
    else
        wd_text_builder_say(p, "%s for each million samples",
                            duration_text(time, million_seconds(t->plan, t->shown)));
}

static void say_trial(wd_text_builder *p, const wd_plan_table *t, const run_length *length)
{
    char samples[NUMBER];
    if (!length->steps || length->samples >= TRIAL_SAMPLES) return;
    if (!strcmp(length->why, "--max_minutes")) return;
    wd_text_builder_say(
        p,
        "%" PRId64 " steps of %.0f are %s samples, a trial: students of less than their teacher's "
        "weights saw a million\nand more where they were published (docs/a14b.md). "
        "A million are --num_steps %.0f.\n",
        length->steps, t->plan->step_samples, count_text(samples, length->samples),
        ceil(TRIAL_SAMPLES / t->plan->step_samples));
}

static void say_command(wd_text_builder *p, const wd_plan_table *t)
{
    char command[COMMAND_MAX];
    const wd_train_options *o = &t->setup->given;
    const bool simulated = t->plan->devices->list.device[0].type == WD_DEVICE_SIM;
    wd_train_command(command, sizeof command, o);
    wd_text_builder_say(p, "run%s%s:\n  %s\n", simulated ? " on such a machine" : "",
                        o->distributed ? ", started by mpirun or srun (docs/ranks.md)" : "",
                        command);
}

void wd__plan_verdict_say(wd_text_builder *p, const wd_plan_table *t)
{
    char bytes[32], samples[NUMBER], text[WD_RUN_LENGTH_TEXT];
    const char *strategy = wd_strategy_name(t->shown->strategy);
    const run_length length = run_length_of(t->plan, t->setup, t->shown);
    wd_text_builder_say(p, "\n");
    if (!t->fits) {
        wd_text_builder_say(p, "does not fit%s%s\n",
                            t->best->fits ? " under " : ", whatever the strategy",
                            t->best->fits ? strategy : "");
        return;
    }
    if (t->lacks_disk) {
        wd_text_builder_say(p, "fits into memory under %s, but not on the disk\n", strategy);
        return;
    }
    if (t->plan->no_teacher)
        wd_text_builder_say(p, "fits: ");
    else
        wd_text_builder_say(p, "fits under %s: ", strategy);
    say_time(p, t, &length);
    wd_text_builder_say(
        p, ", %s of host memory",
        wd_bytes_text(bytes, sizeof bytes,
                      wd_placed_host_peak(&t->shown->bytes, &t->plan->input.cluster)));
    say_device_memory(p, t);
    if (length.steps) wd_text_builder_say(p, ", %s samples", count_text(samples, length.samples));
    wd_text_builder_say(p, "\n%s\n", wd_run_length_text(text, t->plan, t->setup, t->shown));
    say_trial(p, t, &length);
    say_command(p, t);
}

json_t *wd__plan_verdict_json(const wd_plan_table *t)
{
    char command[COMMAND_MAX];
    const run_length length = run_length_of(t->plan, t->setup, t->shown);
    const bool fits = t->fits && !t->lacks_disk, known = fits && length.steps;
    wd_train_command(command, sizeof command, &t->setup->given);
    return json_pack("{s:s, s:b, s:o, s:o, s:o, s:f, s:o}", "strategy",
                     wd_strategy_name(t->shown->strategy), "fits", fits, "steps",
                     known ? json_integer(length.steps) : json_null(), "samples",
                     known ? json_real(length.samples) : json_null(), "seconds",
                     known ? json_real(length.seconds) : json_null(), "seconds_per_million_samples",
                     million_seconds(t->plan, t->shown), "command",
                     fits ? wd_json_string(command) : json_null());
}
