/* The end of a job that has failed: one report, and every process is gone. */
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "dist/watch_crash.h"
#include "dist/watch_impl.h"

static const double report_s = 2;   /* for the one who reports, before the next one does */
static const double come_s = 1;     /* for ranks that are only just meeting */
static const double linger_s = 1.5; /* for the others to end, before they are killed */

/* ---- the end ---- */

static void say_lines(char *text, const char *prefix, const char *suffix)
{
    char *rest, *line = strtok_r(text, "\n", &rest);
    for (; line; line = strtok_r(NULL, "\n", &rest)) wd_log_report("%s%s%s", prefix, line, suffix);
}

/* Ranks say what memory they have every few beats, and whoever is stopped says nothing: how old it
 * is tells whether it can be what has gone wrong. */
static void say_memory(wd_watch *w, int rank)
{
    char prefix[32], age[32];
    wd_watch_peer *p = &w->peer[rank];
    snprintf(prefix, sizeof prefix, "[Rank %d] ", rank);
    snprintf(age, sizeof age, " (%.1f s ago)", wd_clock_s() - p->noted_s);
    say_lines(p->is.note.memory, prefix, age);
}

/* Whoever cannot write, because what reads it hangs, is ended by the alarm. */
static void say_report(wd_watch *w)
{
    wd_watch_failure *f = &w->first;
    signal(SIGALRM, SIG_DFL);
    alarm((unsigned)ceil(report_s));
    char *rest = strchr(f->text, '\n');
    if (rest) *rest++ = 0;
    const wd_watch_note *note = &w->peer[f->rank].is.note;
    wd_log_report("[Rank %d, host %s, device %s] %s", (int)f->rank, w->all[f->rank].host,
                  *note->device ? note->device : "none yet", f->text);
    for (int r = 0; r < w->o.ranks; r++) say_memory(w, r);
    if (rest) say_lines(rest, "", "");
    alarm(0);
}

/* A thread that MPI holds says that it cannot read from ranks which are gone: no news. A crash that
 * is still to come says more. */
static void be_quiet(const wd_watch *w)
{
    const int nothing = w->first.rank == w->o.rank ? -1 : open("/dev/null", O_WRONLY);
    if (nothing >= 0) dup2(nothing, STDERR_FILENO);
}

/* Those of this machine. */
static void kill_those(const wd_watch *w, bool silent_only)
{
    for (int r = 0; r < w->o.ranks; r++)
        if (r != w->o.rank && w->peer[r].link.fd >= 0 && (w->peer[r].silent || !silent_only))
            wd_watch_life_end(&w->all[r].life);
}

static void wait_for_ends(wd_watch *w)
{
    const double until = wd_clock_s() + linger_s;
    for (bool some = true; some && wd_clock_s() < until;) {
        some = false;
        for (int r = 0; r < w->o.ranks; r++) {
            wd_link *l = &w->peer[r].link;
            l->in_bytes = 0;
            wd_link_flush(l);
            if (l->fd >= 0 && !wd_link_receive(l)) wd_link_close(l);
            some |= l->fd >= 0;
        }
        if (some) poll(NULL, 0, 5);
    }
    kill_those(w, false);
}

/* Those who have no connection to the one who reported hear of it from the others. */
static void send_end(wd_watch *w)
{
    for (int r = 0; r < w->o.ranks; r++) wd_link_send(&w->peer[r].link, WD_FRAME_END, NULL, 0);
}

static _Noreturn void finish(wd_watch *w)
{
    kill_those(w, true);
    send_end(w);
    wd_crash_go_on();
    _exit(w->first.code);
}

static void tell(wd_watch *w)
{
    const wd_watch_failure *f = &w->first;
    const size_t bytes = offsetof(wd_watch_failure, text) + strlen(f->text) + 1;
    for (int r = 0; r < w->o.ranks; r++) {
        wd_watch_peer *p = &w->peer[r];
        if (!p->met || p->told) continue;
        wd_link_send(&p->link, WD_FRAME_FAIL, f, bytes);
        p->told = true;
    }
}

/* While ranks are only just meeting, one that is not connected yet may be the one to report, and
 * one may not have said yet what memory it has. */
static bool some_may_come(const wd_watch *w)
{
    for (int r = 0; r < w->o.ranks; r++) {
        const wd_watch_peer *p = &w->peer[r];
        if (r == w->first.rank || p->gone) continue;
        if ((!p->met && r != w->o.rank) || !*p->is.note.memory) return true;
    }
    return false;
}

/* Once something has failed. */
void wd_watch_act(wd_watch *w, double now)
{
    if (w->outcast || w->ended) finish(w);
    if (!w->failed_at) {
        w->failed_at = now;
        w->patience = now + report_s;
    }
    tell(w);
    if (some_may_come(w) && now - w->failed_at < come_s) return;
    const int who = wd_watch_lowest_living(w);
    if (who != w->o.rank) {
        if (now < w->patience) return;
        w->peer[who].silent = true;
        w->patience = now + report_s;
        return;
    }
    say_report(w);
    be_quiet(w);
    kill_those(w, true);
    send_end(w);
    wait_for_ends(w);
    finish(w);
}
