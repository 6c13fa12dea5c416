/* `wandistiller eval` and `inspect`, as a user runs them. */
#include "program.h"

#include <jansson.h>

#include "io/picture/png.h"

static const char teacher[] = WD_SOURCE_DIR "/models/wan-tiny";
static const char prompts[] = WD_SOURCE_DIR "/models/wan-tiny/prompts-held-out.txt";

static wd_program program;

static double number(const char *key)
{
    json_t *json = json_loads(program.out, 0, NULL);
    assert_non_null(json);
    const json_t *found = json_object_get(json, key);
    if (!json_is_number(found)) fail_msg("the report has no number \"%s\"", key);
    const double value = json_number_value(found);
    json_decref(json);
    return value;
}

/* Reads the shares of details, which are three numbers. */
static void read_shares(double share[3], const char *key)
{
    json_t *json = json_loads(program.out, 0, NULL);
    assert_non_null(json);
    assert_int_equal(json_unpack(json, "{s:[f,f,f!]}", key, &share[0], &share[1], &share[2]), 0);
    json_decref(json);
}

static void evaluate(const char *guidance, const char *extra)
{
    wd_program_run(&program, "eval", "--teacher", teacher, "--student", teacher, "--prompts",
                   prompts, "--count", "2", "--steps", "3", "--guidance_scale", guidance, "--out",
                   wd_test_path("eval"), extra);
    wd_program_succeeded(&program);
}

static void a_teacher_is_its_own_best_student(void **state)
{
    (void)state;
    evaluate("1", "--json");
    assert_true(number("velocity_error") == 0 && number("latents_error") == 0);
    assert_true(fabs(number("correlation") - 1) < 1e-6);
    double share[3];
    read_shares(share, "sharpness");
    for (int k = 0; k < 3; k++) assert_true(share[k] == 1);
    read_shares(share, "reference_sharpness"); /* of as many steps as the card recommends */
    for (int k = 0; k < 3; k++) assert_true(share[k] > 0.1 && share[k] < 10 && share[k] != 1);
    evaluate("1", NULL);
    assert_non_null(strstr(program.out, "sharpness, in details of 2, 4 and 8 pixels: "));
}

static void guidance_is_a_difference(void **state)
{
    (void)state;
    wd_err err;
    wd_image image;
    evaluate("3", "--json");
    assert_true(number("velocity_error") > 0.05 && number("velocity_error") < 5);
    assert_true(number("psnr_db") > 0 && number("psnr_db") < 60);
    wd_test_ok(wd_png_read(&image, wd_test_path("eval/side-by-side.png"), &err), &err);
    assert_true(image.width > 2 * 64 && image.height > 2 * 64);
    wd_image_close(&image);
    assert_true(wd_path_exists(wd_test_path("eval/eval.json")));
    evaluate("3", NULL);
    assert_non_null(strstr(program.out, "weights: teacher 2 x 2.77 M"));
    assert_non_null(strstr(program.out, "seconds per picture: teacher "));
    /* the teacher is drawn in its own steps, whatever the student's are */
    assert_non_null(strstr(program.out, "teacher: 20 steps, guidance 3"));
    assert_non_null(strstr(program.out, "agreement with the teacher: pictures correlate "));
    assert_non_null(strstr(program.out, " with its own in 20 steps\n"));
}

/* What quantising costs: velocities are near the teacher's, of int8 nearer than of fp8. */
static void quantisation(void **state)
{
    (void)state;
    double error[2];
    for (int d = 0; d < 2; d++) {
        wd_program_run(&program, "eval", "--teacher", teacher, "--quantisation",
                       d ? "int8" : "float8_e4m3fn", "--prompts", prompts, "--count", "2",
                       "--steps", "3", "--guidance_scale", "3", "--json");
        wd_program_succeeded(&program);
        error[d] = number("velocity_error");
        assert_non_null(strstr(program.out, "\"quantisation\": "));
    }
    assert_true(error[1] > 0 && error[1] < error[0] && error[0] < 0.2);
    wd_program_run(&program, "eval", "--teacher", teacher, "--prompts", prompts);
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "--student PATH");
    wd_program_run(&program, "eval", "--teacher", teacher, "--student", teacher, "--quantisation",
                   "int8", "--prompts", prompts);
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "found both");
    static const char *const experts[] = {"transformer", "transformer_2"};
    char file[2][256];
    for (int e = 0; e < 2; e++) {
        snprintf(file[e], sizeof file[e], "%s.gguf", wd_test_path(experts[e]));
        wd_program_run(&program, "convert", "--model", teacher, "--component", experts[e], "--to",
                       "gguf", "--dtype", "q8_0", "--out", file[e]);
        wd_program_succeeded(&program);
    }
    wd_program_run(&program, "eval", "--teacher", teacher, "--transformer", file[0],
                   "--transformer_2", file[1], "--quantisation", "int8", "--prompts", prompts);
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "are quantised in its files already");
}

/* The teacher as its own student, without guidance: its pictures are as diverse as its own, and in
 * 3 steps they differ from those in 5. Three seeds see other noise than one. */
