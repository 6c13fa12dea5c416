/* What a command will need at its end is missed at its start: parts of a model that a download has
 * not brought, places that cannot be written to; and numbers that no picture can be made of. */
#include "runs.h"

#include <fcntl.h>

#include "api/jobs/tensor_file.h"
#include "teacher_copy.h"

static wd_program program;

static const char pictures[] = "pictures-that-were-refused";

static void run_train(const char *model, const char *out, const char *more, const char *value)
{
    wd_program_run(&program, "train", "--teacher_path", model, "--data_path",
                   wd_test_path("prompts.txt"), "--output_dir", out, "--student_config",
                   wd_test_path("student.json"), "--num_steps", "1", "--height", "32", "--width",
                   "32", more, value);
}

static void run_plan(const char *model)
{
    wd_program_run(&program, "plan", "--teacher_path", model, "--data_path",
                   wd_test_path("prompts.txt"), "--height", "32", "--width", "32");
}

static void run_sample(const char *model, const char *out, const char *more, const char *value)
{
    wd_program_run(&program, "sample", "--model", model, "--prompt", "fox", "--steps", "1", "--out",
                   out, more, value);
}

static void run_eval(const char *model, const char *student, const char *out)
{
    wd_program_run(&program, "eval", "--teacher", model, "--student", student, "--prompts",
                   wd_test_path("prompts.txt"), "--count", "1", "--steps", "1", "--out", out);
}

/* Refused before anything is written, and before there is anything to say of the run. */
static void assert_refused(wd_status status, const char *named)
{
    wd_program_refused(&program, status, named);
    assert_false(wd_path_exists(wd_test_path(pictures)));
    assert_null(strstr(program.err, "student:"));
}

static void refused_by_all(const char *model, wd_status status, const char *named)
{
    const char *out = wd_test_path(pictures);
    run_train(model, out, NULL, NULL);
    assert_refused(status, named);
    run_sample(model, out, NULL, NULL);
    assert_refused(status, named);
    run_eval(model, teacher, out);
    assert_refused(status, named);
}

/* One expert of two would take the whole range of noise. */
static void a_missing_expert_is_named(void **state)
{
    (void)state;
    char model[WD_PATH_MAX];
    wd_test_copy_teacher(model, "no-weights");
    assert_int_equal(unlink(wd_test_in(model, "transformer_2/diffusion_pytorch_model.safetensors")),
                     0);
    refused_by_all(model, WD_NOT_FOUND, "transformer_2");
    run_plan(model);
    assert_refused(WD_NOT_FOUND, "transformer_2");

    assert_int_equal(unlink(wd_test_in(model, "transformer_2/config.json")), 0);
    refused_by_all(model, WD_NOT_FOUND, "has no transformer_2/config.json (model_index.json");
    run_plan(model);
    assert_refused(WD_NOT_FOUND, "has no transformer_2/config.json (model_index.json");

    wd_test_copy_teacher(model, "no-index");
    assert_int_equal(unlink(wd_test_in(model, "model_index.json")), 0);
    refused_by_all(model, WD_NOT_FOUND, "no model_index.json");
    run_plan(model);
    assert_refused(WD_NOT_FOUND, "no model_index.json");
}

/* Of one expert: sampling does not need it, the student's own is made from it. */
static void a_missing_index_is_named_before_training(void **state)
{
    (void)state;
    wd_err err;
    char model[WD_PATH_MAX];
    wd_test_copy_teacher(model, "one-expert");
    assert_int_equal(unlink(wd_test_in(model, "model_index.json")), 0);
    wd_test_ok(wd_folder_remove(wd_test_in(model, "transformer_2"), &err), &err);
    run_train(model, wd_test_path(pictures), NULL, NULL);
    assert_refused(WD_NOT_FOUND, "model_index.json");
    run_sample(model, wd_test_path("one-expert.png"), NULL, NULL);
    wd_program_succeeded(&program);
}

