/* The set-up of a run: see api/setup/train_setup.h. */
#include "api/setup/train_setup.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/options/options.h"
#include "api/options/tables.h"
#include "api/setup/dtypes.h"
#include "api/setup/train_objective.h"
#include "core/host.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/stop.h"
#include "dev/device_list.h"
#include "io/file/writable.h"
#include "model/convert/convert.h"
#include "model/files/preset.h"
#include "train/output/checkpoint_list.h"
#include "train/output/components.h"

enum { EPOCHS_DEFAULT = 10, SHEETS_DEFAULT = 10, CHECKPOINT_S = 15 * 60 };

/* ---- prompts: first those of the training data, then those of the sample sheets, and last those
 * that the student is validated on, which no other prompt's numbers depend on ---- */

enum { SAMPLES_DEFAULT = 8 };

/* Chooses the prompts of the sheets: given, from a file, or the first of the data. If
 * --save_samples is auto, they count whether sheets are drawn or not, since the rows of text, and
 * so the student's bits, must not depend on the speed of a machine. */
static wd_status choose_samples(wd_train_setup *s, const char *const **list, wd_err *err)
{
    const wd_texts *given = &s->options.sample_prompts;
    s->samples = 0;
    if (!*s->teacher.path) return WD_OK; /* a preset, which has no VAE to decode pictures */
    if (!strcmp(s->options.save_samples, "false")) return WD_OK;
    if (given->count == 1 && wd_prompts_is_file(given->item[0])) {
        const char *path = given->item[0];
        const char *column = wd_prompts_have_columns(path) ? s->options.prompt_column : NULL;
        WD_TRY(wd_prompts_open(&s->sample_file, path, column, err));
        *list = (const char *const *)s->sample_file.text;
        s->samples =
            s->sample_file.count < SAMPLES_DEFAULT ? s->sample_file.count : SAMPLES_DEFAULT;
    } else if (given->count) {
        *list = given->item;
        s->samples = given->count;
    } else if (s->data.count) {
        *list = (const char *const *)s->data.text;
        s->samples = s->data.count < SAMPLES_DEFAULT ? s->data.count : SAMPLES_DEFAULT;
    }
    return WD_OK;
}

/* Reads the prompts into setup->prompt; the teacher must be open. A plan without --data_path
 * assumes the usual number of pictures per sheet; `prompt` has at least one text. */
static wd_status read_prompts(wd_train_setup *s, wd_err *err)
{
    const char *const *samples = NULL;
    char stored[WD_PATH_MAX];
    WD_TRY(wd__stored_targets_prompts(stored, s, err));
    const char *path = s->options.data_path ? s->options.data_path : *stored ? stored : NULL;
    const char *column = s->options.data_path ? s->options.prompt_column : NULL;
    const bool given = path;
    if (given) WD_TRY(wd_prompts_open(&s->data, path, column, err));
    WD_TRY(wd__validation_prompts_choose(s, given, err));
    WD_TRY(choose_samples(s, &samples, err));
    if (!given && !samples && *s->teacher.path && strcmp(s->options.save_samples, "false"))
        s->samples = SAMPLES_DEFAULT;
    const int64_t trained = s->data.count + s->samples, count = trained + s->validation.prompts;
    WD_TRY(wd_alloc((void **)&s->prompt, (size_t)(count ? count : 1), sizeof *s->prompt, "prompts",
                    err));
    for (int64_t i = 0; i < s->data.count; i++) s->prompt[i] = s->data.text[i];
    for (int64_t i = 0; i < s->samples; i++)
        s->prompt[s->data.count + i] = samples ? samples[i] : "";
    for (int64_t i = 0; i < s->validation.prompts; i++)
        s->prompt[trained + i] = s->held_out ? s->held_out[i] : "";
    if (!count) s->prompt[0] = "";
    return WD_OK;
}

/* ---- options without effect ---- */

