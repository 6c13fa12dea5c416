/* What teacher and student compute in: the defaults follow the devices, plans know the rate of each
 * dtype, and float16 is bf16. */
#include "runs.h"

#include "io/json/json.h"

static wd_program program;

/* ---- plans ---- */

/* Of the 1.3B on an A100, all of whose time goes into products. */
#define PLAN(...)                                                                                  \
    wd_program_run(&program, "plan", "--teacher_preset", "wan2.1-1.3b", "--devices",               \
                   "sim:a100@cpu=2TFLOP/s", "--teacher_device_strategy", "gpu", "--host_memory",   \
                   "256GiB", "--json", __VA_ARGS__)

static json_t *parsed_plan(void)
{
    json_t *plan;
    wd_err err;
    wd_program_succeeded(&program);
    wd_test_ok(wd_json_parse(&plan, program.out, strlen(program.out), "plan", &err), &err);
    return plan;
}

static double seconds_of(const char *strategy)
{
    json_t *plan = parsed_plan();
    const json_t *row;
    double seconds = 0;
    size_t i;
    json_array_foreach(json_object_get(plan, "strategies"), i, row)
    {
        if (strcmp(json_string_value(json_object_get(row, "strategy")), strategy)) continue;
        seconds = json_number_value(json_object_get(row, "seconds_per_step"));
    }
    json_decref(plan);
    assert_true(seconds > 0);
    return seconds;
}

/* The data sheet has 312 TFLOP/s in bf16 and 19.5 in fp32: 16 times. */
static void plans_know_the_rate_of_a_dtype(void **state)
{
    (void)state;
    PLAN("--teacher_dtype", "bfloat16", "--mixed_precision", "bf16");
    const double narrow = seconds_of("gpu");
    PLAN("--teacher_dtype", "float32", "--mixed_precision", "no");
    const double wide = seconds_of("gpu");
    PLAN("--teacher_dtype", "fp16", "--mixed_precision", "fp16");
    assert_true(seconds_of("gpu") == narrow);
    assert_non_null(strstr(program.err, "--teacher_dtype float16: the teacher's weights are "));
    PLAN("--teacher_dtype", "bf16", "--mixed_precision", "no");
    const double wide_student = seconds_of("gpu");
    PLAN("--teacher_dtype", "fp32", "--mixed_precision", "bfloat16");
    const double wide_teacher = seconds_of("gpu");
    if (!(fabs(wide / narrow - 16) < 0.01)) fail_msg("%g s and %g s", wide, narrow);
    assert_true(fabs((wide_student + wide_teacher) / (wide + narrow) - 1) < 0.01);
    PLAN("--measure_rates");
    assert_true(seconds_of("gpu") == narrow); /* the defaults */
}

static void plans_show_both_rates(void **state)
{
    (void)state;
    PLAN("--teacher_dtype", "float32", "--mixed_precision", "bf16");
    json_t *plan = parsed_plan();
    const json_t *rates =
        json_object_get(json_array_get(json_object_get(plan, "devices"), 0), "flops_per_s");
    assert_float_equal(json_number_value(json_object_get(rates, "bf16")), 156e12, 1e6);
    assert_float_equal(json_number_value(json_object_get(rates, "fp32")), 9.75e12, 1e6);
    json_decref(plan);
    wd_program_run(&program, "plan", "--teacher_preset", "wan2.1-1.3b", "--devices",
                   "sim:2x80GiB@link=25GB/s,compute=100TFLOP/s,fp32=7TFLOP/s,cpu=2TFLOP/s",
                   "--teacher_dtype", "float32", "--host_memory", "256GiB");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.out, "each (7 TFLOP/s in fp32, 100 in bf16, link 25 GB/s)"));
}

/* Whether the rate of products in a dtype was measured. */
static bool was_measured(const char *products)
{
    wd_err err;
    json_t *cache, *rate;
    const char *key;
    bool found = false;
    wd_test_ok(wd_json_load(&cache, wd_test_path("rates/wandistiller/rates.json"), &err), &err);
    json_object_foreach(json_object_get(cache, "rates"), key, rate)
    {
        found |= !strncmp(key, products, strlen(products));
    }
    json_decref(cache);
    return found;
}

