/* Tests of calls that must end the process by a failed WD_REQUIRE. */
#ifndef WD_TESTS_ABORTS_H
#define WD_TESTS_ABORTS_H

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "testing.h"

/* Calls fn(context) in a child process, which must abort and print `text` on standard error. */
static inline void wd_test_aborts(void (*fn)(void *context), void *context, const char *text)
{
    int ends[2], status;
    char said[1024] = "";
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGABRT, SIG_DFL); /* cmocka's own handler would report it as a failed test */
        dup2(ends[1], STDERR_FILENO);
        fn(context);
        _exit(0);
    }
    close(ends[1]);
    size_t bytes = 0;
    for (ssize_t n; (n = read(ends[0], said + bytes, sizeof said - 1 - bytes)) > 0;)
        bytes += (size_t)n;
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT || !strstr(said, text))
        fail_msg("expected an abort that says \"%s\", found wait status %d: %s", text, status,
                 said);
}

#endif