static void say_unneeded(const wd_train_options *o)
{
    if (o->offload_folder)
        wd_log(WD_LOG_INFO,
               "--offload_folder is not needed: weights that stream from disk are read "
               "from the checkpoint's own files");
    if (o->num_workers)
        wd_log(WD_LOG_INFO, "--num_workers is not needed: prompts are read once, at the start");
    if (o->sample_prompts.count && !strcmp(o->save_samples, "false"))
        wd_log(WD_LOG_INFO, "--sample_prompts means nothing with --save_samples false");
}

/* ---- sizes ---- */

static wd_status resolve_sizes(wd_train_setup *s, wd_err *err)
{
    wd_train_options *o = &s->options;
    const int64_t unit = wd_pipeline_size_multiple(&s->teacher);
    if (!o->height) o->height = s->student.image_height;
    if (!o->width) o->width = s->student.image_width;
    if (!o->max_sequence_length) o->max_sequence_length = s->student.text_tokens;
    if (!o->max_sequence_length) o->max_sequence_length = s->teacher.text_tokens;
    if (o->height % unit || o->width % unit)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "--height, --width: expected multiples of %" PRId64
                       " for this teacher, found %" PRId64 " x %" PRId64,
                       unit, o->height, o->width);
    return WD_OK;
}

/* Options of an optimizer that was not chosen would do nothing. */
static wd_status check_optimizer(const wd_train_options *o, wd_err *err)
{
    const wd_train_options usual = wd_train_defaults();
    const char *option = o->ademamix_alpha != usual.ademamix_alpha   ? "--ademamix_alpha"
                         : o->ademamix_beta3 != usual.ademamix_beta3 ? "--ademamix_beta3"
                                                                     : NULL;
    if (!option || !strcmp(o->optimizer, "ademamix")) return WD_OK;
    return wd_fail(err, WD_INVALID_ARGUMENT,
                   "%s needs --optimizer ademamix, found %s: give it, or leave %s out", option,
                   o->optimizer, option);
}

/* The EMA is where the optimiser's other state is, or alone in host memory. */
static wd_status check_ema(const wd_train_options *o, wd_err *err)
{
    if (!strcmp(o->ema_device, "host") && !(o->ema_decay > 0))
        return wd_fail(
            err, WD_INVALID_ARGUMENT,
            "--ema_device host needs an EMA, found --ema_decay 0: give --ema_device auto, "
            "or --ema_decay 0.999");
    if (!strcmp(o->ema_device, "device") && !strcmp(o->optimizer_device, "host"))
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "--optimizer_device host moves the EMA, too, but found --ema_device device: "
                       "give --ema_device auto");
    return WD_OK;
}

/* Gradients in bf16 are not added up over micro-batches: what each adds would be lost to rounding.
 * With --deterministic_reduce they are, in fp32, by the rank that owns them. */
static wd_status check_gradients(const wd_train_options *o, wd_err *err)
{
    if (strcmp(o->gradient_dtype, "bfloat16")) return WD_OK;
    if (!strcmp(o->mixed_precision, "no"))
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "--gradient_dtype bfloat16 needs a student that computes in bf16, found "
                       "--mixed_precision no: give --mixed_precision bf16, or leave "
                       "--gradient_dtype out");
    if (o->gradient_accumulation_steps == 1 || o->deterministic_reduce) return WD_OK;
    return wd_fail(err, WD_INVALID_ARGUMENT,
                   "--gradient_dtype bfloat16 needs one micro-batch per step, found "
                   "--gradient_accumulation_steps %" PRId64
                   ": give --gradient_accumulation_steps 1 and --batch_size %" PRId64
                   ", or --deterministic_reduce, or leave --gradient_dtype out",
                   o->gradient_accumulation_steps, o->batch_size * o->gradient_accumulation_steps);
}

