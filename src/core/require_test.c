/* WD_REQUIRE guards release builds, too: see core/require.h. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "core/require.h"

static void a_broken_requirement_says_so_and_aborts(void **state)
{
    (void)state;
    int ends[2], status;
    char text[512] = "";
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const int count = 9;
        signal(SIGABRT, SIG_DFL); /* cmocka's own handler would report it as a failed test */
        dup2(ends[1], STDERR_FILENO);
        WD_REQUIRE(count == 9, "not said");
        WD_REQUIRE(count <= 8, "%d of at most 8 places", count);
        _exit(0);
    }
    close(ends[1]);
    assert_true(read(ends[0], text, sizeof text - 1) > 0);
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(text, "require_test.c"));
    assert_non_null(strstr(text, "9 of at most 8 places"));
    assert_null(strstr(text, "not said"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_broken_requirement_says_so_and_aborts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
