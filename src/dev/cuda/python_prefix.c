/* See dev/cuda/python_prefix.h. */
#include "dev/cuda/python_prefix.h"

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
    if (pipe2(ends, O_CLOEXEC)) return 0;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    if (posix_spawn(&process, python, &actions, NULL, arguments, environ)) process = 0;
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (!process) close(ends[0]);
    *out = ends[0];
    return process;
}

/* Reads what the process prints until its end, for a limited time. */
static size_t read_all(char *text, size_t bytes, int from)
{
    const double end = wd_clock_s() + SECONDS_MOST;
    size_t used = 0;
    while (used < bytes) {
        struct pollfd ready = {.fd = from, .events = POLLIN};
        const double left = end - wd_clock_s();
        if (left <= 0 || poll(&ready, 1, (int)(left * 1000) + 1) <= 0) return 0;
        const ssize_t n = read(from, text + used, bytes - used);
        if (n < 0) return 0;
        if (n == 0) return used;
        used += (size_t)n;
    }
    return 0; /* more than a path */
}

static void ask(void)
{
    char python[PATH_MAX], text[PATH_MAX];
    int from, status = 0;
    if (!find_python(python)) return;
    const pid_t process = start(&from, python);
    if (!process) return;
    const size_t n = read_all(text, sizeof text, from);
    close(from);
    if (!n) kill(process, SIGKILL);
    if (waitpid(process, &status, 0) != process || status || n < 2) return;
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
