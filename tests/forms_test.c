/* The teacher as single files: training, `forward` and `sample` make of them what they make of the
 * folder, to the bit. */
#include "forms.h"
#include "program.h"
#include "sparse.h"
#include "tiny_teacher.h"

#include "io/file/file.h"
#include "model/text/umt5.h"

static const char tiny[] = WD_SOURCE_DIR "/models/wan-tiny";

static wd_program program;

static char comfyui[WD_PATH_MAX], high[WD_PATH_MAX], low[WD_PATH_MAX], text[WD_PATH_MAX],
    vae[WD_PATH_MAX];

static int make_files(void **state)
{
    wd_err err;
    if (open_teacher(state)) return -1;
    wd_test_ok(wd_path_join(comfyui, wd_test_folder(), "comfyui", &err), &err);
    wd_test_comfyui_folder(comfyui, &teacher, WD_F32);
    wd_test_ok(wd_path_join(high, comfyui, "diffusion_models/tiny_high_noise.safetensors", &err),
               &err);
    wd_test_ok(wd_path_join(low, comfyui, "diffusion_models/tiny_low_noise.safetensors", &err),
               &err);
    wd_test_ok(wd_path_join(text, comfyui, "text_encoders/umt5_tiny.safetensors", &err), &err);
    wd_test_ok(wd_path_join(vae, comfyui, "vae/wan_tiny_vae.safetensors", &err), &err);
    return 0;
}

#define TRAIN                                                                                      \
    "--data_path", WD_SOURCE_DIR "/models/wan-tiny/prompts-held-out.txt", "--num_steps", "2",      \
        "--trajectories", "4", "--trajectory_steps", "4", "--target_replay", "16",                 \
        "--save_samples", "false", "--num_threads", "1", "--flow_shift", "3",                      \
        "--max_sequence_length", "24", "--height", "64", "--width", "64", "--devices", "cpu"

static const char *student_of(const char *output)
{
    static char path[4][WD_PATH_MAX];
    static int next;
    wd_err err;
    char *out = path[next++ % 4];
    wd_test_ok(wd_path_join(out, output, "transformer/diffusion_pytorch_model.safetensors", &err),
               &err);
    return out;
}

static void the_students_bits(void **state)
{
    (void)state;
    char folder[512], parts[512], layout[512], disk[512];
    wd_err err;
    wd_pipeline student;
    snprintf(folder, sizeof folder, "%s", wd_test_path("of-folder"));
    snprintf(parts, sizeof parts, "%s", wd_test_path("of-parts"));
    snprintf(layout, sizeof layout, "%s", wd_test_path("of-layout"));
    snprintf(disk, sizeof disk, "%s", wd_test_path("of-disk"));
    wd_program_run(&program, "train", "--teacher_path", tiny, "--output_dir", folder, TRAIN);
    wd_program_succeeded(&program);
    wd_program_run(&program, "train", "--transformer", high, "--transformer_2", low,
                   "--text_encoder", text, "--vae", vae, "--teacher_preset", "wan2.2-a14b",
                   "--output_dir", parts, TRAIN);
    wd_program_succeeded(&program);
    wd_test_same_files(student_of(folder), student_of(parts));
    wd_program_run(&program, "train", "--teacher_path", comfyui, "--teacher_preset", "wan2.2-a14b",
                   "--output_dir", layout, TRAIN);
    wd_program_succeeded(&program);
    wd_test_same_files(student_of(folder), student_of(layout));
    wd_program_run(&program, "train", "--teacher_path", tiny, "--transformer", high,
                   "--teacher_device_strategy", "disk", "--output_dir", disk, TRAIN);
    wd_program_succeeded(&program);
    wd_test_same_files(student_of(folder), student_of(disk));
    wd_test_ok(wd_pipeline_open(&student, parts, &err), &err);
    for (int c = 0; c < WD_COMPONENT_COUNT; c++)
        assert_int_equal(student.has[c], c != WD_COMPONENT_TRANSFORMER_2);
    wd_test_ok(wd_pipeline_check_weights(&student, WD_COMPONENT_TEXT_ENCODER, &err), &err);
    wd_test_ok(wd_pipeline_check_weights(&student, WD_COMPONENT_VAE, &err), &err);
}

