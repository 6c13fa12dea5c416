/* See job/watch/watch.h.
 *
 * Data flow: one thread per rank does all the work, in turns of at most a tenth of a second. In
 * each turn it receives what the other ranks have sent (heartbeats, failures, goodbyes), serves its
 * own rank's requests, sends a heartbeat if it is time, and looks for ranks that have failed. It
 * sends the first failure that it learns of to all ranks. Then it waits until the lowest living
 * rank has reported, or reports itself, and ends the process.
 *
 * Three things must not look like a failure: a busy machine (heartbeats come from a thread that
 * otherwise sleeps, and ten of them may be missed); a pause of this rank's own process (it does not
 * count the time in which it did not look); and a rank that has left in order. */
#include "job/watch/watch.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/thread.h"
#include "job/watch/watch_end.h"
#include "job/watch/watch_impl.h"

static const double turn_s = 0.1, connect_turn_s = 0.005, absent_s = 1, describe_s = 2;
static const double leave_s = 1; /* for goodbyes to arrive */

/* ---- messages from other ranks ---- */

static void connect_others(wd_watch *w, double now)
{
    int fd, rank;
    while ((rank = wd__connect_step(w->connect, &fd, now)) >= 0) {
        w->peer[rank].link.fd = fd;
        w->peer[rank].is_connected = true;
        w->peer[rank].heard_s = now;
        w->next_beat = now;
        pthread_mutex_lock(&w->lock);
        w->connected++;
        pthread_cond_broadcast(&w->changed);
        pthread_mutex_unlock(&w->lock);
    }
    if (w->connected < w->o.ranks) return;
    wd__connect_close(w->connect);
    w->connect = NULL;
    pthread_setname_np(pthread_self(), "wd-watch"); /* tools/torture reads it: all are connected */
}

static void take_frame(wd_watch *w, wd_watch_peer *p, const wd_frame *f, double now)
{
    switch (f->kind) {
    case WD_FRAME_BEAT:
        memcpy(&p->report, f->data, f->bytes < sizeof p->report ? f->bytes : sizeof p->report);
        p->report.note.device[sizeof p->report.note.device - 1] = 0;
        p->report.note.memory[sizeof p->report.note.memory - 1] = 0;
        p->noted_s = now - p->report.beat.note_s;
        break;
    case WD_FRAME_FAIL: {
        wd_watch_failure heard = {0}; /* bytes from another process: its rank is checked */
        memcpy(&heard, f->data, f->bytes < sizeof heard ? f->bytes : sizeof heard - 1);
        if (heard.rank >= 0 && heard.rank < w->o.ranks) wd__watch_learn(w, &heard);
        break;
    }
    case WD_FRAME_END:
        w->is_reported = true;
        break;
    default:
        p->has_left = true;
    }
}

static void receive(wd_watch *w, wd_watch_peer *p, double now)
{
    if (p->link.fd < 0) return;
    wd_watch_link_state state;
    const size_t before = p->link.in_bytes;
    bool open = wd__watch_link_receive(&p->link);
    if (p->link.in_bytes != before) p->heard_s = now;
    while ((state = wd__watch_link_take(&p->link, &w->frame)) == WD_WATCH_LINK_FRAME)
        take_frame(w, p, &w->frame, now);
    if (open && state != WD_WATCH_LINK_DAMAGED) return;
    wd__watch_link_close(&p->link);
    p->is_gone = true;
}

/* ---- its own rank ---- */

/* Appends the errors that were logged to a failure's text. */

static void add_errors(wd_watch_failure *f)
{
    const size_t n = strlen(f->text);
    if (n + 2 >= sizeof f->text) return;
    f->text[n] = '\n';
    if (!wd_log_take_errors(f->text + n + 1, sizeof f->text - n - 1)) f->text[n] = 0;
}

/* Makes the note of this rank's memory where it is time; whether it did. */
static bool describe(wd_watch *w, double now)
{
    pthread_mutex_lock(&w->note_lock);
    const bool due = w->describe && (w->describe_now || now >= w->next_note);
    w->describe_now = false;
    if (due) {
        w->next_note = now + describe_s;
        w->peer[w->o.rank].noted_s = now;
        w->describe(w->context, &w->peer[w->o.rank].report.note);
    }
    pthread_mutex_unlock(&w->note_lock);
    return due;
}

