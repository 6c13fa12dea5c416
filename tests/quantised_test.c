/* Quantised teachers in the program: training, `forward` and `sample` make of them what they make
 * of the dequantised twin, to the bit; `plan` and `inspect` know them. */
#include "gguf_forms.h"

#include "program.h"
#include "tiny_teacher.h"

#include "io/file/file.h"

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

/* The other forms, two at a time as the experts of a teacher. */
static void the_students_bits_of_the_other_forms(void **state)
{
    (void)state;
    static const int pairs[][2] = {{0, 1}, {3, 4}, {5, 6}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        char file[2][WD_PATH_MAX], twin[2][WD_PATH_MAX], name[2][32];
        for (int k = 0; k < 2; k++) {
            const char *noise = k ? "low" : "high";
            snprintf(file[k], sizeof file[k], "%s/%s_noise_%zu.safetensors", folder, noise, i);
            snprintf(twin[k], sizeof twin[k], "%s/twin_%s_noise_%zu.safetensors", folder, noise, i);
            snprintf(name[k], sizeof name[k], "%s-%zu", k ? "twins" : "forms", i);
            wd_test_write_quantised(file[k], twin[k], &teacher, (wd_component)k,
                                    &wd_test_quantised_forms[pairs[i][k]]);
        }
        wd_test_same_files(train(file[0], file[1], name[0], "--teacher_dtype", "bfloat16"),
                           train(twin[0], twin[1], name[1], "--teacher_dtype", "bfloat16"));
    }
}

/* Computes OUT with a transformer from the input of the fixture. */
static void forward(const char *out, const char *file)
{
    wd_program_run(&program, "forward", "--transformer", file, "--component", "transformer", "--in",
                   WD_SOURCE_DIR "/tests/fixtures/dit-head128/in.safetensors", "--out", out,
                   "--dtype", "float32", "--device", "cpu", "--num_threads", "1");
    wd_program_succeeded(&program);
}

/* Of every form of safetensors, and of GGUF files with every type, with and without a name of the
 * architecture, and as stable-diffusion.cpp writes them. */
static void forward_of_every_form(void **state)
{
    (void)state;
    char file[512], twin[512], a[512], b[512];
    wd_err err;
    wd_pipeline p;
    snprintf(twin, sizeof twin, "%s", wd_test_path("twin128.safetensors"));
    snprintf(a, sizeof a, "%s", wd_test_path("a.safetensors"));
    snprintf(b, sizeof b, "%s", wd_test_path("b.safetensors"));
    wd_test_ok(wd_pipeline_open(&p, WD_SOURCE_DIR "/tests/fixtures/dit-head128", &err), &err);
    for (int form = 0; form < WD_TEST_QUANTISED_FORMS + 3; form++) {
        const int gguf = form - WD_TEST_QUANTISED_FORMS;
        const wd_component c = WD_COMPONENT_TRANSFORMER;
        snprintf(file, sizeof file, "%s",
                 wd_test_path(gguf < 0 ? "head128.safetensors" : "head128.gguf"));
        if (gguf < 0)
            wd_test_write_quantised(file, twin, &p, c, &wd_test_quantised_forms[form]);
        else if (gguf < 2)
            wd_test_write_gguf(file, twin, &p, c, gguf ? "pig" : NULL, 4 * gguf);
        else
            wd_test_write_sdcpp(file, twin, &p, c);
        forward(a, file);
        forward(b, twin);
        wd_test_same_files(a, b);
    }
}

/* A file of stable-diffusion.cpp becomes what its twin becomes. */
static void converted_from_merged_shapes(void **state)
{
    (void)state;
    static const char weights[] = "diffusion_pytorch_model.safetensors";
    char file[512], twin[512], path[2][WD_PATH_MAX], name[32];
    wd_err err;
    wd_pipeline p;
    snprintf(file, sizeof file, "%s", wd_test_path("sd.gguf"));
    snprintf(twin, sizeof twin, "%s", wd_test_path("sd-twin.safetensors"));
    wd_test_ok(wd_pipeline_open(&p, WD_SOURCE_DIR "/tests/fixtures/dit-head128", &err), &err);
    wd_test_write_sdcpp(file, twin, &p, WD_COMPONENT_TRANSFORMER);
    wd_program_run(&program, "inspect", file);
    wd_program_succeeded(&program);
    for (int k = 0; k < 2; k++) {
        snprintf(name, sizeof name, "sd-%d", k);
        wd_test_ok(wd_path_join(path[k], wd_test_path(name), weights, &err), &err);
        wd_program_run(&program, "convert", "--model", k ? twin : file, "--to", "diffusers",
                       "--dtype", "float32", "--out", wd_test_path(name));
        wd_program_succeeded(&program);
    }
    wd_test_same_files(path[0], path[1]);
}

static void inspected_and_converted(void **state)
{
    (void)state;
    char file[512], twin[512];
    wd_err err;
    wd_pipeline p;
    snprintf(file, sizeof file, "%s", wd_test_path("inspected.safetensors"));
    snprintf(twin, sizeof twin, "%s", wd_test_path("inspected-twin.safetensors"));
    wd_test_ok(wd_pipeline_open(&p, WD_SOURCE_DIR "/tests/fixtures/dit-head128", &err), &err);
    wd_test_write_quantised(file, twin, &p, WD_COMPONENT_TRANSFORMER, &wd_test_quantised_forms[3]);
    wd_program_run(&program, "inspect", file);
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.out, "F8_E4M3"));
    wd_program_run(&program, "convert", "--model", file, "--to", "diffusers", "--out",
                   wd_test_path("converted"));
    wd_program_succeeded(&program);
    snprintf(file, sizeof file, "%s", wd_test_path("foreign.gguf"));
    wd_test_write_gguf(file, twin, &p, WD_COMPONENT_TRANSFORMER, "qwen_image", 0);
    wd_program_run(&program, "convert", "--model", file, "--to", "diffusers", "--out",
                   wd_test_path("foreign"));
    wd_program_refused(&program, WD_UNSUPPORTED, "general.architecture is \"qwen_image\"");
    wd_program_run(&program, "inspect", file);
    wd_program_refused(&program, WD_UNSUPPORTED, "general.architecture is \"qwen_image\"");
}