/* T5-XXL has the sizes of UMT5-XXL: `plan` refuses it as `train` does, before anything is made. */
static void a_t5_is_refused(void **state)
{
    (void)state;
    static const char *const commands[] = {"plan", "train"};
    char t5[512];
    wd_err err;
    wd_tensor_table table;
    snprintf(t5, sizeof t5, "%s", wd_test_path("t5.safetensors"));
    wd_test_ok(wd_umt5_table_open(&table, &teacher.umt5, &err), &err);
    wd_test_sparse_file(t5, &table, 0, 1, WD_F32,
                        "encoder.block.1.layer.0.SelfAttention.relative_attention_bias.weight");
    wd_umt5_table_close(&table);
    for (int i = 0; i < 2; i++) {
        wd_program_run(&program, commands[i], "--transformer", high, "--transformer_2", low,
                       "--text_encoder", t5, "--vae", vae, "--teacher_preset", "wan2.2-a14b",
                       "--output_dir", wd_test_path("of-t5"), TRAIN);
        wd_program_refused(&program, WD_BAD_FORMAT, "this text encoder is T5");
    }
}

/* The weights as they are stored, mostly bfloat16, in either naming, with and without a prefix. */
static void the_students_bits_of_each_naming(void **state)
{
    (void)state;
    static const wd_test_form forms[] = {{true, "", WD_DTYPE_COUNT},
                                         {true, "model.diffusion_model.", WD_DTYPE_COUNT},
                                         {false, "", WD_DTYPE_COUNT},
                                         {false, "model.diffusion_model.", WD_DTYPE_COUNT}};
    char stored[512], file[2][WD_PATH_MAX], name[32];
    wd_err err;
    snprintf(stored, sizeof stored, "%s", wd_test_path("stored"));
    wd_test_ok(wd_folder_make(stored, &err), &err);
    wd_test_copy_config(stored, tiny, "transformer");
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        for (int k = 0; k < 2; k++) {
            wd_test_ok(
                wd_path_join(file[k], stored, k ? "low.safetensors" : "high.safetensors", &err),
                &err);
            wd_test_write_form(file[k], &teacher, (wd_component)k, &forms[i], NULL, 0);
        }
        snprintf(name, sizeof name, "of-naming-%zu", i);
        wd_program_run(&program, "train", "--teacher_path", tiny, "--transformer", file[0],
                       "--transformer_2", file[1], "--output_dir", wd_test_path(name), TRAIN);
        wd_program_succeeded(&program);
        wd_test_same_files(student_of(wd_test_path("of-folder")), student_of(wd_test_path(name)));
    }
}

/* The published wan-tiny of its folder and the same by files draw the same picture. */
static void the_same_pictures(void **state)
{
    (void)state;
    char a[512], b[512];
    snprintf(a, sizeof a, "%s", wd_test_path("folder.png"));
    snprintf(b, sizeof b, "%s", wd_test_path("parts.png"));
    wd_program_run(&program, "sample", "--model", tiny, "--prompt", "red apple", "--steps", "2",
                   "--max_sequence_length", "24", "--flow_shift", "3", "--height", "64", "--width",
                   "64", "--dtype", "float32", "--device", "cpu", "--out", a);
    wd_program_succeeded(&program);
    wd_program_run(&program, "sample", "--transformer", high, "--transformer_2", low,
                   "--text_encoder", text, "--vae", vae, "--teacher_preset", "wan2.2-a14b",
                   "--prompt", "red apple", "--steps", "2", "--max_sequence_length", "24",
                   "--flow_shift", "3", "--height", "64", "--width", "64", "--dtype", "float32",
                   "--device", "cpu", "--out", b);
    wd_program_succeeded(&program);
    assert_true(wd_test_pixels_equal(a, b));
}

