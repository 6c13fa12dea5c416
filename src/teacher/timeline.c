/* Playing sweeps through: see teacher/timeline.h. */
#include "teacher/timeline.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "core/memory.h"
#include "core/require.h"
#include "teacher/sweep_schedule.h"

enum {
    BEFORE = 3, /* sweeps, or steps where these are longer, that are played before times repeat */
    TRIED = 16  /* numbers of sweeps that are tried: do they take a whole number of steps? */
};

/* Sums of fractions that differ by less are the same number. */
static const double WHOLE = 1e-9;

typedef struct lane {
    double free;                       /* when its work so far is done */
    double busy;                       /* seconds of work in the last sweep */
    double student_begin, student_end; /* the student works there, too, from then until then */
} lane;

/* The state of a device; times are when a lane, a slot, a staging or a place is free again. */
typedef struct part {
    lane compute, link, network;
    double slot[WD_HOMES][WD_STAGE_KINDS][WD_PLACED_SLOTS_MAX];
    int slot_next[WD_HOMES][WD_STAGE_KINDS]; /* slots and stagings are used in turn */
    double staging[WD_PLACED_STAGINGS];
    int staging_next;
} part;

/* The student's steps. */
typedef struct student {
    int64_t begun;    /* steps so far */
    double ready;     /* when those targets of the next step are there that have been made */
    double begin[2];  /* when the last step began, and the one before it */
    double exchanged; /* when ranks have exchanged the results of the last step */
} student;

typedef struct player {
    wd_sweep_setting in;
    wd_timeline_fn *fn;
    void *context;
    int parts;
    lane disk;
    student student;
    wd_sweep_work work;
    wd_sweep_schedule schedule;           /* of the sweep that is played */
    double weights[WD_PLACED_STAGES_MAX]; /* when the weights of each stage may be used */
    double *slot[WD_PLACED_STAGES_MAX];   /* the slot that each stage is in; NULL: it stays */
    double *place;                        /* [parts, places]: of micro-batches */
    int places;                           /* of a device, at most */
    int sweep, sweeps, sweeps_apart;
    double from;                       /* when the sweep may begin */
    double uploaded[WD_SWEEP_UPLOADS]; /* when the last micro-batches came to the embedding */
    double launched; /* when the last micro-batch could be launched: once the one WD_SWEEP_UPLOADS
                      * before it had come to the embedding */
    int64_t entered; /* micro-batches so far */
    wd_timeline *out;
    /* When each micro-batch may go on, those of `sweeps_apart` sweeps. */
    double ready[WD_PLACED_EXPERTS_MAX][WD_TIMELINE_BATCHES_MAX];
    part part[]; /* [parts] */
} player;

static double later(double a, double b)
{
    return a > b ? a : b;
}

static double *ready_at(player *p, int expert, int batch)
{
    return &p->ready[expert][p->sweep % p->sweeps_apart * p->in.load->batches[expert] + batch];
}

static double *ready_of(player *p, const wd_sweep_entry *e)
{
    return ready_at(p, e->expert, e->batch);
}

/* When a place on a device is free again. */
static double *place_at(player *p, int device, int place)
{
    return &p->place[device * p->places + place];
}

static bool is_last(const player *p)
{
    return p->sweep == p->sweeps - 1;
}

/* How long `seconds` of work take on a lane. While the student works there, each gets half of the
 * lane, and the student's work takes longer by as much. */
static double halve(lane *on, double begin, double seconds)
{
    const double from = later(begin, on->student_begin);
    const double both = fmin(on->student_end - from, begin + seconds - from);
    if (!(both > 0)) return seconds;
    on->student_end += both;
    return seconds + both;
}

/* Work of `seconds` on a lane, not before `from`; returns when it is done. */
static double work(player *p, lane *on, double from, double seconds, wd_timeline_event event)
{
    event.begin = later(on->free, from);
    event.end = on->free = event.begin + halve(on, event.begin, seconds);
    event.sweep = p->sweep;
    if (is_last(p)) on->busy += seconds;
    if (p->fn) p->fn(p->context, &event);
    return event.end;
}

/* A rate that is not known is that of a link that takes no time. */
static double known_rate(double rate)
{
    return rate > 0 ? rate : INFINITY;
}

