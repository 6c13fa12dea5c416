/* See api/setup/train_setup.h. */
#include "api/setup/train_setup.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/options/tables.h"
#include "api/setup/dtypes.h"
#include "core/log.h"
#include "core/text.h"
#include "io/file/writable.h"
#include "train/network/init.h"

static const char text_folder[] = "text"; /* of prompts' embeddings, in a folder of targets */

/* ---- the options of the run that made the targets ---- */

static wd_status contradicts(const wd_train_setup *s, const char *option, const char *then,
                             const char *now, wd_err *err)
{
    return wd_fail(err, WD_INVALID_ARGUMENT,
                   "--%s %.*s: the targets in %s were made with %.*s: give the same, or leave the "
                   "option out",
                   option, WD_TERMINAL_SAFE(now, 200), s->options.targets,
                   WD_TERMINAL_SAFE(then, 200));
}

/* Takes a whole number of the store for an option that is not given. */
static wd_status adopt_int(int64_t *option, const wd_train_setup *s, const char *name,
                           int64_t usual, int64_t then, wd_err *err)
{
    char texts[2][24];
    if (*option == usual) *option = then;
    if (*option == then) return WD_OK;
    snprintf(texts[0], sizeof texts[0], "%" PRId64, then);
    snprintf(texts[1], sizeof texts[1], "%" PRId64, *option);
    return contradicts(s, name, texts[0], texts[1], err);
}

/* The same of an option that is NaN if it is not given. */
static wd_status adopt_float(double *option, const wd_train_setup *s, const char *name, double then,
                             wd_err *err)
{
    char texts[2][32];
    if (isnan(*option)) *option = then;
    if (*option == then) return WD_OK;
    snprintf(texts[0], sizeof texts[0], "%.10g", then);
    snprintf(texts[1], sizeof texts[1], "%.10g", *option);
    return contradicts(s, name, texts[0], texts[1], err);
}

static wd_status adopt_sizes(wd_train_setup *s, wd_json_reader run, wd_err *err)
{
    enum { PIXELS_MAX = 16384, TOKENS_MAX = 4096 }; /* of the options */
    wd_train_options *o = &s->options;
    int64_t height = 0, width = 0, tokens = 0;
    const wd_json_need need = WD_JSON_REQUIRED;
    WD_TRY(wd_json_int(&height, run, "height", 1, PIXELS_MAX, need, err));
    WD_TRY(wd_json_int(&width, run, "width", 1, PIXELS_MAX, need, err));
    WD_TRY(wd_json_int(&tokens, run, "max_sequence_length", 1, TOKENS_MAX, need, err));
    WD_TRY(adopt_int(&o->height, s, "height", 0, height, err));
    WD_TRY(adopt_int(&o->width, s, "width", 0, width, err));
    return adopt_int(&o->max_sequence_length, s, "max_sequence_length", 0, tokens, err);
}

static wd_status adopt_teacher(wd_train_setup *s, wd_json_reader run, wd_err *err)
{
    enum { GUIDANCE_MAX = 100 }; /* of the option */
    wd_train_options *o = &s->options;
    double scale[2] = {0, 0};
    const char *negative = "", *key = "";
    WD_TRY(wd_json_float(&scale[0], run, "guidance_scale", WD_JSON_REQUIRED, err));
    WD_TRY(wd_json_float(&scale[1], run, "guidance_scale_2", WD_JSON_REQUIRED, err));
    WD_TRY(wd_json_text(&negative, run, "negative_prompt", WD_JSON_REQUIRED, err));
    WD_TRY(wd_json_text(&key, run, "teacher_key", WD_JSON_REQUIRED, err));
    for (int e = 0; e < 2; e++)
        if (!(scale[e] >= 0 && scale[e] <= GUIDANCE_MAX))
            return wd_fail(err, WD_BAD_FORMAT, "%s: guidance_scale: expected 0 to %d, found %g",
                           run.where, GUIDANCE_MAX, scale[e]);
    WD_TRY(adopt_float(&o->guidance_scale, s, "guidance_scale", scale[0], err));
    if (wd_teacher_experts(&s->teacher) > 1)
        WD_TRY(adopt_float(&o->guidance_scale_2, s, "guidance_scale_2", scale[1], err));
    if (!o->negative_prompt) o->negative_prompt = negative;
    if (strcmp(o->negative_prompt, negative))
        return contradicts(s, "negative_prompt", negative, o->negative_prompt, err);
    if (strlen(key) >= sizeof s->teacher_key)
        return wd_fail(err, WD_BAD_FORMAT, "%s: teacher_key: expected a key, found %.*s", run.where,
                       WD_TERMINAL_SAFE(key, 60));
    memcpy(s->teacher_key, key, strlen(key) + 1);
    wd__train_dtypes_keep(s, run.object);
    return WD_OK;
}

