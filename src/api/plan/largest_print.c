/* The largest students as text and JSON: see api/plan/largest_student.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/options/options.h"
#include "api/plan/largest_student.h"
#include "api/plan/optimizer_place.h"
#include "api/plan/train_cluster.h"
#include "api/setup/memory_report.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/text.h"

enum { COMMAND_MAX = 1 << 15, CONFIG_MAX = 128 };

static double billions(const wd_dit_config *config)
{
    return (double)wd_dit_parameters(config) * 1e-9;
}

/* The file that the commands name. */
static const char config_file[] = "student.json";

static const wd_dit_config *source_of(const wd_train_setup *setup)
{
    return setup->options.init_student ? &setup->first.dit : &setup->teacher.dit;
}

/* The options of `train` for this student. */
static wd_train_options options_for(const wd_largest_student *s, const wd_train_setup *setup)
{
    wd_train_options o = setup->given;
    o.student_config = config_file;
    o.gradient_checkpointing = s->checkpointing;
    if (s->batch == setup->options.batch_size) return o;
    o.batch_size = s->batch;
    o.gradient_accumulation_steps = s->accumulation;
    return o;
}

/* The student's config in one line. Returns `out`. */
static const char *config_text(char out[CONFIG_MAX], const wd_largest_student *s,
                               const wd_train_setup *setup)
{
    json_t *json = wd_student_config_json(&s->dit, source_of(setup));
    char *text = json ? json_dumps(json, 0) : NULL;
    snprintf(out, CONFIG_MAX, "%s", text ? text : "{}");
    free(text);
    json_decref(json);
    return out;
}

/* Writes the options that are not the user's: ", with --gradient_checkpointing". */
static void write_changes(char out[WD_LARGEST_TEXT], const wd_largest_student *s,
                          const wd_train_setup *setup)
{
    const bool checkpoints = s->checkpointing && !setup->given.gradient_checkpointing;
    const bool smaller = s->batch != setup->options.batch_size;
    size_t n = 0;
    *out = 0;
    if (checkpoints || smaller) n = wd_append_text(out, WD_LARGEST_TEXT, n, ", with");
    if (checkpoints) n = wd_append_text(out, WD_LARGEST_TEXT, n, " --gradient_checkpointing");
    if (smaller)
        wd_append_text(out, WD_LARGEST_TEXT, n,
                       " --batch_size %" PRId64 " --gradient_accumulation_steps %" PRId64, s->batch,
                       s->accumulation);
}

/* ---- text ---- */

/* Prints the devices, equal neighbours together, and host memory. */
static void say_machine(wd_text_builder *p, const wd_train_plan *plan)
{
    char bytes[32];
    const wd_devices *d = plan->devices;
    const wd_cluster *cluster = &plan->input.cluster;
    wd_text_builder_say(p, "machine  ");
    if (cluster->ranks > 1)
        wd_text_builder_say(p, "%d ranks on %d host%s; of each rank: ", cluster->ranks,
                            cluster->hosts, cluster->hosts > 1 ? "s" : "");
    for (int i = 0, last; i < d->count; i = last + 1) {
        for (last = i; last + 1 < d->count && last + 1 != d->processor && i != d->processor &&
                       cluster->device[last + 1].bytes == cluster->device[i].bytes;)
            last++;
        wd_text_builder_say(p, "%s%s%s", d->name[i], last > i ? " to " : "",
                            last > i ? d->name[last] : "");
        if (i != d->processor)
            wd_text_builder_say(p, " %s%s",
                                wd_bytes_text(bytes, sizeof bytes, cluster->device[i].bytes),
                                last > i ? " each" : "");
        wd_text_builder_say(p, ", ");
    }
    wd_text_builder_say(p, "host memory %s\n",
                        wd_bytes_text(bytes, sizeof bytes, plan->host_budget));
}

static void say_head(wd_text_builder *p, const wd_train_plan *plan, const wd_train_setup *s,
                     const char *teacher)
{
    const wd_train_options *o = &s->options;
    const int experts = wd_teacher_experts(&s->teacher);
    if (plan->devices->list.device[0].type == WD_DEVICE_SIM)
        wd_text_builder_say(p, "simulated: the devices below need not be there; what they can do "
                               "is what --devices says\n");
    wd_text_builder_say(p, "teacher  %s, %s: %s%.3g billion weights\n", teacher, o->teacher_dtype,
                        experts > 1 ? "2 x " : "", billions(&s->teacher.dit));
    wd_text_builder_say(p, "students %s; %.0f samples a step, %" PRId64 "x%" PRId64 " pixels\n",
                        s->trainer.stepper.student_dtype == WD_BF16 ? "bf16" : "fp32",
                        plan->step_samples, o->width, o->height);
    say_machine(p, plan);
}

static const char *place_text(const wd_largest_student *s, const wd_train_plan *plan)
{
    switch (s->place) {
    case WD_STATE_ON_HOST:
        return "host";
    case WD_STATE_EMA_ON_HOST:
        return "EMA: host";
    default:
        return plan->devices->name[0];
    }
}

static void say_row(wd_text_builder *p, const wd_largest_student *s, const wd_train_plan *plan)
{
    char weights[32], days[32];
    snprintf(weights, sizeof weights, "%.3g B", billions(&s->dit));
    snprintf(days, sizeof days, "%.3g days", s->million_days);
    wd_text_builder_say(p, "%9s %6" PRId64 " %7" PRId64 " %8.3g %16s  %-10s %-10s %-17s %s\n",
                        weights, wd_dit_width(&s->dit), s->dit.layers, s->step_seconds, days,
                        wd_strategy_name(s->strategy), place_text(s, plan), s->limit, s->why);
}

