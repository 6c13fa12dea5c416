/* See dev/cuda/python_prefix.h. */
#include "dev/cuda/python_prefix.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"

extern char **environ;

enum { SECONDS_MOST = 5 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool was_asked;
static char prefix[PATH_MAX];

/* The first python3 in the absolute folders of PATH. */
static bool find_python(char out[PATH_MAX])
{
    const char *at = getenv("PATH");
    while (at && *at) {
        const int length = (int)strcspn(at, ":");
        const int n = snprintf(out, PATH_MAX, "%.*s/python3", length, at);
        if (*at == '/' && n < PATH_MAX && !access(out, X_OK)) return true;
        at += length + (at[length] == ':');
    }
    return false;
}

/* Starts python3 with its output in a pipe, whose end to read is *out; 0: it cannot be started. */
static pid_t start(int *out, const char *python)
{
    char *const arguments[] = {"python3", "-I", "-c", "import sys; print(sys.prefix)", NULL};
    int ends[2];
    pid_t process = 0;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t own_group; /* which is killed as a whole */
    if (pipe2(ends, O_CLOEXEC)) return 0;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_init(&own_group);
    posix_spawnattr_setflags(&own_group, POSIX_SPAWN_SETPGROUP);
    if (posix_spawn(&process, python, &actions, &own_group, arguments, environ)) process = 0;
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&own_group);
    close(ends[1]);
    if (!process) close(ends[0]);
    *out = ends[0];
    return process;
}

/* Reads what the process prints until its end, or until the time `end`. */
static size_t read_all(char *text, size_t bytes, int from, double end)
{
    size_t used = 0;
    while (used < bytes) {
        struct pollfd ready = {.fd = from, .events = POLLIN};
        const double left = end - wd_clock_s();
        if (left <= 0) return 0;
        if (poll(&ready, 1, (int)(left * 1000) + 1) <= 0) continue; /* a signal, or it is over */
        const ssize_t n = read(from, text + used, bytes - used);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return 0;
        if (n == 0) return used;
        used += (size_t)n;
    }
    return 0; /* more than a path */
}

/* Waits for the process until the time `end`, then kills its group. Whether it ended with 0. */
static bool ended_well(pid_t process, double end)
{
    const struct timespec pause = {.tv_nsec = 5000000};
    int status = 1;
    pid_t ended = 0;
    while (!ended && wd_clock_s() < end) {
        ended = waitpid(process, &status, WNOHANG);
        if (!ended) nanosleep(&pause, NULL);
    }
    if (ended) return ended == process && status == 0;
    kill(-process, SIGKILL);
    waitpid(process, &status, 0);
    return false;
}

static void ask(void)
{
    char python[PATH_MAX], text[PATH_MAX];
    int from;
    const double end = wd_clock_s() + SECONDS_MOST;
    if (!find_python(python)) return;
    const pid_t process = start(&from, python);
    if (!process) return;
    const size_t n = read_all(text, sizeof text, from, end);
    close(from);
    if (!ended_well(process, n ? end : 0) || n < 2) return;
    /* one line, an absolute path, which glob(7) takes as it is */
    if (text[0] != '/' || memchr(text, '\n', n) != text + n - 1) return;
    text[n - 1] = 0;
    if (strlen(text) == n - 1 && strcspn(text, "*?[\\") == n - 1) memcpy(prefix, text, n);
}

const char *wd_python_prefix(void)
{
    pthread_mutex_lock(&lock);
    if (!was_asked) ask();
    was_asked = true;
    pthread_mutex_unlock(&lock);
    return prefix[0] ? prefix : NULL;
}