/* Draws OUT with options that name two parts of the teacher. */
static void draw(const char *out, const char *option, const char *part, const char *other_option,
                 const char *other)
{
    wd_program_run(&program, "sample", "--model", tiny, option, part, other_option, other,
                   "--prompt", "red apple", "--steps", "2", "--max_sequence_length", "24",
                   "--height", "64", "--width", "64", "--dtype", "float32", "--device", "cpu",
                   "--out", out);
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
    assert_true(wd_test_pixels_equal(a, b));
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
    assert_true(wd_test_pixels_equal(a, b));
    wd_err err;
    wd_pipeline p;
    wd_tokenizer *tokenizer;
    const wd_pipeline_parts parts = {.part = {[WD_COMPONENT_TEXT_ENCODER] = file}};
    wd_test_ok(wd_pipeline_open_parts(&p, NULL, &parts, &err), &err);
    wd_test_ok(wd_pipeline_tokenizer_open(&tokenizer, &p, &err), &err);
    wd_tokenizer_close(tokenizer);
}

/* Of single files the message says what is not given, and blames none. */
static void without_a_tokenizer(void **state)
{
    (void)state;
    char text[512], twin[512];
    snprintf(text, sizeof text, "%s", wd_test_path("without.gguf"));
    snprintf(twin, sizeof twin, "%s", wd_test_path("without.safetensors"));
    wd_test_write_sdcpp(text, twin, &teacher, WD_COMPONENT_TEXT_ENCODER);
    for (int k = 0; k < 2; k++) {
        wd_program_run(&program, "sample", "--transformer", high, "--text_encoder", k ? twin : text,
                       "--vae", WD_SOURCE_DIR "/models/wan-tiny/vae", "--teacher_preset",
                       "wan2.1-1.3b", "--prompt", "red apple", "--device", "cpu", "--out",
                       wd_test_path("none.png"));
        wd_program_refused(&program, WD_NOT_FOUND, "no tokenizer is given");
        assert_non_null(strstr(program.err, "give spiece.model of google/umt5-xxl as --tokenizer"));
    }
    wd_program_run(&program, "sample", "--transformer", high, "--vae",
                   WD_SOURCE_DIR "/models/wan-tiny/vae", "--teacher_preset", "wan2.1-1.3b",
                   "--prompt", "red apple", "--device", "cpu", "--out", wd_test_path("none.png"));
    wd_program_refused(&program, WD_NOT_FOUND, "give it as --t");
}

/* The first expert and the text encoder as GGUF, the second expert as safetensors. */
static void gguf(void **state)
{
    (void)state;
    static const char tokenizer[] = WD_SOURCE_DIR "/models/wan-tiny/tokenizer/spiece.model";
    char file[512], twin[512], text[512], text_twin[512], a[512], b[512];
    snprintf(file, sizeof file, "%s/high_noise.gguf", folder);
    snprintf(twin, sizeof twin, "%s/twin_high_noise.safetensors", folder);
    snprintf(text, sizeof text, "%s", wd_test_path("umt5.gguf"));
    snprintf(text_twin, sizeof text_twin, "%s", wd_test_path("umt5.safetensors"));
    snprintf(a, sizeof a, "%s", wd_test_path("gguf.png"));
    snprintf(b, sizeof b, "%s", wd_test_path("gguf-twin.png"));
    wd_test_write_gguf(file, twin, &teacher, WD_COMPONENT_TRANSFORMER, "wan", 4);
    wd_test_write_sdcpp(text, text_twin, &teacher, WD_COMPONENT_TEXT_ENCODER);
    draw(a, "--text_encoder", text, "--tokenizer", tokenizer);
    assert_null(
        strstr(program.err, "not used")); /* logit_scale, as ComfyUI writes it, is harmless */
    draw(b, "--text_encoder", text_twin, "--tokenizer", tokenizer);
    assert_true(wd_test_pixels_equal(a, b));
    wd_test_write_gguf(text, text_twin, &teacher, WD_COMPONENT_TEXT_ENCODER, "t5encoder", 0);
    wd_test_same_files(train(file, low, "g", "--text_encoder", text),
                       train(twin, low_twin, "gt", "--text_encoder", text_twin));
    draw(a, "--transformer", file, "--text_encoder", text);
    draw(b, "--transformer", twin, "--text_encoder", text_twin);
    assert_true(wd_test_pixels_equal(a, b));
    wd_program_run(&program, "inspect", "--transformer", file);
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.out, "Q4_K"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_students_bits),
        cmocka_unit_test(the_students_bits_of_the_other_forms),
        cmocka_unit_test(forward_of_every_form),
        cmocka_unit_test(converted_from_merged_shapes),
        cmocka_unit_test(inspected_and_converted),
        cmocka_unit_test(the_same_pictures),
        cmocka_unit_test(gguf),
        cmocka_unit_test(gguf_with_its_tokenizer),
        cmocka_unit_test(without_a_tokenizer),
    };
    return cmocka_run_group_tests(tests, make_files, NULL);
}
