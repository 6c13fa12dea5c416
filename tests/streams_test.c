/* A run whose log nobody reads, or that has no standard error, is a run like any other. */
#include "runs.h"

static wd_program program;

#define RUN(out)                                                                                   \
    "train", "--teacher_path", teacher, "--data_path", wd_test_path("prompts.txt"),                \
        "--student_config", wd_test_path("student.json"), "--output_dir", out, "--cache_dir",      \
        wd_test_path("cache"), "--height", "32", "--width", "32", "--batch_size", "2",             \
        "--trajectories", "4", "--trajectory_steps", "4", "--guidance_scale", "2", "--seed", "3"

/* Starts the program with `out` as its standard output and error, or without a standard error where
 * it is -1. */
static pid_t start_with(int out, const char *const *arguments)
{
    const char *argv[64] = {WD_PROGRAM};
    int n = 1;
    while (*arguments && n < 63) argv[n++] = *arguments++;
    assert_null(*arguments);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid) return pid;
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++)
        if (out >= 0) dup2(out, fd);
    if (out < 0) close(STDERR_FILENO);
    execv(WD_PROGRAM, (char *const *)argv);
    _exit(127);
}

static int code_of(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* As `train 2>&1 | tee log`, where Ctrl-C ends tee before the run has said that it stops. */
static void a_log_that_nobody_reads_ends_no_run(void **state)
{
    (void)state;
    int ends[2];
    const char *out = wd_test_path("unread");
    assert_int_equal(pipe(ends), 0);
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    const char *arguments[] = {RUN(out), "--num_steps", "1000000", NULL};
    const pid_t pid = start_with(ends[1], arguments);
    close(ends[1]);
    wait_for_steps(wd_test_path("unread/metrics.jsonl"));
    close(ends[0]);
    kill(pid, SIGINT);
    assert_int_equal(code_of(pid), 0);
    wd_program_run(&program, RUN(out), "--num_steps", "1000000", "--max_minutes", "0.0001",
                   "--resume");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, "going on from"));
}

/* The next file that is opened gets the number of a stream that was closed: of metrics.jsonl, which
 * the log would go into. */
static void a_closed_stream_is_no_file(void **state)
{
    (void)state;
    const char *out = wd_test_path("closed");
    const char *arguments[] = {RUN(out), "--num_steps", "1000000", "--max_minutes", "0.04", NULL};
    assert_int_equal(code_of(start_with(-1, arguments)), 0);
    json_t *rows = metrics(out);
    assert_true(json_array_size(rows) > 0);
    json_decref(rows);
    wd_program_run(&program, RUN(out), "--num_steps", "1", "--resume");
    wd_program_succeeded(&program);
}

/* What cannot be printed is an error, of a device that is full as of a disk. */
static void output_that_is_lost_is_an_error(void **state)
{
    (void)state;
    const char *const commands[][8] = {
        {"--version"},
        {"help", "train"},
        {"sample", "--help"},
        {"inspect", teacher},
        {"plan", "--teacher_path", teacher, "--height", "32", "--width", "32"},
    };
    const int full = open("/dev/full", O_WRONLY);
    assert_true(full >= 0);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        assert_int_equal(code_of(start_with(full, commands[i])), WD_IO);
    close(full);
    wd_program_run(&program, "--version");
    wd_program_succeeded(&program);
}

/* SIGHUP to a run: what it gets when its terminal is closed. */
static int hang_up(const char *out, const char *const *arguments)
{
    char path[WD_PATH_MAX];
    wd_err err;
    const pid_t pid = wd_program_start(arguments);
    wd_test_ok(wd_path_join(path, out, "metrics.jsonl", &err), &err);
    wait_for_steps(path);
    kill(pid, SIGHUP);
    wd_program_wait(&program, pid);
    return program.code;
}

/* It stops as after Ctrl-C, many ranks too; under nohup it goes on. */
static void a_closed_terminal_ends_a_run_cleanly(void **state)
{
    (void)state;
    const char *out = wd_test_path("hung"), *two = wd_test_path("two");
    const char *kept = wd_test_path("kept");
    const char *arguments[] = {RUN(out), "--num_steps", "1000000", NULL};
    assert_int_equal(hang_up(out, arguments), 0);
    assert_true(wd_path_exists(wd_test_path("hung/model_index.json")));
    assert_non_null(strstr(program.err, "--resume auto goes on from here"));
    const char *job[] = {RUN(two), "--num_steps", "1000000", "--nproc_per_node", "2", NULL};
    assert_int_equal(hang_up(two, job), 0);
    assert_non_null(strstr(program.err, "--resume auto goes on from here"));
    const char *limited[] = {RUN(kept), "--num_steps", "1000000", "--max_minutes", "0.02", NULL};
    signal(SIGHUP, SIG_IGN);
    assert_int_equal(hang_up(kept, limited), 0);
    signal(SIGHUP, SIG_DFL);
    assert_non_null(strstr(program.err, "done after"));
}

static void wait_for_output(const char *stream)
{
    char text[64] = "";
    const char *path = wd_test_path(stream); /* once: only the latest paths are kept */
    for (int i = 0; i < 3000 && !*text; i++) {
        usleep(10000);
        wd_program_read_(text, sizeof text, path);
    }
    assert_true(*text);
}

/* Jobs that would lose nothing by it, whatever they are at. */
static void a_signal_ends_what_keeps_nothing(void **state)
{
    (void)state;
    const struct {
        const char *said_on, *arguments[16];
    } jobs[] = {
        {"stdout", {"bench", "--only", "peak"}},
        {"stderr",
         {"sample", "--model", teacher, "--prompt", "fox", "--steps", "1", "--height", "2048",
          "--width", "2048", "--out", wd_test_path("fox.png")}},
    };
    const int signals[] = {SIGINT, SIGTERM};
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++)
        for (int k = 0; k < 2; k++) {
            unlink(wd_test_path(jobs[i].said_on));
            const pid_t pid = wd_program_start(jobs[i].arguments);
            wait_for_output(jobs[i].said_on);
            kill(pid, signals[k]);
            wd_program_wait(&program, pid);
            assert_int_equal(program.code, 128 + signals[k]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_log_that_nobody_reads_ends_no_run),
        cmocka_unit_test(a_closed_stream_is_no_file),
        cmocka_unit_test(output_that_is_lost_is_an_error),
        cmocka_unit_test(a_closed_terminal_ends_a_run_cleanly),
        cmocka_unit_test(a_signal_ends_what_keeps_nothing),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