/* A processor, whose memory is host memory, has no link. */
static double link_rate(const player *p, int device)
{
    if (device == WD_LINK_HOST || wd_cluster_at(p->in.cluster, device)->reads_host) return INFINITY;
    return wd_cluster_at(p->in.cluster, device)->link_bytes_per_s;
}

/* How long a move takes if nothing else is under way. A copy between two devices goes at the rate
 * of the slower link. Where each rank has a teacher, all ranks of a host gather velocities at the
 * same time. */
static double seconds_of(const player *p, const wd_move *move)
{
    const wd_cluster *cluster = p->in.cluster;
    const bool all_send = move->gathers && p->in.placement->each;
    const double bytes = (all_send ? wd_cluster_host_ranks(cluster) : 1) * move->bytes;
    switch (move->kind) {
    case WD_LINK_READ:
        return bytes / cluster->disk_bytes_per_s;
    case WD_LINK_NEAR:
        return bytes / known_rate(cluster->memory_bytes_per_s);
    case WD_LINK_FAR:
        return bytes / known_rate(cluster->network_bytes_per_s);
    default:
        return bytes / fmin(link_rate(p, move->from), link_rate(p, move->to));
    }
}

/* ---- weights ---- */

/* The next slot for a stage that is streamed to its device; NULL: the stage stays there. */
static double *next_slot(player *p, const wd_sweep_entry *e)
{
    const wd_home home = p->in.placement->place[e->expert][e->stage].home;
    const wd_stage_kind kind = wd_stage_kind_of(e->stage, p->in.placement->stages);
    const int slots = p->schedule.part[e->device].slots[home][kind];
    part *on = &p->part[e->device];
    if (home == WD_HOME_DEVICE) return NULL;
    return &on->slot[home][kind][on->slot_next[home][kind]++ % slots];
}

/* The weights of a stage come as soon as there is room for them: a slot, and where they are read
 * for a device that does not read host memory, a staging, while the slot may still be in use.
 * Mapped weights are read when the processor comes to them. */
static void acquire(player *p, const wd_sweep_entry *e)
{
    wd_move move[WD_MOVES_MAX];
    const int moves = wd_sweep_moves(move, &p->in, e, 0, 0);
    part *on = &p->part[e->device];
    double *slot = next_slot(p, e), *staging = NULL;
    double ready = slot ? *slot : moves ? on->compute.free : 0;
    if (moves == 2) ready = *(staging = &on->staging[on->staging_next++ % WD_PLACED_STAGINGS]);
    for (int i = 0; i < moves; i++) {
        const bool reads = move[i].kind == WD_LINK_READ;
        const wd_timeline_event event = {.lane = reads ? WD_LANE_DISK : WD_LANE_LINK,
                                         .device = reads ? -1 : e->device,
                                         .expert = e->expert,
                                         .stage = e->stage,
                                         .batch = -1};
        if (!reads) ready = later(ready, *slot);
        ready = work(p, reads ? &p->disk : &on->link, ready, seconds_of(p, &move[i]), event);
    }
    if (staging) *staging = ready;
    p->weights[e->stage] = ready;
    p->slot[e->stage] = slot;
}

/* ---- micro-batches ---- */

static void compute(player *p, const wd_sweep_entry *e)
{
    const int d = e->device;
    const wd_timeline_event event = {WD_LANE_COMPUTE, d, 0, e->expert, e->stage, e->batch, 0, 0};
    double *ready = ready_of(p, e);
    const double flops = p->in.size->flops[e->stage] * p->in.load->batch_targets[e->expert];
    *ready = work(p, &p->part[d].compute, later(*ready, p->weights[e->stage]),
                  flops / wd_cluster_at(p->in.cluster, d)->flops_per_s, event);
}

static double carry(player *p, lane *on, wd_lane_kind kind, int device, const wd_sweep_entry *e,
                    double seconds)
{
    const wd_timeline_event event = {kind, device, 0, e->expert, -1, e->batch, 0, 0};
    return work(p, on, *ready_of(p, e), seconds, event);
}

/* A copy of states or velocities is small, and shares links with whatever is under way there, so
 * that nothing waits for it. */
static double share_links(player *p, const wd_sweep_entry *e, const wd_move *move, double seconds)
{
    if (is_last(p) && move->from != WD_LINK_HOST) p->part[move->from].link.busy += seconds;
    if (is_last(p) && move->to != WD_LINK_HOST) p->part[move->to].link.busy += seconds;
    return *ready_of(p, e) + seconds;
}

