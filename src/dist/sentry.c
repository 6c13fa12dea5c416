/* See dist/sentry.h. */
#include "dist/sentry.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/log.h"
#include "dist/fuse.h"

/* Looks, and not a clock: a sentry that was itself stopped has not looked meanwhile. A second less
 * than a watch allows, for mpirun takes four to end ranks of several machines. */
enum { LOOKS_PER_S = 4, STOPPED_S = 4, REPORT_S = 2 };

static pid_t sentry;        /* 0: none */
static pid_t own, launcher; /* the sentry's: whom it watches, and who has started that */

/* "PID (NAME) STATE ...", of which a name may hold anything. A debugger's stop is another state. */
static bool is_stopped(pid_t pid)
{
    char path[32], text[256] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    const char *end = n > 0 ? strrchr(text, ')') : NULL;
    return end && !strncmp(end, ") T", 3);
}

static void end_rank(void)
{
    if (getppid() == own) kill(own, SIGKILL);
}

/* Nobody reads what is reported. */
static void give_up(int number)
{
    (void)number;
    end_rank();
    _exit(0);
}

static void report(int rank)
{
    char host[64] = "";
    sigset_t none;
    gethostname(host, sizeof host - 1);
    signal(SIGALRM, give_up);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    alarm(REPORT_S);
    wd_log_report("[Rank %d, host %s, device none yet] no sign of life for %d s while it started: "
                  "its process is stopped",
                  rank, host, STOPPED_S);
    alarm(0);
}

/* Goes with the rank. Neither Ctrl-C nor what ends all processes of a job is for it. */
static _Noreturn void stand(int rank)
{
    int looks = 0;
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    prctl(PR_SET_NAME, "wd-sentry");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (getppid() == own && looks <= STOPPED_S * LOOKS_PER_S) {
        looks = is_stopped(own) ? looks + 1 : 0;
        nanosleep(&(struct timespec){.tv_nsec = 1000000000 / LOOKS_PER_S}, NULL);
    }
    if (getppid() != own) _exit(0);
    prctl(PR_SET_PDEATHSIG, 0);
    if (wd_fuse_is_first(launcher)) report(rank);
    end_rank();
    for (int fd = 0; fd <= STDERR_FILENO; fd++) close(fd); /* the launcher waits for them */
    sleep(REPORT_S); /* in which no other rank of this machine reports what follows */
    _exit(0);
}

void wd_sentry_post(int rank)
{
    own = getpid();
    launcher = getppid();
    sentry = fork();
    if (sentry == 0) stand(rank);
}

/* It may be stopped, too. */
void wd_sentry_dismiss(void)
{
    if (sentry <= 0) return;
    kill(sentry, SIGKILL);
    waitpid(sentry, NULL, 0);
    sentry = 0;
}
