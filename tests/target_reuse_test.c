/* --target_reuse auto: how often a target is used follows from the planned time of a step, and is
 * otherwise as if the number had been given. */
#include "runs.h"

#include "io/json/json.h"

static wd_program program;

/* A plan for a card that is `tflops` fast, with a teacher of 14 billion weights. */
#define PLAN(tflops, ...)                                                                          \
    "plan", "--teacher_preset", "wan2.1-14b", "--devices",                                         \
        "sim:200GiB@link=25GB/s,memory=1TB/s,cpu=0.1TFLOP/s,compute=" tflops "TFLOP/s",            \
        "--host_memory", "64GiB", "--teacher_device_strategy", "gpu", "--optimizer_device",        \
        "device", "--num_steps", "1000", "--student_steps", "4", "--trajectory_steps", "8",        \
        "--student_config", wd_test_path("small.json"), __VA_ARGS__

/* A run whose teacher's weights come over a slow link in each sweep, so that targets are dear. */
#define SLOW(out, ...)                                                                             \
    SMALL_RUN(out), "--devices", "sim:1GiB@link=50MB/s,compute=1TFLOP/s,memory=10GB/s",            \
        "--teacher_device_strategy", "offload", "--optimizer_device", "device", "--save_samples",  \
        "false", "--log_level", "info", __VA_ARGS__

/* Returns target_reuse of the plan, and its seconds per step in *seconds. */
static int64_t planned(double *seconds)
{
    int64_t reuse = 0;
    wd_program_succeeded(&program);
    json_t *plan = json_loads(program.out, 0, NULL), *strategy;
    size_t i;
    assert_non_null(plan);
    reuse = json_integer_value(json_object_get(plan, "target_reuse"));
    json_array_foreach(json_object_get(plan, "strategies"), i, strategy)
    {
        if (strcmp(json_string_value(json_object_get(strategy, "strategy")), "gpu")) continue;
        *seconds = json_number_value(json_object_get(strategy, "seconds_per_step"));
    }
    json_decref(plan);
    return reuse;
}

/* Twice the uses are taken exactly where a step then takes 0.55 of its time or less. */
static void uses_are_doubled_while_steps_get_faster(void **state)
{
    (void)state;
    static const char *const numbers[] = {"4", "8", "16", "32"};
    static const char small[] = "{\"depth\": 10, \"hidden_size\": 1024}";
    double seconds, of[4];
    int64_t expected = 32;
    wd_err err;
    wd_test_ok(wd_file_write(wd_test_path("small.json"), small, sizeof small - 1, &err), &err);
    for (int i = 0; i < 4; i++) {
        wd_program_run(&program, PLAN("100", "--json", "--target_reuse", numbers[i]));
        assert_int_equal(planned(&of[i]), 4 << i);
    }
    for (int i = 2; i >= 0; i--)
        if (of[i + 1] > 0.55 * of[i]) expected = 4 << i;
    wd_program_run(&program, PLAN("100", "--json", "--target_reuse", "auto"));
    const int64_t found = planned(&seconds);
    assert_int_equal(found, expected);
    assert_true(found > 4 && found < 32); /* neither end of the search */
    for (int i = 0; i < 4; i++)
        if (found == 4 << i) assert_float_equal(seconds, of[i], 1e-12);
    wd_program_run(&program, PLAN("100", "--target_reuse", "auto"));
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.out, " times; with 4, as usual, a step would take "));
    wd_program_run(&program, PLAN("100", "--json"));
    assert_int_equal(planned(&seconds), 4);
}

