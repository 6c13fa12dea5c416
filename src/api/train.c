/* `train`: options -> plan -> prompt embeddings -> teacher -> trainer.
 *
 * Everything that can be refused is refused first; then the memory plan is made by running a step
 * dry, and said; then run.json is written, so that a run can be repeated; then the text encoder
 * comes and goes, and only then the teacher's weights are brought. */
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

#include "api/clock.h"
#include "api/options_json.h"
#include "api/run.h"
#include "api/train_setup.h"
#include "core/host.h"
#include "core/log.h"
#include "core/memory.h"
#include "distill/plan.h"

/* ---- memory ---- */

/* "412 MB" */
static const char *bytes_text(char *out, size_t out_bytes, size_t bytes)
{
    static const char *const unit[] = {"B", "kB", "MB", "GB", "TB"};
    double v = (double)bytes;
    int u = 0;
    while (v >= 1000 && u < 4) v /= 1000, u++;
    snprintf(out, out_bytes, "%.3g %s", v, unit[u]);
    return out;
}

/* How many rows of text teacher and student compute: what the prompts need, or, of a run that is
 * resumed, what it was begun with. */
static wd_status choose_text(wd_train_setup *s, wd_err *err)
{
    wd_machine_options *m = &s->trainer.machine;
    m->text_tokens = s->embeds.text_tokens;
    m->text_repeat = s->embeds.text_repeat;
    if (*s->resume) WD_TRY(wd_trainer_resume_text(&s->trainer, err));
    s->embeds.text_tokens = m->text_tokens; /* a resumed run's may be more */
    s->embeds.text_repeat = m->text_repeat;
    wd_log(WD_LOG_DEBUG, "text: %" PRId64 " rows are computed, the last stands for %" PRId64,
           m->text_tokens, m->text_repeat);
    return WD_OK;
}

/* Tokens of the prompts, and what encoding those takes that the cache has not. */
static wd_status plan_text(wd_plan *plan, wd_train_setup *s, wd_queue *queue, wd_err *err)
{
    wd_device *dry = NULL;
    wd_queue *dry_queue = NULL;
    wd_status status;
    WD_TRY(wd_prompt_embeds_open(&s->embeds, s->cache_dir, &s->teacher, s->prompt,
                                 s->data.count + s->samples, s->options.negative_prompt,
                                 s->options.max_sequence_length, s->encoder_dtype, err));
    WD_TRY(choose_text(s, err));
    wd_plan_add(plan, "tokenizer", WD_PLAN_TOKENS, wd_text_cache_tokenizer_bytes(s->embeds.cache));
    WD_TRY_OUT(wd_device_open_dry(&dry, wd_queue_device(queue), err));
    WD_TRY_OUT(wd_queue_open(&dry_queue, dry, err));
    const int64_t before = wd_memory_held();
    wd_memory_restart_peak();
    WD_TRY_OUT(wd_text_cache_encode(s->embeds.cache, dry_queue, err));
    wd_plan_add(plan, "text encoder", WD_PLAN_TEXT, wd_device_bytes_peak(dry));
    wd_plan_add(plan, "text encoder's workspace", WD_PLAN_TEXT,
                wd_queue_workspace_bytes(dry_queue));
    wd_plan_add(plan, "prompt embeddings", WD_PLAN_TEXT, (size_t)(wd_memory_peak() - before));
out:
    wd_queue_close(dry_queue);
    wd_device_close(dry);
    return status;
}

/* What the process has taken since the job began, and keeps: libraries, the kernels that they have
 * made for the shapes of this run, prompts and their tokens. Planning has made all of it. */
static size_t plan_program(wd_plan *plan, const wd_train_setup *s)
{
    wd_host_memory_trim();
    const size_t now = wd_host_memory_own();
    const size_t taken = now > s->bytes_before ? now - s->bytes_before : 0;
    wd_plan_add(plan, "libraries, kernels, prompts", WD_PLAN_PROGRAM, taken);
    return taken;
}

/* `taken`: what of the plan is taken already. */
static wd_status check_fit(const wd_plan *plan, size_t taken, wd_err *err)
{
    char needed[32], there[32];
    const size_t peak = wd_plan_peak(plan), more = wd_host_memory_available();
    const size_t available = more < SIZE_MAX - taken ? more + taken : SIZE_MAX;
    if (peak <= available) return WD_OK;
    return wd_fail(err, WD_DOES_NOT_FIT,
                   "the run needs %s of memory, and there is %s. What takes less: "
                   "--teacher_dtype bfloat16, --gradient_checkpointing, --mixed_precision bf16, a "
                   "smaller --batch_size with more --gradient_accumulation_steps, fewer "
                   "--trajectories, a smaller student (--student_config)",
                   bytes_text(needed, sizeof needed, peak),
                   bytes_text(there, sizeof there, available));
}

/* The peak, and what it is made of: items of less than a hundredth of it for --log_level debug. */
static void say_plan(const wd_plan *plan)
{
    char peak[32], mapped[32], item[32];
    const size_t most = wd_plan_peak(plan);
    wd_log(WD_LOG_INFO, "memory: %s at the most, and %s of mapped files",
           bytes_text(peak, sizeof peak, most),
           bytes_text(mapped, sizeof mapped, plan->mapped_bytes));
    for (int i = 0; i < plan->items; i++)
        wd_log(plan->item[i].bytes >= most / 100 ? WD_LOG_INFO : WD_LOG_DEBUG, "  %-10s %-32s %s",
               wd_plan_phase_name(plan->item[i].phase), plan->item[i].name,
               bytes_text(item, sizeof item, plan->item[i].bytes));
}

