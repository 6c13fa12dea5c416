/* What the program must come to, worked out beforehand: figures of `eval`, how runs end, and the
 * commands that README.md shows first. */
#include "runs.h"

#include "io/json/json.h"
#include "io/picture/png.h"
#include "model/files/pipeline.h"

static wd_program program;

/* ---- eval ---- */

/* The pipeline in the test folder, made by a training run of one step: one expert. */
static const char *whole(void)
{
    const char *folder = wd_test_path("whole");
    if (wd_path_exists(folder)) return folder;
    wd_program_run(&program, "train", "--teacher_path", teacher, "--data_path",
                   wd_test_path("prompts.txt"), "--student_config", wd_test_path("student.json"),
                   "--output_dir", folder, "--num_steps", "1", "--trajectories", "2",
                   "--trajectory_steps", "2", "--height", "32", "--width", "32");
    wd_program_succeeded(&program);
    return folder;
}

/* Multiplies the F32 tensor `name` of a safetensors file. */
static void scale_tensor(const char *path, const char *name, float factor)
{
    wd_err err;
    wd_safetensors *set;
    char *bytes;
    size_t count;
    wd_test_ok(wd_safetensors_open(&set, path, &err), &err);
    wd_test_ok(wd_file_read(&bytes, &count, path, 1 << 26, &err), &err);
    const wd_safetensors_entry *entry = wd_safetensors_find(set, name);
    assert_non_null(entry);
    assert_int_equal(entry->tensor.dtype, WD_F32);
    const size_t tensor_bytes = wd_tensor_bytes(&entry->tensor);
    char *at = memmem(bytes, count, entry->tensor.data, tensor_bytes);
    assert_non_null(at);
    for (size_t i = 0; i < tensor_bytes; i += sizeof(float)) {
        float value;
        memcpy(&value, at + i, sizeof value);
        value *= factor;
        memcpy(at + i, &value, sizeof value);
    }
    wd_safetensors_close(set);
    wd_test_ok(wd_file_write(path, bytes, count, &err), &err);
    wd_free(bytes);
}

/* A copy of whole() in the folder `name` whose velocities are `factor` times as large: those of the
 * last layer, which is linear. */
static const char *scaled(const char *name, float factor)
{
    const char *folder = wd_test_path(name), *from = whole();
    char path[WD_PATH_MAX];
    wd_program_wait(&program,
                    wd_program_start_as("cp", (const char *const[]){"-r", from, folder, NULL}));
    wd_program_succeeded(&program);
    snprintf(path, sizeof path, "%s/transformer/diffusion_pytorch_model.safetensors", folder);
    scale_tensor(path, "proj_out.weight", factor);
    scale_tensor(path, "proj_out.bias", factor);
    return folder;
}

static double number(const json_t *report, const char *key)
{
    const json_t *value = json_object_get(report, key);
    if (!json_is_number(value)) fail_msg("the report has no number \"%s\"", key);
    return json_number_value(value);
}

/* Of two pictures: 10 log10(1 / mean square) and the correlation, values in [0, 1]. */
static void compare_pictures(double *psnr_db, double *correlation, const char *a, const char *b)
{
    wd_err err;
    wd_image x, y;
    wd_test_ok(wd_png_read(&x, a, &err), &err);
    wd_test_ok(wd_png_read(&y, b, &err), &err);
    const int64_t count = 3 * x.height * x.width;
    assert_int_equal(count, 3 * y.height * y.width);
    double square = 0, mean_x = 0, mean_y = 0, xx = 0, yy = 0, xy = 0;
    for (int64_t i = 0; i < count; i++) {
        mean_x += x.rgb[i] / 255.0 / (double)count;
        mean_y += y.rgb[i] / 255.0 / (double)count;
    }
    for (int64_t i = 0; i < count; i++) {
        const double u = x.rgb[i] / 255.0, v = y.rgb[i] / 255.0;
        square += (u - v) * (u - v) / (double)count;
        xx += (u - mean_x) * (u - mean_x);
        yy += (v - mean_y) * (v - mean_y);
        xy += (u - mean_x) * (v - mean_y);
    }
    *psnr_db = 10 * log10(1 / square);
    *correlation = xy / sqrt(xx * yy);
    wd_image_close(&x);
    wd_image_close(&y);
}

/* The picture that `sample` draws of the first prompt as `eval` does. */
static const char *draw(const char *model, const char *name)
{
    const char *path = wd_test_path(name);
    wd_program_run(&program, "sample", "--model", model, "--prompt", "red apple, blue background",
                   "--steps", "3", "--guidance_scale", "1", "--height", "32", "--width", "32",
                   "--seed", "5", "--out", path);
    wd_program_succeeded(&program);
    return path;
}

/* A student whose velocity is half the teacher's is half a velocity away at every step; pictures
 * are those that `sample` draws, and PNG keeps them to half of 1 / 255. */
static void eval_of_half_a_velocity(void **state)
{
    (void)state;
    double psnr_db, correlation;
    json_t *report, *level;
    size_t i;
    wd_err err;
    const char *full = whole(), *half = scaled("half", 0.5f);
    wd_program_run(&program, "eval", "--teacher", full, "--student", half, "--prompts",
                   wd_test_path("prompts.txt"), "--count", "1", "--steps", "3", "--guidance_scale",
                   "1", "--height", "32", "--width", "32", "--seed", "5", "--json");
    wd_program_succeeded(&program);
    wd_test_ok(wd_json_parse(&report, program.out, strlen(program.out), "report", &err), &err);
    assert_true(fabs(number(report, "velocity_error") - 0.5) < 1e-6);
    const json_t *levels = json_object_get(report, "levels");
    assert_int_equal(json_array_size(levels), 3);
    json_array_foreach(levels, i, level)
        assert_true(fabs(number(level, "velocity_error") - 0.5) < 1e-6);
    compare_pictures(&psnr_db, &correlation, draw(full, "full.png"), draw(half, "half.png"));
    assert_true(fabs(number(report, "psnr_db") - psnr_db) < 0.1);
    assert_true(fabs(number(report, "correlation") - correlation) < 1e-3);
    json_decref(report);
}

