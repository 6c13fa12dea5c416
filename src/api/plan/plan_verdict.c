/* The verdict of a plan: see api/plan/plan_verdict.h. */
#include "api/plan/plan_verdict.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/options/parts.h"
#include "api/options/train_command.h"
#include "api/plan/run_length.h"
#include "api/setup/memory_report.h"
#include "model/files/preset.h"

enum { COMMAND_MAX = 1 << 15, NUMBER = 40 };

/* The run of docs/a14b.md trains on 160,000 samples. */
static const double FEW_SAMPLES = 100000;

void wd_plan_command_options(wd_train_options *out, const wd_plan_options *options,
                             const wd_device_list *devices)
{
    const wd_train_options usual = wd_train_defaults();
    const wd_pipeline_parts parts = WD_PARTS_OF(&options->train);
    *out = options->train;
    if (wd_parts_any(&parts))
        out->teacher_preset = options->teacher_preset;
    else if (!out->teacher_path)
        out->teacher_path = wd_preset_hub_id(options->teacher_preset);
    if (!out->data_path) out->data_path = "prompts.txt";
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
        const size_t peak = wd_train_plan_peak(t->plan, t->shown, i);
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

/* The time, or the time of 1000 steps if the number of steps is not known. */
static void say_time(wd_text_builder *p, const wd_plan_table *t, const wd_run_length *length)
{
    char time[WD_DURATION_TEXT];
    if (length->steps)
        wd_text_builder_say(p, "%s", wd_duration_text(time, length->seconds));
    else
        wd_text_builder_say(p, "%s for each 1000 steps",
                            wd_duration_text(time, 1000 * t->shown->step_seconds));
}

static void say_few(wd_text_builder *p, const wd_plan_table *t, const wd_run_length *length)
{
    char samples[NUMBER];
    if (!length->steps || length->samples >= FEW_SAMPLES) return;
    wd_text_builder_say(p,
                        "%" PRId64
                        " steps of %.0f are %s samples, which are few to learn from: the run of "
                        "docs/a14b.md has\n160,000. More --num_steps, --batch_size or "
                        "--gradient_accumulation_steps make more.\n",
                        length->steps, t->plan->step_samples, count_text(samples, length->samples));
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

void wd_plan_verdict_say(wd_text_builder *p, const wd_plan_table *t)
{
    char bytes[32], samples[NUMBER], text[WD_RUN_LENGTH_TEXT];
    const char *strategy = wd_strategy_name(t->shown->strategy);
    const wd_run_length length = wd_run_length_of(t->plan, t->setup, t->shown);
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
    wd_text_builder_say(p, "fits under %s: ", strategy);
    say_time(p, t, &length);
    wd_text_builder_say(
        p, ", %s of host memory",
        wd_bytes_text(bytes, sizeof bytes,
                      wd_placed_host_peak(&t->shown->bytes, &t->plan->input.cluster)));
    say_device_memory(p, t);
    if (length.steps) wd_text_builder_say(p, ", %s samples", count_text(samples, length.samples));
    wd_text_builder_say(p, "\n%s\n", wd_run_length_text(text, t->plan, t->setup, t->shown));
    say_few(p, t, &length);
    say_command(p, t);
}

json_t *wd_plan_verdict_json(const wd_plan_table *t)
{
    char command[COMMAND_MAX];
    const wd_run_length length = wd_run_length_of(t->plan, t->setup, t->shown);
    const bool fits = t->fits && !t->lacks_disk, known = fits && length.steps;
    wd_train_command(command, sizeof command, &t->setup->given);
    return json_pack("{s:s, s:b, s:o, s:o, s:o, s:o}", "strategy",
                     wd_strategy_name(t->shown->strategy), "fits", fits, "steps",
                     known ? json_integer(length.steps) : json_null(), "samples",
                     known ? json_real(length.samples) : json_null(), "seconds",
                     known ? json_real(length.seconds) : json_null(), "command",
                     fits ? wd_json_string(command) : json_null());
}