/* Of a student as large as its teacher a step costs more than a target. */
static void a_large_student_keeps_the_usual_number(void **state)
{
    (void)state;
    static const char whole[] = "{\"depth\": 40, \"hidden_size\": 5120}";
    double seconds;
    wd_err err;
    const char *config = wd_test_path("whole.json");
    wd_test_ok(wd_file_write(config, whole, sizeof whole - 1, &err), &err);
    wd_program_run(&program, PLAN("100", "--json", "--target_reuse", "auto", "--student_config",
                                  config, "--teacher_dtype", "float8_e4m3fn", "--devices",
                                  "sim:900GiB@link=25GB/s,memory=1TB/s,cpu=0.1TFLOP/s,compute="
                                  "100TFLOP/s"));
    assert_int_equal(planned(&seconds), 4);
}

static void the_run_is_that_of_the_number(void **state)
{
    (void)state;
    char number[32];
    long long reuse;
    const char *a = wd_test_path("auto"), *b = wd_test_path("number"), *c = wd_test_path("parts");
    wd_program_run(&program, SLOW(a, "--target_reuse", "auto"));
    wd_program_succeeded(&program);
    const char *said = strstr(program.err, "each target is used ");
    if (!said) fail_msg("no choice in %s", program.err);
    assert_int_equal(sscanf(said, "each target is used %lld times; with 2, as usual", &reuse), 1);
    assert_true(reuse > 2);
    snprintf(number, sizeof number, "%lld", reuse);
    wd_program_run(&program, SLOW(b, "--target_reuse", number));
    wd_program_succeeded(&program);
    assert_null(strstr(program.err, "each target is used "));
    assert_same_weights(a, b);

    wd_program_run(&program, SLOW(c, "--target_reuse", "auto", "--stop_at_step", "3"));
    wd_program_succeeded(&program);
    wd_program_run(&program, "train", "--resume", c, "--stop_at_step", "0", "--devices", "cpu",
                   "--teacher_device_strategy", "cpu"); /* where auto would keep the usual number */
    wd_program_succeeded(&program);
    wd_program_run(&program, SLOW(wd_test_path("cpu"), "--target_reuse", number, "--devices", "cpu",
                                  "--teacher_device_strategy", "cpu"));
    wd_program_succeeded(&program);
    assert_same_weights(c, wd_test_path("cpu"));
}

static void ranks_choose_one_number(void **state)
{
    (void)state;
    wd_program_run(&program,
                   SLOW(wd_test_path("two"), "--target_reuse", "auto", "--num_steps", "2",
                        "--devices", "sim:2x1GiB@link=50MB/s,compute=1TFLOP/s,memory=10GB/s",
                        "--distributed", "--nproc_per_node", "2"));
    if (strstr(program.err, "built without MPI")) wd_test_skip("this build has no ranks");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, "each target is used "));
}

static void words_are_read_and_refused(void **state)
{
    (void)state;
    char *text;
    size_t bytes;
    wd_err err;
    wd_program_run(&program, SLOW(wd_test_path("never"), "--target_reuse", "most"));
    wd_program_refused(&program, WD_INVALID_ARGUMENT,
                       "--target_reuse: expected auto or a whole number from 0 to 1000, found "
                       "\"most\"");
    wd_program_run(&program, SLOW(wd_test_path("never"), "--target_reuse", "-1"));
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "from 0 to 1000");
    wd_test_ok(wd_file_read(&text, &bytes, wd_test_path("auto/run.json"), 1 << 20, &err), &err);
    json_t *run = json_loads(text, 0, NULL);
    assert_non_null(run);
    const json_t *given = json_object_get(json_object_get(run, "options"), "target_reuse");
    const json_t *chosen = json_object_get(json_object_get(run, "resolved"), "target_reuse");
    assert_string_equal(json_string_value(given), "auto");
    assert_true(json_integer_value(chosen) > 2);
    json_decref(run);
    wd_free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uses_are_doubled_while_steps_get_faster),
        cmocka_unit_test(a_large_student_keeps_the_usual_number),
        cmocka_unit_test(the_run_is_that_of_the_number),
        cmocka_unit_test(ranks_choose_one_number),
        cmocka_unit_test(words_are_read_and_refused),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