/* ---- how runs end ---- */

/* Velocities of 1e22 are finite, their squares are not. */
static void a_run_that_diverges_says_so(void **state)
{
    (void)state;
    wd_program_run(&program, "train", "--teacher_path", scaled("huge", 1e22f), "--data_path",
                   wd_test_path("prompts.txt"), "--student_config", wd_test_path("student.json"),
                   "--output_dir", wd_test_path("diverged"), "--num_steps", "60", "--trajectories",
                   "2", "--trajectory_steps", "2", "--height", "32", "--width", "32",
                   "--guidance_scale", "1");
    wd_program_refused(&program, WD_NOT_FINITE, "not finite");
}

/* Waits until the program's errors have `text`. */
static void wait_for_text(const char *text)
{
    static char seen[1 << 16];
    for (int i = 0; i < 60000; i++) {
        wd_program_read_(seen, sizeof seen, wd_test_path("stderr"));
        if (strstr(seen, text)) return;
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
    }
    fail_msg("a minute has passed without \"%s\": %s", text, seen);
}

/* The first Ctrl-C waits for the step that has begun, which takes a second; the second one comes
 * milliseconds later and waits for nothing. */
static void a_second_interrupt_ends_at_once(void **state)
{
    (void)state;
    const char *arguments[] = {"train",
                               "--teacher_path",
                               teacher,
                               "--data_path",
                               wd_test_path("prompts.txt"),
                               "--output_dir",
                               wd_test_path("interrupted"),
                               "--height",
                               "256",
                               "--width",
                               "256",
                               "--batch_size",
                               "8",
                               "--trajectories",
                               "2",
                               "--num_steps",
                               "1000000",
                               NULL};
    const pid_t pid = wd_program_start(arguments);
    wait_for_steps(wd_test_path("interrupted/metrics.jsonl"));
    assert_int_equal(kill(pid, SIGINT), 0);
    wait_for_text("stopping; Ctrl-C ends at once");
    assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
    assert_int_equal(kill(pid, SIGINT), 0);
    wd_program_wait(&program, pid);
    assert_int_equal(program.code, 128 + SIGINT);
}

/* ---- the first commands of README.md ---- */

/* The case's line ends in "<milliseconds> ms <rate> GFLOP/s <share> % of peak", which agree. */
static void bench_prints_figures(void **state)
{
    (void)state;
    double side, ms, rate, share;
    wd_program_run(&program, "bench", "--only", "peak", "--num_threads", "1");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.out, "1 thread)\n"));
    const char *line = strstr(program.out, "matrix product ");
    assert_non_null(line);
    assert_int_equal(sscanf(line,
                            "matrix product %lfx%*[0-9x] F32 %lf ms %lf GFLOP/s %lf %% of peak",
                            &side, &ms, &rate, &share),
                     4);
    assert_true(share == 100 && ms > 0);
    assert_true(fabs(rate * ms / 1e3 / (2e-9 * side * side * side) - 1) < 0.01);
    wd_program_run(&program, "bench", "--only", "no such case");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "no case has \"no such case\"");
}

/* tools/demo.sh in a folder of its own, shortened to two steps. */
static void the_demo_ends_in_a_sheet(void **state)
{
    (void)state;
    wd_err err;
    wd_image sheet;
    char back[WD_PATH_MAX];
    const char *folder = wd_test_path("demo");
    wd_test_ok(wd_folder_make(folder, &err), &err);
    assert_int_equal(symlink(WD_SOURCE_DIR "/models", wd_test_path("demo/models")), 0);
    assert_int_equal(symlink(WD_SOURCE_DIR "/tools", wd_test_path("demo/tools")), 0);
    assert_non_null(getcwd(back, sizeof back));
    assert_int_equal(chdir(folder), 0);
    wd_program_wait(&program,
                    wd_program_start_as("sh", (const char *const[]){"tools/demo.sh", WD_PROGRAM,
                                                                    "--num_steps", "2", NULL}));
    assert_int_equal(chdir(back), 0);
    wd_program_succeeded(&program);
    const char *const lines[] = {"contact sheet: build/demo/side-by-side.png\n",
                                 "seconds per picture, teacher: 0.",
                                 "seconds per picture, student: 0."};
    const char *at = program.out;
    for (int i = 0; i < 3; i++) {
        at = strstr(at, lines[i]);
        if (!at) fail_msg("no \"%s\", or not in its place, in %s", lines[i], program.out);
    }
    wd_test_ok(wd_png_read(&sheet, wd_test_path("demo/build/demo/side-by-side.png"), &err), &err);
    assert_true(sheet.width > 8 * 64 && sheet.height > 4 * 128);
    wd_image_close(&sheet);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eval_of_half_a_velocity),
        cmocka_unit_test(a_run_that_diverges_says_so),
        cmocka_unit_test(a_second_interrupt_ends_at_once),
        cmocka_unit_test(bench_prints_figures),
        cmocka_unit_test(the_demo_ends_in_a_sheet),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
