/* `wandistiller train` where OpenMP gives a smaller team of threads than it promises: oneDNN
 * divides its work by the promise, so a run that believed it would compute wrong numbers. */
#include "runs.h"

static wd_program program;

/* More threads than the machine has processors: OMP_DYNAMIC=true then always gives fewer. */
static void run(const char *out, const char *threads)
{
    wd_program_run(&program, "train", "--teacher_path", teacher, "--data_path",
                   wd_test_path("prompts.txt"), "--student_config", wd_test_path("student.json"),
                   "--output_dir", out, "--cache_dir", wd_test_path("cache"), "--height", "32",
                   "--width", "32", "--trajectories", "4", "--num_steps", "2", "--seed", "3",
                   "--num_threads", threads, "--log_level", "warning");
    wd_program_succeeded(&program);
}

static void one_thread_runs_without_a_warning(void **state)
{
    (void)state;
    run(wd_test_path("one"), "1");
    assert_string_equal(program.err, "");
}

static void run_under(const char *variable, const char *value)
{
    char threads[16], folder[64];
    snprintf(threads, sizeof threads, "%ld", sysconf(_SC_NPROCESSORS_CONF) + 3);
    assert_int_equal(setenv(variable, value, 1), 0);
    snprintf(folder, sizeof folder, "%s-%s", variable, value);
    run(wd_test_path(folder), threads);
    unsetenv(variable);
    assert_same_weights(wd_test_path("one"), wd_test_path(folder));
}

static void dynamic_teams_are_switched_off(void **state)
{
    (void)state;
    run_under("OMP_DYNAMIC", "true");
    assert_string_equal(program.err, "");
}

static void parallel_regions_are_switched_on(void **state)
{
    (void)state;
    run_under("OMP_MAX_ACTIVE_LEVELS", "0");
    assert_string_equal(program.err, "");
}

/* This limit cannot be lifted by a process: the team is as large as it may be, and the run says so.
 */
static void a_limit_of_threads_is_kept_and_said(void **state)
{
    (void)state;
    run_under("OMP_THREAD_LIMIT", "1");
    assert_non_null(strstr(program.err, "OpenMP gives a team of 1"));
    run_under("OMP_THREAD_LIMIT", "2");
    assert_non_null(strstr(program.err, "OpenMP gives a team of 2"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_thread_runs_without_a_warning),
        cmocka_unit_test(dynamic_teams_are_switched_off),
        cmocka_unit_test(parallel_regions_are_switched_on),
        cmocka_unit_test(a_limit_of_threads_is_kept_and_said),
    };
    return cmocka_run_group_tests_name("teams of threads", tests, prepare, NULL);
}
