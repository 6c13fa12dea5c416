/* See dist/fuse.h. */
#include "dist/fuse.h"

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

static const double turn_s = 0.2, stopped_s = 1; /* whose turn comes later than this */
static const double launcher_s = 3;              /* for the launcher to end a rank */

enum { LOOKS = 20, LOOK_NS = 10 * 1000 * 1000 };

struct wd_fuse {
    pthread_t thread;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t changed;
    int rank;
    bool is_out;
    double seconds, until;
    const char *what;
    wd_watch *watch; /* borrowed; NULL: none */
};

/* Whether a process of this user has the name and listens. One that has just taken it is about to;
 * whoever else has it may have taken it to keep this job from reporting. */
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

/* They have one name that only one of them can have. */
bool wd_fuse_is_first(pid_t launcher)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "wandistiller-fuse-%d", (int)launcher);
    if (fd < 0 || !bind(fd, (struct sockaddr *)&name, sizeof name)) {
        listen(fd, SOMAXCONN);
        return true;
    }
    close(fd);
    return !is_ours(&name);
}

static _Noreturn void burn(const wd_fuse *f)
{
    char host[64] = "";
    wd_err why;
    wd_fail(&why, WD_RANK_LOST,
            "%s took more than %.0f s: a rank was stopped, has no memory, or cannot be reached",
            f->what, f->seconds);
    if (f->watch) wd_watch_fail(f->watch, &why);
    if (wd_stop_requested() || !wd_fuse_is_first(getppid())) _exit(WD_RANK_LOST);
    gethostname(host, sizeof host - 1);
    signal(SIGALRM, SIG_DFL);
    alarm(2); /* whoever cannot write ends all the same */
    wd_log_report("[Rank %d, host %s, device none yet] %s", f->rank, host, why.message);
    alarm(0);
    sleep(1); /* within which the others of this machine burn, too */
    _exit(WD_RANK_LOST);
}

/* A process that was itself stopped for a while gets that time again, and some for the launcher to
 * end it, for the others have reported it. */
static void *run(void *context)
{
    wd_fuse *f = context;
    double last = wd_clock_s();
    pthread_mutex_lock(&f->lock);
    while (!f->is_out) {
        const double now = wd_clock_s();
        if (now - last > stopped_s) f->until += now - last + launcher_s;
        last = now;
        if (now > f->until) burn(f);
        const double next = now + turn_s;
        const struct timespec at = {(time_t)next, (long)(1e9 * (next - (double)(time_t)next))};
        pthread_cond_timedwait(&f->changed, &f->lock, &at);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

static void set(wd_fuse *f, double seconds, const char *what)
{
    f->seconds = seconds;
    f->until = wd_clock_s() + seconds;
    f->what = what;
}

static void free_fuse(wd_fuse *f)
{
    pthread_mutex_destroy(&f->lock);
    pthread_cond_destroy(&f->changed);
    wd_free(f);
}

wd_status wd_fuse_light(wd_fuse **out, int rank, double seconds, const char *what, wd_err *err)
{
    wd_fuse *f;
    WD_TRY(wd_alloc((void **)&f, 1, sizeof *f, "a fuse", err));
    pthread_mutex_init(&f->lock, NULL);
    wd_cond_init(&f->changed);
    f->rank = rank;
    set(f, seconds, what);
    const int rc = wd_thread_start(&f->thread, run, f);
    if (rc) {
        free_fuse(f);
        return wd_fail(err, WD_OUT_OF_MEMORY, "no thread for a fuse: %s", strerror(rc));
    }
    *out = f;
    return WD_OK;
}

void wd_fuse_tell(wd_fuse *fuse, wd_watch *watch)
{
    pthread_mutex_lock(&fuse->lock);
    fuse->watch = watch;
    pthread_mutex_unlock(&fuse->lock);
}

void wd_fuse_renew(wd_fuse *fuse, double seconds, const char *what)
{
    pthread_mutex_lock(&fuse->lock);
    set(fuse, seconds, what);
    pthread_cond_signal(&fuse->changed);
    pthread_mutex_unlock(&fuse->lock);
}

void wd_fuse_put_out(wd_fuse *fuse)
{
    if (!fuse) return;
    pthread_mutex_lock(&fuse->lock);
    fuse->is_out = true;
    pthread_cond_signal(&fuse->changed);
    pthread_mutex_unlock(&fuse->lock);
    pthread_join(fuse->thread, NULL);
    free_fuse(fuse);
}