static void note_own_state(wd_watch *w, double now)
{
    wd_watch_beat *b = &w->peer[w->o.rank].report.beat;
    w->peer[w->o.rank].heard_s = now;
    pthread_mutex_lock(&w->lock);
    *b = (wd_watch_beat){.step = w->step,
                         .step_s = now - w->step_begun,
                         .allowed_s = w->allowed_s,
                         .note_s = now - w->peer[w->o.rank].noted_s,
                         .wait = -1};
    if (w->comm) b->collectives = atomic_load(&w->comm->collectives);
    if (w->comm) b->brought = atomic_load(&w->comm->brought);
    for (int i = 0; w->comm && i < WD_WAITS; i++) {
        const double since = atomic_load(&w->comm->waits_since[i]);
        if (since > 0 && now - since >= b->wait_s) {
            b->wait_s = now - since;
            b->wait = i;
        }
    }
    pthread_mutex_unlock(&w->lock);
}

static void send_beats(wd_watch *w, double now)
{
    w->next_beat = now + w->o.beat_s;
    note_own_state(w, now);
    const wd_watch_report *report = &w->peer[w->o.rank].report;
    const size_t bytes = offsetof(wd_watch_report, note.memory) + strlen(report->note.memory) + 1;
    for (int r = 0; r < w->o.ranks; r++)
        wd__watch_link_send(&w->peer[r].link, WD_FRAME_BEAT, report, bytes);
}

/* A heartbeat is sent before the note of this rank's memory is made, which takes some time, and
 * another one with the note. */
static void send_heartbeats(wd_watch *w, double now)
{
    if (now >= w->next_beat) send_beats(w, now);
    if (describe(w, now)) send_beats(w, wd_clock_s());
}

static void serve_own_rank(wd_watch *w, double now)
{
    const int number = wd__watch_crash_signal();
    wd_watch_failure own = {0};
    pthread_mutex_lock(&w->lock);
    const bool own_is_set = w->own_is_set, leaving = w->leaving;
    if (own_is_set) own = w->own;
    pthread_mutex_unlock(&w->lock);
    if (number) {
        wd__watch_failed(&own, w->o.rank, 128 + number, WD_WATCH_OWN, "ended by signal %d (%s)",
                         number, strsignal(number));
        add_errors(&own);
        wd__watch_learn(w, &own);
    } else if (own_is_set) {
        w->next_note = w->next_beat = 0;
        send_heartbeats(w, now);
        wd__watch_learn(w, &own);
    }
    if (!leaving || w->has_left) return;
    w->has_left = true;
    for (int r = 0; r < w->o.ranks; r++)
        wd__watch_link_send(&w->peer[r].link, WD_FRAME_BYE, NULL, 0);
}

/* Whether all ranks have sent their goodbyes. */
static bool is_over(const wd_watch *w)
{
    if (w->failed || !w->has_left) return false;
    for (int r = 0; r < w->o.ranks; r++)
        if (r != w->o.rank && (!w->peer[r].has_left || w->peer[r].link.out_bytes)) return false;
    return true;
}

/* ---- the thread ---- */

static void wait_for_input(wd_watch *w)
{
    uint64_t count;
    for (int r = 0; r < w->o.ranks; r++) {
        const wd_watch_link *l = &w->peer[r].link;
        w->set[r] =
            (struct pollfd){.fd = l->fd, .events = (short)(POLLIN | (l->out_bytes ? POLLOUT : 0))};
    }
    w->set[w->o.ranks] = (struct pollfd){.fd = w->wake, .events = POLLIN};
    poll(w->set, (nfds_t)w->o.ranks + 1, (int)(1e3 * (w->connect ? connect_turn_s : turn_s)));
    while (read(w->wake, &count, sizeof count) > 0) continue;
    for (int r = 0; r < w->o.ranks; r++) wd__watch_link_flush(&w->peer[r].link);
}

