/* What is saved of a run: checkpoints and the student's folder; what a checkpoint says of its run,
 * and whether a run may go on from it: see train/loop/trainer.h.
 *
 * What decides a step's samples, targets and arithmetic is written down and must be the same. Two
 * kinds of options are not compared. How the student learns (learning rate, AdamW, clipping, EMA,
 * length) is what one resumes a run to change. How the work is divided (ranks, accumulation,
 * deterministic_reduce) says in which order gradients are added, and a run may go on with other
 * ranks than it was begun with. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/file_space.h"
#include "core/log.h"
#include "core/text.h"
#include "train/loop/trainer_impl.h"
#include "train/output/checkpoint_list.h"
#include "train/targets/chord.h"

/* Of the teacher beside its weights. Its scheduler says in which timesteps states are given to it:
 * UniPC in whole ones, Euler not. */
static json_t *teacher_of(const wd_pipeline *p)
{
    json_t *json = wd_dit_config_json(&p->dit);
    json_t *more = json_pack("{s:f, s:s, s:I}", "boundary_ratio", p->boundary_ratio, "scheduler",
                             wd_scheduler_class_name(p->scheduler.kind), "num_train_timesteps",
                             (json_int_t)p->scheduler.num_train_timesteps);
    if (json && more && !json_object_update(json, more)) {
        json_decref(more);
        return json;
    }
    json_decref(json);
    json_decref(more);
    return NULL;
}

/* What the run's chords are, which a checkpoint of an earlier phase says, too. Without on-policy
 * blocks their end and their copies mean nothing. NULL: no memory. */
static json_t *chords_of(const wd_stepper_options *m)
{
    const wd_trajectory_options *t = &m->trajectory;
    const json_int_t steps = t->student_steps, chords = wd_chords(t);
    if (!(t->on_policy_share > 0))
        return json_pack("{s:I, s:I, s:f, s:f}", "student_steps", steps, "chords", chords,
                         "diversity_gain", t->diversity_gain, "on_policy_share", 0.0);
    return json_pack("{s:I, s:I, s:f, s:f, s:f, s:I}", "student_steps", steps, "chords", chords,
                     "diversity_gain", t->diversity_gain, "on_policy_share", t->on_policy_share,
                     "on_policy_end", t->on_policy_end, "on_policy_every",
                     (json_int_t)t->on_policy_every);
}

/* The names of the run's recipes: "velocity,chord". */
static const char *recipe_of(char out[WD_PHASES_TEXT], const wd_stepper_options *m)
{
    size_t n = 0;
    if (!m->phases.count) return m->recipe->name;
    for (int i = 0; i < m->phases.count; i++)
        n = wd_append_text(out, WD_PHASES_TEXT, n, "%s%s", i ? "," : "",
                           m->phases.phase[i].recipe->name);
    return out;
}

wd_status wd_trainer_facts(json_t **out, const wd_trainer_options *o, wd_err *err)
{
    const wd_stepper_options *m = &o->stepper;
    const wd_dtype quantised = m->teacher->overlay.quantised;
    const wd_dtype teacher_dtype = quantised == WD_F32 ? m->teacher_dtype : quantised;
    *out = json_pack(
        "{s:f, s:f, s:I, s:I, s:s, s:o, s:s, s:s, s:o, s:s, s:s, s:s}", "guidance_scale",
        m->guidance_scale[0], "guidance_scale_2", m->guidance_scale[1], "height",
        (json_int_t)o->export.height, "width", (json_int_t)o->export.width, "mixed_precision",
        m->student_dtype == WD_BF16 ? "bf16" : "no", "student", wd_dit_config_json(&m->student),
        "teacher_dtype", wd_dtype_option_name(teacher_dtype), "teacher_key", o->teacher_key,
        "teacher", teacher_of(m->teacher), "text_encoder_key", o->text_encoder_key,
        "negative_prompt", o->negative_prompt, "prompts_key", o->prompts_key);
    char recipe[WD_PHASES_TEXT];
    json_t *chords = chords_of(m);
    const bool failed = !*out || !chords || json_object_update(*out, chords) ||
                        json_object_set_new(*out, "recipe", json_string(recipe_of(recipe, m)));
    json_decref(chords);
    if (failed) {
        json_decref(*out);
        *out = NULL;
    }
    return !failed ? WD_OK : wd_fail(err, WD_OUT_OF_MEMORY, "no memory for what decides a run");
}