/* One measurement for each dtype that a run computes in; the VAE of sheets is in fp32. */
static void used_rates_are_measured(void **state)
{
    (void)state;
    static const struct {
        const char *teacher, *student, *sheets;
        bool bf16, fp32;
    } cases[] = {{"float32", "no", "false", false, true},
                 {"bfloat16", "bf16", "false", true, false},
                 {"bfloat16", "no", "false", true, true},
                 {"float32", "bf16", "false", true, true},
                 {"bfloat16", "bf16", "true", true, true}};
    wd_err err;
    setenv("XDG_CACHE_HOME", wd_test_path("rates"), 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wd_program_run(&program, "plan", "--teacher_path", teacher, "--data_path",
                       wd_test_path("prompts.txt"), "--height", "32", "--width", "32",
                       "--num_steps", "8", "--devices", "cpu", "--teacher_dtype", cases[i].teacher,
                       "--mixed_precision", cases[i].student, "--save_samples", cases[i].sheets);
        wd_program_succeeded(&program);
        assert_int_equal(was_measured("bf16 products"), cases[i].bf16);
        assert_int_equal(was_measured("fp32 products"), cases[i].fp32);
        wd_test_ok(wd_folder_remove(wd_test_path("rates"), &err), &err);
    }
    unsetenv("XDG_CACHE_HOME");
}

/* What is advised takes the time that a plan of it says. */
static void advice_knows_the_rate_of_a_dtype(void **state)
{
    (void)state;
    static const char *const begin[] = {"plan",
                                        "--teacher_preset",
                                        "wan2.1-14b",
                                        "--devices",
                                        "sim:rtx3090@cpu=2TFLOP/s,memory=18GiB",
                                        "--optimizer_device",
                                        "host",
                                        "--host_memory",
                                        "64GiB",
                                        "--batch_size",
                                        "6",
                                        "--height",
                                        "512",
                                        "--width",
                                        "512",
                                        IN_FP32};
    const char *words[64];
    char said[64], *add, *end;
    int n = sizeof begin / sizeof *begin;
    memcpy(words, begin, sizeof begin);
    words[n] = NULL;
    wd_program_run_(&program, words);
    add = strstr(program.err, "Add --teacher_dtype bfloat16");
    end = add ? strstr(add, ": the run then takes ") : NULL;
    if (!end) fail_msg("%s\n%s", program.out, program.err);
    double seconds = strtod(end + strlen(": the run then takes "), NULL);
    *end = 0;
    for (char *word = strtok(add + strlen("Add "), " "); word; word = strtok(NULL, " "))
        words[n++] = strdup(word);
    const int added = n;
    words[n++] = "--json";
    words[n] = NULL;
    wd_program_run_(&program, words);
    json_t *plan = parsed_plan();
    const char *best = json_string_value(json_object_get(plan, "recommended"));
    snprintf(said, sizeof said, "%.3g", seconds_of(best));
    assert_float_equal(strtod(said, NULL), seconds, 1e-9 * seconds);
    json_decref(plan);
    for (int i = sizeof begin / sizeof *begin; i < added; i++) free((void *)(uintptr_t)words[i]);
}

/* bf16 on GPUs, fp32 where the processor is alone, however much memory there is. */
static void defaults_follow_the_devices(void **state)
{
    (void)state;
    static const char *const memory[] = {"64GiB", "2048GiB"};
    for (int i = 0; i < 2; i++) {
        wd_program_run(&program, "plan", "--teacher_preset", "wan2.2-a14b", "--devices",
                       "sim:4xrtx3090@cpu=2TFLOP/s", "--host_memory", memory[i]);
        wd_program_succeeded(&program);
        assert_non_null(strstr(program.out, "wan2.2-a14b, bfloat16: "));
        assert_non_null(strstr(program.out, " billion weights, bf16, batch "));
        wd_program_run(&program, "plan", "--teacher_preset", "wan2.2-a14b", "--devices",
                       "cpu@compute=2TFLOP/s", "--host_memory", memory[i]);
        assert_non_null(strstr(program.out, "wan2.2-a14b, float32: "));
        assert_non_null(strstr(program.out, " billion weights, fp32, batch "));
    }
}

/* ---- runs ---- */