/* The time `seconds` after `time`, but not one in the future. */
static double later(double time, double seconds, double now)
{
    return fmin(time + seconds, now);
}

/* This process did not run for `absent` seconds, in which neither it nor the others could do their
 * work: all times from which this rank counts move on by as much. */
static void discount_absence(wd_watch *w, double absent, double now)
{
    w->begun = later(w->begun, absent, now);
    for (int r = 0; r < w->o.ranks; r++)
        w->peer[r].heard_s = later(w->peer[r].heard_s, absent, now);
    pthread_mutex_lock(&w->lock);
    w->step_begun = later(w->step_begun, absent, now);
    for (int i = 0; w->comm && i < WD_WAITS; i++) {
        double since = atomic_load(&w->comm->waits_since[i]);
        if (since > 0) /* the exchange fails where the wait has just ended, which stays so */
            atomic_compare_exchange_strong(&w->comm->waits_since[i], &since,
                                           later(since, absent, now));
    }
    pthread_mutex_unlock(&w->lock);
}

static void *run(void *context)
{
    wd_watch *w = context;
    double last = w->begun = wd_clock_s();
    while (!is_over(w)) {
        wait_for_input(w);
        const double now = wd_clock_s();
        if (now - last > absent_s) discount_absence(w, now - last, now);
        last = now;
        if (w->connect) connect_others(w, now);
        for (int r = 0; r < w->o.ranks; r++) receive(w, &w->peer[r], now);
        serve_own_rank(w, now);
        send_heartbeats(w, now);
        if (!w->failed) wd__watch_look(w, now);
        if (w->failed) wd__watch_act(w, now);
    }
    /* bytes that were sent must arrive before the sockets are closed */
    for (int r = 0; r < w->o.ranks; r++)
        if (w->peer[r].link.fd >= 0) shutdown(w->peer[r].link.fd, SHUT_WR);
    const double until = wd_clock_s() + leave_s;
    for (bool open = true; open && wd_clock_s() < until;) {
        wait_for_input(w);
        open = false;
        for (int r = 0; r < w->o.ranks; r++) {
            receive(w, &w->peer[r], until);
            open |= w->peer[r].link.fd >= 0;
        }
    }
    return NULL;
}

/* ---- opening and closing ---- */

static void free_watch(wd_watch *w)
{
    for (int r = 0; w->peer && r < w->o.ranks; r++) wd__watch_link_close(&w->peer[r].link);
    wd__connect_close(w->connect);
    if (w->wake >= 0) close(w->wake);
    wd__watch_process_close(&w->process);
    pthread_mutex_destroy(&w->lock);
    pthread_mutex_destroy(&w->note_lock);
    pthread_cond_destroy(&w->changed);
    wd_free(w->all);
    wd_free(w->peer);
    wd_free(w->set);
    wd_free(w);
}

wd_status wd__watch_listen(wd_watch **out, const wd_watch_options *options, wd_watch_address *mine,
                           wd_err *err)
{
    wd_status status;
    wd_watch *w;
    const size_t ranks = (size_t)options->ranks;
    WD_TRY(wd_alloc((void **)&w, 1, sizeof *w, "the watch", err));
    w->o = *options;
    if (!w->o.beat_s) w->o.beat_s = 0.5;
    if (!w->o.silent_s) w->o.silent_s = 5;
    if (!w->o.open_s) w->o.open_s = 6;
    w->connected = 1;
    w->process.fd = -1;
    w->allowed_s = INFINITY;
    pthread_mutex_init(&w->lock, NULL);
    pthread_mutex_init(&w->note_lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->wake < 0)
        WD_TRY_OUT(wd_fail(err, WD_IO, "the watch gets no event: %s", strerror(errno)));
    WD_TRY_OUT(wd_alloc((void **)&w->all, ranks, sizeof *w->all, "the watch", err));
    WD_TRY_OUT(wd_alloc((void **)&w->peer, ranks, sizeof *w->peer, "the watch", err));
    WD_TRY_OUT(wd_alloc((void **)&w->set, ranks + 1, sizeof *w->set, "the watch", err));
    for (size_t r = 0; r < ranks; r++) {
        w->peer[r].link.fd = -1;
        w->peer[r].report.beat = (wd_watch_beat){.allowed_s = INFINITY, .wait = -1};
    }
    WD_TRY_OUT(wd__connect_listen(&w->connect, w->o.rank, w->o.ranks, w->o.one_machine, mine, err));
    WD_TRY_OUT(wd__watch_process_open(&w->process, err));
    mine->process = w->process;
    *out = w;
out:
    if (status != WD_OK) free_watch(w);
    return status;
}