static void say_commands(wd_text_builder *p, const wd_largest_student *s,
                         const wd_train_setup *setup)
{
    char command[COMMAND_MAX], config[CONFIG_MAX], changes[WD_LARGEST_TEXT];
    const wd_train_options o = options_for(s, setup);
    write_changes(changes, s, setup);
    wd_train_command(command, sizeof command, &o);
    wd_text_builder_say(p, "\n%.3g billion weights, %s%s:\n  echo '%s' > %s\n  %s\n",
                        billions(&s->dit), s->shape, changes, config_text(config, s, setup),
                        config_file, command);
}

static wd_status print_text(char **out, const wd_largest_students *found, const wd_train_plan *plan,
                            const wd_train_setup *setup, const char *teacher, wd_err *err)
{
    wd_text_builder p = {.err = err};
    say_head(&p, plan, setup, teacher);
    wd_text_builder_say(&p, "\n%9s %6s %7s %8s %16s  %-10s %-10s %-17s %s\n", "weights", "width",
                        "blocks", "s/step", "million samples", "strategy", "optimiser",
                        "limited by", "no larger one, since");
    for (int i = 0; i < found->count; i++) say_row(&p, &found->student[i], plan);
    wd_text_builder_say(&p, "\nThe largest of each shape that fits. \"optimiser\" is where its "
                            "moments, the EMA and master weights are.\n");
    if (plan->asked == WD_STRATEGY_auto && plan->devices->processor > 0)
        wd_text_builder_say(&p, "What fits only under the strategy cpu does not count, since it "
                                "takes many times as long.\n");
    for (int i = 0; i < found->count; i++) say_commands(&p, &found->student[i], setup);
    return wd_text_builder_take(out, &p);
}

/* ---- JSON ---- */

static json_t *student_json(const wd_largest_student *s, const wd_train_setup *setup)
{
    char command[COMMAND_MAX];
    const wd_train_options o = options_for(s, setup);
    wd_train_command(command, sizeof command, &o);
    return json_pack(
        "{s:s, s:o, s:I, s:I, s:I, s:f, s:f, s:s, s:s, s:s?, s:b, s:I, s:I, s:s, s:s, s:o}",
        "shape", s->shape, "student_config", wd_student_config_json(&s->dit, source_of(setup)),
        "student_parameters", (json_int_t)wd_dit_parameters(&s->dit), "width",
        (json_int_t)wd_dit_width(&s->dit), "blocks", (json_int_t)s->dit.layers, "seconds_per_step",
        s->step_seconds, "days_per_million_samples", s->million_days, "strategy",
        wd_strategy_name(s->strategy), "optimizer_device", wd__optimizer_device_of(s->place),
        "ema_device", setup->trainer.stepper.ema ? wd__ema_device_of(s->place) : NULL,
        "gradient_checkpointing", s->checkpointing, "batch_size", (json_int_t)s->batch,
        "gradient_accumulation_steps", (json_int_t)s->accumulation, "limited_by", s->limit,
        "no_larger_since", s->why, "command", wd_json_string(command));
}

static wd_status print_json(char **out, const wd_largest_students *found, const wd_train_plan *plan,
                            const wd_train_setup *setup, const char *teacher, wd_err *err)
{
    json_t *students = json_array();
    for (int i = 0; i < found->count; i++)
        json_array_append_new(students, student_json(&found->student[i], setup));
    json_t *json = json_pack(
        "{s:o, s:I, s:f, s:I, s:o}", "teacher", wd_json_string(teacher), "teacher_parameters",
        (json_int_t)wd_dit_parameters(&setup->teacher.dit), "samples_per_step", plan->step_samples,
        "host_bytes", (json_int_t)plan->host_budget, "largest_students", students);
    const wd_status status = wd_json_text_of(out, json, err);
    json_decref(json);
    return status;
}

/* ---- both ---- */

wd_status wd__largest_students_print(char **out, const wd_largest_students *found,
                                     const wd_train_plan *plan, const wd_train_setup *setup,
                                     const char *teacher, bool as_json, wd_err *err)
{
    if (!found->count)
        return wd_fail(err, WD_DOES_NOT_FIT,
                       "--largest_student: no student fits: with %" PRId64
                       " block%s of width %" PRId64
                       " %s: take fewer --trajectories, smaller pictures (--height, --width), a "
                       "lesser --target_replay, or more memory",
                       found->smallest.layers, found->smallest.layers == 1 ? "" : "s",
                       wd_dit_width(&found->smallest), found->lacks);
    if (as_json) return print_json(out, found, plan, setup, teacher, err);
    return print_text(out, found, plan, setup, teacher, err);
}

void wd__largest_student_log(const wd_train_plan *plan, const wd_train_setup *setup)
{
    char config[CONFIG_MAX], changes[WD_LARGEST_TEXT];
    wd_largest_students found;
    const wd_train_options *o = &setup->options;
    if (o->student_config || o->init_student || *setup->resume) return;
    if (!wd__train_has_others(setup)) {
        if (wd__largest_students_find(&found, plan, setup, NULL) != WD_OK || !found.count) return;
        const wd_largest_student *most = &found.student[0];
        write_changes(changes, most, setup);
        wd_log(WD_LOG_ERROR,
               "the largest student that fits has %.3g billion weights and takes %.3g s per step: "
               "%s in the file of --student_config%s",
               billions(&most->dit), most->step_seconds, config_text(config, most, setup), changes);
    }
    wd_log(WD_LOG_ERROR, "`wandistiller plan` with the same options and --largest_student lists "
                         "students of several shapes that fit");
}
