/* `train`: options -> plan -> prompt embeddings -> teacher -> trainer.
 *
 * Errors in options and files are reported first. Then the memory plan is made by running a step
 * dry, and logged. Then the text encoder is loaded and freed, and only after that the teacher's
 * weights are loaded. After the first step files of an earlier run in the output folder are moved
 * to earlier-N, and run.json is written. A run of several ranks with --profile_memory ends with the
 * bytes that they have sent one another. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "api/jobs/agreement.h"
#include "api/jobs/train_report.h"
#include "api/options/options.h"
#include "api/plan/disk_plan.h"
#include "api/plan/encoding_plan.h"
#include "api/plan/optimizer_place.h"
#include "api/plan/plan_verdict.h"
#include "api/plan/sheets.h"
#include "api/plan/start_blocks.h"
#include "api/plan/suggestions.h"
#include "api/plan/target_reuse.h"
#include "api/plan/targets_plan.h"
#include "api/plan/train_cluster.h"
#include "api/plan/train_plan.h"
#include "api/plan/validation_plan.h"
#include "api/setup/dtypes.h"
#include "api/setup/memory_report.h"
#include "api/setup/rank_gpus.h"
#include "api/setup/ranks.h"
#include "api/setup/run.h"
#include "api/setup/train_setup.h"
#include "core/host.h"
#include "core/locale.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/stop.h"
#include "core/text.h"
#include "job/launch/rank_peers.h"
#include "report/report.h"
#include "train/output/request.h"

/* ---- the plan ---- */

/* Adds the memory that the process has allocated since the job began and keeps: libraries, the
 * kernels that they have made for the shapes of this run, prompts and their tokens. Planning has
 * made all of it, but for what the page about the run takes. */
static void plan_program(wd_memory_plan *plan, const wd_train_setup *s)
{
    wd_memory_plan_add(plan, "libraries, kernels, prompts", WD_MEMORY_PROGRAM, WD_MEMORY_HOST,
                       wd_train_program_bytes(s));
    if (!strcmp(s->options.save_report, "true") && !(s->comm && s->comm->rank))
        wd_memory_plan_add(plan, "page about the run", WD_MEMORY_PROGRAM, WD_MEMORY_HOST,
                           WD_PAGE_WRITING_BYTES);
}

/* Logs the values that were chosen for open options. */
static void say_run(const wd_train_setup *s)
{
    char steps[48] = "", minutes[48] = "", weights[WD_WEIGHTS_TEXT];
    const wd_train_options *o = &s->options;
    const wd_stepper_options *m = &s->trainer.stepper;
    if (o->num_steps)
        snprintf(steps, sizeof steps, ", %" PRId64 " step%s", o->num_steps,
                 o->num_steps == 1 ? "" : "s");
    if (o->max_minutes > 0)
        snprintf(minutes, sizeof minutes, ", at most %g minutes", o->max_minutes);
    wd_log(WD_LOG_INFO,
           "student: %s weights, %" PRId64 " block%s of width %" PRId64 ", %s; %" PRId64 "x%" PRId64
           " pixels, %" PRId64 " prompts, %" PRId64 " samples a step, learning rate %.3g%s%s",
           wd_weights_text(weights, wd_dit_parameters(&m->student)), m->student.layers,
           m->student.layers == 1 ? "" : "s", wd_dit_width(&m->student),
           m->student_dtype == WD_BF16 ? "bf16" : "fp32", o->width, o->height, s->data.count,
           wd_stepper_step_samples(m), o->lr, steps, minutes);
}