/* The device does nothing else while it copies what a micro-batch needs. It does not wait for
 * messages between ranks, and a micro-batch goes on while its velocities are gathered. */
static void play_move(player *p, const wd_sweep_entry *e, const wd_move *move)
{
    part *on = &p->part[e->device];
    const bool is_message = move->kind == WD_LINK_NEAR || move->kind == WD_LINK_FAR;
    const int device = move->to == WD_LINK_HOST ? move->from : move->to;
    double end;
    if (move->gathers && !is_message) return;
    const double seconds = seconds_of(p, move);
    if (is_message)
        end = carry(p, &on->network, WD_LANE_NETWORK, e->device, e, seconds);
    else if (e->kind == WD_ENTRY_ENTER || e->kind == WD_ENTRY_LEAVE)
        on->compute.free = end = share_links(p, e, move, seconds);
    else
        on->compute.free = end = carry(p, &p->part[device].link, WD_LANE_LINK, device, e, seconds);
    if (!move->gathers) *ready_of(p, e) = end;
}

/* Notes when a micro-batch has come to the embedding: the launch of a sweep is so many ahead. */
static void note_upload(player *p, const wd_sweep_entry *e)
{
    const int places = wd_cluster_at(p->in.cluster, e->device)->reads_host ? 1 : WD_SWEEP_UPLOADS;
    const int64_t now = p->entered++ + WD_SWEEP_UPLOADS;
    p->launched = p->uploaded[(now - places) % WD_SWEEP_UPLOADS];
    p->uploaded[now % WD_SWEEP_UPLOADS] = later(*ready_of(p, e), p->part[e->device].compute.free);
}

/* An entry of a micro-batch begins when the micro-batch is ready and its device is free. A device
 * that copies to another one waits for a place there. */
static void play_batch(player *p, const wd_sweep_entry *e)
{
    wd_move move[WD_MOVES_MAX];
    const int moves = wd_sweep_moves(move, &p->in, e, 1, p->in.load->batch_targets[e->expert]);
    part *on = &p->part[e->device];
    double *ready = ready_of(p, e);
    *ready = later(*ready, on->compute.free);
    if (e->kind == WD_ENTRY_ENTER) *ready = later(*ready, p->from);
    if (e->kind == WD_ENTRY_COPY)
        *ready = on->compute.free = later(*ready, *place_at(p, e->to, e->to_place));
    if (e->kind == WD_ENTRY_RUN || e->kind == WD_ENTRY_LEAVE) compute(p, e);
    for (int i = 0; i < moves; i++) play_move(p, e, &move[i]);
    if (e->kind == WD_ENTRY_ENTER) note_upload(p, e);
    if (e->kind == WD_ENTRY_ENTER) compute(p, e);
    if (e->kind == WD_ENTRY_COPY || e->kind == WD_ENTRY_SEND || e->kind == WD_ENTRY_LEAVE)
        *place_at(p, e->device, e->place) = on->compute.free;
}

static void play_entry(player *p, const wd_sweep_entry *e)
{
    double *slot = p->slot[e->stage];
    if (e->kind == WD_ENTRY_ACQUIRE) acquire(p, e);
    if (e->kind == WD_ENTRY_RELEASE && slot) *slot = p->part[e->device].compute.free;
    if (e->batch >= 0) play_batch(p, e);
}

/* ---- the student ---- */

/* When the first `targets` targets of the sweep that was played are there. A window has states of
 * both experts in turn, but those of the first expert are computed first. */
static double arrival_of(player *p, double targets)
{
    const wd_sweep_load *load = p->in.load;
    double all = 0, there = 0;
    for (int e = 0; e < p->in.placement->experts; e++)
        all += load->batches[e] * load->batch_targets[e];
    for (int e = 0; e < p->in.placement->experts; e++) {
        if (!load->batches[e]) continue;
        const double portion = load->batches[e] * load->batch_targets[e] / all;
        const double states = ceil((targets + 0.5) * portion - 0.5 - WHOLE);
        const int batch = (int)ceil(states / load->batch_targets[e] - WHOLE);
        const int batches = batch < load->batches[e] ? batch : load->batches[e];
        if (batches > 0) there = later(there, *ready_at(p, e, batches - 1));
    }
    return there;
}

