/* Runs of a teacher that is not finite: they end with the exit code of that and name what is not,
 * and so does the page about them. */
#include "runs.h"

#include "teacher_copy.h"

static wd_program program;

#define RUN(out)                                                                                   \
    "train", "--data_path", wd_test_path("prompts.txt"), "--student_config",                       \
        wd_test_path("student.json"), "--output_dir", out, "--cache_dir", wd_test_path("cache"),   \
        "--height", "32", "--width", "32", "--batch_size", "2", "--trajectories", "4",             \
        "--trajectory_steps", "4", "--num_steps", "8", "--seed", "3", "--log_level", "warning",    \
        "--checkpoint_interval", "1"

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

/* A copy of the teacher, one of whose parts has NaN among its weights. */
static const char *teacher_with_nan(const char *part)
{
    static char model[WD_PATH_MAX];
    char file[128];
    snprintf(file, sizeof file, "%s/diffusion_pytorch_model.safetensors", part);
    wd_test_copy_teacher(model, part);
    spoil(wd_test_in(model, file));
    return model;
}

/* The page about a run from its figures on: what was written when, which is before them, differs.
 */
static char *read_page(const char *run)
{
    char path[WD_PATH_MAX], *text;
    size_t bytes;
    wd_err err;
    wd_test_ok(wd_path_join(path, run, "report.html", &err), &err);
    wd_test_ok(wd_file_read(&text, &bytes, path, 32 << 20, &err), &err);
    const char *figures = strstr(text, "</header>");
    assert_non_null(figures);
    memmove(text, figures, strlen(figures) + 1);
    return text;
}

/* The page has the error as the run has left it, and as it is made later. */
static void assert_page_says(const char *run, const char *error)
{
    char *left = read_page(run);
    if (!strstr(left, error)) fail_msg("the page has no \"%s\"", error);
    assert_non_null(strstr(left, "<dt>State</dt><dd>failed</dd>"));
    wd_program_run(&program, "report", run);
    wd_program_succeeded(&program);
    char *later = read_page(run);
    assert_string_equal(left, later);
    wd_free(left);
    wd_free(later);
}

/* The student starts from the expert of low noise, and the first targets are of the other. */
static void a_teacher_that_is_not_finite_is_named(void **state)
{
    (void)state;
    const char *out = wd_test_path("of-nan");
    wd_program_run(&program, RUN(out), "--teacher_path", teacher_with_nan("transformer_2"));
    wd_program_refused(&program, WD_NOT_FINITE,
                       "transformer_2: its weights, which the student starts from, are not finite");
    const char *high_noise = teacher_with_nan("transformer");
    wd_program_run(&program, RUN(out), "--teacher_path", high_noise);
    wd_program_refused(&program, WD_NOT_FINITE, "the teacher's velocities are not finite");
    assert_page_says(out, "of-nan: the teacher&#39;s velocities are not finite");
    assert_page_says(out, "<dt>Steps dropped</dt><dd>1</dd>");
    wd_program_run(&program, RUN(out), "--student_steps", "2", "--teacher_path", high_noise);
    wd_program_refused(&program, WD_NOT_FINITE, "or the student diverged");
    assert_false(wd_path_exists(wd_test_path("of-nan/model_index.json")));
    assert_false(wd_path_exists(wd_test_path("of-nan/checkpoints")));
}

/* A VAE is used for sheets alone: the student is trained and saved, and no black sheet is. The page
 * says so, until the run goes on without sheets and ends well. */
static void a_vae_that_is_not_finite_is_named(void **state)
{
    (void)state;
    const char *out = wd_test_path("of-nan-vae"), *spoilt = teacher_with_nan("vae");
    wd_program_run(&program, RUN(out), "--save_samples", "true", "--sample_interval", "4",
                   "--sample_steps", "1", "--teacher_path", spoilt);
    wd_program_refused(&program, WD_NOT_FINITE, "vae: pixels of picture 1: expected finite");
    assert_non_null(strstr(program.err, "training goes on without this sheet of samples"));
    assert_true(wd_path_exists(wd_test_path("of-nan-vae/model_index.json")));
    assert_true(wd_path_exists(wd_test_path("of-nan-vae/checkpoints/step-00000008")));
    assert_false(wd_path_exists(wd_test_path("of-nan-vae/samples/step-00000004.png")));
    assert_false(wd_path_exists(wd_test_path("of-nan-vae/samples/step-00000008.png")));
    assert_page_says(out, "vae: pixels of picture 1: expected finite");
    wd_program_run(&program, "train", "--resume", out, "--num_steps", "9", "--save_samples",
                   "false");
    wd_program_succeeded(&program);
    char *page = read_page(out);
    assert_non_null(strstr(page, "<dt>State</dt><dd>done</dd>"));
    assert_null(strstr(page, "pixels of picture"));
    wd_free(page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_teacher_that_is_not_finite_is_named),
        cmocka_unit_test(a_vae_that_is_not_finite_is_named),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