wd_state_place wd_train_state_place(const wd_train_options *o)
{
    if (!strcmp(o->optimizer_device, "host")) return WD_STATE_ON_HOST;
    return !strcmp(o->ema_device, "host") ? WD_STATE_EMA_ON_HOST : WD_STATE_ON_DEVICE;
}

int64_t wd__train_step_samples(const wd_train_setup *s)
{
    const wd_train_options *o = &s->options;
    return o->batch_size * o->gradient_accumulation_steps * (s->comm ? s->comm->ranks : 1);
}

int64_t wd_train_epoch_steps(const wd_train_setup *s)
{
    const int64_t step = wd__train_step_samples(s);
    return (s->data.count + step - 1) / step;
}

/* Sets the limits of the run; epochs count only if prompts are known. */
static wd_status resolve_length(wd_train_setup *s, wd_err *err)
{
    wd_train_options *o = &s->options;
    const int64_t per_epoch = wd_train_epoch_steps(s);
    if (!o->num_steps && !o->num_epochs && !(o->max_minutes > 0)) o->num_epochs = EPOCHS_DEFAULT;
    if ((double)o->num_epochs * (double)per_epoch > WD_INT_MAX)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "--num_epochs %" PRId64
                       ": expected a run of at most %g steps, found %" PRId64 " in each epoch",
                       o->num_epochs, WD_INT_MAX, per_epoch);
    if (o->num_epochs && per_epoch && (!o->num_steps || o->num_epochs * per_epoch < o->num_steps))
        o->num_steps = o->num_epochs * per_epoch;
    if (!o->sample_interval) o->sample_interval = o->num_steps / SHEETS_DEFAULT;
    if (!o->num_steps || o->num_steps >= s->phases.count) return WD_OK;
    return wd_fail(err, WD_INVALID_ARGUMENT,
                   "--recipe %.60s: expected a step for each of its %d phases, found a run of "
                   "%" PRId64 " (--num_steps or --num_epochs)",
                   o->recipe, s->phases.count, o->num_steps);
}

/* ---- folders ---- */

/* Opens the checkpoint of --resume: PATH is a checkpoint, or a run's folder; "auto": the output
 * folder. */
static wd_status open_checkpoint(wd_checkpoint *out, const wd_train_setup *s, wd_err *err)
{
    const char *path = s->options.resume;
    char folder[WD_PATH_MAX], state[WD_PATH_MAX];
    if (!strcmp(path, "auto")) return wd_checkpoint_open_latest(out, s->checkpoints, err);
    WD_TRY(wd_path_join(state, path, "state.json", err));
    if (wd_path_exists(state)) return wd_checkpoint_open(out, path, err);
    WD_TRY(wd_path_join(folder, path, "checkpoints", err));
    if (wd_path_exists(folder)) return wd_checkpoint_open_latest(out, folder, err);
    return wd_fail(err, WD_NOT_FOUND,
                   "--resume %s: expected auto, a run's folder, which has checkpoints/, or a "
                   "checkpoint's, which has state.json; found %s",
                   path, wd_path_exists(path) ? "neither" : "no such folder");
}

/* Finds the checkpoint from which the run continues. If it belongs to the run in the output folder,
 * the files of that run up to its step stay; else all files of that run are moved to earlier-N, and
 * a link to its folder must not lead here. */
static wd_status find_checkpoint(wd_train_setup *s, wd_err *err)
{
    wd_checkpoint checkpoint = {0};
    if (!s->options.resume) return WD_OK;
    const wd_status status = open_checkpoint(&checkpoint, s, err);
    if (status == WD_NOT_FOUND && !strcmp(s->options.resume, "auto")) {
        wd_log(WD_LOG_INFO, "--resume auto: no checkpoint in %s, a new run begins", s->checkpoints);
        return WD_OK;
    }
    if (status != WD_OK) return status;
    const bool own = wd_path_is_inside(checkpoint.path, s->checkpoints);
    if (own) s->first_step = checkpoint.step + 1;
    wd__train_dtypes_keep(s, checkpoint.run);
    wd__train_keep_reuse(s, checkpoint.run);
    wd__train_keep_lr(s, checkpoint.run);
    if (own || !realpath(checkpoint.path, s->resume))
        memcpy(s->resume, checkpoint.path, sizeof s->resume);
    wd_checkpoint_close(&checkpoint);
    return WD_OK;
}

