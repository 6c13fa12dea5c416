/* Runs that are ended at moments drawn from all of their duration, by SIGKILL or by SIGTERM, and
 * resumed each time: at the end they have the weights, moments, EMA, trajectories and metrics of a
 * run that was left alone. WD_TEST_SEED repeats the moments of an earlier test. */
#include "runs.h"

enum { RUN_STEPS = 120, ENDS = 12, START_MS = 400, STEP_MS = 12 };

static wd_program program;
static char whole[256], out[256], log_path[256]; /* wd_test_path's texts do not last */

#define RUN(out)                                                                                   \
    "train", "--teacher_path", teacher, "--data_path", wd_test_path("prompts.txt"),                \
        "--student_config", wd_test_path("student.json"), "--output_dir", out, "--cache_dir",      \
        wd_test_path("cache"), "--height", "32", "--width", "32", "--batch_size", "2",             \
        "--trajectories", "4", "--trajectory_steps", "4", "--guidance_scale", "2", "--lr", "1e-3", \
        "--optimizer", "ademamix", "--num_steps", "120", "--checkpoint_interval", "7", "--seed",   \
        "3", "--log_level", "info"

/* ---- moments ---- */

static uint64_t drawn;

/* Below `limit`: splitmix64. */
static int64_t draw(int64_t limit)
{
    uint64_t z = drawn += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (int64_t)((z ^ z >> 31) % (uint64_t)limit);
}

static void nap_ms(int64_t ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static bool has_ended(pid_t pid)
{
    siginfo_t info = {0};
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT), 0);
    return info.si_pid == pid;
}

/* Lines of the metrics of the run that is ended. */
static int64_t rows_of_run(void)
{
    char path[WD_PATH_MAX], *text = NULL;
    size_t bytes = 0;
    int64_t rows = 0;
    wd_err err;
    wd_test_ok(wd_path_join(path, out, "metrics.jsonl", &err), &err);
    if (wd_file_read(&text, &bytes, path, 1 << 24, NULL) != WD_OK) return 0;
    for (size_t i = 0; i < bytes; i++) rows += text[i] == '\n';
    wd_free(text);
    return rows;
}

/* Whether this start of the run has come to its training. */
static bool is_training(void)
{
    char text[1 << 14];
    wd_program_read_(text, sizeof text, log_path);
    return strstr(text, "the student starts from") || strstr(text, "going on from");
}

/* Waits for a moment after so many steps, or for the end of the run. */
static void wait_for_step(pid_t pid, int64_t step)
{
    while (!has_ended(pid) && !(is_training() && rows_of_run() >= step)) nap_ms(1);
    nap_ms(draw(STEP_MS));
}

/* ---- ends ---- */

static pid_t start(void)
{
    const char *arguments[] = {RUN(out), "--resume", "auto", NULL};
    return wd_program_start(arguments);
}

/* Ends a start of the run after about `step` steps, or while it starts; whether it was training. */
static bool end_at(int64_t step, bool while_it_starts)
{
    const pid_t pid = start();
    const int number = draw(2) ? SIGKILL : SIGTERM;
    if (while_it_starts)
        nap_ms(draw(START_MS));
    else
        wait_for_step(pid, step);
    const bool trained = is_training() && !has_ended(pid);
    kill(pid, number);
    wd_program_wait(&program, pid);
    print_message("%s %s after %lld steps: exit code %d\n",
                  number == SIGKILL ? "SIGKILL" : "SIGTERM",
                  trained ? "in training" : "at the start", (long long)rows_of_run(), program.code);
    /* before the signal is caught, or before a step is taken */
    const bool is_early =
        !trained && (program.code == 128 + SIGTERM || program.code == WD_INTERRUPTED);
    if (program.code && program.code != 128 + SIGKILL && !is_early)
        fail_msg("exit code %d: %s", program.code, program.err);
    return trained;
}

/* ---- what is left ---- */

static json_t *state_of(const char *run)
{
    char path[WD_PATH_MAX];
    wd_err err;
    wd_test_ok(wd_path_join(path, run, "checkpoints/step-00000120/state.json", &err), &err);
    json_t *state = json_load_file(path, 0, NULL);
    assert_non_null(state);
    json_object_del(json_object_get(state, "run"), "seconds");
    return state;
}

/* Weights, moments, EMA, trajectories and targets, and what else the last checkpoint has. */
static void assert_same_checkpoint(void)
{
    static const char file[] = "checkpoints/step-00000120/state.safetensors";
    const char *const run[2] = {whole, out};
    char path[WD_PATH_MAX], hash[2][33];
    wd_err err;
    for (int i = 0; i < 2; i++) {
        wd_test_ok(wd_path_join(path, run[i], file, &err), &err);
        wd_test_ok(wd_file_hash(hash[i], path, &err), &err);
    }
    assert_string_equal(hash[0], hash[1]);
    json_t *x = state_of(whole), *y = state_of(out);
    assert_true(json_equal(x, y));
    json_decref(x);
    json_decref(y);
}

static void a_run_that_is_ended_again_and_again_is_the_same_run(void **state)
{
    (void)state;
    snprintf(whole, sizeof whole, "%s", wd_test_path("whole"));
    snprintf(out, sizeof out, "%s", wd_test_path("parts"));
    snprintf(log_path, sizeof log_path, "%s", wd_test_path("stderr"));
    const char *seed = getenv("WD_TEST_SEED");
    int trained = 0;
    drawn = seed ? strtoull(seed, NULL, 10) : (uint64_t)time(NULL);
    print_message("WD_TEST_SEED=%llu\n", (unsigned long long)drawn);
    wd_program_run(&program, RUN(whole));
    wd_program_succeeded(&program);
    for (int64_t i = 0; i < ENDS; i++) {
        const int64_t from = i * RUN_STEPS / ENDS;
        trained += end_at(from + 1 + draw(RUN_STEPS / ENDS - 1), i % 4 == 3);
    }
    if (trained < ENDS / 2) fail_msg("only %d of %d ends were in training", trained, ENDS);
    wd_program_wait(&program, start());
    wd_program_succeeded(&program);
    assert_same_checkpoint();
    assert_same_weights(whole, out);
    json_t *x = metrics(whole), *y = metrics(out);
    assert_int_equal(json_array_size(x), RUN_STEPS);
    assert_true(json_equal(x, y));
    json_decref(x);
    json_decref(y);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_that_is_ended_again_and_again_is_the_same_run),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
