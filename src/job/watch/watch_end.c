/* The end of a job that has failed: one report, and every process is gone; and what that needs
 * beforehand, handlers of crashes and the processes of ranks (job/watch/watch_end.h). */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "job/watch/watch_impl.h"

/* ---- crashes ---- */

enum { TURN_MS = 10, TURNS_MAX = 400 }; /* longer than a report may take */

static const int fatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS, SIGXFSZ};
enum { FATAL = sizeof fatal / sizeof *fatal };

#ifdef WD_SANITIZE
static const bool sanitized = true;
#else
static const bool sanitized = false;
#endif

static atomic_int crashed, is_reported, wake_fd = -1; /* crashed: the signal, or 0 */
static bool is_handled[FATAL];

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = TURN_MS * 1000 * 1000}, NULL);
}

static void on_crash(int number)
{
    const uint64_t one = 1;
    int none = 0;
    atomic_compare_exchange_strong(&crashed, &none, number);
    const ssize_t written = write(atomic_load(&wake_fd), &one, sizeof one);
    (void)written;
    for (int i = 0; i < TURNS_MAX && !atomic_load(&is_reported); i++) nap();
    signal(number, SIG_DFL);
    raise(number); /* it is blocked until this handler returns */
}

void wd__watch_crash_install(int wake)
{
    struct sigaction now, action = {.sa_handler = on_crash};
    sigfillset(&action.sa_mask);
    atomic_store(&wake_fd, wake);
    for (int i = 0; i < FATAL; i++) {
        is_handled[i] = !sigaction(fatal[i], NULL, &now) && now.sa_handler != SIG_IGN &&
                        (!sanitized || now.sa_handler == SIG_DFL);
        if (is_handled[i]) sigaction(fatal[i], &action, NULL);
    }
}

void wd__watch_crash_uninstall(void)
{
    for (int i = 0; i < FATAL; i++)
        if (is_handled[i]) signal(fatal[i], SIG_DFL);
    atomic_store(&wake_fd, -1);
}

int wd__watch_crash_signal(void)
{
    return atomic_load(&crashed);
}

/* The signal was reported: lets it end the process. Returns if there was no signal. */
static void finish_crash(void)
{
    if (!atomic_load(&crashed)) return;
    atomic_store(&is_reported, 1);
    for (int i = 0; i < TURNS_MAX; i++) nap();
}

/* ---- processes of ranks ---- */

wd_status wd__watch_process_open(wd_watch_process *out, wd_err *err)
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

void wd__watch_process_close(const wd_watch_process *process)
{
    if (process->fd >= 0) close(process->fd);
}

/* Kills the described process if it is one of this machine. */
static void kill_process(const wd_watch_process *process)
{
    char path[64], expected[64], found[64] = "";
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)process->pid, (int)process->fd);
    snprintf(expected, sizeof expected, "/memfd:%.32s (deleted)", process->name);
    if (readlink(path, found, sizeof found - 1) > 0 && !strcmp(found, expected))
        kill(process->pid, SIGKILL);
}

/* ---- the end of a job ---- */

static const double report_s = 2;   /* for a rank to report, before the next one does it */
static const double connect_s = 1;  /* for ranks that are just connecting */
static const double linger_s = 1.5; /* for the others to end, before they are killed */

static void say_lines(char *text, const char *prefix, const char *suffix)
{
    char *rest, *line = strtok_r(text, "\n", &rest);
    for (; line; line = strtok_r(NULL, "\n", &rest)) wd_log_report("%s%s%s", prefix, line, suffix);
}

/* Ranks send a note of their memory every few heartbeats, and a stopped rank sends none. So the
 * report gives the age of each note, by which the reader sees whether it can explain the failure.
 */
static void say_memory(wd_watch *w, int rank)
{
    char prefix[32], age[32];
    wd_watch_peer *p = &w->peer[rank];
    snprintf(prefix, sizeof prefix, "[Rank %d] ", rank);
    snprintf(age, sizeof age, " (%.1f s ago)", wd_clock_s() - p->noted_s);
    say_lines(p->report.note.memory, prefix, age);
}