static wd_status adopt_trajectories(wd_train_setup *s, wd_err *err)
{
    const wd_train_options usual = wd_train_defaults();
    wd_train_options *o = &s->options;
    const wd_trajectory_options *t = wd_target_store_trajectory(s->store);
    WD_TRY(adopt_int(&o->trajectories, s, "trajectories", usual.trajectories, t->slots, err));
    WD_TRY(adopt_int(&o->trajectory_steps, s, "trajectory_steps", usual.trajectory_steps, t->steps,
                     err));
    if (t->sigma[0] > 0 && !o->trajectory_sigmas) memcpy(s->sigma, t->sigma, sizeof s->sigma);
    if (o->student_steps) /* else the store is refused, or no student can be on-policy */
        WD_TRY(adopt_float(&o->on_policy_share, s, "on_policy_share", t->on_policy_share, err));
    return adopt_float(&o->flow_shift, s, "flow_shift", t->flow_shift, err);
}

static wd_status read_run(wd_train_setup *s, wd_err *err)
{
    char where[WD_PATH_MAX];
    const json_t *run = wd_target_store_run(s->store);
    WD_TRY(wd_path_join(where, s->options.targets, "targets.json: run", err));
    if (!json_is_object(run)) return wd_fail(err, WD_BAD_FORMAT, "%s: expected an object", where);
    const wd_json_reader r = {.object = run, .where = where};
    WD_TRY(adopt_sizes(s, r, err));
    WD_TRY(adopt_teacher(s, r, err));
    return adopt_trajectories(s, err);
}

/* ---- before the trainer's settings are filled in ---- */

/* Whether there are the weights that the student starts from. */
static wd_status check_first(const wd_train_setup *s, wd_err *err)
{
    wd_safetensors *weights;
    if (!wd_train_reads_teacher(s) || !*s->teacher.path) return WD_OK;
    if (wd_pipeline_open_weights(&weights, &s->teacher, wd_student_expert(&s->teacher), err))
        return wd_fail_in(err, "the student starts from the teacher's blocks; with --init_student "
                               "it would start from an earlier student");
    wd_safetensors_close(weights);
    return WD_OK;
}

wd_status wd__stored_targets_open(wd_train_setup *s, wd_err *err)
{
    const wd_train_options *o = &s->options;
    if (!o->targets) return WD_OK;
    if (o->save_targets)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "--save_targets and --targets: targets that are read need not be written: "
                       "leave one of them out");
    WD_TRY(wd_target_store_open(&s->store, o->targets, err));
    s->no_teacher = true;
    WD_TRY(read_run(s, err));
    return check_first(s, err);
}

wd_status wd__stored_targets_prompts(char out[WD_PATH_MAX], const wd_train_setup *s, wd_err *err)
{
    *out = 0;
    return s->store ? wd_path_join(out, s->options.targets, "prompts.jsonl", err) : WD_OK;
}

wd_status wd__stored_targets_text_dir(wd_train_setup *s, wd_err *err)
{
    const wd_train_options *o = &s->options;
    const char *folder = o->targets ? o->targets : o->save_targets;
    if (!folder || o->cache_dir) {
        memcpy(s->text_dir, s->cache_dir, sizeof s->text_dir);
        return WD_OK;
    }
    return wd_path_join(s->text_dir, folder, text_folder, err);
}

wd_status wd__stored_targets_check_folder(const wd_train_setup *s, wd_err *err)
{
    const char *folder = s->options.save_targets;
    if (!folder) return WD_OK;
    WD_TRY(wd_folder_check_writable(folder, "--save_targets", err));
    return wd_target_store_check_folder(folder, *s->resume, err);
}

/* ---- of the trainer's settings ---- */

static wd_status check_alone(const wd_train_setup *s, wd_err *err)
{
    const wd_stepper_options *m = &s->trainer.stepper;
    const char *option = m->stored ? "--targets" : "--save_targets";
    if (m->phases.count > 1)
        return wd_fail(err, WD_UNSUPPORTED,
                       "%s: expected a --recipe of one phase, found %.60s: its phases have other "
                       "targets each, run them one after the other with --init_student",
                       option, s->options.recipe);
    if (m->stored || wd_stepper_ranks(m) == 1) return WD_OK;
    return wd_fail(err, WD_UNSUPPORTED,
                   "--save_targets: expected one rank, found %d: store the targets with one rank, "
                   "and train from them with --targets on as many ranks as you like",
                   wd_stepper_ranks(m));
}

static void say_store(const wd_train_setup *s)
{
    const wd_stepper_options m = wd_stepper_in_phase_of_most_targets(&s->trainer.stepper);
    const wd_trajectory_options *t = wd_target_store_trajectory(s->store);
    const int64_t count = wd_stepper_stored_count(&m);
    const int64_t drawn = wd_stepper_stored_drawn(&m, s->options.num_steps);
    const char *what = m.trajectory.student_steps ? "chords" : "targets";
    if (s->comm && s->comm->rank) return;
    wd_log(WD_LOG_INFO,
           "targets: %" PRId64 " from %s, no teacher in memory; the student learns %" PRId64 " %s "
           "of them%s",
           wd_target_store_count(s->store), s->options.targets,
           drawn && drawn < count ? drawn : count, what,
           drawn > count ? ", and then goes round again, each time in another order" : "");
    if (t->on_policy_share > 0)
        wd_log(WD_LOG_INFO,
               "targets: their trajectories went on from the steps of the student that was "
               "trained when they were made, not from this one's");
    if (t->seed != m.trajectory.seed)
        wd_log(WD_LOG_INFO,
               "targets: they were made with another --seed: only which of them are drawn again "
               "follows from this one");
}