static wd_status make_plan(wd_memory_plan *plan, wd_train_plan *where, wd_train_setup *s,
                           wd_devices *devices, wd_teacher_map *map, wd_err *err)
{
    char line[WD_RUN_LENGTH_TEXT], sheets[WD_SHEETS_TEXT], place[WD_OPTIMIZER_PLACE_TEXT];
    char targets[WD_TARGETS_TEXT], reuse[WD_TARGET_REUSE_TEXT];
    char validation[WD_VALIDATION_TEXT];
    wd_memory_plan text = {0};
    WD_TRY(wd_train_setup_key_teacher(s, err));
    WD_TRY(wd__train_agree(s, err));
    WD_TRY(wd_encoding_plan(&text, s, devices, map, err));
    WD_TRY(wd_start_blocks_plan(&text, s, devices, err));
    WD_TRY(wd_train_plan_open(where, s, devices, map, &text, err));
    WD_TRY(wd_train_plan_count_program(where, s, err));
    WD_TRY(wd_stored_targets_describe(s, err));
    WD_TRY(wd__train_agree_on_plan(where, s, err));
    *plan = text;
    s->trainer.samples.decoder = devices->teacher[wd_train_plan_decoder(where, &where->chosen)];
    WD_TRY(wd_memory_plan_stepper(plan, &s->trainer.stepper, &s->trainer.samples, devices,
                                  s->store ? NULL : &where->chosen.placement, err));
    plan_program(plan, s);
    say_run(s);
    wd_train_plan_line(line, sizeof line, where, &where->chosen);
    wd_log(WD_LOG_INFO, "%s", line);
    wd_log(WD_LOG_INFO, "in all: %s", wd_run_length_text(line, where, s, &where->chosen));
    if (*wd_optimizer_place_text(place, where, s)) wd_log(WD_LOG_INFO, "%s", place);
    if (*wd_target_reuse_text(reuse, where, s)) wd_log(WD_LOG_INFO, "%s", reuse);
    if (*wd_sheets_text(sheets, where, s)) wd_log(WD_LOG_INFO, "%s", sheets);
    if (*wd_targets_plan_text(targets, where, s)) wd_log(WD_LOG_INFO, "%s", targets);
    if (*wd_validation_plan_text(validation, where, s)) wd_log(WD_LOG_INFO, "%s", validation);
    if (wd_train_plan_merge_line(line, sizeof line, where, s)) wd_log(WD_LOG_INFO, "%s", line);
    if (wd_train_plan_cache_line(line, sizeof line, &where->chosen))
        wd_log(WD_LOG_WARNING, "%s", line);
    wd_memory_report_plan(plan, devices);
    wd_advice_of_run(where);
    return wd_suggestions_check(where, plan, s, err);
}

/* ---- run.json ---- */

/* The caller's options, with whole paths, so that the run can be resumed from any folder. */
static wd_status given_options(json_t **out, const wd_train_setup *s, wd_err *err)
{
    const wd_train_options usual = wd_train_defaults();
    *out = wd_train_options_json(&s->given, &usual);
    json_object_del(*out, "resume"); /* a run that is repeated begins anew */
    json_object_set_new(*out, "output_dir", wd_json_string(s->given.output_dir));
    return wd_option_paths_resolve(*out, WD_JOB_TRAIN, s->folder, err);
}

/* Writes run.json: the options of the caller, which --config can read, and the resolved options,
 * with the values that were chosen for open ones. */
static wd_status write_run(const wd_train_setup *s, const wd_memory_plan *plan,
                           const wd_train_plan *where, wd_err *err)
{
    char path[WD_PATH_MAX];
    json_t *given = NULL;
    wd_device *device = where->devices->device[0];
    WD_TRY(wd_path_join(path, s->output.path, "run.json", err));
    const wd_status found = given_options(&given, s, err);
    if (found != WD_OK) {
        json_decref(given);
        return found;
    }
    json_t *run = json_pack(
        "{s:s, s:s, s:o, s:o, s:o, s:s, s:s, s:I, s:I, s:o, s:o}", "command", "train", "version",
        wd_version(), "options", given, "resolved", wd_train_options_json(&s->options, NULL),
        "student", wd_dit_config_json(&s->student.dit), "device", wd_device_name(device), "kernels",
        wd_device_traits(device)->kernels, "prompts", (json_int_t)s->data.count, "text_tokens",
        (json_int_t)s->trainer.stepper.text_tokens, "teacher",
        wd_strategy_plan_json(where, &where->chosen), "memory",
        wd_memory_plan_json(plan, where->devices, s->bytes_before));
    if (!run) return wd_fail(err, WD_OUT_OF_MEMORY, "%s: no memory to write it", path);
    const wd_status status = wd_json_save(run, path, err);
    json_decref(run);
    return status;
}