/* Adds work of the student on a lane, which follows the work of the step before, or begins anew. */
static void occupy(lane *on, double from, double seconds)
{
    if (from > on->student_end) on->student_begin = on->student_end = from;
    on->student_end += seconds;
}

static bool is_home(const player *p, int device)
{
    return device % p->in.cluster->devices == p->in.load->home;
}

/* When the last step ends, as far as is known: sweeps that are played later make it longer. */
static double step_end(const player *p)
{
    double end = p->student.exchanged;
    for (int d = 0; d < p->parts; d++) {
        if (!is_home(p, d)) continue;
        end = later(end, p->part[d].compute.student_end);
        end = later(end, p->part[d].link.student_end);
    }
    return end;
}

static void begin_step(player *p)
{
    const wd_student_load *load = &p->in.load->student;
    student *s = &p->student;
    const double begin = later(step_end(p), s->ready), then = begin + load->after_seconds;
    for (int d = 0; d < p->parts; d++) {
        if (!is_home(p, d)) continue;
        occupy(&p->part[d].compute, begin, load->compute_seconds);
        occupy(&p->part[d].link, then, load->link_seconds);
    }
    s->exchanged = then + load->network_seconds;
    s->begin[1] = s->begin[0];
    s->begin[0] = begin;
    s->ready = 0;
    s->begun++;
}

/* Begins the steps whose last targets this sweep has made. They are launched after the sweep. */
static void play_steps(player *p)
{
    const double step = p->in.load->student.targets, window = p->in.load->window;
    const double first = p->sweep * window, end = first + window;
    student *s = &p->student;
    while (step > 0) {
        const double needed = (double)(s->begun + 1) * step;
        s->ready = later(s->ready, later(p->launched, arrival_of(p, fmin(needed, end) - first)));
        if (needed > end + WHOLE * step) return;
        begin_step(p);
    }
}

/* When states of the next sweep may begin, whose first target the next step needs. */
static double release_of(const player *p)
{
    const double ahead = p->in.load->student.ahead, *begin = p->student.begin;
    if (!(p->in.load->student.targets > 0)) return 0;
    assert(ahead >= 0 && ahead <= 2);
    return ahead > 1 ? begin[1] + (2 - ahead) * (begin[0] - begin[1])
                     : begin[0] + (1 - ahead) * (step_end(p) - begin[0]);
}

/* ---- the sweep ---- */

static void find_limit(const player *p, double seconds)
{
    wd_timeline *out = p->out;
    double most = p->disk.busy;
    out->limit = WD_LANE_DISK;
    out->limit_device = -1;
    for (int d = 0; d < p->parts; d++) {
        const part *on = &p->part[d];
        const lane *const lanes[] = {[WD_LANE_COMPUTE] = &on->compute,
                                     [WD_LANE_LINK] = &on->link,
                                     [WD_LANE_NETWORK] = &on->network};
        for (int i = WD_LANE_NETWORK; i >= WD_LANE_COMPUTE; i--) {
            if (lanes[i]->busy < most) continue;
            most = lanes[i]->busy;
            out->limit = (wd_lane_kind)i;
            out->limit_device = d;
        }
    }
    out->busy = seconds > 0 ? most / seconds : 0;
}

static void sum_up(const player *p)
{
    wd_timeline *out = p->out;
    for (int d = 0; d < p->parts; d++) out->compute_seconds[d] = p->part[d].compute.busy;
    for (int first = 0; first < p->parts; first += p->in.cluster->devices) {
        double seconds = 0;
        for (int d = first; d < first + p->in.cluster->devices; d++)
            seconds += p->part[d].network.busy;
        out->network_seconds = fmax(out->network_seconds, seconds);
    }
}

/* Returns when it is done. */
static double play_sweep(player *p)
{
    double end = 0;
    wd_sweep_schedule_make(&p->schedule, &p->work);
    for (int i = 0; i < p->schedule.count; i++) play_entry(p, &p->schedule.entry[i]);
    for (int e = 0; e < p->in.placement->experts; e++)
        for (int b = 0; b < p->in.load->batches[e]; b++) end = later(end, *ready_at(p, e, b));
    return end;
}

/* How many sweeps the longer of a sweep and a step has. */
static int sweeps_of_one(const wd_sweep_load *load)
{
    const double sweeps = load->student.targets > 0 ? load->student.targets / load->window : 1;
    return sweeps > 1 ? (int)ceil(sweeps - WHOLE) : 1;
}