static wd_status make_plan(wd_plan *plan, wd_train_setup *s, wd_queue *queue, wd_err *err)
{
    *plan = (wd_plan){0};
    WD_TRY(plan_text(plan, s, queue, err));
    WD_TRY(wd_plan_machine(plan, &s->trainer.machine, &s->trainer.samples, wd_queue_device(queue),
                           err));
    const size_t taken = plan_program(plan, s);
    say_plan(plan);
    return check_fit(plan, taken, err);
}

/* ---- run.json ---- */

static json_t *plan_json(const wd_plan *plan, size_t before)
{
    json_t *items = json_array();
    for (int i = 0; i < plan->items; i++)
        json_array_append_new(items, json_pack("{s:s, s:s, s:I}", "name", plan->item[i].name,
                                               "while", wd_plan_phase_name(plan->item[i].phase),
                                               "bytes", (json_int_t)plan->item[i].bytes));
    return json_pack("{s:I, s:I, s:I, s:o}", "bytes_peak", (json_int_t)wd_plan_peak(plan),
                     "bytes_before", (json_int_t)before, "bytes_mapped",
                     (json_int_t)plan->mapped_bytes, "items", items);
}

/* Everything that the run follows from: --config takes it again. */
static wd_status write_run(const wd_train_setup *s, const wd_plan *plan, wd_queue *queue,
                           wd_err *err)
{
    char path[WD_PATH_MAX];
    WD_TRY(wd_path_join(path, s->options.output_dir, "run.json", err));
    json_t *run = json_pack(
        "{s:s, s:s, s:o, s:o, s:s, s:I, s:I, s:o}", "command", "train", "version", wd_version(),
        "options", wd_options_json(WD_JOB_TRAIN, &s->options), "student",
        wd_dit_config_json(&s->student.dit), "device", wd_device_name(wd_queue_device(queue)),
        "prompts", (json_int_t)s->data.count, "text_tokens",
        (json_int_t)s->trainer.machine.text_tokens, "memory", plan_json(plan, s->bytes_before));
    if (!run) return wd_fail(err, WD_OUT_OF_MEMORY, "%s: no memory to write it", path);
    const wd_status status = wd_json_save(run, path, err);
    json_decref(run);
    return status;
}

/* A new run where another one was: its checkpoints are moved aside, so that --resume never takes
 * one for the other. */
static wd_status move_checkpoints(const wd_train_setup *s, wd_err *err)
{
    char aside[WD_PATH_MAX + 16];
    int n = 1;
    if (*s->resume || !wd_path_exists(s->checkpoints)) return WD_OK;
    do snprintf(aside, sizeof aside, "%s.%d", s->checkpoints, n++);
    while (wd_path_exists(aside));
    if (rename(s->checkpoints, aside))
        return wd_fail(err, WD_IO, "%s: cannot be renamed to %s", s->checkpoints, aside);
    wd_log(WD_LOG_WARNING,
           "%s are of an earlier run, moved to %s; to go on with a run, say --resume auto",
           s->checkpoints, aside);
    return WD_OK;
}

/* ---- the run ---- */

static wd_status train(wd_train_setup *s, wd_run *run, wd_err *err)
{
    wd_plan plan;
    wd_trainer_result result;
    wd_residency *residency;
    WD_TRY(make_plan(&plan, s, run->queue, err));
    WD_TRY(wd_folder_make(s->options.output_dir, err));
    WD_TRY(move_checkpoints(s, err));
    WD_TRY(write_run(s, &plan, run->queue, err));
    WD_TRY(wd_text_cache_encode(s->embeds.cache, run->queue, err));
    wd_host_memory_trim();
    s->trainer.memory_bytes = wd_plan_peak(&plan);
    WD_TRY(wd_residency_open_resident(&residency, &s->teacher, NULL,
                                      s->trainer.machine.teacher_dtype, run->queue, err));
    const wd_machine_teacher teacher = {residency, NULL, &run->queue, run->queue};
    const wd_status status = wd_trainer_run(&result, &s->trainer, &teacher, run->queue, err);
    wd_residency_close(residency);
    if (status != WD_OK) return status;
    wd_log(WD_LOG_INFO,
           "%s after %" PRId64 " steps, %" PRId64
           " targets, %.1f s: loss %.4g; the student is in %s",
           result.interrupted ? "stopped" : "done", result.steps, result.targets, result.seconds,
           result.loss, s->options.output_dir);
    if (result.interrupted) wd_log(WD_LOG_INFO, "--resume auto goes on from here");
    return WD_OK;
}

wd_status wd_train(const wd_train_options *options, wd_err *err)
{
    wd_run run;
    wd_train_setup *setup;
    WD_TRY(wd_run_open(&run, WD_JOB_TRAIN, options, options->num_threads, err));
    wd_status status = wd_alloc((void **)&setup, 1, sizeof *setup, "training set-up", err);
    if (status == WD_OK) {
        status = wd_train_setup_open(setup, options, err);
        if (status == WD_OK) status = train(setup, &run, err);
        wd_train_setup_close(setup);
        wd_free(setup);
    }
    wd_run_close(&run);
    return status;
}
