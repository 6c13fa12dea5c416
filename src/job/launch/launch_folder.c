/* See job/launch/launch_folder.h. */
#include "job/launch/launch_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/temporary_folder.h"

static const char prefix[] = "wandistiller-ranks-", stop_name[] = "stop";
static const char *const places[] = {"/dev/shm", "/tmp"};
enum { PLACES = sizeof places / sizeof *places };

const char wd_launch_folder_variable[] = "WANDISTILLER_RANKS_FOLDER";

/* ---- making ---- */

static bool has_room(const char *folder, int64_t bytes)
{
    struct statvfs s;
    return statvfs(folder, &s) == 0 && (double)s.f_bavail * (double)s.f_frsize >= (double)bytes;
}

/* ---- the cleanup process ---- */

/* Writes the text to standard error; false: nobody reads it any more. */
static bool copy_to_stderr(const char *text, size_t bytes)
{
    while (bytes) {
        const ssize_t n = write(STDERR_FILENO, text, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) { /* another process made it non-blocking */
            poll(&(struct pollfd){.fd = STDERR_FILENO, .events = POLLOUT}, 1, -1);
            continue;
        }
        if (n <= 0) return false;
        text += n;
        bytes -= (size_t)n;
    }
    return true;
}

/* Copies the pipe to standard error until no process can write to it any more. All signals are
 * blocked: Ctrl-C and SIGTERM are for the launching process, and without SIGPIPE a job goes on when
 * nobody reads its messages. Of the open files it keeps only the lock and standard error. */
static _Noreturn void run_cleanup(const wd_launch_folder *f, int end)
{
    char text[4096];
    bool is_read = true;
    ssize_t n;
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    setpgid(0, 0);
    dup2(end, STDIN_FILENO);
    dup2(f->lock, STDOUT_FILENO);
    closefrom(STDERR_FILENO + 1);
    while ((n = read(STDIN_FILENO, text, sizeof text)) > 0)
        is_read = is_read && copy_to_stderr(text, (size_t)n);
    close(STDERR_FILENO); /* its reader need not wait until the folder is removed */
    wd_temporary_folder_remove(f->path);
    _exit(0);
}

static wd_status start_cleanup(wd_launch_folder *f, wd_err *err)
{
    int end[2];
    if (pipe(end))
        return wd_fail(err, WD_IO, "no pipe for the messages of the ranks: %s", strerror(errno));
    f->errors = end[1];
    f->cleanup = fork();
    if (f->cleanup == 0) {
        close(end[1]);
        run_cleanup(f, end[0]);
    }
    close(end[0]);
    if (f->cleanup > 0) return WD_OK;
    close(end[1]);
    return wd_fail(err, WD_IO, "no process to remove the folder of the ranks: %s", strerror(errno));
}

wd_status wd__launch_folder_open(wd_launch_folder *out, int ranks, wd_err *err)
{
    /* with less room mpirun waits without end: Open MPI 4.1 needs 8 MiB, and 4 for each rank */
    const int64_t mib = 16 + 8 * (int64_t)ranks;
    out->lock = -1;
    for (int i = 0; i < PLACES; i++) wd_temporary_folder_remove_abandoned(places[i], prefix);
    for (int i = 0; i < PLACES && out->lock < 0; i++)
        if (has_room(places[i], mib << 20))
            out->lock = wd_temporary_folder_make(out->path, sizeof out->path, places[i], prefix);
    if (out->lock < 0)
        return wd_fail(err, WD_IO,
                       "neither /dev/shm nor /tmp can be written and has %lld MiB free, which "
                       "%d ranks need for shared files",
                       (long long)mib, ranks);
    const wd_status status = start_cleanup(out, err);
    if (status == WD_OK) return WD_OK;
    rmdir(out->path);
    close(out->lock);
    return status;
}

void wd__launch_folder_close(wd_launch_folder *folder)
{
    close(folder->errors);
    close(folder->lock);
    waitpid(folder->cleanup, NULL, 0);
}

/* ---- the request to stop ---- */

void wd__launch_folder_stop(const wd_launch_folder *folder)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder->path, stop_name);
    const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0) close(fd); /* if not, only the signal asks */
}

bool wd_launch_folder_says_stop(void)
{
    char path[PATH_MAX];
    const char *folder = getenv(wd_launch_folder_variable);
    if (!folder) return false;
    const int n = snprintf(path, sizeof path, "%s/%s", folder, stop_name);
    return n > 0 && (size_t)n < sizeof path && access(path, F_OK) == 0;
}