/* The context with which the trainer of rank 0 prepares the output folder. */
typedef struct output_files {
    wd_train_setup *setup;
    const wd_memory_plan *plan;
    const wd_train_plan *where;
    wd_train_report report;
} output_files;

/* Before the run's first file it moves files of an earlier run to earlier-N. Later it returns the
 * current path, since the folder may have been moved, and its sheets with it. */
static wd_status ready_output(char out[WD_PATH_MAX], void *context, wd_err *err)
{
    output_files *files = context;
    wd_train_setup *s = files->setup;
    if (s->output_begun) {
        WD_TRY(wd_output_follow(&s->output, err));
    } else {
        WD_TRY(wd_output_begin(&s->output, s->first_step, err));
        WD_TRY(write_run(s, files->plan, files->where, err));
        WD_TRY(wd_validation_prompts_write(s, s->output.path, err));
        s->output_begun = true;
        wd__train_report_plan(&files->report, s, files->where);
    }
    memcpy(out, s->output.path, sizeof s->output.path);
    return s->options.sample_dir ? WD_OK : wd_path_join(s->sample_dir, out, "samples", err);
}

static void follow(void *context, bool wrote)
{
    output_files *files = context;
    wd__train_report_follow(&files->report, files->setup, wrote);
}

/* Takes what `wandistiller tell` has left in the output folder, also after it was moved. */
static unsigned take_requests(void *context)
{
    const output_files *files = context;
    const wd_output *output = &files->setup->output;
    const unsigned found = output->locked ? wd_request_take(output->folder) : 0;
    if (found)
        wd_log(WD_LOG_INFO, "`wandistiller tell` asks for:%s%s%s",
               found & WD_REQUEST_SAMPLE ? " sample" : "", found & WD_REQUEST_SAVE ? " save" : "",
               found & WD_REQUEST_STOP ? " stop" : "");
    return found;
}

/* ---- what ranks have sent one another ---- */

/* Logs the bytes of all ranks together, lane by lane, at the end of a run with several ranks. All
 * ranks call it. */
static wd_status report_sent(wd_comm *comm, wd_err *err)
{
    static const char *const name[WD_LANES] = {[WD_LANE_CONTROL] = "control",
                                               [WD_LANE_GRADIENTS] = "gradients",
                                               [WD_LANE_TARGETS] = "targets",
                                               [WD_LANE_ACTIVATIONS] = "activations"};
    const size_t bytes = sizeof comm->sent;
    int64_t *all;
    if (comm->ranks == 1) return WD_OK;
    WD_TRY(wd_alloc((void **)&all, (size_t)comm->ranks, bytes, "what ranks have sent", err));
    memcpy(all + comm->rank * WD_LANES, comm->sent, bytes);
    wd_comm_allgather_small(comm, all, bytes);
    for (int lane = 0; lane < WD_LANES; lane++) {
        int64_t sum = 0;
        for (int r = 0; r < comm->ranks; r++) sum += all[r * WD_LANES + lane];
        wd_log(WD_LOG_INFO, "sent to other ranks: %-11s %" PRId64 " B", name[lane], sum);
    }
    wd_free(all);
    return WD_OK;
}

/* ---- the run ---- */

/* Logs how the run ended, and the options to continue it. */
static void say_end(const wd_trainer_result *r, const wd_train_setup *s)
{
    char loss[32] = "", from[32] = "here", word[WD_SHELL_WORD_BYTES(WD_PATH_MAX)];
    const char *plural = r->steps == 1 ? "" : "s";
    if (r->untouched) {
        wd_log(WD_LOG_INFO,
               "stopped after %" PRId64 " step%s, before this run took one: it has written nothing",
               r->steps, plural);
        return;
    }
    if (!isnan(r->loss)) snprintf(loss, sizeof loss, ", loss %.4g", r->loss);
    wd_log(WD_LOG_INFO,
           "%s after %" PRId64 " step%s, %" PRId64 " targets, %.1f s%s; the student is in %s",
           r->interrupted ? "stopped" : "done", r->steps, plural, r->targets, r->seconds, loss,
           r->folder);
    if (!r->interrupted) return;
    if (r->saved_step < 0) return;
    if (r->saved_step < r->steps) snprintf(from, sizeof from, "step %" PRId64, r->saved_step);
    if (!strcmp(r->folder, s->options.output_dir))
        wd_log(WD_LOG_INFO, "--resume auto goes on from %s", from);
    else
        wd_log(WD_LOG_INFO, "--output_dir %s --resume auto goes on from %s",
               wd_shell_word(word, sizeof word, r->folder), from);
}