/* *out = what decides the bits of this run's results: processor, or model of the GPU, and versions
 * of libraries. `room`: where it is written if it is the processor's. */
static wd_status find_kernels(const char **out, char room[WD_KERNELS_TEXT],
                              const wd_trainer_options *o, wd_err *err)
{
    *out = o->kernels ? o->kernels : room;
    return o->kernels ? WD_OK : wd_device_kernels(room, err);
}

static const char *moments_of(const wd_optimizer_options *optimizer)
{
    return optimizer->moments_in_8_bits ? "8 bits" : "float32";
}

static wd_status save_run(json_t *run, const wd_trainer_options *o, const wd_phase_begin *phase,
                          double seconds, wd_err *err)
{
    json_t *facts = NULL;
    char room[WD_KERNELS_TEXT];
    const char *kernels;
    WD_TRY(find_kernels(&kernels, room, o, err));
    WD_TRY(wd_trainer_facts(&facts, o, err));
    json_t *more =
        json_pack("{s:f, s:f, s:I, s:I, s:s, s:s?, s:s, s:s, s:I, s:I, s:I, s:f}", "seconds",
                  seconds, "lr", o->lr.lr, "text_tokens", (json_int_t)o->stepper.text_tokens,
                  "text_repeat", (json_int_t)o->stepper.text_repeat, "kernels", kernels,
                  "text_kernels", o->text_kernels, "moments", moments_of(&o->stepper.optimizer),
                  "gradients", wd_dtype_option_name(o->stepper.gradients), "validation_interval",
                  (json_int_t)o->validation_interval, "phase", (json_int_t)phase->phase,
                  "phase_step", (json_int_t)phase->step, "phase_seconds", phase->seconds);
    const bool failed = !more || json_object_update(run, more) || json_object_update(run, facts);
    json_decref(more);
    json_decref(facts);
    return failed ? wd_fail(err, WD_OUT_OF_MEMORY, "no memory for a checkpoint's state") : WD_OK;
}

static wd_status differs(const char *where, const char *part, const char *key, const json_t *then,
                         const json_t *now, wd_err *err)
{
    const size_t flags = JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(6);
    char *texts[2] = {json_dumps(then, flags), json_dumps(now, flags)};
    const char *what = !strcmp(key, "teacher_key") ? "a teacher whose weights have the key"
                       : !strcmp(key, "text_encoder_key")
                           ? "a text encoder whose weights have the key"
                       : !strcmp(key, "prompts_key") ? "prompts (texts and order) of key"
                                                     : key;
    wd_fail(err, WD_MISMATCH,
            "%s: the run was begun with %s%s%s%s %.300s and is to be resumed with %.300s: resume "
            "it with the same, or begin a new run",
            where, *part ? "a " : "", part, *part ? " of " : "", what, texts[0] ? texts[0] : "?",
            texts[1] ? texts[1] : "?");
    for (int i = 0; i < 2; i++) free(texts[i]); /* jansson's */
    return WD_MISMATCH;
}

/* Compares facts of a part of the run, "student" or "teacher", or of the run, "". What an older
 * checkpoint does not say is not compared. */
static wd_status compare(const json_t *then, json_t *now, const char *part, const char *where,
                         wd_err *err)
{
    const char *key;
    json_t *value;
    json_object_foreach(now, key, value)
    {
        const json_t *was = json_object_get(then, key);
        if (!was || json_equal(was, value)) continue;
        if (!json_is_object(value)) return differs(where, part, key, was, value, err);
        WD_TRY(compare(was, value, key, where, err));
    }
    return WD_OK;
}

