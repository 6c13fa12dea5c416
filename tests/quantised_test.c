/* Quantised teachers in the program: training, `forward` and `sample` make of them what they make
 * of the dequantised twin, to the bit; `plan` and `inspect` know them. */
#include "gguf_forms.h"

#include "program.h"
#include "tiny_teacher.h"

#include "io/file.h"

static const char tiny[] = WD_SOURCE_DIR "/models/wan-tiny";

static wd_program program;
static char folder[WD_PATH_MAX], high[WD_PATH_MAX], high_twin[WD_PATH_MAX], low[WD_PATH_MAX],
    low_twin[WD_PATH_MAX];

static int make_files(void **state)
{
    const wd_test_quantised *scaled = &wd_test_quantised_forms[2];
    const wd_test_quantised *rows = &wd_test_quantised_forms[7];
    wd_err err;
    if (open_teacher(state)) return -1;
    snprintf(folder, sizeof folder, "%s", wd_test_path("files"));
    wd_test_ok(wd_folder_make(folder, &err), &err);
    wd_test_copy_config(folder, tiny, "transformer");
    wd_test_ok(wd_path_join(high, folder, "high_noise.safetensors", &err), &err);
    wd_test_ok(wd_path_join(high_twin, folder, "high_noise_twin.safetensors", &err), &err);
    wd_test_ok(wd_path_join(low, folder, "low_noise.safetensors", &err), &err);
    wd_test_ok(wd_path_join(low_twin, folder, "low_noise_twin.safetensors", &err), &err);
    wd_test_write_quantised(high, high_twin, &teacher, WD_COMPONENT_TRANSFORMER, scaled);
    wd_test_write_quantised(low, low_twin, &teacher, WD_COMPONENT_TRANSFORMER_2, rows);
    return 0;
}

#define TEACHER(high, low) "--teacher_path", tiny, "--transformer", high, "--transformer_2", low

/* Trains two steps; returns the student's file. */
static const char *train(const char *a, const char *b, const char *name, const char *option,
                         const char *value)
{
    static char path[2][WD_PATH_MAX];
    static int next;
    char output[512], *out = path[next++ % 2];
    wd_err err;
    snprintf(output, sizeof output, "%s", wd_test_path(name));
    wd_program_run(&program, "train", TEACHER(a, b), "--output_dir", output, "--data_path",
                   WD_SOURCE_DIR "/models/wan-tiny/prompts-held-out.txt", "--num_steps", "2",
                   "--trajectories", "4", "--trajectory_steps", "4", "--target_replay", "16",
                   "--save_samples", "false", "--num_threads", "1", "--max_sequence_length", "24",
                   "--height", "64", "--width", "64", "--devices", "cpu", option, value);
    wd_program_succeeded(&program);
    wd_test_ok(wd_path_join(out, output, "transformer/diffusion_pytorch_model.safetensors", &err),
               &err);
    return out;
}

/* With the student's first weights from the teacher, and targets of both experts. */
static void the_students_bits(void **state)
{
    (void)state;
    wd_test_same_files(train(high, low, "q", "--seed", "3"),
                       train(high_twin, low_twin, "t", "--seed", "3"));
    wd_test_same_files(train(high, low, "q16", "--teacher_dtype", "bfloat16"),
                       train(high_twin, low_twin, "t16", "--teacher_dtype", "bfloat16"));
    wd_test_same_files(train(high, low, "disk", "--teacher_device_strategy", "disk"),
                       train(high_twin, low_twin, "window", "--teacher_window", "2"));
}

static void forward_of_a_file(void **state)
{
    (void)state;
    static const char fixture[] = WD_SOURCE_DIR "/tests/fixtures/dit-head128";
    char file[512], twin[512], in[512], a[512], b[512];
    wd_err err;
    wd_pipeline p;
    snprintf(file, sizeof file, "%s", wd_test_path("head128.safetensors"));
    snprintf(twin, sizeof twin, "%s", wd_test_path("twin128.safetensors"));
    snprintf(in, sizeof in, "%s/in.safetensors", fixture);
    snprintf(a, sizeof a, "%s", wd_test_path("a.safetensors"));
    snprintf(b, sizeof b, "%s", wd_test_path("b.safetensors"));
    wd_test_ok(wd_pipeline_open(&p, fixture, &err), &err);
    wd_test_write_quantised(file, twin, &p, WD_COMPONENT_TRANSFORMER, &wd_test_quantised_forms[3]);
    wd_program_run(&program, "forward", "--transformer", file, "--component", "transformer", "--in",
                   in, "--out", a, "--device", "cpu");
    wd_program_succeeded(&program);
    wd_program_run(&program, "forward", "--transformer", twin, "--component", "transformer", "--in",
                   in, "--out", b, "--device", "cpu");
    wd_program_succeeded(&program);
    wd_test_same_files(a, b);
    wd_program_run(&program, "inspect", file);
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.out, "F8_E4M3"));
    wd_program_run(&program, "convert", "--model", file, "--to", "diffusers", "--out",
                   wd_test_path("converted"));
    wd_program_succeeded(&program);
}

