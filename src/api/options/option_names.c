/* Finding commands and options by name, and what a name that is none of them may mean. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "wandistiller.h"

static char fold(char c)
{
    return c == '-' ? '_' : c;
}

static bool same_name(const char *a, const char *b)
{
    while (*a && fold(*a) == fold(*b)) a++, b++;
    return !*a && !*b;
}

static bool starts_with(const char *name, const char *beginning)
{
    while (*beginning && fold(*name) == fold(*beginning)) name++, beginning++;
    return !*beginning;
}

/* The number of edits (one character inserted, deleted or changed) from a to b. Names that are
 * longer than the row have a large distance. */
static size_t distance(const char *a, const char *b)
{
    size_t row[64];
    const size_t n = strlen(b);
    if (n >= sizeof row / sizeof *row) return SIZE_MAX;
    for (size_t j = 0; j <= n; j++) row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            const size_t changed = diagonal + (fold(a[i - 1]) != fold(b[j - 1]));
            const size_t longer = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = changed < longer ? changed : longer;
        }
    }
    return row[n];
}

wd_status wd_job_find(wd_job *out, const char *name, wd_err *err)
{
    const char *near = NULL;
    size_t near_distance = strlen(name) / 3 + 2;
    for (int i = 0; i < WD_JOB_COUNT; i++) {
        const char *job = wd_job_name((wd_job)i);
        const size_t d = *name && starts_with(job, name) ? 1 : distance(name, job);
        if (same_name(job, name)) {
            *out = (wd_job)i;
            return WD_OK;
        }
        if (d < near_distance) near = job, near_distance = d;
    }
    if (near)
        return wd_fail(err, WD_INVALID_ARGUMENT, "there is no command \"%s\"; is %s meant?", name,
                       near);
    return wd_fail(err, WD_INVALID_ARGUMENT,
                   "there is no command \"%s\"; `wandistiller --help` lists those there are", name);
}

/* What other trainers and pipelines of diffusers, kohya and musubi call an option of this program,
 * and words that people try. A name that means two options names the second one, too. */
static const struct {
    const char *there, *here, *beside;
} elsewhere[] = {
    {"max_train_steps", "num_steps", NULL},
    {"max_steps", "num_steps", NULL},
    {"train_steps", "num_steps", NULL},
    {"num_train_epochs", "num_epochs", NULL},
    {"max_train_epochs", "num_epochs", NULL},
    {"epochs", "num_epochs", NULL},
    {"train_batch_size", "batch_size", NULL},
    {"learning_rate", "lr", NULL},
    {"lr_scheduler", "lr_schedule", NULL},
    {"lr_warmup_steps", "warmup_steps", NULL},
    {"optimizer_type", "optimizer", NULL},
    {"adam_weight_decay", "weight_decay", NULL},
    {"adam_epsilon", "adam_eps", NULL},
    {"checkpointing_steps", "checkpoint_interval", NULL},
    {"save_every_n_steps", "checkpoint_interval", NULL},
    {"save_steps", "checkpoint_interval", NULL},
    {"checkpoints_total_limit", "keep_checkpoints", NULL},
    {"save_total_limit", "keep_checkpoints", NULL},
    {"resume_from_checkpoint", "resume", NULL},
    {"pretrained_model_name_or_path", "teacher_path", NULL},
    {"pretrained_teacher_model", "teacher_path", NULL},
    {"teacher_model", "teacher_path", NULL},
    {"teacher_model", "teacher", NULL},
    {"teacher_model", "model", NULL},
    {"teacher_path", "teacher", NULL},
    {"teacher_path", "model", NULL},
    {"pretrained_model_name_or_path", "model", NULL},
    {"model_id", "teacher_path", NULL},
    {"model_id", "model", NULL},
    {"model", "teacher_path", NULL},
    {"student_model", "init_student", NULL},
    {"train_data_dir", "data_path", NULL},
    {"dataset_name", "data_path", NULL},
    {"prompt", "data_path", NULL},
    {"prompts", "data_path", NULL},
    {"validation_prompt", "sample_prompts", NULL},
    {"validation_steps", "validation_interval", "sample_interval"},
    {"validation_epochs", "validation_interval", "sample_interval"},
    {"validate_every_n_steps", "validation_interval", NULL},
    {"validation_split", "validation_prompts", NULL},
    {"load_best_model_at_end", "keep_best", NULL},
    {"dit", "transformer", NULL},
    {"t5", "text_encoder", NULL},
    {"resolution", "height", "width"},
    {"lora", "teacher_lora", NULL},
    {"lora_weights", "teacher_lora", NULL},
    {"num_images_per_prompt", "images_per_prompt", NULL},
    {"num_inference_steps", "steps", NULL},
    {"infer_steps", "steps", NULL},
    {"steps", "num_steps", NULL},
    {"cfg_scale", "guidance_scale", NULL},
    {"save_path", "out", NULL},
    {"precision", "mixed_precision", NULL},
    {"dtype", "teacher_dtype", "mixed_precision"},
    {"device", "devices", NULL},
    {"devices", "device", NULL},
    {"gpu", "devices", NULL},
    {"gpu", "device", NULL},
    {"gpus", "devices", NULL},
    {"gpus", "device", NULL},
    {"gpu_ids", "devices", NULL},
    {"num_gpus", "devices", NULL},
    {"num_processes", "nproc_per_node", NULL},
    {"ram", "host_memory", NULL},
    {"memory", "host_memory", NULL},
    {"max_memory", "host_memory", NULL},
};