/* Takes the rows of text that the run was begun with, where they are what the prompts need. */
static wd_status take_text(wd_stepper_options *m, wd_json_reader r, wd_err *err)
{
    const int64_t padded = m->text_tokens + m->text_repeat - 1;
    int64_t tokens = 0, repeat = 0;
    WD_TRY(wd_json_int(&tokens, r, "text_tokens", 1, INT32_MAX, WD_JSON_REQUIRED, err));
    WD_TRY(wd_json_int(&repeat, r, "text_repeat", 1, INT32_MAX, WD_JSON_REQUIRED, err));
    if (tokens + repeat - 1 != padded)
        return wd_fail(err, WD_MISMATCH,
                       "%s: the run was begun with max_sequence_length %" PRId64
                       " and is to be resumed with %" PRId64
                       ": resume it with the same value, or begin a new run",
                       r.where, tokens + repeat - 1, padded);
    if (m->text_tokens > tokens)
        return wd_fail(err, WD_MISMATCH,
                       "%s: the run was begun with prompts of at most %" PRId64
                       " tokens, and now one has more: resume it with the same prompts, "
                       "sample_prompts and negative_prompt, or begin a new run",
                       r.where, tokens - 1);
    m->text_tokens = tokens;
    m->text_repeat = repeat;
    return WD_OK;
}

static const char *encoder_of(const char *kernels)
{
    return kernels ? kernels : "the processor";
}

static void compare_text(const json_t *run, const wd_trainer_options *options)
{
    const char *now = encoder_of(options->text_kernels);
    const char *then = encoder_of(json_string_value(json_object_get(run, "text_kernels")));
    if (!strcmp(then, now)) return;
    wd_log(WD_LOG_WARNING,
           "%s was written by a run whose prompts were encoded with %.*s, and this one encodes "
           "them with %s: the student will not be, bit for bit, that of a run that was never "
           "stopped",
           options->resume, WD_TERMINAL_SAFE(then, 127), now);
}

/* Other kernels give other bits, which is no mistake: a run may go on on another machine. */
static wd_status compare_kernels(const json_t *run, const wd_trainer_options *options, wd_err *err)
{
    char room[WD_KERNELS_TEXT];
    const char *now, *where = options->resume;
    const char *then = json_string_value(json_object_get(run, "kernels"));
    WD_TRY(find_kernels(&now, room, options, err));
    if (then && strcmp(then, now))
        wd_log(WD_LOG_WARNING,
               "%s was written by a run that computed with %.*s, and this one computes with %s: "
               "the student will not be, bit for bit, that of a run that was never stopped",
               where, WD_TERMINAL_SAFE(then, 127), now);
    else
        compare_text(run, options);
    return WD_OK;
}

/* A checkpoint has moments in fp32; those of one that does not say so were in fp32, too. */
static void compare_moments(const json_t *run, const wd_trainer_options *options)
{
    const char *now = moments_of(&options->stepper.optimizer);
    const char *said = json_string_value(json_object_get(run, "moments"));
    const char *then = said && !strcmp(said, "8 bits") ? said : "float32";
    if (strcmp(then, now))
        wd_log(WD_LOG_INFO, "the moments of %s, which were kept in %s, are now kept in %s",
               options->resume, then, now);
}

/* Those of a checkpoint that does not say so were in fp32. */
static void compare_gradients(const json_t *run, const wd_trainer_options *options)
{
    const char *now = wd_dtype_option_name(options->stepper.gradients);
    const char *said = json_string_value(json_object_get(run, "gradients"));
    const char *then = said && !strcmp(said, "bfloat16") ? said : "float32";
    if (strcmp(then, now))
        wd_log(WD_LOG_INFO,
               "%s was written by a run that kept gradients in %s, and this one keeps them in %s: "
               "the student will not be, bit for bit, that of a run that was never stopped",
               options->resume, then, now);
}

wd_status wd_trainer_resumed_text(char out[WD_KERNELS_TEXT], const char *checkpoint, wd_err *err)
{
    json_t *run;
    WD_TRY(wd_checkpoint_read_run(&run, NULL, checkpoint, err));
    const char *text = json_string_value(json_object_get(run, "text_kernels"));
    snprintf(out, WD_KERNELS_TEXT, "%s", text ? text : "");
    json_decref(run);
    return WD_OK;
}