static wd_status choose_folders(wd_train_setup *s, wd_err *err)
{
    const wd_train_options *o = &s->options;
    WD_TRY(wd_path_join(s->checkpoints, o->output_dir, "checkpoints", err));
    if (o->cache_dir)
        WD_TRY(wd_path_join(s->cache_dir, "", o->cache_dir, err));
    else
        WD_TRY(wd_path_join(s->cache_dir, o->output_dir, "cache", err));
    if (o->sample_dir)
        WD_TRY(wd_path_join(s->sample_dir, "", o->sample_dir, err));
    else
        WD_TRY(wd_path_join(s->sample_dir, o->output_dir, "samples", err));
    WD_TRY(wd__stored_targets_text_dir(s, err));
    return find_checkpoint(s, err);
}

/* ---- settings of the trainer ---- */

static void fill_stepper(wd_train_setup *s)
{
    const wd_train_options *o = &s->options;
    const int64_t scale = wd_pipeline_vae_scale(&s->teacher);
    wd_optimizer_options optimizer = wd_optimizer_defaults();
    optimizer.alpha = strcmp(o->optimizer, "ademamix") ? 0 : o->ademamix_alpha;
    optimizer.beta3 = o->ademamix_beta3;
    optimizer.moments_in_8_bits = !strcmp(o->optimizer, "adamw8bit");
    optimizer.beta1 = o->adam_beta1;
    optimizer.beta2 = o->adam_beta2;
    optimizer.eps = o->adam_eps;
    optimizer.decay = o->weight_decay;
    optimizer.grad_norm_max = o->max_grad_norm;
    optimizer.ema_decay = o->ema_decay;
    s->trainer.stepper = (wd_stepper_options){
        .comm = s->comm,
        .teacher = &s->teacher,
        .first = o->init_student ? &s->first : NULL,
        .student = s->student.dit,
        .latent_height = o->height / scale,
        .latent_width = o->width / scale,
        .phases = s->phases,
        .trajectory = {.seed = o->seed,
                       .slots = o->trajectories,
                       .steps = o->trajectory_steps,
                       .student_steps = o->student_steps,
                       .chords = o->chords,
                       .on_policy_share = o->on_policy_share,
                       .on_policy_end = o->on_policy_end,
                       .on_policy_every = o->on_policy_every,
                       .diversity_gain = o->diversity_gain,
                       .prompts = s->data.count,
                       .flow_shift = o->flow_shift,
                       .num_train_timesteps = s->teacher.scheduler.num_train_timesteps,
                       .integer_timesteps = s->teacher.scheduler.kind == WD_SCHEDULER_UNIPC},
        .replay = o->target_replay,
        .window = o->teacher_window,
        .micro_batch = o->teacher_micro_batch,
        .guidance_scale = {o->guidance_scale, o->guidance_scale_2},
        .batch = o->batch_size,
        .accumulation = o->gradient_accumulation_steps,
        .deterministic_reduce = o->deterministic_reduce,
        .shard_optimizer = o->shard_optimizer,
        .place = wd_train_state_place(o),
        .validation = s->validation.prompts ? &s->validation : NULL,
        .checkpointing = o->gradient_checkpointing,
        .ema = o->ema_decay > 0,
        .optimizer = optimizer,
        .text = wd_prompt_embeds_text,
        .text_context = &s->embeds,
        .store_to = o->save_targets ? &s->saving : NULL,
        .stored = s->store,
    };
    memcpy(s->trainer.stepper.trajectory.sigma, s->sigma, sizeof s->sigma);
    wd__train_dtypes_apply(s);
}