wd_status wd__watch_connect(wd_watch *w, const wd_watch_address *all, wd_err *err)
{
    memcpy(w->all, all, (size_t)w->o.ranks * sizeof *all);
    wd__connect_begin(w->connect, w->all);
    wd_log_keep_errors(true);
    wd__watch_crash_install(w->wake);
    const int rc = wd_thread_start(&w->thread, run, w);
    if (rc) {
        wd__watch_crash_uninstall();
        wd_log_keep_errors(false);
        return wd_fail(err, WD_OUT_OF_MEMORY, "no thread for the watch: %s", strerror(rc));
    }
    w->running = true;
    pthread_mutex_lock(&w->lock);
    while (w->connected < w->o.ranks) pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
    return WD_OK;
}

wd_status wd_watch_open(wd_watch **out, const wd_watch_options *options,
                        wd_watch_exchange_fn *exchange, void *context, wd_err *err)
{
    wd_status status;
    wd_watch_address *all = NULL;
    wd_watch *w = NULL;
    *out = NULL;
    if (options->ranks <= 1) return WD_OK;
    WD_TRY_OUT(wd_alloc((void **)&all, (size_t)options->ranks, sizeof *all, "the watch", err));
    WD_TRY_OUT(wd__watch_listen(&w, options, &all[options->rank], err));
    WD_TRY_OUT(exchange(context, all, err));
    WD_TRY_OUT(wd__watch_connect(w, all, err));
    *out = w;
out:
    if (status != WD_OK && w) free_watch(w);
    wd_free(all);
    return status;
}

static void wake(const wd_watch *w)
{
    const uint64_t one = 1;
    const ssize_t written = write(w->wake, &one, sizeof one);
    (void)written;
}

void wd_watch_describe(wd_watch *w, wd_watch_describe_fn *fn, void *context)
{
    if (!w) return;
    pthread_mutex_lock(&w->note_lock);
    w->describe = fn;
    w->context = context;
    w->describe_now = true;
    pthread_mutex_unlock(&w->note_lock);
    wake(w);
}

void wd_watch_follow(wd_watch *w, wd_comm *comm)
{
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->comm = comm;
    pthread_mutex_unlock(&w->lock);
}

void wd_watch_step(wd_watch *w, int64_t step, double allowed_s)
{
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->step = step;
    w->step_begun = wd_clock_s();
    w->allowed_s = allowed_s;
    pthread_mutex_unlock(&w->lock);
}

_Noreturn void wd_watch_fail(wd_watch *w, const wd_err *error)
{
    wd_watch_failure own;
    const int rank = error->failed_rank ? error->failed_rank - 1 : w->o.rank;
    wd__watch_failed(&own, rank, (int)error->status, WD_WATCH_OWN, "%s", error->message);
    add_errors(&own);
    pthread_mutex_lock(&w->lock);
    w->own = own;
    w->own_is_set = true;
    pthread_mutex_unlock(&w->lock);
    wake(w);
    pthread_join(w->thread, NULL); /* which ends the process */
    _exit((int)error->status);
}

void wd_watch_close(wd_watch *w)
{
    if (!w) return;
    if (w->running) {
        pthread_mutex_lock(&w->lock);
        w->leaving = true;
        pthread_mutex_unlock(&w->lock);
        wake(w);
        pthread_join(w->thread, NULL);
        wd__watch_crash_uninstall();
        wd_log_keep_errors(false);
    }
    free_watch(w);
}