/* A checkpoint of a version that knew no phases does not say so. */
static wd_status read_phase(wd_phase_begin *out, const wd_trainer_options *o, wd_json_reader r,
                            wd_err *err)
{
    int64_t phase = 0;
    const int phases = o->stepper.phases.count ? o->stepper.phases.count : 1;
    wd_phase_begin begin = {0};
    WD_TRY(wd_json_int(&phase, r, "phase", 0, WD_PHASES_MAX - 1, WD_JSON_OPTIONAL, err));
    WD_TRY(wd_json_int(&begin.step, r, "phase_step", 0, INT64_MAX, WD_JSON_OPTIONAL, err));
    WD_TRY(wd_json_float(&begin.seconds, r, "phase_seconds", WD_JSON_OPTIONAL, err));
    if (phase >= phases)
        return wd_fail(err, WD_MISMATCH,
                       "%s: the run was in phase %" PRId64 " of its recipe and is to be resumed "
                       "with a recipe of %d: resume it with the same --recipe, or begin a new run",
                       r.where, phase + 1, phases);
    begin.phase = (int)phase;
    *out = begin;
    return WD_OK;
}

/* Whether steps are left for the phases that have not begun. */
static wd_status check_steps(const wd_trainer_options *o, const wd_phase_begin *begin, int64_t step,
                             wd_err *err)
{
    const int left = o->stepper.phases.count - 1 - begin->phase;
    if (!o->steps || left <= 0 || o->steps - step >= left) return WD_OK;
    return wd_fail(err, WD_INVALID_ARGUMENT,
                   "%s: the run has made %" PRId64
                   " steps, and its recipe has a phase that has not begun: expected a run of "
                   "more steps than these, found %" PRId64 " (--num_steps or --num_epochs)",
                   o->resume, step, o->steps);
}

/* Whether the stream of samples goes on as it was in the phase in which the run was. */
static wd_status check_stream(const wd_trainer_options *o, const wd_phase_begin *begin,
                              wd_json_reader r, wd_err *err)
{
    const wd_stepper_options stepper = wd__stepper_of_phase(&o->stepper, begin, 0);
    const wd_status status =
        wd__stepper_check_stream(&stepper, json_object_get(r.object, "stream"), err);
    return status == WD_OK ? status : wd_fail_in(err, "%s", r.where);
}

wd_status wd_trainer_resume_options(wd_trainer_options *options, wd_err *err)
{
    wd_status status;
    int64_t step;
    wd_phase_begin begin;
    json_t *run = NULL, *now = NULL;
    WD_TRY_OUT(wd_checkpoint_read_run(&run, &step, options->resume, err));
    const wd_json_reader r = {.object = run, .where = options->resume};
    WD_TRY_OUT(take_text(&options->stepper, r, err)); /* which the prompts' key depends on */
    WD_TRY_OUT(wd_trainer_facts(&now, options, err));
    WD_TRY_OUT(compare(run, now, "", options->resume, err));
    WD_TRY_OUT(read_phase(&begin, options, r, err));
    WD_TRY_OUT(check_steps(options, &begin, step, err));
    WD_TRY_OUT(check_stream(options, &begin, r, err));
    compare_moments(run, options);
    compare_gradients(run, options);
    if (!options->validation_interval)
        WD_TRY_OUT(wd_json_int(&options->validation_interval, r, "validation_interval", 0,
                               INT64_MAX, WD_JSON_OPTIONAL, err));
    status = compare_kernels(run, options, err);
out:
    json_decref(now);
    json_decref(run);
    return status;
}

/* ---- checkpoints ---- */

int64_t wd__trainer_newest_checkpoint(const wd_trainer *t)
{
    if (t->saved_step >= 0) return t->saved_step;
    return t->options->resume ? t->first_verified_step : -1;
}