static wd_export_options export_options(const wd_train_setup *s)
{
    const wd_train_options *o = &s->options;
    const wd_texts *samples = &o->sample_prompts;
    wd_export_options export = wd_export_defaults();
    export.flow_shift = o->flow_shift;
    export.sampling_steps = o->sample_steps;
    export.height = o->height;
    export.width = o->width;
    export.text_tokens = o->max_sequence_length;
    export.text_encoder_file = o->tokenizer ? NULL : o->text_encoder; /* ComfyUI's has one inside */
    export.guidance_scale[0] = o->guidance_scale;
    export.guidance_scale[1] = o->guidance_scale_2;
    export.teacher_name = o->teacher_path ? o->teacher_path : s->teacher.path;
    if (samples->count && !(samples->count == 1 && wd_prompts_is_file(samples->item[0])))
        export.prompt = samples->item[0]; /* given on the command line, to be shown */
    return export;
}

static bool stop(void *context)
{
    (void)context;
    return wd_stop_requested();
}

static void fill_trainer(wd_train_setup *s)
{
    const wd_train_options *o = &s->options;
    wd_trainer_options *t = &s->trainer;
    s->validation.text_first = s->data.count + s->samples;
    s->validation.keeps_best = o->keep_best;
    s->validation.folder = s->text_dir;
    s->validation.prompts_key = s->validation_key;
    fill_stepper(s);
    t->output_dir = o->output_dir;
    t->steps = o->num_steps;
    t->seconds_max = 60 * o->max_minutes;
    t->stop_at_step = o->stop_at_step;
    t->lr =
        (wd_lr_schedule){.shape = strcmp(o->lr_schedule, "cosine") ? WD_LR_CONSTANT : WD_LR_COSINE,
                         .lr = o->lr,
                         .ratio_min = o->min_lr_ratio,
                         .warmup_steps = o->warmup_steps};
    t->checkpoint_interval = o->checkpoint_interval;
    t->checkpoint_s = o->checkpoint_interval ? 0 : CHECKPOINT_S;
    t->keep_checkpoints = (int)o->keep_checkpoints;
    t->sample_interval = o->sample_interval;
    t->validation_interval = o->validation_interval;
    t->samples = (wd_samples_options){.folder = s->sample_dir,
                                      .prompt = s->prompt + s->data.count,
                                      .count = s->samples,
                                      .text_first = s->data.count,
                                      .steps = o->sample_steps,
                                      .student_flow_shift = o->flow_shift,
                                      .seed = o->seed};
    t->export = export_options(s);
    t->resume = *s->resume ? s->resume : NULL;
    t->prompts_key = s->prompts_key;
    t->teacher_key = s->teacher_key;
    t->text_encoder_key = s->text_encoder_key;
    t->negative_prompt = o->negative_prompt ? o->negative_prompt : "";
    t->stop = stop;
}

/* A student of this program may be a teacher, but without guidance, since it has learnt guided
 * velocities. */
static wd_status check_guidance(const wd_train_setup *s, wd_err *err)
{
    bool student;
    WD_TRY(wd_export_is_student(&student, s->teacher.path, err));
    if (student && !(s->comm && s->comm->rank))
        wd_export_warn_of_guidance(s->teacher.path, isnan(s->options.guidance_scale)
                                                        ? s->teacher.guidance_scale[0]
                                                        : s->options.guidance_scale);
    return WD_OK;
}

/* Says at the start, not after hours, what the programs for which --export writes will not do. */
static void warn_of_clients(const wd_train_setup *s)
{
    char name[64];
    if (!s->options.export_to || (s->comm && s->comm->rank)) return;
    snprintf(name, sizeof name, "--export %.40s", s->options.export_to);
    wd_convert_warn_of_clients(name, &s->student.dit, s->options.max_sequence_length);
}