/* Writes the student in the forms of --export, where one was written. A run that was stopped writes
 * them once it is resumed and ends. */
static wd_status export_more(const wd_trainer_result *r, const wd_train_setup *s, wd_err *err)
{
    const bool is_due = s->options.export_to && !r->untouched && !r->interrupted;
    if (!is_due || s->comm->rank) return WD_OK;
    const wd_status status = wd_student_write_forms(r->folder, &s->forms, &r->export, err);
    if (status != WD_OK)
        wd_fail_in(err,
                   "--export: the student in %s is complete, and convert can write its other "
                   "forms later",
                   r->folder);
    return status;
}

/* The end of a run that is stopped while its teacher is loaded, as of one that is stopped before
 * its first step. */
static wd_status end_untouched(wd_train_result *out, const wd_train_setup *s, wd_err *err)
{
    json_t *run = NULL;
    wd_trainer_result result = {.loss = NAN, .interrupted = true, .untouched = true};
    if (*s->resume) WD_TRY(wd_checkpoint_read_run(&run, &result.steps, s->resume, err));
    json_decref(run);
    say_end(&result, s);
    *out = (wd_train_result){.stopped = true, .steps = result.steps, .loss = result.loss};
    return WD_OK;
}

/* Loads the teacher; *out = NULL where there are stored targets. */
static wd_status open_teacher(wd_residency **out, const wd_train_setup *s,
                              const wd_train_plan *where, wd_err *err)
{
    wd_devices *d = where->devices;
    *out = NULL;
    if (s->store) return WD_OK;
    return wd_residency_open_placed(out, &s->teacher, &where->chosen.placement,
                                    s->trainer.stepper.teacher_dtype, d->teacher, d->host, s->comm,
                                    err);
}

static wd_status run_trainer(wd_train_result *out, wd_train_setup *s, const wd_train_plan *where,
                             wd_err *err)
{
    wd_trainer_result result;
    wd_residency *residency;
    wd_devices *d = where->devices;
    wd_err why = {0};
    const wd_status opened = open_teacher(&residency, s, where, &why);
    if (opened == WD_INTERRUPTED) return end_untouched(out, s, err);
    if (opened != WD_OK && err) *err = why;
    if (opened != WD_OK) return opened;
    const wd_stepper_teacher teacher = {residency, s->store ? NULL : &where->chosen.placement,
                                        d->teacher, d->home};
    const wd_status status = wd_trainer_run(&result, &s->trainer, &teacher, d->student, err);
    wd_residency_close(residency);
    if (status != WD_OK) return status;
    say_end(&result, s);
    WD_TRY(export_more(&result, s, err));
    *out = (wd_train_result){.stopped = result.interrupted,
                             .steps = result.steps,
                             .targets = result.targets,
                             .loss = result.loss,
                             .seconds = result.seconds};
    return WD_OK;
}

/* Encodes the prompts on a queue of its own, whose workspace is freed with it. */
static wd_status encode(wd_text_cache *cache, wd_device *device, wd_err *err)
{
    wd_queue *queue;
    WD_TRY(wd_queue_open(&queue, device, err));
    const wd_status status = wd_text_cache_encode(cache, queue, err);
    wd_queue_close(queue);
    return status;
}

/* Waits for all ranks. If one of them was stopped they all are. */
static wd_status agree_on_stop(wd_comm *comm, wd_status own, wd_err *err)
{
    bool stopped[comm->ranks], any = false;
    stopped[comm->rank] = own == WD_INTERRUPTED;
    wd_comm_allgather_small(comm, stopped, sizeof *stopped);
    for (int r = 0; r < comm->ranks; r++) any |= stopped[r];
    if (!any || own == WD_INTERRUPTED) return own;
    return wd_fail(err, WD_INTERRUPTED, "stopped on request");
}