wd_status wd__trainer_prune(const wd_trainer *t, wd_err *err)
{
    if (!wd__trainer_writes(t)) return WD_OK;
    return wd_checkpoint_prune(t->checkpoints, t->options->keep_checkpoints, t->first_verified_step,
                               err);
}

/* Warns of a checkpoint for which there was no space. */
static void say_unsaved(const wd_trainer *t, const wd_err *why)
{
    char from[64] = "there is no earlier one to resume from", older[128] = "";
    const int keep = t->options->keep_checkpoints;
    const int64_t newest = wd__trainer_newest_checkpoint(t);
    const char *what = t->ends ? "the run ends without this checkpoint"
                               : "training goes on, and writes the next checkpoint when it is due";
    if (newest >= 0) snprintf(from, sizeof from, "the newest one is of step %" PRId64, newest);
    if (newest >= 0 && keep > 1 && !t->ends)
        snprintf(older, sizeof older,
                 "; older ones, which --keep_checkpoints %d keeps, may be removed", keep);
    wd_log(WD_LOG_WARNING, "%s; %s; %s%s", why->message, what, from, older);
}

static bool is_on_disk_of(const char *folder, const char *other)
{
    struct stat a, b;
    return !stat(folder, &a) && !stat(other, &b) && a.st_dev == b.st_dev;
}

/* At the end of the run, of the rank that writes: removes the oldest checkpoint, but never the
 * newest one, to make room for files in `folder` that found their disk full (`why`). False: none
 * was removed. */
static bool make_room(const wd_trainer *t, const char *folder, const wd_err *why)
{
    int64_t step;
    if (!t->ends || !wd_file_space_full() || !is_on_disk_of(t->checkpoints, folder)) return false;
    if (wd_checkpoint_remove_oldest(&step, t->checkpoints, t->first_verified_step, NULL) != WD_OK ||
        step < 0)
        return false;
    wd_log(WD_LOG_WARNING,
           "%s; since the run ends here, the checkpoint of step %" PRId64
           ", which --keep_checkpoints %d keeps, was removed to make room for another attempt",
           why->message, step, t->options->keep_checkpoints);
    return true;
}

/* What became of a checkpoint that was written. */
typedef enum outcome { WRITTEN, TO_WRITE_AGAIN, LEFT_OUT } outcome;

/* Of the rank that writes. A checkpoint that finds no space is a warning: the run goes on with
 * those that it has, and what it was training is not lost. */
static wd_status write_or_warn(outcome *out, const wd_trainer *t,
                               const wd_checkpoint_tensors *tensors, const json_t *run, wd_err *err)
{
    wd_err why = {0};
    wd_file_space_watch();
    const wd_status status = wd_checkpoint_write(t->checkpoints, t->step, tensors, run,
                                                 wd__stepper_queue(t->stepper), &why);
    *out = WRITTEN;
    if (status == WD_IO && wd_file_space_lacked()) {
        *out = make_room(t, t->checkpoints, &why) ? TO_WRITE_AGAIN : LEFT_OUT;
        if (*out == LEFT_OUT) say_unsaved(t, &why);
        return WD_OK;
    }
    if (status != WD_OK && err) *err = why;
    return status;
}

/* All ranks; each has the same outcome. */
static wd_status write_once(outcome *out, wd_trainer *t, const wd_checkpoint_tensors *tensors,
                            const json_t *run, wd_err *err)
{
    wd_queue *queue = wd__stepper_queue(t->stepper);
    *out = WRITTEN;
    if (wd__trainer_writes(t))
        WD_TRY(write_or_warn(out, t, tensors, run, err));
    else
        wd_checkpoint_assist(tensors, queue);
    wd_queue_wait(queue); /* what others wait for is done before this rank waits */
    if (!wd__trainer_hear(t, *out != WRITTEN))
        *out = WRITTEN;
    else
        *out = t->ends && wd__trainer_hear(t, *out == TO_WRITE_AGAIN) ? TO_WRITE_AGAIN : LEFT_OUT;
    return WD_OK;
}