/* A short run, with default dtypes unless they follow. */
#define RUN(out)                                                                                   \
    "train", "--teacher_path", teacher, "--data_path", wd_test_path("prompts.txt"),                \
        "--student_config", wd_test_path("student.json"), "--output_dir", wd_test_path(out),       \
        "--cache_dir", wd_test_path("cache"), "--height", "32", "--width", "32", "--batch_size",   \
        "2", "--trajectories", "4", "--trajectory_steps", "4", "--num_steps", "2", "--seed", "3",  \
        "--save_samples", "false"

#define GPU "sim:1GiB@link=20GB/s,compute=1TFLOP/s"

static void expect_resolved(const char *run, const char *teacher_dtype, const char *student)
{
    char path[WD_PATH_MAX];
    wd_err err;
    json_t *json;
    wd_test_ok(wd_path_join(path, wd_test_path(run), "run.json", &err), &err);
    wd_test_ok(wd_json_load(&json, path, &err), &err);
    const json_t *resolved = json_object_get(json, "resolved");
    const json_t *options = json_object_get(json, "options");
    assert_string_equal(json_string_value(json_object_get(resolved, "teacher_dtype")),
                        teacher_dtype);
    assert_string_equal(json_string_value(json_object_get(resolved, "mixed_precision")), student);
    assert_null(json_object_get(options, "mixed_precision")); /* it was left open */
    json_decref(json);
}

static void runs_have_the_defaults(void **state)
{
    (void)state;
    wd_program_run(&program, RUN("gpu"), "--devices", GPU);
    wd_program_succeeded(&program);
    expect_resolved("gpu", "bfloat16", "bf16");
    wd_program_run(&program, RUN("cpu"), "--devices", "cpu");
    wd_program_succeeded(&program);
    expect_resolved("cpu", "float32", "no");
    wd_program_run(&program, RUN("named"), "--devices", "cpu", "--teacher_dtype", "bfloat16",
                   "--mixed_precision", "bf16");
    wd_program_succeeded(&program);
    assert_same_weights(wd_test_path("gpu"), wd_test_path("named"));
    wd_program_run(&program, RUN("fp32"), "--devices", GPU, IN_FP32);
    wd_program_succeeded(&program);
    assert_same_weights(wd_test_path("cpu"), wd_test_path("fp32"));
}

/* A run goes on with the dtypes that it was begun with, on devices whose defaults are others, too;
 * asked for others it is refused. */
static void resumed_runs_keep_theirs(void **state)
{
    (void)state;
    wd_program_run(&program, RUN("cpu"), "--num_steps", "4", "--devices", GPU, "--resume", "auto",
                   "--mixed_precision", "bf16");
    wd_program_refused(&program, WD_MISMATCH,
                       "\"no\" and is to be resumed with \"bf16\": resume it with the same");
    wd_program_run(&program, "train", "--resume", wd_test_path("cpu"), "--devices", GPU,
                   "--num_steps", "4");
    wd_program_succeeded(&program);
    expect_resolved("cpu", "float32", "no");
    wd_program_run(&program, RUN("gpu"), "--num_steps", "4", "--devices", "cpu", "--resume",
                   "auto");
    wd_program_succeeded(&program);
    expect_resolved("gpu", "bfloat16", "bf16");
}

static void float16_computes_in_bf16(void **state)
{
    (void)state;
    static const char *const devices[] = {"cpu", GPU};
    for (int i = 0; i < 2; i++) {
        const char *out = i ? "half-gpu" : "half-cpu";
        wd_program_run(&program, RUN(out), "--devices", devices[i], "--teacher_dtype", "float16",
                       "--mixed_precision", "fp16");
        wd_program_succeeded(&program);
        const char *line = "--teacher_dtype float16: the teacher's weights are rounded to bf16";
        const char *said = strstr(program.err, line);
        assert_true(said && !strstr(said + 1, line));
        assert_same_weights(wd_test_path(out), wd_test_path("named"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_know_the_rate_of_a_dtype),
        cmocka_unit_test(plans_show_both_rates),
        cmocka_unit_test(used_rates_are_measured),
        cmocka_unit_test(advice_knows_the_rate_of_a_dtype),
        cmocka_unit_test(defaults_follow_the_devices),
        cmocka_unit_test(runs_have_the_defaults),
        cmocka_unit_test(resumed_runs_keep_theirs),
        cmocka_unit_test(float16_computes_in_bf16),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
