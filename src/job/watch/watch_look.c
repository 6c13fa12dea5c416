/* Finds the rank that has failed: see job/watch/watch.h. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "core/text.h"
#include "job/watch/watch_impl.h"

static const char *const wait_name[WD_WAITS] = {"control", "gradients", "targets", "activations",
                                                "what is read for its host"};

static const double quiet_beats = 2; /* heartbeats that a quiet rank has missed */

/* ---- failures ---- */

void wd__watch_failed(wd_watch_failure *f, int rank, int code, wd_watch_cause cause,
                      const char *format, ...)
{
    va_list list;
    *f = (wd_watch_failure){.rank = rank, .code = code, .cause = (int32_t)cause};
    va_start(list, format);
    vsnprintf(f->text, sizeof f->text, format, list);
    va_end(list);
}

void wd__watch_learn(wd_watch *w, const wd_watch_failure *f)
{
    if (w->failed) return;
    w->failed = true;
    w->first = *f;
    wd_watch_peer *p = &w->peer[f->rank];
    const bool is_me = f->rank == w->o.rank;
    w->is_expelled = is_me && (f->cause == WD_WATCH_LOST || f->cause == WD_WATCH_SILENT);
    if (!is_me && f->cause == WD_WATCH_LOST) p->is_gone = true;
    if (!is_me && f->cause == WD_WATCH_SILENT) p->is_silent = true;
}

int wd__watch_lowest_living(const wd_watch *w)
{
    for (int r = 0; r < w->o.rank; r++)
        if (w->peer[r].is_connected && !w->peer[r].is_gone && !w->peer[r].is_silent) return r;
    return w->o.rank;
}

/* ---- failures of other ranks ---- */

/* The least time that any rank may take for its step. */
static double least_allowed_s(const wd_watch *w)
{
    double least = INFINITY;
    for (int r = 0; r < w->o.ranks; r++) least = fmin(least, w->peer[r].report.beat.allowed_s);
    return least;
}

/* For how long a rank has waited until now; -1: it does not wait. */
static double waited_s(const wd_watch *w, int rank, double now)
{
    const wd_watch_beat *b = &w->peer[rank].report.beat;
    return b->wait < 0 ? -1 : b->wait_s + now - w->peer[rank].heard_s;
}

/* Whether a rank has computed for longer than it may, or waited for longer than `least_s`. */
static bool is_stuck(const wd_watch *w, int rank, double least_s, double now)
{
    const wd_watch_beat *b = &w->peer[rank].report.beat;
    return b->wait < 0 ? b->step_s + now - w->peer[rank].heard_s > b->allowed_s
                       : waited_s(w, rank, now) > least_s;
}

/* Whether rank `b` rather than rank `a` holds up the others: it does not wait, or has done less. */
static bool is_later(const wd_watch *w, int b, int a)
{
    const wd_watch_beat *x = &w->peer[a].report.beat, *y = &w->peer[b].report.beat;
    if ((x->wait < 0) != (y->wait < 0)) return y->wait < 0;
    if (x->step != y->step) return y->step < x->step;
    if (x->collectives != y->collectives) return y->collectives < x->collectives;
    return x->brought && y->brought && y->brought < x->brought;
}

/* Whether a rank has missed heartbeats, so that it may be stopped and its last state is old. */
static bool is_quiet(const wd_watch *w, int rank, double now)
{
    return now - w->peer[rank].heard_s > quiet_beats * w->o.beat_s;
}

/* Fails if all ranks are stuck and their heartbeats say so: a step takes too long. */
static void look_for_late(wd_watch *w, double now)
{
    int late = 0;
    size_t n = 0;
    char others[2048] = "";
    wd_watch_failure f;
    const double least_s = least_allowed_s(w);
    for (int r = 0; r < w->o.ranks; r++)
        if (is_quiet(w, r, now) || !is_stuck(w, r, least_s, now)) return;
    for (int r = 1; r < w->o.ranks; r++)
        if (is_later(w, r, late)) late = r;
    const wd_watch_beat *b = &w->peer[late].report.beat;
    for (int r = 0; r < w->o.ranks; r++) {
        const wd_watch_beat *waits = &w->peer[r].report.beat;
        if (waits->wait >= 0 && waits->wait < WD_WAITS)
            n = wd_append_text(others, sizeof others, n,
                               "\nrank %d, at step %lld, has waited %.0f s for %s", r,
                               (long long)waits->step, waited_s(w, r, now), wait_name[waits->wait]);
    }
    wd__watch_failed(
        &f, late, WD_RANK_LOST, WD_WATCH_LATE,
        "step %lld has taken %.0f s, and at most %.0f s were expected (--step_timeout): "
        "it hangs, or the network does%s",
        (long long)b->step, b->step_s, least_s, others);
    wd__watch_learn(w, &f);
}

/* Fails if a rank has not connected in time. */
static void look_for_unconnected(wd_watch *w, double now)
{
    wd_watch_failure f;
    if (!w->connect || now - w->begun < w->o.open_s) return;
    for (int r = 0; r < w->o.ranks; r++)
        if (r != w->o.rank && !w->peer[r].is_connected) {
            wd__watch_failed(&f, r, WD_RANK_LOST, WD_WATCH_LOST,
                             "no connection between its watch and that of rank %d (port %d of %s) "
                             "within %.0f s: a firewall, or it was stopped",
                             w->o.rank, (int)w->all[r].port, w->all[r].host, w->o.open_s);
            wd__watch_learn(w, &f);
            return;
        }
}

void wd__watch_look(wd_watch *w, double now)
{
    wd_watch_failure f;
    for (int r = 0; r < w->o.ranks && !w->failed; r++) {
        wd_watch_peer *p = &w->peer[r];
        if (r == w->o.rank || !p->is_connected) continue;
        if (p->is_gone && !p->has_left) {
            wd__watch_failed(&f, r, WD_RANK_LOST, WD_WATCH_LOST,
                             "its process is gone: it was killed, by the system for memory or by "
                             "somebody, or it crashed. The last checkpoint is whole: --resume auto "
                             "goes on from it");
            wd__watch_learn(w, &f);
        } else if (!p->is_gone && now - p->heard_s > w->o.silent_s) {
            wd__watch_failed(
                &f, r, WD_RANK_LOST, WD_WATCH_SILENT,
                "no sign of life for %.1f s: its process is stopped, or its host or the "
                "network hangs. The last checkpoint is whole: --resume auto goes on "
                "from it",
                now - p->heard_s);
            wd__watch_learn(w, &f);
        }
    }
    if (!w->failed) look_for_unconnected(w, now);
    if (!w->failed && !w->connect && wd__watch_lowest_living(w) == w->o.rank) look_for_late(w, now);
}