/* Draws OUT with options that name two parts of the teacher. */
static void draw(const char *out, const char *option, const char *part, const char *other_option,
                 const char *other)
{
    wd_program_run(&program, "sample", "--model", tiny, option, part, other_option, other,
                   "--prompt", "red apple", "--steps", "2", "--max_sequence_length", "24",
                   "--height", "64", "--width", "64", "--device", "cpu", "--out", out);
    wd_program_succeeded(&program);
}

static void the_same_pictures(void **state)
{
    (void)state;
    char a[512], b[512];
    snprintf(a, sizeof a, "%s", wd_test_path("a.png"));
    snprintf(b, sizeof b, "%s", wd_test_path("b.png"));
    draw(a, "--transformer", high, "--transformer_2", low);
    draw(b, "--transformer", high_twin, "--transformer_2", low_twin);
    wd_test_same_files(a, b);
}

/* A text encoder as GGUF brings its tokenizer: without a folder the prompts have the same tokens,
 * and so the same embeddings. */
static void gguf_with_its_tokenizer(void **state)
{
    (void)state;
    char file[512], twin[512], a[512], b[512];
    snprintf(file, sizeof file, "%s", wd_test_path("alone.gguf"));
    snprintf(twin, sizeof twin, "%s", wd_test_path("alone.safetensors"));
    snprintf(a, sizeof a, "%s", wd_test_path("alone.png"));
    snprintf(b, sizeof b, "%s", wd_test_path("with-folder.png"));
    wd_test_write_gguf(file, twin, &teacher, WD_COMPONENT_TEXT_ENCODER, "t5encoder", 0);
    draw(a, "--text_encoder", file, "--tokenizer", file);
    draw(b, "--text_encoder", file, "--tokenizer",
         WD_SOURCE_DIR "/models/wan-tiny/tokenizer/spiece.model");
    wd_test_same_files(a, b);
    wd_err err;
    wd_pipeline p;
    wd_tokenizer *tokenizer;
    const wd_pipeline_parts parts = {.part = {[WD_COMPONENT_TEXT_ENCODER] = file}};
    wd_test_ok(wd_pipeline_open_parts(&p, NULL, &parts, &err), &err);
    wd_test_ok(wd_pipeline_tokenizer_open(&tokenizer, &p, &err), &err);
    wd_tokenizer_close(tokenizer);
}

/* The first expert and the text encoder as GGUF, the second expert as safetensors. */
static void gguf(void **state)
{
    (void)state;
    char file[512], twin[512], text[512], text_twin[512], a[512], b[512];
    snprintf(file, sizeof file, "%s/high_noise.gguf", folder);
    snprintf(twin, sizeof twin, "%s/twin_high_noise.safetensors", folder);
    snprintf(text, sizeof text, "%s", wd_test_path("umt5.gguf"));
    snprintf(text_twin, sizeof text_twin, "%s", wd_test_path("umt5.safetensors"));
    snprintf(a, sizeof a, "%s", wd_test_path("gguf.png"));
    snprintf(b, sizeof b, "%s", wd_test_path("gguf-twin.png"));
    wd_test_write_gguf(file, twin, &teacher, WD_COMPONENT_TRANSFORMER, "wan", 4);
    wd_test_write_gguf(text, text_twin, &teacher, WD_COMPONENT_TEXT_ENCODER, "t5encoder", 0);
    wd_test_same_files(train(file, low, "g", "--text_encoder", text),
                       train(twin, low_twin, "gt", "--text_encoder", text_twin));
    draw(a, "--transformer", file, "--text_encoder", text);
    draw(b, "--transformer", twin, "--text_encoder", text_twin);
    wd_test_same_files(a, b);
    wd_program_run(&program, "inspect", "--transformer", file);
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.out, "Q4_K"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_students_bits),       cmocka_unit_test(forward_of_a_file),
        cmocka_unit_test(the_same_pictures),       cmocka_unit_test(gguf),
        cmocka_unit_test(gguf_with_its_tokenizer),
    };
    return cmocka_run_group_tests(tests, make_files, NULL);
}