wd_status wd__trainer_write_checkpoint(wd_trainer *t, wd_err *err)
{
    wd_status status;
    outcome last;
    wd_checkpoint_tensors tensors;
    json_t *run = NULL;
    WD_TRY(wd__trainer_take_results(t, 0, err)); /* its own step has its row in the metrics */
    t->owed = t->not_finite > 0;
    if (t->owed) return WD_OK;
    WD_TRY_OUT(wd__stepper_save(t->stepper, &run, &tensors, err));
    WD_TRY_OUT(wd__stepper_check_finite(t->stepper, err));
    t->saved_s = t->elapsed_s;
    WD_TRY_OUT(save_run(run, t->options, &t->phase, wd__trainer_elapsed_s(t), err));
    do WD_TRY_OUT(write_once(&last, t, &tensors, run, err));
    while (last == TO_WRITE_AGAIN);
    if (last == WRITTEN) t->saved_step = t->step;
out:
    json_decref(run);
    return status;
}

wd_status wd__trainer_find_phase(wd_trainer *t, wd_err *err)
{
    json_t *run;
    WD_TRY(wd_checkpoint_read_run(&run, NULL, t->options->resume, err));
    const wd_json_reader r = {.object = run, .where = t->options->resume};
    const wd_status status = read_phase(&t->phase, t->options, r, err);
    json_decref(run);
    return status;
}

wd_status wd__trainer_resume(wd_trainer *t, wd_err *err)
{
    wd_status status;
    wd_checkpoint checkpoint = {0};
    WD_TRY_OUT(wd_checkpoint_open(&checkpoint, t->options->resume, err));
    const wd_json_reader r = {.object = checkpoint.run, .where = checkpoint.path};
    WD_TRY_OUT(wd_json_float(&t->seconds_before, r, "seconds", WD_JSON_REQUIRED, err));
    WD_TRY_OUT(wd__stepper_load(t->stepper, &checkpoint, err));
    t->step = t->first_step = t->first_verified_step = checkpoint.step;
    if (wd__trainer_writes(t)) wd_log(WD_LOG_INFO, "going on from %s", checkpoint.path);
out:
    wd_checkpoint_close(&checkpoint);
    return status;
}

bool wd__trainer_is_saved(const wd_trainer *t)
{
    char own[WD_PATH_MAX];
    const wd_trainer_options *o = t->options;
    if (t->step > t->first_step) return t->saved_step == t->step;
    return o->resume && wd_path_join(own, o->output_dir, "checkpoints/", NULL) == WD_OK &&
           !strncmp(o->resume, own, strlen(own));
}

/* ---- the student's folder ---- */

wd_export_options wd__trainer_export_of(const wd_trainer *t)
{
    const wd_stepper_options *m = wd__stepper_options_of(t->stepper);
    wd_export_options export = t->options->export;
    export.trained_steps = t->step;
    export.buffer = m->ema ? WD_PARAMS_EMA : WD_PARAMS_P;
    export.student_steps = m->trajectory.student_steps;
    if (export.student_steps) export.sampling_steps = export.student_steps;
    export.best_step = t->best_step;
    export.best_error = t->best_error;
    return export;
}

/* Of the rank that writes. */
static wd_status write_student(const wd_trainer *t, const wd_export_options *export, wd_err *err)
{
    const wd_stepper *m = t->stepper;
    wd_err why = {0};
    wd_status status;
    do {
        wd_file_space_watch();
        status =
            wd_export_student(t->folder, wd__stepper_params(m), wd__stepper_options_of(m)->teacher,
                              export, wd__stepper_queue(m), &why);
    } while (status == WD_IO && make_room(t, t->folder, &why));
    if (status != WD_OK && err) *err = why;
    return status;
}

wd_status wd__trainer_write_student(wd_trainer *t, wd_err *err)
{
    const wd_stepper *m = t->stepper;
    const wd_export_options export = wd__trainer_export_of(t);
    wd_params_collect(wd__stepper_params(m), export.buffer, wd__stepper_queue(m));
    wd_status status = WD_OK;
    if (wd__trainer_writes(t)) status = write_student(t, &export, err);
    wd_params_release(wd__stepper_params(m), wd__stepper_queue(m));
    return status;
}