/* Checks the folders that rank 0 writes. */
static wd_status check_folders(const wd_train_setup *s, wd_err *err)
{
    if (s->comm && s->comm->rank) return WD_OK;
    WD_TRY(wd_folder_check_writable(s->options.output_dir, "--output_dir", err));
    WD_TRY(wd_folder_check_writable(s->cache_dir, "--cache_dir", err));
    WD_TRY(wd__stored_targets_check_folder(s, err));
    if (!s->samples) return WD_OK;
    return wd_folder_check_writable(s->sample_dir, "--sample_dir", err);
}

static wd_status open_parts(wd_train_setup *s, wd_err *err)
{
    say_unneeded(&s->options);
    WD_TRY(wd_student_forms_parse(&s->forms, s->options.export_to, err));
    const wd_pipeline_parts parts = WD_PARTS_OF(&s->options);
    WD_TRY(wd_pipeline_open_parts(&s->teacher, s->options.teacher_path, &parts, err));
    WD_TRY(check_guidance(s, err));
    WD_TRY(wd_pipeline_require_experts(&s->teacher, err));
    WD_TRY(wd__stored_targets_open(s, err));
    WD_TRY(wd_export_check(s->options.output_dir, &s->teacher, err));
    WD_TRY(wd_student_check_forms(s->options.output_dir, &s->forms, err));
    if (!s->comm || !s->comm->rank)
        WD_TRY(wd_output_open(&s->output, s->options.output_dir, &s->teacher, err));
    WD_TRY(wd__student_open(s, false, err));
    WD_TRY(read_prompts(s, err));
    WD_TRY(resolve_sizes(s, err));
    WD_TRY(wd__train_objective_resolve(s, err));
    WD_TRY(check_optimizer(&s->options, err));
    WD_TRY(check_ema(&s->options, err));
    WD_TRY(resolve_length(s, err));
    WD_TRY(choose_folders(s, err));
    WD_TRY(wd__train_dtypes_resolve(s, err));
    WD_TRY(check_gradients(&s->options, err));
    WD_TRY(check_folders(s, err));
    WD_TRY(wd__validation_check(s, err));
    warn_of_clients(s);
    fill_trainer(s);
    return wd__stored_targets_check(s, err);
}

static wd_status open_teacher(wd_train_setup *s, const char *preset, wd_err *err)
{
    const char *path = s->options.teacher_path;
    wd_pipeline_parts parts = WD_PARTS_OF(&s->options);
    const bool files = path || wd_parts_any(&parts);
    if (preset && !files && !parts.lora[0] && !parts.lora[1])
        return wd_preset_pipeline(&s->teacher, preset, err);
    if (!files)
        return wd_fail(
            err, WD_INVALID_ARGUMENT, "plan needs --teacher_path PATH or --transformer FILE%s",
            preset ? ": a preset has no weights into which --teacher_lora could be merged"
                   : ", or --teacher_preset NAME");
    if (preset) parts.preset = preset;
    WD_TRY(wd_pipeline_open_parts(&s->teacher, path, &parts, err));
    return wd_pipeline_require_experts(&s->teacher, err);
}

/* A plan needs no more than a transformer, but of a teacher that is all there it refuses what
 * `train` refuses, and so it does of a text encoder or a VAE that is a file of its own: T5-XXL has
 * UMT5's sizes, but not all of its tensors. */
static wd_status check_other_parts(const wd_pipeline *p, wd_err *err)
{
    static const wd_component others[] = {WD_COMPONENT_TEXT_ENCODER, WD_COMPONENT_VAE};
    const bool is_whole = *p->path && p->has[WD_COMPONENT_TEXT_ENCODER] &&
                          p->has[WD_COMPONENT_VAE] && p->has[WD_COMPONENT_TOKENIZER];
    if (is_whole) return wd_components_check(p, err);
    for (int i = 0; i < 2; i++)
        if (*p->part[others[i]]) WD_TRY(wd_pipeline_check_weights(p, others[i], err));
    return WD_OK;
}

