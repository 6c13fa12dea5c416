/* See job/watch/watch_process.h. */
#include "job/watch/watch_process.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

wd_status wd_watch_process_open(wd_watch_process *out, wd_err *err)
{
    uint64_t random[2];
    *out = (wd_watch_process){.pid = getpid(), .fd = -1};
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return wd_fail(err, WD_IO, "no random bytes: %s", strerror(errno));
    snprintf(out->name, sizeof out->name, "%016llx%016llx", (unsigned long long)random[0],
             (unsigned long long)random[1]);
    out->fd = memfd_create(out->name, MFD_CLOEXEC);
    if (out->fd < 0) return wd_fail(err, WD_IO, "the watch gets no file: %s", strerror(errno));
    return WD_OK;
}

void wd_watch_process_close(const wd_watch_process *process)
{
    if (process->fd >= 0) close(process->fd);
}

void wd_watch_process_kill(const wd_watch_process *process)
{
    char path[64], expected[64], found[64] = "";
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)process->pid, (int)process->fd);
    snprintf(expected, sizeof expected, "/memfd:%.32s (deleted)", process->name);
    if (readlink(path, found, sizeof found - 1) > 0 && !strcmp(found, expected))
        kill(process->pid, SIGKILL);
}