/* Merges the teacher's LoRAs and quantises its weights: one rank of each host does, into the cache
 * folder. */
static wd_status make_overlay(wd_train_setup *s, wd_err *err)
{
    wd_comm *comm = s->comm;
    const bool quantises = s->teacher.overlay.quantised != WD_F32;
    if (!s->teacher.lora[0] && !s->teacher.lora[1] && !quantises) return WD_OK;
    if (!wd_train_reads_teacher(s)) return WD_OK;
    wd_status made = WD_OK;
    if (!comm->host_rank) made = wd_pipeline_make_overlay(&s->teacher, err);
    if (made != WD_OK && made != WD_INTERRUPTED) return made;
    WD_TRY(agree_on_stop(comm, made, err));
    s->teacher.overlay.is_made = true;
    return WD_OK;
}

/* Runs the plan: makes the weights that LoRAs change or that are quantised, encodes the prompts,
 * then trains the student. */
static wd_status run_planned(wd_train_result *out, wd_train_setup *s, const wd_train_plan *where,
                             const wd_teacher_map *map, wd_err *err)
{
    WD_TRY(make_overlay(s, err));
    WD_TRY(encode(s->embeds.cache, where->devices->device[map->text_encoder], err));
    WD_TRY(wd_start_blocks_choose(s, where->devices, err));
    wd_host_memory_trim();
    s->trainer.step_s_max = wd_step_limit(&s->options, &where->chosen);
    s->trainer.first_s =
        wd_step_limit_first(&s->options, &s->trainer.stepper.trajectory, &where->chosen);
    return run_trainer(out, s, where, err);
}

/* Refuses a run that its disks have no space for, before it writes or loads anything. A rank that
 * refuses ends the job. */
static wd_status check_disk(const wd_train_plan *where, const wd_train_setup *s, wd_err *err)
{
    wd_disk_plan disks;
    WD_TRY(wd_disk_plan_make(&disks, where, s, err));
    WD_TRY(wd_disk_plan_refuse(&disks, s, err));
    wd_disk_plan_log(&disks);
    return WD_OK;
}

/* Logs the first line of a run with simulated devices. */
static void say_simulated(const wd_devices *d)
{
    const int simulated = d->list.device[0].type == WD_DEVICE_SIM ? d->list.count : 0;
    if (simulated)
        wd_log(WD_LOG_INFO, "%d simulated device%s: this machine's processor computes for %s",
               simulated, simulated == 1 ? "" : "s", simulated == 1 ? "it" : "them");
}

/* What a run is planned to do. */
typedef struct planned {
    wd_memory_plan memory;
    wd_train_plan where;
    wd_teacher_map map;
} planned;

static wd_status train(wd_train_result *out, wd_train_setup *s, wd_devices *devices,
                       wd_memory_witness *witness, wd_err *err)
{
    wd_status status;
    planned *p = NULL;
    wd_host_meter *meter = NULL;
    output_files files = {0};
    wd_err why = {0};
    if (s->options.profile_memory) WD_TRY_OUT(wd_host_meter_open(&meter, s->comm->host_ranks, err));
    WD_TRY_OUT(wd_alloc((void **)&p, 1, sizeof *p, "a plan", err));
    WD_TRY_OUT(wd_teacher_map_open(&p->map, s, devices, err));
    WD_TRY_OUT(make_plan(&p->memory, &p->where, s, devices, &p->map, err));
    WD_TRY_OUT(check_disk(&p->where, s, err));
    if (s->comm->rank == 0) WD_TRY_OUT(wd_output_lock(&s->output, s->first_step, err));
    s->trainer.ready_output = ready_output;
    s->trainer.follow = follow;
    s->trainer.requests = take_requests;
    s->trainer.output_context = &files;
    s->trainer.devices = devices;
    files = (output_files){.setup = s, .plan = &p->memory, .where = &p->where};
    if (s->comm->rank == 0) wd__train_report_open(&files.report, s);
    wd_memory_witness_begin(witness);
    status = run_planned(out, s, &p->where, &p->map, &why);
    wd_on_shortage(NULL, NULL);
    wd__train_report_end(&files.report, s, devices, status == WD_OK ? NULL : why.message);
    if (status != WD_OK && err) *err = why;
    if (status == WD_OUT_OF_MEMORY) wd_suggestions_report(&p->where, s, witness, err);
    if (status != WD_OK) goto out;
    if (meter) {
        const size_t peak = wd_host_meter_peak(meter), before = s->bytes_before;
        const size_t most = peak > before ? peak - before : 0;
        wd_memory_report_measured(&p->memory, devices, most);
        WD_TRY_OUT(wd_memory_report_ranks(s->comm, &p->memory, devices, most, err));
        status = report_sent(s->comm, err);
    }
out:
    wd__train_report_close(&files.report);
    wd_host_meter_close(meter);
    if (p) wd_train_plan_close(&p->where);
    wd_free(p);
    return status;
}