/* Latents are as large as the store's. */
static wd_status check_shape(const wd_train_setup *s, wd_err *err)
{
    const wd_stepper_options *m = &s->trainer.stepper;
    const wd_store_shape *shape = wd_target_store_shape(s->store);
    if (shape->channels == m->student.in_channels && shape->height == m->latent_height &&
        shape->width == m->latent_width)
        return WD_OK;
    return wd_fail(err, WD_INVALID_ARGUMENT,
                   "--targets %s: its states have %" PRId64 " channels of %" PRId64 " x %" PRId64
                   ", and this teacher and picture size mean %" PRId64 " of %" PRId64 " x %" PRId64,
                   s->options.targets, shape->channels, shape->height, shape->width,
                   m->student.in_channels, m->latent_height, m->latent_width);
}

wd_status wd__stored_targets_check(wd_train_setup *s, wd_err *err)
{
    const wd_stepper_options *run = &s->trainer.stepper;
    if (!run->stored && !run->store_to) return WD_OK;
    WD_TRY(check_alone(s, err));
    s->saving = (wd_store_options){
        .folder = s->options.save_targets,
        .shape = {run->student.in_channels, run->latent_height, run->latent_width},
        .prompt = s->prompt};
    if (!run->stored) return WD_OK;
    WD_TRY(check_shape(s, err));
    const wd_stepper_options m = wd_stepper_in_phase_of_most_targets(run);
    WD_TRY(wd_stepper_check_stored(&m, err));
    say_store(s);
    return WD_OK;
}

/* ---- when all keys are known ---- */

/* Warns if the teacher's weights are there, but are not those that made the targets. */
static void compare_teacher(const wd_train_setup *s)
{
    char key[WD_SAFETENSORS_KEY_MAX];
    if (wd__train_key_of_teacher(key, s, NULL) != WD_OK) return;
    if (strcmp(key, s->teacher_key))
        wd_log(WD_LOG_WARNING,
               "%s: its targets were made by another teacher, or another form of its weights, than "
               "%s",
               s->options.targets, s->options.teacher_path ? s->options.teacher_path : "this one");
}

wd_status wd_stored_targets_compare(const wd_train_setup *s, wd_err *err)
{
    const json_t *run = s->store ? wd_target_store_run(s->store) : NULL;
    const char *prompts = json_string_value(json_object_get(run, "prompts_key"));
    const char *encoder = json_string_value(json_object_get(run, "text_encoder_key"));
    if (!s->store) return WD_OK;
    if (!prompts || strcmp(prompts, s->prompts_key))
        return wd_fail(err, WD_MISMATCH,
                       "--data_path: its prompts are not those of the targets in %s, or the "
                       "tokenizer is another one: leave --data_path out, which takes the targets' "
                       "own",
                       s->options.targets);
    if (!encoder || strcmp(encoder, s->text_encoder_key))
        wd_log(WD_LOG_WARNING,
               "%s: its targets were made with another text encoder, or another dtype of it: the "
               "student learns with prompt embeddings of this one",
               s->options.targets);
    if (*s->teacher.path && !(s->comm && s->comm->rank)) compare_teacher(s);
    return WD_OK;
}

wd_status wd_stored_targets_describe(wd_train_setup *s, wd_err *err)
{
    const wd_train_options *o = &s->options;
    if (!s->trainer.stepper.store_to || s->saved_run) return WD_OK;
    s->saved_run = json_pack(
        "{s:s, s:o, s:s, s:s, s:s, s:s, s:f, s:f, s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "version",
        wd_version(), "teacher", wd_json_string(o->teacher_path ? o->teacher_path : ""),
        "teacher_key", s->teacher_key, "teacher_dtype", o->teacher_dtype, "text_encoder_key",
        s->text_encoder_key, "prompts_key", s->prompts_key, "guidance_scale", o->guidance_scale,
        "guidance_scale_2", o->guidance_scale_2, "negative_prompt",
        o->negative_prompt ? o->negative_prompt : "", "height", (json_int_t)o->height, "width",
        (json_int_t)o->width, "max_sequence_length", (json_int_t)o->max_sequence_length,
        "text_tokens", (json_int_t)s->trainer.stepper.text_tokens, "text_repeat",
        (json_int_t)s->trainer.stepper.text_repeat, "target_reuse",
        (json_int_t)s->phases.phase[0].reuse);
    s->saving.run = s->saved_run;
    if (!s->saved_run) return wd_fail(err, WD_OUT_OF_MEMORY, "no memory for what targets are of");
    if (!*s->resume) return WD_OK;
    const wd_stepper_options m = wd_stepper_in_phase_of_most_targets(&s->trainer.stepper);
    return wd_target_store_check_resumed(&s->saving, &m.trajectory, err);
}