/* Options of other trainers for which this program has none, and the option that commands have for
 * which that is said. */
static const struct {
    const char *there, *beside, *why;
} absent[] = {
    {"report_to", "output_dir", "metrics.jsonl and TensorBoard's files in --output_dir have it"},
    {"logging_dir", "output_dir", "metrics.jsonl and TensorBoard's files are in --output_dir"},
    {"wandb", "output_dir", "metrics.jsonl and TensorBoard's files in --output_dir have it"},
    {"vram", "devices", "memory of GPUs is measured; --devices sim:24GiB is for another one"},
    {"gpu_memory", "devices", "memory of GPUs is measured; --devices sim:24GiB is for another one"},
};

static const wd_option *option_named(wd_job job, const char *name)
{
    int64_t count;
    const wd_option *table = wd_options_of(job, &count);
    for (int64_t i = 0; i < count; i++)
        if (same_name(table[i].name, name)) return &table[i];
    return NULL;
}

/* Writes what is meant by a name of another program into `out`: "--height and --width"; false: it
 * is none, or the job has no such option. */
static bool called_elsewhere(char *out, size_t out_bytes, wd_job job, const char *name)
{
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++) {
        const char *here = elsewhere[i].here, *beside = elsewhere[i].beside;
        if (!same_name(elsewhere[i].there, name) || !option_named(job, here)) continue;
        snprintf(out, out_bytes, "--%s%s%s", here, beside ? " or --" : "", beside ? beside : "");
        return true;
    }
    return false;
}

/* The option of the job, or of every command, whose name is nearest to `name`; one that begins with
 * `name` comes first. NULL: none is near. */
static const char *nearest(wd_job job, const char *name)
{
    const wd_job jobs[] = {job, WD_JOB_COMMON};
    const char *best = NULL;
    size_t best_distance = strlen(name) / 3 + 2;
    for (int t = 0; t < 2; t++) {
        int64_t count;
        const wd_option *table = wd_options_of(jobs[t], &count);
        for (int64_t i = 0; i < count; i++) {
            const char *candidate = table[i].name;
            size_t d = starts_with(candidate, name) ? 1 : distance(name, candidate);
            if (d < best_distance) best = candidate, best_distance = d;
        }
    }
    return best;
}

/* Fails with what a name that is no option may mean. */
static wd_status unknown(wd_job job, const char *name, wd_err *err)
{
    char meant[128];
    const char *command = wd_job_name(job);
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
        if (same_name(absent[i].there, name) && option_named(job, absent[i].beside))
            return wd_fail(err, WD_INVALID_ARGUMENT, "%s has no option --%s: %s", command, name,
                           absent[i].why);
    if (!called_elsewhere(meant, sizeof meant, job, name)) {
        const char *near = nearest(job, name);
        if (!near)
            return wd_fail(err, WD_INVALID_ARGUMENT,
                           "%s has no option --%s; `wandistiller %s --help` lists those it has",
                           command, name, command);
        snprintf(meant, sizeof meant, "--%s", near);
    }
    return wd_fail(err, WD_INVALID_ARGUMENT, "%s has no option --%s; is %s meant?", command, name,
                   meant);
}

const wd_option *wd_option_find(wd_job job, const char *name, wd_err *err)
{
    const wd_option *option = option_named(job, name);
    if (!option) unknown(job, name, err);
    return option;
}