/* Finds the working folder, for run.json, which is written only after the first step. */
static wd_status find_folder(wd_train_setup *s, wd_err *err)
{
    if (s->comm->rank || getcwd(s->folder, sizeof s->folder)) return WD_OK;
    return wd_fail(err, WD_IO,
                   "the current folder cannot be found: %s; change to another one (cd) and try "
                   "again",
                   strerror(errno));
}

/* Runs the job; `watch` may be NULL. A rank that fails ends here while its devices are still open,
 * so that the report shows their memory. */
static wd_status run(wd_train_result *out, const wd_train_options *options, wd_comm *comm,
                     wd_watch *watch, wd_err *err)
{
    wd_devices devices = {0};
    wd_memory_witness witness = {.devices = &devices, .sharers = comm->host_ranks};
    wd_train_setup *setup = NULL;
    wd_status status = wd_alloc((void **)&setup, 1, sizeof *setup, "training set-up", err);
    if (status == WD_OK) status = wd_train_setup_open(setup, options, comm, err);
    if (status == WD_OK) status = find_folder(setup, err);
    if (status == WD_OK) {
        setup->trainer.watch = watch;
        status = wd_ranks_kernels(comm, err);
    }
    if (status == WD_OK)
        status = wd_devices_open_shared(&devices, options->devices,
                                        wd_ranks_threads(comm, options->num_threads), comm, err);
    if (status == WD_OK) status = wd_device_memory_measure(devices.device, devices.count, err);
    if (status == WD_OK) {
        wd_train_dtypes_follow(setup, &devices.list);
        wd_watch_describe(watch, wd_memory_report_note, &witness);
        say_simulated(&devices);
        status = wd_rank_gpus_compare(&devices, comm, options, err);
    }
    if (status == WD_OK) status = wd_rank_gpus_open(&devices, comm, watch, options, err);
    if (status == WD_OK) status = train(out, setup, &devices, &witness, err);
    if (status != WD_OK && watch) wd_watch_fail(watch, err);
    wd_watch_describe(watch, wd_memory_report_note, NULL);
    wd_rank_peers_close(comm);
    if (setup) wd_train_setup_close(setup);
    wd_devices_close(&devices);
    wd_free(setup);
    return status;
}

/* Ranks connect before options are checked, so that every error is reported once. The watch stays
 * open until the communicator is closed, since MPI waits there for all ranks. */
wd_status wd_train(wd_train_result *result, const wd_train_options *options, wd_err *err)
{
    WD_C_LOCALE;
    wd_train_result done;
    wd_comm *comm;
    wd_watch *watch;
    wd_stop_begin();
    WD_TRY(wd_ranks_open(&comm, &watch, err));
    wd_status status = wd_options_check(WD_JOB_TRAIN, options, err);
    if (status == WD_OK) status = wd_ranks_check(comm, options, err);
    if (status != WD_OK && watch) wd_watch_fail(watch, err);
    if (status == WD_OK) status = run(&done, options, comm, watch, err);
    wd_watch_follow(watch, NULL);
    wd_ranks_close(comm);
    wd_watch_close(watch);
    if (status == WD_OK && result) *result = done;
    return status;
}

void wd_train_fail(const wd_err *error)
{
    wd_comm *comm;
    wd_watch *watch;
    wd_err err;
    if (wd_ranks_open(&comm, &watch, &err) != WD_OK) return;
    if (watch) wd_watch_fail(watch, error);
    wd_ranks_close(comm);
}
