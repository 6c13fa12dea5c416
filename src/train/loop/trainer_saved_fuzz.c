/* Fuzz target: any bytes as what a checkpoint says of its run, which is to be resumed. A run that
 * may go on has the rows of text that its prompts need. */
#include "fuzzing.h"

#include "train/loop/trainer.h"

#define STEP "step-00000002"

static const wd_dit_config dit = {.in_channels = 16,
                                  .out_channels = 16,
                                  .heads = 5,
                                  .head_dim = 32,
                                  .ffn_dim = 640,
                                  .layers = 6,
                                  .freq_dim = 64,
                                  .text_dim = 96,
                                  .patch = {1, 2, 2},
                                  .rope_max_seq_len = 1024,
                                  .cross_attn_norm = true,
                                  .eps = 1e-6};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    wd_err err;
    char path[512];
    const wd_pipeline teacher = {.dit = dit, .scheduler = {.num_train_timesteps = 1000}};
    snprintf(path, sizeof path, "%s", wd_fuzz_path(STEP));
    wd_trainer_options options = {.stepper = {.recipe = &wd_recipe_velocity,
                                              .teacher = &teacher,
                                              .student = dit,
                                              .teacher_dtype = WD_F32,
                                              .student_dtype = WD_F32,
                                              .text_tokens = 5,
                                              .text_repeat = 20,
                                              .trajectory = {.seed = 3,
                                                             .slots = 4,
                                                             .steps = 4,
                                                             .prompts = 3,
                                                             .flow_shift = 3,
                                                             .num_train_timesteps = 1000},
                                              .reuse = 4,
                                              .replay = 8,
                                              .guidance_scale = {2, 2},
                                              .batch = 2,
                                              .accumulation = 1},
                                  .export = {.height = 32, .width = 32},
                                  .resume = path,
                                  .teacher_key = "a",
                                  .text_encoder_key = "b",
                                  .prompts_key = "c",
                                  .negative_prompt = ""};
    char text[WD_KERNELS_TEXT];
    wd_fuzz_file(STEP "/state.json", data, bytes);
    if (wd_trainer_resumed_text(text, path, &err) == WD_OK && !memchr(text, 0, sizeof text))
        abort();
    if (wd_trainer_resume_options(&options, &err) != WD_OK) return 0;
    const wd_stepper_options *m = &options.stepper;
    if (m->text_tokens < 5 || m->text_repeat < 1 || m->text_tokens + m->text_repeat != 25) abort();
    return 0;
}
