/* Processes whose start takes longer than its deadline allows, and others. */
#include "testing.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "job/watch/deadline.h"

static int said[2];

static void say(void *context, wd_log_level level, const char *message)
{
    (void)context;
    (void)level;
    if (write(said[1], message, strlen(message)) < 0) _exit(99);
}

static int ended(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* A process whose start takes `work_ms`, in one phase or in two. */
static pid_t start(int rank, double seconds, int work_ms, bool two_phases)
{
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        wd_deadline *deadline;
        wd_log_to(say, NULL, WD_LOG_ERROR);
        if (wd_deadline_start(&deadline, rank, seconds, "the test", NULL) != WD_OK) _exit(98);
        if (two_phases) wd_deadline_next(deadline, 10, "its second phase");
        usleep((useconds_t)work_ms * 1000);
        wd_deadline_stop(deadline);
        _exit(0);
    }
    return pid;
}

static int run_one(double seconds, int work_ms, bool two_phases)
{
    return ended(start(0, seconds, work_ms, two_phases));
}

static void a_start_that_takes_too_long_ends(void **state)
{
    (void)state;
    char text[1024] = "";
    assert_int_equal(run_one(0.2, 8000, false), WD_RANK_LOST);
    assert_true(read(said[0], text, sizeof text - 1) > 0);
    assert_non_null(strstr(text, "[Rank 0, host "));
    assert_non_null(strstr(text, "the test took more than 0 s"));
}

static void a_start_in_time_goes_on(void **state)
{
    (void)state;
    const double begun = wd_clock_s();
    assert_int_equal(run_one(20, 10, false), 0);
    assert_true(wd_clock_s() - begun < 10);
    assert_int_equal(run_one(0.3, 600, true), 0);
}

static void one_rank_of_a_machine_reports(void **state)
{
    (void)state;
    enum { RANKS = 3 };
    char text[2048];
    pid_t pid[RANKS];
    for (int r = 0; r < RANKS; r++) pid[r] = start(r, 0.2, 8000, false);
    for (int r = 0; r < RANKS; r++) assert_int_equal(ended(pid[r]), WD_RANK_LOST);
    const ssize_t n = read(said[0], text, sizeof text - 1);
    assert_true(n > 0);
    text[n] = 0;
    assert_non_null(strstr(text, "[Rank "));
    assert_null(strstr(strstr(text, "[Rank ") + 1, "[Rank "));
}

/* Another user's process that has bound the name, and keeps it, silences no report. The test needs
 * root to become another user. */
static void other_users_do_not_silence_it(void **state)
{
    (void)state;
    enum { NOBODY = 65534 };
    char byte, text[1024] = "";
    int taken[2];
    if (geteuid()) wd_test_skip("only root can become another user");
    assert_int_equal(pipe(taken), 0);
    const pid_t other = fork();
    assert_true(other >= 0);
    if (!other) {
        struct sockaddr_un name = {.sun_family = AF_UNIX};
        snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "wandistiller-deadline-%d",
                 (int)getppid());
        const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        if (setuid(NOBODY) || bind(fd, (struct sockaddr *)&name, sizeof name) || listen(fd, 1) ||
            write(taken[1], "", 1) != 1)
            _exit(1);
        for (;;) pause();
    }
    assert_int_equal(read(taken[0], &byte, 1), 1);
    assert_int_equal(run_one(0.2, 8000, false), WD_RANK_LOST);
    kill(other, SIGKILL);
    assert_int_equal(waitpid(other, NULL, 0), other);
    close(taken[0]);
    close(taken[1]);
    const int flags = fcntl(said[0], F_GETFL);
    fcntl(said[0], F_SETFL, flags | O_NONBLOCK);
    const ssize_t n = read(said[0], text, sizeof text - 1);
    fcntl(said[0], F_SETFL, flags);
    assert_true(n > 0);
    assert_non_null(strstr(text, "the test took more than 0 s"));
}

/* A process that is stopped, even before the deadline's thread first looks at the clock, gets that
 * time back: the others have reported it. */
static void a_stopped_process_gets_its_time_back(void **state)
{
    (void)state;
    enum { TIMES = 8 };
    pid_t pid[TIMES];
    int in_time = 0;
    for (int i = 0; i < TIMES; i++) {
        pid[i] = fork();
        assert_true(pid[i] >= 0);
        if (pid[i]) continue;
        wd_deadline *deadline;
        if (wd_deadline_start(&deadline, 0, 1, "the test", NULL) != WD_OK) _exit(98);
        raise(SIGSTOP);
        usleep(300 * 1000); /* the thread looks at the clock */
        wd_deadline_stop(deadline);
        _exit(0);
    }
    usleep(2500 * 1000);
    for (int i = 0; i < TIMES; i++) {
        kill(pid[i], SIGCONT);
        in_time += ended(pid[i]) == 0;
    }
    assert_int_equal(in_time, TIMES);
}

static void describe(void *context, wd_watch_note *out)
{
    (void)context;
    snprintf(out->device, sizeof out->device, "the watch's");
}

/* With a watch, ranks of several machines make one report, as do ranks one of which was lost at the
 * same time. */
static void the_watch_reports_where_there_is_one(void **state)
{
    (void)state;
    char text[2048] = "";
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        wd_deadline *deadline;
        wd_watch *watch;
        wd_watch_address all;
        wd_log_to(say, NULL, WD_LOG_ERROR);
        if (wd__watch_listen(&watch, &(wd_watch_options){.ranks = 1}, &all, NULL) != WD_OK ||
            wd__watch_connect(watch, &all, NULL) != WD_OK ||
            wd_deadline_start(&deadline, 0, 0.5, "the test", NULL) != WD_OK)
            _exit(98);
        wd_watch_describe(watch, describe, NULL);
        wd_deadline_report_by(deadline, watch);
        sleep(20);
        _exit(0);
    }
    assert_int_equal(ended(pid), WD_RANK_LOST);
    assert_true(read(said[0], text, sizeof text - 1) > 0);
    assert_non_null(strstr(text, ", device the watch's] the test took more than 0 s"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_start_that_takes_too_long_ends),
        cmocka_unit_test(a_start_in_time_goes_on),
        cmocka_unit_test(one_rank_of_a_machine_reports),
        cmocka_unit_test(other_users_do_not_silence_it),
        cmocka_unit_test(a_stopped_process_gets_its_time_back),
        cmocka_unit_test(the_watch_reports_where_there_is_one),
    };
    if (pipe(said)) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