static void forward_of_a_file(void **state)
{
    (void)state;
    static const char fixture[] = WD_SOURCE_DIR "/tests/fixtures/dit-head128";
    static const wd_test_form form = {true, "model.diffusion_model.", WD_DTYPE_COUNT};
    char file[512], in[512], a[512], b[512];
    wd_err err;
    wd_pipeline p;
    snprintf(file, sizeof file, "%s", wd_test_path("head128.safetensors"));
    snprintf(in, sizeof in, "%s/in.safetensors", fixture);
    snprintf(a, sizeof a, "%s", wd_test_path("a.safetensors"));
    snprintf(b, sizeof b, "%s", wd_test_path("b.safetensors"));
    wd_test_ok(wd_pipeline_open(&p, fixture, &err), &err);
    wd_test_write_form(file, &p, WD_COMPONENT_TRANSFORMER, &form, NULL, 0);
    wd_program_run(&program, "forward", "--model", fixture, "--component", "transformer", "--in",
                   in, "--out", a, "--device", "cpu");
    wd_program_succeeded(&program);
    wd_program_run(&program, "forward", "--transformer", file, "--component", "transformer", "--in",
                   in, "--out", b, "--device", "cpu");
    wd_program_succeeded(&program);
    wd_test_same_files(a, b);
}

/* eval takes the tokenizer that it is given, not the student's. */
static void eval_with_a_tokenizer(void **state)
{
    (void)state;
    static const char *const tokenizer[] = {WD_SOURCE_DIR "/models/wan-tiny/tokenizer",
                                            "tests/no-such-tokenizer"};
    for (int i = 0; i < 2; i++) {
        wd_program_run(&program, "eval", "--transformer", high, "--transformer_2", low,
                       "--text_encoder", text, "--vae", vae, "--teacher_preset", "wan2.2-a14b",
                       "--tokenizer", tokenizer[i], "--student", tiny, "--prompts",
                       WD_SOURCE_DIR "/models/wan-tiny/prompts-held-out.txt", "--count", "1",
                       "--steps", "1", "--reference_steps", "1", "--guidance_scale", "3",
                       "--height", "64", "--width", "64", "--device", "cpu");
        if (!i) wd_program_succeeded(&program);
    }
    assert_int_equal(program.code, WD_NOT_FOUND);
    assert_non_null(strstr(program.err, "--tokenizer: tests/no-such-tokenizer"));
}

static void says_what_is_missing(void **state)
{
    (void)state;
    wd_program_run(&program, "sample", "--prompt", "x", "--out", wd_test_path("x.png"));
    assert_int_equal(program.code, WD_INVALID_ARGUMENT);
    assert_non_null(strstr(program.err, "sample needs --model"));
    wd_program_run(&program, "plan", "--transformer", low, "--transformer_2", high,
                   "--teacher_preset", "wan2.2-a14b", "--devices", "cpu");
    assert_non_null(strstr(program.err, "by its name this is the low-noise expert"));
    assert_null(strstr(program.err, "of two, and no --transformer_2"));
    wd_program_run(&program, "inspect", "--transformer", high, "--teacher_preset", "wan2.2-a14b");
    assert_non_null(strstr(program.err, "the high-noise expert of two, and no --transformer_2"));
    wd_program_run(&program, "inspect", "--transformer", wd_test_path("none.safetensors"));
    assert_int_equal(program.code, WD_NOT_FOUND);
    assert_non_null(strstr(program.err, "--transformer: "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_students_bits),
        cmocka_unit_test(a_t5_is_refused),
        cmocka_unit_test(the_students_bits_of_each_naming),
        cmocka_unit_test(the_same_pictures),
        cmocka_unit_test(forward_of_a_file),
        cmocka_unit_test(eval_with_a_tokenizer),
        cmocka_unit_test(says_what_is_missing),
    };
    return cmocka_run_group_tests(tests, make_files, NULL);
}
