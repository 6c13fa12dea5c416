/* `plan` predicts memory and time of a run of `train`, under every strategy, with the set-up and
 * the planner of `train`. It loads nothing, and measures only rates that the options do not state.
 */
#include <string.h>

#include "api/options/options.h"
#include "api/plan/encoding_plan.h"
#include "api/plan/largest_student.h"
#include "api/plan/plan_print.h"
#include "api/plan/plan_svg.h"
#include "api/plan/plan_verdict.h"
#include "api/plan/start_blocks.h"
#include "api/plan/suggestions.h"
#include "api/setup/dtypes.h"
#include "api/setup/rank_gpus.h"
#include "api/setup/ranks.h"
#include "api/setup/run.h"
#include "core/locale.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/stop.h"
#include "io/file/writable.h"

static wd_status say(char **text, const wd_plan_table *table, bool as_json, wd_err *err)
{
    if (!as_json) return wd__plan_table_text(text, table, err);
    json_t *json = wd__plan_table_json(table);
    const wd_status status = wd_json_text_of(text, json, err);
    json_decref(json);
    return status;
}

/* As the user gave it; of single files the first one's path. */
static const char *name_of_teacher(const wd_plan_options *o, const wd_train_setup *s)
{
    if (o->train.teacher_path) return o->train.teacher_path;
    return *s->teacher.path ? s->teacher.path : o->teacher_preset;
}

/* Whether the teacher's files have quantised weights, or will have: what LoRAs change of these is
 * made anew, and no longer the files'. */
static bool has_quantised_weights(const wd_pipeline *teacher)
{
    wd_safetensors *set;
    bool found = false;
    if (!*teacher->path ||
        wd_pipeline_open_weights(&set, teacher, WD_COMPONENT_TRANSFORMER, NULL) != WD_OK)
        return false;
    for (int64_t i = 0; i < wd_safetensors_count(set) && !found; i++)
        found = wd_dtype_is_quantised(wd_safetensors_at(set, i)->tensor.dtype);
    wd_safetensors_close(set);
    return found;
}

/* Gives the teacher the sizes of one that is quantised to `dtype` on its way in. */
static void requantise(wd_train_setup *setup, wd_dtype dtype)
{
    setup->teacher.overlay.quantised = dtype;
    *setup->teacher.path = '\0'; /* sizes are then those of a preset */
}

/* Plans the same run with another guidance, and its teacher quantised anew unless that is WD_F32.
 * Returns seconds per step; 0: no plan with it. */
static double plan_with_guidance(float scale, wd_dtype quantised, const wd_train_plan *plan,
                                 const wd_train_setup *setup)
{
    wd_train_variant *other;
    if (!plan->chosen.fits) return 0;
    if (wd_alloc((void **)&other, 1, sizeof *other, "a plan", NULL) != WD_OK) return 0;
    wd__train_variant_begin(other, setup);
    for (int i = 0; i < 2; i++) other->setup.trainer.stepper.guidance_scale[i] = scale;
    if (quantised != WD_F32) requantise(&other->setup, quantised);
    const bool fits = wd__train_variant_fits(other, plan);
    const double seconds = fits ? other->plan.chosen.step_seconds : 0;
    wd_free(other);
    return seconds;
}

static bool is_guided(const wd_train_setup *setup)
{
    return setup->trainer.stepper.guidance_scale[0] > 1;
}

/* With guidance the teacher makes two evaluations for each velocity. */
static double plan_guided(const wd_train_plan *plan, const wd_train_setup *setup)
{
    return is_guided(setup) ? 0 : plan_with_guidance(2, WD_F32, plan, setup);
}

/* LoRAs with which a teacher draws in four steps without guidance are published for the models of
 * 14 billion weights: lightx2v's. They change most matrices of the blocks. Says what the same run
 * takes with them, if that is less; not of a run that is none for them, has LoRAs, or is resumed,
 * which keeps those that it had. */