/* A number of sweeps, `least` or more, that is a whole number of steps, or nearly. */
static int whole_steps(const wd_sweep_load *load, int least)
{
    if (!(load->student.targets > 0)) return least;
    const int most = least + TRIED + sweeps_of_one(load);
    for (int n = least; n < most; n++) {
        const double steps = n * load->window / load->student.targets;
        if (fabs(steps - round(steps)) < WHOLE * steps) return n;
    }
    return most;
}

/* The load's sweeps_apart, as far as there is room for the micro-batches of so many sweeps: if
 * there are more of them than devices, they never wait for one another anyway. */
static int find_sweeps_apart(const wd_sweep_load *load)
{
    int most = 1;
    for (int e = 0; e < WD_PLACED_EXPERTS_MAX; e++)
        if (load->batches[e] > most) most = load->batches[e];
    const int room = WD_TIMELINE_BATCHES_MAX / most;
    if (load->sweeps_apart < 1) return 1;
    return load->sweeps_apart < room ? load->sweeps_apart : room;
}

/* How many sweeps steps have needed by some time, or without a student, how many have ended. */
typedef struct mark {
    double sweeps, seconds;
} mark;

static mark mark_of(const player *p, double end)
{
    const student *s = &p->student;
    const double sweeps = (double)s->begun * p->in.load->student.targets / p->in.load->window;
    return s->begun ? (mark){sweeps, s->begin[0]} : (mark){p->sweep + 1, end};
}

static void close_player(player *p)
{
    wd_sweep_schedule_close(&p->schedule);
    wd_free(p->place);
    wd_free(p);
}

/* Opens the player of a sweep, which is too large for a stack. */
static wd_status open_player(player **out, const wd_sweep_setting *sweep, wd_err *err)
{
    player *p;
    const wd_cluster *cluster = sweep->cluster;
    const int parts = sweep->placement->each ? cluster->devices : wd_cluster_devices(cluster);
    int batches = cluster->batches;
    WD_TRY(
        wd_alloc((void **)&p, 1, sizeof *p + (size_t)parts * sizeof *p->part, "a timeline", err));
    p->in = *sweep;
    p->parts = parts;
    for (int e = 0; e < sweep->placement->experts; e++) {
        p->work.batches[e] = sweep->load->batches[e];
        WD_REQUIRE(p->work.batches[e] <= WD_TIMELINE_BATCHES_MAX,
                   "%d micro-batches of an expert, and there is room for %d", p->work.batches[e],
                   WD_TIMELINE_BATCHES_MAX);
        if (p->work.batches[e] > batches) batches = p->work.batches[e];
    }
    wd_status status = wd_sweep_schedule_open(&p->schedule, parts, sweep->placement, batches, err);
    for (int d = 0; d < parts; d++)
        if (p->schedule.part[d].places > p->places) p->places = p->schedule.part[d].places;
    if (status == WD_OK)
        status = wd_alloc((void **)&p->place, (size_t)parts * (size_t)p->places, sizeof *p->place,
                          "a timeline", err);
    if (status == WD_OK)
        *out = p;
    else
        close_player(p);
    return status;
}

wd_status wd_timeline_play(wd_timeline *out, const wd_sweep_setting *sweep, wd_timeline_fn *fn,
                           void *context, wd_err *err)
{
    player *p;
    mark first = {0}, last = {0};
    WD_TRY(open_player(&p, sweep, err));
    memset(out, 0, sizeof *out);
    p->fn = fn;
    p->context = context;
    p->out = out;
    p->sweeps_apart = find_sweeps_apart(sweep->load);
    const int before = BEFORE * sweeps_of_one(sweep->load);
    p->sweeps = before + whole_steps(sweep->load, p->sweeps_apart);
    for (p->sweep = 0; p->sweep < p->sweeps; p->sweep++) {
        p->from = release_of(p);
        const double end = play_sweep(p);
        play_steps(p);
        last = mark_of(p, end);
        if (p->sweep == before - 1) first = last;
    }
    sum_up(p);
    out->sweep_seconds = (last.seconds - first.seconds) / (last.sweeps - first.sweeps);
    find_limit(p, out->sweep_seconds);
    close_player(p);
    return WD_OK;
}
