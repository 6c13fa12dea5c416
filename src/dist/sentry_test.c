/* A rank that is stopped while nobody else watches it is killed; one that goes on is not. */
#include "testing.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/log.h"
#include "dist/sentry.h"

static int said[2];

static void say(void *context, wd_log_level level, const char *message)
{
    (void)context;
    (void)level;
    if (write(said[1], message, strlen(message)) < 0) _exit(99);
}

/* A rank that has a sentry, and dismisses it after so long. */
static pid_t start(int rank, int work_ms)
{
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        wd_log_to(say, NULL, WD_LOG_ERROR);
        wd_sentry_post(rank);
        usleep((useconds_t)work_ms * 1000);
        wd_sentry_dismiss();
        _exit(7);
    }
    return pid;
}

static int status_of(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

/* Once the rank sleeps, which it does with its sentry posted. */
static void stop(pid_t pid)
{
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
    for (size_t n = 0; !n; usleep(1000)) {
        FILE *file = fopen(path, "r");
        assert_non_null(file);
        n = fread(text, 1, sizeof text, file);
        fclose(file);
    }
    assert_int_equal(kill(pid, SIGSTOP), 0);
}

static void those_that_are_stopped_are_killed_with_one_report(void **state)
{
    (void)state;
    enum { RANKS = 2 };
    char text[1024] = "";
    pid_t pid[RANKS];
    for (int r = 0; r < RANKS; r++) pid[r] = start(r + 3, 60000);
    for (int r = 0; r < RANKS; r++) stop(pid[r]);
    for (int r = 0; r < RANKS; r++) {
        const int status = status_of(pid[r]);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), SIGKILL);
    }
    assert_true(read(said[0], text, sizeof text - 1) > 0);
    assert_memory_equal(text, "[Rank ", 6);
    assert_non_null(strstr(text, "its process is stopped"));
    assert_null(strstr(text + 1, "[Rank "));
}

/* Neither one at work, nor one that was stopped for a while. */
static void those_that_go_on_are_left_alone(void **state)
{
    (void)state;
    const pid_t working = start(0, 6000), stopped = start(1, 6000);
    stop(stopped);
    sleep(2);
    kill(stopped, SIGCONT);
    assert_int_equal(WEXITSTATUS(status_of(working)), 7);
    assert_int_equal(WEXITSTATUS(status_of(stopped)), 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(those_that_are_stopped_are_killed_with_one_report),
        cmocka_unit_test(those_that_go_on_are_left_alone),
    };
    if (pipe(said)) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