static wd_status open_planned_parts(wd_train_setup *s, const char *preset, wd_err *err)
{
    WD_TRY(wd_student_forms_parse(&s->forms, s->options.export_to, err));
    WD_TRY(open_teacher(s, preset, err));
    WD_TRY(check_other_parts(&s->teacher, err));
    WD_TRY(wd__stored_targets_open(s, err));
    WD_TRY(wd__student_open(s, true, err));
    WD_TRY(read_prompts(s, err));
    WD_TRY(resolve_sizes(s, err));
    WD_TRY(wd__train_objective_resolve(s, err));
    WD_TRY(check_optimizer(&s->options, err));
    WD_TRY(check_ema(&s->options, err));
    WD_TRY(resolve_length(s, err));
    WD_TRY(choose_folders(s, err));
    WD_TRY(wd__train_dtypes_resolve(s, err));
    WD_TRY(check_gradients(&s->options, err));
    WD_TRY(wd__validation_check(s, err));
    fill_trainer(s);
    wd_stepper_options *m = &s->trainer.stepper;
    if (!m->trajectory.prompts) m->trajectory.prompts = 1;
    m->text_tokens = s->options.max_sequence_length;
    m->text_repeat = 1;
    return wd__stored_targets_check(s, err);
}

wd_status wd_train_setup_open_planned(wd_train_setup *out, const wd_train_options *options,
                                      wd_comm *ranks, const char *preset, wd_err *err)
{
    *out = (wd_train_setup){.comm = ranks,
                            .given = *options,
                            .options = *options,
                            .bytes_before = wd_host_memory_own()};
    const wd_status status = open_planned_parts(out, preset, err);
    if (status != WD_OK) wd_train_setup_close(out);
    return status;
}

wd_status wd__train_key_of_teacher(char out[WD_SAFETENSORS_KEY_MAX], const wd_train_setup *s,
                                   wd_err *err)
{
    static const wd_component experts[] = {WD_COMPONENT_TRANSFORMER, WD_COMPONENT_TRANSFORMER_2};
    char key[WD_SAFETENSORS_KEY_MAX] = "", before[WD_SAFETENSORS_KEY_MAX];
    for (int i = 0; i < wd_teacher_experts(&s->teacher); i++) {
        memcpy(before, key, sizeof before);
        WD_TRY(wd_pipeline_weights_key(key, &s->teacher, experts[i], before, err));
    }
    memcpy(out, key, sizeof key);
    return WD_OK;
}

wd_status wd_train_setup_key_teacher(wd_train_setup *s, wd_err *err)
{
    return *s->teacher_key ? WD_OK : wd__train_key_of_teacher(s->teacher_key, s, err);
}

wd_status wd_train_setup_open(wd_train_setup *out, const wd_train_options *options, wd_comm *comm,
                              wd_err *err)
{
    *out = (wd_train_setup){
        .comm = comm, .given = *options, .options = *options, .bytes_before = wd_host_memory_own()};
    const wd_status status = open_parts(out, err);
    if (status != WD_OK) wd_train_setup_close(out);
    return status;
}

void wd_train_setup_close(wd_train_setup *setup)
{
    wd_output_close(&setup->output);
    wd_prompt_embeds_close(&setup->embeds);
    wd_target_store_close(setup->store);
    json_decref(setup->saved_run);
    setup->store = NULL;
    setup->saved_run = NULL;
    wd_free((void *)setup->prompt);
    wd_free(setup->blocks);
    setup->blocks = NULL;
    wd_free((void *)setup->held_out);
    setup->held_out = NULL;
    wd_prompts_close(&setup->validation_file);
    wd_prompts_close(&setup->sample_file);
    wd_prompts_close(&setup->data);
    setup->prompt = NULL;
}