static wd_step_loras plan_step_loras(const wd_train_plan *plan, const wd_train_setup *setup)
{
    enum { STEPS = 4, BILLION_WEIGHTS = 14 };
    const wd_step_loras none = {0};
    const int64_t steps = setup->options.student_steps;
    const bool has = setup->teacher.lora[0] || setup->teacher.lora[1] || *setup->resume;
    if (has || !is_guided(setup) || steps < 1 || steps > STEPS || plan->no_teacher) return none;
    if (wd_dit_parameters(&setup->teacher.dit) / 1000000000 != BILLION_WEIGHTS) return none;
    const wd_dtype asked = setup->teacher.overlay.quantised;
    const bool quantised = has_quantised_weights(&setup->teacher);
    const wd_dtype dtype = !quantised ? WD_F32 : asked == WD_F32 ? WD_F8_E4M3 : asked;
    const double seconds = plan_with_guidance(1, dtype, plan, setup);
    if (seconds >= plan->chosen.step_seconds) return none;
    return (wd_step_loras){.seconds = seconds,
                           .teacher_dtype =
                               dtype == asked || !quantised ? NULL : wd_dtype_option_name(dtype)};
}

static wd_status check_svg(const char *path, wd_err *err)
{
    static const char *const others[] = {".png", ".jpg",  ".jpeg", ".webp",
                                         ".pdf", ".html", ".json", NULL};
    if (!path) return WD_OK;
    WD_TRY(wd_path_refuse_endings(path, "--svg", others, "a .svg file", err));
    return wd_file_check_writable(path, "--svg", err);
}

/* What is planned for a run. */
typedef struct planned {
    wd_memory_plan prompts;
    wd_train_plan where;
    wd_teacher_map map;
} planned;

static wd_status make_plan(planned *p, wd_train_setup *s, wd_devices *devices, wd_err *err)
{
    const bool has_text =
        s->data.count && s->teacher.has[WD_COMPONENT_TOKENIZER] && *s->teacher.path;
    WD_TRY(wd_teacher_map_open(&p->map, s, devices, err));
    if (has_text) WD_TRY(wd_encoding_plan(&p->prompts, s, devices, &p->map, err));
    WD_TRY(wd_start_blocks_plan(&p->prompts, s, devices, err));
    WD_TRY(wd_train_plan_open(&p->where, s, devices, &p->map, &p->prompts, err));
    return wd_train_plan_count_program(&p->where, s, err);
}

/* Whether the run is known not to fit on a disk. Whoever plans with no --output_dir may plan for
 * another machine: then this one's disk decides nothing. */
static bool lacks_disk(const wd_disk_plan *disks, const wd_train_setup *s)
{
    const char *output = s->options.output_dir;
    const bool is_known =
        strcmp(output, wd_train_defaults().output_dir) != 0 || wd_path_exists(output);
    return is_known && wd__disk_plan_lacks(disks);
}

static wd_status say_plan(char **text, const wd_plan_options *options, const wd_train_plan *where,
                          wd_train_setup *s, wd_err *err)
{
    const wd_strategy_plan *all;
    wd_disk_plan disks;
    char line[512];
    WD_TRY(wd_planner_all(&all, where->planner, err));
    WD_TRY(wd_disk_plan_make(&disks, where, s, err));
    const bool lacks = wd__train_plan_lacks_to_encode(where);
    const wd_plan_table table = {.plan = where,
                                 .setup = s,
                                 .teacher = name_of_teacher(options, s),
                                 .strategy = all,
                                 .best = wd_planner_best(all),
                                 .shown = &where->chosen,
                                 .fits = where->chosen.fits && !lacks,
                                 .lacks_disk = lacks_disk(&disks, s),
                                 .verbose = options->verbose,
                                 .guided_seconds = plan_guided(where, s),
                                 .step_loras = plan_step_loras(where, s),
                                 .disks = &disks};
    if (wd_train_plan_merge_line(line, sizeof line, where, s)) wd_log(WD_LOG_INFO, "%s", line);
    if (options->svg) WD_TRY(wd_plan_svg_write(options->svg, &table, err));
    WD_TRY(say(text, &table, options->json, err));
    if (table.fits) wd__advice_log(where, s);
    if (!table.fits) return wd__suggestions_refuse(where, s, err);
    return table.lacks_disk ? wd_disk_plan_refuse(&disks, s, err) : WD_OK;
}