static void weights_that_decoding_needs_are_checked_first(void **state)
{
    (void)state;
    char model[WD_PATH_MAX];
    wd_test_copy_teacher(model, "no-vae");
    const char *vae = wd_test_in(model, "vae/diffusion_pytorch_model.safetensors");
    assert_int_equal(truncate(vae, 1 << 20), 0);
    refused_by_all(model, WD_BAD_FORMAT, "truncated");
    assert_int_equal(unlink(vae), 0);
    refused_by_all(model, WD_NOT_FOUND, "vae");
}

static void places_that_cannot_be_written_are_named_first(void **state)
{
    (void)state;
    const char *nowhere = "/proc/wandistiller";
    const char *out = wd_test_path(pictures);
    run_train(teacher, nowhere, NULL, NULL);
    assert_refused(WD_NOT_FOUND, "--output_dir: /proc/wandistiller: cannot be written");
    run_train(teacher, out, "--cache_dir", nowhere);
    assert_refused(WD_NOT_FOUND, "--cache_dir: /proc/wandistiller: cannot be written");
    wd_program_run(&program, "train", "--teacher_path", teacher, "--data_path",
                   wd_test_path("prompts.txt"), "--output_dir", out, "--save_samples",
                   "--sample_dir", wd_test_path("prompts.txt"));
    assert_refused(WD_IO, "prompts.txt: is a file, expected a folder");
    run_sample(teacher, nowhere, NULL, NULL);
    assert_refused(WD_NOT_FOUND, "--out: /proc/wandistiller: cannot be written");
    run_sample(teacher, out, "--trace", wd_test_path("none/trace.safetensors"));
    assert_refused(WD_NOT_FOUND, "--trace: ");
    run_eval(teacher, teacher, wd_test_path("prompts.txt"));
    assert_refused(WD_IO, "prompts.txt: is a file, expected a folder");
}

/* NaN in the last 4 KiB of a file of weights. */
static void spoil(const char *path)
{
    unsigned char all_ones[4096];
    memset(all_ones, 0xff, sizeof all_ones);
    const int fd = open(path, O_WRONLY);
    assert_true(fd >= 0 && lseek(fd, -(off_t)sizeof all_ones, SEEK_END) > 0);
    assert_int_equal(write(fd, all_ones, sizeof all_ones), sizeof all_ones);
    close(fd);
}

static void what_is_not_finite_is_an_error(void **state)
{
    (void)state;
    static float latents[16 * 8 * 8];
    const int64_t dim[5] = {1, 16, 1, 8, 8};
    const char *given = wd_test_path("latents.safetensors"), *out = wd_test_path("nan.png");
    char model[WD_PATH_MAX];
    wd_err err;
    latents[70] = NAN;
    const wd_tensor_out tensor = wd__tensor_out_of("latents", WD_F32, latents, dim, 5);
    wd_test_ok(wd__tensor_file_write(given, &tensor, 1, &err), &err);
    run_sample(teacher, out, "--latents", given);
    wd_program_refused(&program, WD_NOT_FINITE, "latents of picture 1: expected finite numbers");
    assert_non_null(strstr(program.err, "at value 70"));

    wd_test_copy_teacher(model, "nan-transformer");
    spoil(wd_test_in(model, "transformer/diffusion_pytorch_model.safetensors"));
    run_sample(model, out, NULL, NULL);
    wd_program_refused(&program, WD_NOT_FINITE, "nan-transformer: latents of picture 1");
    run_eval(teacher, model, wd_test_path("nan-eval"));
    wd_program_refused(&program, WD_NOT_FINITE, "nan-transformer: latents of picture 1");

    wd_test_copy_teacher(model, "nan-vae");
    spoil(wd_test_in(model, "vae/diffusion_pytorch_model.safetensors"));
    run_sample(model, out, NULL, NULL);
    wd_program_refused(&program, WD_NOT_FINITE, "nan-vae: pixels of picture 1");
    assert_false(wd_path_exists(out));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_expert_is_named),
        cmocka_unit_test(a_missing_index_is_named_before_training),
        cmocka_unit_test(weights_that_decoding_needs_are_checked_first),
        cmocka_unit_test(places_that_cannot_be_written_are_named_first),
        cmocka_unit_test(what_is_not_finite_is_an_error),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