static void several_seeds_are_summed_up(void **state)
{
    (void)state;
    const char *const arguments[] = {"eval",
                                     "--teacher",
                                     teacher,
                                     "--student",
                                     teacher,
                                     "--prompts",
                                     prompts,
                                     "--count",
                                     "2",
                                     "--steps",
                                     "3",
                                     "--seed",
                                     "7",
                                     "--seeds",
                                     "3",
                                     "--json",
                                     "--guidance_scale",
                                     "1",
                                     "--reference_steps",
                                     "5",
                                     NULL};
    wd_program_wait(&program, wd_program_start(arguments));
    wd_program_succeeded(&program);
    json_t *json = json_loads(program.out, 0, NULL);
    double diversity[2] = {0};
    assert_non_null(json);
    assert_int_equal(json_unpack(json, "{s:{s:f}, s:{s:f}}", "teacher", "diversity", &diversity[0],
                                 "student", "diversity", &diversity[1]),
                     0);
    json_decref(json);
    assert_true(diversity[0] > 0.01 && diversity[0] < 1 && diversity[0] == diversity[1]);
    assert_int_equal(number("seeds"), 3);
    assert_true(number("velocity_error") == 0 && number("velocity_error_se") == 0);
    assert_true(number("reference_psnr_db") > 5 && number("reference_psnr_db") < 60);
    assert_true(number("reference_psnr_db_se") > 0);
    assert_true(number("reference_diversity") > 0.01 &&
                number("reference_diversity") != diversity[0]);
}

/* Of the student that `a_student_is_compared_as_it_learnt` trains; text and tokens: NULL for none
 * given. */
static double agreement(const char *negative, const char *tokens)
{
    const char *arguments[24] = {"eval",  "--teacher", teacher, "--student", NULL, "--prompts",
                                 prompts, "--count",   "2",     "--steps",   "2",  "--json"};
    int n = 12;
    arguments[4] = wd_test_path("student");
    if (negative) arguments[n++] = "--negative_prompt", arguments[n++] = negative;
    if (tokens) arguments[n++] = "--max_sequence_length", arguments[n++] = tokens;
    wd_program_wait(&program, wd_program_start(arguments));
    wd_program_succeeded(&program);
    return number("velocity_error");
}

/* Its teacher was led away from this text, and saw so many tokens. */
static void a_student_is_compared_as_it_learnt(void **state)
{
    (void)state;
    wd_program_run(&program, "train", "--teacher_path", teacher, "--data_path", prompts,
                   "--output_dir", wd_test_path("student"), "--num_steps", "1", "--trajectories",
                   "2", "--guidance_scale", "3", "--negative_prompt", "a green frog",
                   "--max_sequence_length", "12");
    wd_program_succeeded(&program);
    const double learnt = agreement(NULL, NULL);
    assert_true(learnt == agreement("a green frog", "12"));
    assert_true(learnt != agreement("a red apple", NULL));
    assert_true(learnt != agreement(NULL, "24"));
}

static void strangers_are_refused(void **state)
{
    (void)state;
    wd_program_run(&program, "eval", "--teacher", teacher, "--student",
                   WD_SOURCE_DIR "/tests/fixtures/dit-image", "--prompts", prompts);
    wd_program_refused(&program, WD_NOT_FOUND, "dit-image");
    wd_program_run(&program, "eval", "--teacher", teacher, "--student", teacher, "--prompts",
                   "no-prompts.txt");
    wd_program_refused(&program, WD_NOT_FOUND, "no-prompts.txt");
}

static void inspect_prints_text_and_json(void **state)
{
    (void)state;
    wd_program_run(&program, "inspect", teacher);
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.out, "8,342,883 parameters"));
    wd_program_run(&program, "inspect", "--json", teacher);
    wd_program_succeeded(&program);
    assert_int_equal(number("parameters"), 8342883);
}

static void converted_weights_come_back(void **state)
{
    (void)state;
    const char *file = wd_test_path("comfyui.safetensors"), *folder = wd_test_path("back");
    wd_err err;
    wd_safetensors *before, *after;
    wd_program_run(&program, "convert", "--model", teacher, "--to", "comfyui", "--out", file);
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err,
                           "not for ComfyUI, which takes every Wan model to have heads "
                           "of size 128; this one has 32"));
    assert_non_null(strstr(program.err, "text of width 4096; this one has 96"));
    wd_program_run(&program, "convert", "--model", teacher, "--to", "diffusers", "--out", folder);
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "expected a safetensors file");
    wd_program_run(&program, "convert", "--model", file, "--to", "diffusers", "--out", folder);
    wd_program_succeeded(&program);
    wd_test_ok(wd_safetensors_open_stem(&before, WD_SOURCE_DIR "/models/wan-tiny/transformer",
                                        "diffusion_pytorch_model", &err),
               &err);
    wd_test_ok(wd_safetensors_open_stem(&after, folder, "diffusion_pytorch_model", &err), &err);
    assert_int_equal(wd_safetensors_count(before), wd_safetensors_count(after));
    for (int64_t i = 0; i < wd_safetensors_count(before); i++) {
        const wd_safetensors_entry *a = wd_safetensors_at(before, i);
        const wd_safetensors_entry *b = wd_safetensors_at(after, i);
        assert_string_equal(a->name, b->name);
        assert_memory_equal(a->tensor.data, b->tensor.data, wd_tensor_bytes(&a->tensor));
    }
    wd_safetensors_close(before);
    wd_safetensors_close(after);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_teacher_is_its_own_best_student),
        cmocka_unit_test(guidance_is_a_difference),
        cmocka_unit_test(quantisation),
        cmocka_unit_test(several_seeds_are_summed_up),
        cmocka_unit_test(a_student_is_compared_as_it_learnt),
        cmocka_unit_test(strangers_are_refused),
        cmocka_unit_test(inspect_prints_text_and_json),
        cmocka_unit_test(converted_weights_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