/* The alarm ends a process that cannot write because the reader of its standard error hangs. */
static void say_report(wd_watch *w)
{
    wd_watch_failure *f = &w->first;
    signal(SIGALRM, SIG_DFL);
    alarm((unsigned)ceil(report_s));
    char *rest = strchr(f->text, '\n');
    if (rest) *rest++ = 0;
    const wd_watch_note *note = &w->peer[f->rank].report.note;
    wd_log_report("[Rank %d, host %s, device %s] %s", (int)f->rank, w->all[f->rank].host,
                  *note->device ? note->device : "none yet", f->text);
    for (int r = 0; r < w->o.ranks; r++) say_memory(w, r);
    if (rest) say_lines(rest, "", "");
    alarm(0);
}

/* From now on MPI's messages that ranks are gone are not shown, since the report has said it. Where
 * this rank has failed itself its standard error stays, for a crash may still write there. */
static void be_quiet(const wd_watch *w)
{
    const int nothing = w->first.rank == w->o.rank ? -1 : open("/dev/null", O_WRONLY);
    if (nothing >= 0) dup2(nothing, STDERR_FILENO);
}

/* Kills the other ranks of this machine that are connected, all or only the silent ones. */
static void kill_ranks(const wd_watch *w, bool silent_only)
{
    for (int r = 0; r < w->o.ranks; r++)
        if (r != w->o.rank && w->peer[r].link.fd >= 0 && (w->peer[r].is_silent || !silent_only))
            kill_process(&w->all[r].process);
}

/* Waits until the other ranks have ended, and kills those of this machine that do not. */
static void wait_for_ends(wd_watch *w)
{
    const double until = wd_clock_s() + linger_s;
    for (bool some = true; some && wd_clock_s() < until;) {
        some = false;
        for (int r = 0; r < w->o.ranks; r++) {
            wd_watch_link *l = &w->peer[r].link;
            l->in_bytes = 0;
            wd__watch_link_flush(l);
            if (l->fd >= 0 && !wd__watch_link_receive(l)) wd__watch_link_close(l);
            some |= l->fd >= 0;
        }
        if (some) poll(NULL, 0, 5);
    }
    kill_ranks(w, false);
}

/* Says that the report is written. A rank that is not connected to the one that wrote it hears this
 * from the others. */
static void send_end(wd_watch *w)
{
    for (int r = 0; r < w->o.ranks; r++)
        wd__watch_link_send(&w->peer[r].link, WD_FRAME_END, NULL, 0);
}

static _Noreturn void finish(wd_watch *w)
{
    kill_ranks(w, true);
    send_end(w);
    finish_crash();
    _exit(w->first.code);
}

/* Sends the failure to all ranks that do not have it yet. */
static void send_failure(wd_watch *w)
{
    const wd_watch_failure *f = &w->first;
    const size_t bytes = offsetof(wd_watch_failure, text) + strlen(f->text) + 1;
    for (int r = 0; r < w->o.ranks; r++) {
        wd_watch_peer *p = &w->peer[r];
        if (!p->is_connected || p->has_failure) continue;
        wd__watch_link_send(&p->link, WD_FRAME_FAIL, f, bytes);
        p->has_failure = true;
    }
}

/* Whether a rank that lives is not connected yet, which may be the one to report, or has not sent a
 * note of its memory yet. */
static bool is_anybody_new(const wd_watch *w)
{
    for (int r = 0; r < w->o.ranks; r++) {
        const wd_watch_peer *p = &w->peer[r];
        if (r == w->first.rank || p->is_gone) continue;
        if ((!p->is_connected && r != w->o.rank) || !*p->report.note.memory) return true;
    }
    return false;
}

void wd__watch_act(wd_watch *w, double now)
{
    if (w->is_expelled || w->is_reported) finish(w);
    if (!w->failed_at) {
        w->failed_at = now;
        w->report_by_s = now + report_s;
    }
    send_failure(w);
    if (is_anybody_new(w) && now - w->failed_at < connect_s) return;
    const int who = wd__watch_lowest_living(w);
    if (who != w->o.rank) {
        if (now < w->report_by_s) return;
        w->peer[who].is_silent = true;
        w->report_by_s = now + report_s;
        return;
    }
    say_report(w);
    be_quiet(w);
    kill_ranks(w, true);
    send_end(w);
    wait_for_ends(w);
    finish(w);
}