/* Prints the largest students in the place of the plan. */
static wd_status say_largest(char **text, const wd_plan_options *options,
                             const wd_train_plan *where, const wd_train_setup *s, wd_err *err)
{
    wd_largest_students found;
    const char *small = wd__train_plan_lacks_to_encode(where);
    if (small)
        return wd_fail(err, WD_DOES_NOT_FIT,
                       "--largest_student: no student fits: %s has no room for what encodes the "
                       "prompts, and what the program takes: more memory",
                       small);
    WD_TRY(wd__largest_students_find(&found, where, s, err));
    return wd__largest_students_print(text, &found, where, s, name_of_teacher(options, s),
                                      options->json, err);
}

static wd_status plan(char **text, const wd_plan_options *options, wd_train_setup *s,
                      wd_devices *devices, wd_err *err)
{
    planned *p;
    WD_TRY(check_svg(options->svg, err));
    WD_TRY(wd_alloc((void **)&p, 1, sizeof *p, "a plan", err));
    wd__plan_command_options(&s->given, options, &devices->list);
    wd_status status = make_plan(p, s, devices, err);
    if (status == WD_OK)
        status = options->largest_student ? say_largest(text, options, &p->where, s, err)
                                          : say_plan(text, options, &p->where, s, err);
    wd_train_plan_close(&p->where);
    wd_free(p);
    return status;
}

/* Describes the ranks of the plan, which do not run, in a communicator without a vtable. */
static wd_status describe_ranks(wd_comm *out, const wd_plan_options *o, wd_err *err)
{
    int ranks = (int)o->ranks, of_host;
    const int hosts = (int)o->hosts;
    WD_TRY(wd_ranks_wanted(&of_host, &o->train, err));
    if (!ranks) ranks = hosts * (of_host ? of_host : 1);
    *out =
        (wd_comm){.ranks = ranks, .hosts = hosts, .host_ranks = ranks / hosts, .in_blocks = true};
    if (ranks % hosts)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "--ranks %d --hosts %d: expected as many ranks on each host", ranks, hosts);
    return WD_OK;
}

static wd_status check_speeds(const wd_plan_options *o, wd_err *err)
{
    wd_device_list list;
    WD_TRY(wd_device_list_parse(&list, o->train.devices, err));
    return wd_device_list_need_speeds(&list, o->train.devices, err);
}

/* Options that name one student mean nothing where the largest are sought. */
static wd_status check_largest(const wd_plan_options *o, wd_err *err)
{
    const char *option = o->train.student_config ? "--student_config"
                         : o->train.resume       ? "--resume"
                         : o->svg                ? "--svg"
                                                 : NULL;
    if (!o->largest_student || !option) return WD_OK;
    return wd_fail(err, WD_INVALID_ARGUMENT,
                   "--largest_student and %s: the first seeks students of any size, the second is "
                   "for a given one: leave one of them out",
                   option);
}

wd_status wd_plan(char **text, const wd_plan_options *options, wd_err *err)
{
    WD_C_LOCALE;
    wd_devices devices = {0};
    wd_train_setup *setup;
    wd_comm ranks;
    WD_TRY(wd_options_check(WD_JOB_PLAN, options, err));
    WD_TRY(check_largest(options, err));
    WD_TRY(describe_ranks(&ranks, options, err));
    WD_TRY(check_speeds(options, err));
    wd_stop_begin();
    WD_TRY(wd_alloc((void **)&setup, 1, sizeof *setup, "a plan", err));
    wd_status status =
        wd_train_setup_open_planned(setup, &options->train, &ranks, options->teacher_preset, err);
    if (status == WD_OK)
        status = wd_devices_open_shared(&devices, options->train.devices,
                                        wd_threads_alone(options->train.num_threads), &ranks, err);
    if (status == WD_OK) status = wd_device_memory_measure(devices.device, devices.count, err);
    if (status == WD_OK) status = wd_rank_gpus_open_planned(&devices, &ranks, &options->train, err);
    if (status == WD_OK) {
        wd_train_dtypes_follow(setup, &devices.list);
        status = plan(text, options, setup, &devices, err);
    }
    wd_peers_close(ranks.peers);
    wd_train_setup_close(setup);
    wd_devices_close(&devices);
    wd_free(setup);
    return status;
}
