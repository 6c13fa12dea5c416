/* See job/watch/deadline.h. */
#include "job/watch/deadline.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/stop.h"
#include "core/thread.h"

/* The thread looks at the clock every `turn_s`; if it looks later than after `stopped_s`, the
 * process was stopped. The launcher takes up to `launcher_s` to end a rank. */
static const double turn_s = 0.2, stopped_s = 1, launcher_s = 3;

enum { REPORT_S = 2 }; /* for the report to be written */
enum { LOOKS = 20, LOOK_NS = 10 * 1000 * 1000 };

struct wd_deadline {
    pthread_t thread;
    pthread_mutex_t lock; /* protects all fields below */
    pthread_cond_t changed;
    int rank;
    bool is_over;
    double seconds, until; /* of the phase: its limit, and when it is reached by the clock */
    double looked;         /* when the thread last looked at the clock, or was made */
    const char *phase;
    wd_watch *watch; /* borrowed; NULL: none */
};

/* Whether a process of this user listens at the name. The process that has just bound the name
 * begins to listen in a moment. Another user's process may have bound it to keep this job from
 * reporting. */
static bool is_ours(const struct sockaddr_un *name)
{
    bool ours = false;
    for (int i = 0; i < LOOKS && !ours; i++) {
        struct ucred owner = {.uid = (uid_t)-1};
        socklen_t bytes = sizeof owner;
        const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        ours = fd >= 0 && !connect(fd, (const struct sockaddr *)name, sizeof *name) &&
               !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &owner, &bytes) && owner.uid == geteuid();
        if (fd >= 0) close(fd);
        if (!ours) nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    }
    return ours;
}

/* Whether no other rank that has the same parent reports: from now on this process does, as long as
 * it lives. Only one process can bind a socket to the name that is made of the parent's number. */
static bool is_first(void)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "wandistiller-deadline-%d",
             (int)getppid());
    if (fd < 0 || !bind(fd, (struct sockaddr *)&name, sizeof name)) {
        listen(fd, SOMAXCONN);
        return true;
    }
    close(fd);
    return !is_ours(&name);
}

static _Noreturn void end_process(const wd_deadline *d)
{
    char host[64] = "";
    wd_err why;
    wd_fail(&why, WD_RANK_LOST,
            "%s took more than %.0f s: a rank was stopped, has no memory, or cannot be reached",
            d->phase, d->seconds);
    if (d->watch) wd_watch_fail(d->watch, &why);
    if (wd_stop_requested() || !is_first()) _exit(WD_RANK_LOST);
    gethostname(host, sizeof host - 1);
    signal(SIGALRM, SIG_DFL);
    alarm(REPORT_S); /* a process that cannot write ends by this signal */
    wd_log_report("[Rank %d, host %s, device none yet] %s", d->rank, host, why.message);
    alarm(0);
    sleep(1); /* in which the deadline of the other ranks of this machine passes, too */
    _exit(WD_RANK_LOST);
}

static void *run(void *context)
{
    wd_deadline *d = context;
    pthread_mutex_lock(&d->lock);
    while (!d->is_over) {
        const double now = wd_clock_s();
        if (now - d->looked > stopped_s) d->until += now - d->looked + launcher_s;
        d->looked = now;
        if (now > d->until) end_process(d);
        const double next = now + turn_s;
        const struct timespec at = {(time_t)next, (long)(1e9 * (next - (double)(time_t)next))};
        pthread_cond_timedwait(&d->changed, &d->lock, &at);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

static void set_phase(wd_deadline *d, double seconds, const char *phase)
{
    d->seconds = seconds;
    d->until = wd_clock_s() + seconds;
    d->phase = phase;
}

static void free_deadline(wd_deadline *d)
{
    pthread_mutex_destroy(&d->lock);
    pthread_cond_destroy(&d->changed);
    wd_free(d);
}

wd_status wd_deadline_start(wd_deadline **out, int rank, double seconds, const char *phase,
                            wd_err *err)
{
    wd_deadline *d;
    WD_TRY(wd_alloc((void **)&d, 1, sizeof *d, "the start-up deadline", err));
    pthread_mutex_init(&d->lock, NULL);
    wd_cond_init(&d->changed);
    d->rank = rank;
    d->looked = wd_clock_s(); /* the process may be stopped before the thread looks */
    set_phase(d, seconds, phase);
    const int rc = wd_thread_start(&d->thread, run, d);
    if (rc) {
        free_deadline(d);
        return wd_fail(err, WD_OUT_OF_MEMORY, "no thread for the start-up deadline: %s",
                       strerror(rc));
    }
    *out = d;
    return WD_OK;
}

void wd_deadline_next(wd_deadline *deadline, double seconds, const char *phase)
{
    pthread_mutex_lock(&deadline->lock);
    set_phase(deadline, seconds, phase);
    pthread_mutex_unlock(&deadline->lock);
}

void wd_deadline_report_by(wd_deadline *deadline, wd_watch *watch)
{
    pthread_mutex_lock(&deadline->lock);
    deadline->watch = watch;
    pthread_mutex_unlock(&deadline->lock);
}

void wd_deadline_stop(wd_deadline *deadline)
{
    if (!deadline) return;
    pthread_mutex_lock(&deadline->lock);
    deadline->is_over = true;
    pthread_cond_signal(&deadline->changed);
    pthread_mutex_unlock(&deadline->lock);
    pthread_join(deadline->thread, NULL);
    free_deadline(deadline);
}
