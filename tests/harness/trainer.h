/* A small run of one rank on wan-tiny, for tests of the training loop. */
#ifndef WD_TESTS_HARNESS_TRAINER_H
#define WD_TESTS_HARNESS_TRAINER_H

#include "harness/stepper.h"
#include "train/loop/trainer.h"

#include "tiny_teacher.h"

enum { STEPS = 8 };

/* "<test folder>/run" and `file` behind it. */
static inline const char *path_of(char out[WD_PATH_MAX], const char *run, const char *file)
{
    snprintf(out, WD_PATH_MAX, "%s/%s%s", wd_test_folder(), run, file);
    return out;
}

static inline bool has_checkpoint(const char *run, int64_t step)
{
    char path[WD_PATH_MAX], file[64];
    snprintf(file, sizeof file, "/checkpoints/step-%08lld", (long long)step);
    return wd_path_exists(path_of(path, run, file));
}

/* A run of STEPS steps. */
static inline wd_trainer_options small_run(void)
{
    return (wd_trainer_options){.stepper = small_stepper(&teacher),
                                .steps = STEPS,
                                .teacher_key = "small",
                                .text_encoder_key = "short",
                                .prompts_key = "five",
                                .negative_prompt = "",
                                .lr = {.shape = WD_LR_CONSTANT, .lr = 1e-3},
                                .keep_checkpoints = 1,
                                .export = wd_export_defaults()};
}

/* Runs it into the folder `run`, on a device that has all of the teacher, and is closed then. */
static inline wd_status run_on(wd_device *device, wd_trainer_result *result, const char *run,
                               const wd_trainer_options *small, wd_err *err)
{
    char output[WD_PATH_MAX];
    wd_queue *queue;
    wd_residency *residency;
    wd_err open = {0};
    wd_trainer_options options = *small;
    const wd_placement all = {.experts = wd_teacher_experts(&teacher),
                              .stages = wd_dit_stages(&teacher.dit),
                              .buffers = 2};
    options.output_dir = path_of(output, run, "");
    wd_test_ok(wd_queue_open(&queue, device, &open), &open);
    wd_test_ok(wd_residency_open_placed(&residency, &teacher, &all, options.stepper.teacher_dtype,
                                        &queue, queue, NULL, &open),
               &open);
    const wd_stepper_teacher where = {residency, &all, &queue, queue};
    const wd_status status = wd_trainer_run(result, &options, &where, queue, err);
    wd_residency_close(residency);
    wd_queue_close(queue);
    wd_device_close(device);
    return status;
}

/* The same on a processor. */
static inline wd_status run_into(wd_trainer_result *result, const char *run,
                                 const wd_trainer_options *small, wd_err *err)
{
    wd_device *device;
    wd_err open = {0};
    wd_test_ok(wd_device_open_cpu(&device, 2, &open), &open);
    return run_on(device, result, run, small, err);
}

#endif
