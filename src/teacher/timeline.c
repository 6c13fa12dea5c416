/* Playing sweeps through: see teacher/timeline.h. */
#include "teacher/timeline.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "core/memory.h"
#include "core/require.h"
#include "teacher/sweep_schedule.h"

enum {
    BEFORE = 3, /* sweeps, and steps, that are played until one is as all that follow */
    TRIED = 16, /* numbers of sweeps of which one may be whole steps */
    HOMES = 3,
    HOST = -1 /* its memory */
};

/* Numbers that differ by less are the same, sums of fractions. */
static const double WHOLE = 1e-9;

typedef struct lane {
    double free, busy;                 /* busy: in the last sweep */
    double student_begin, student_end; /* when the student is at work there, too */
} lane;

/* What a device has. */
typedef struct part {
    lane compute, link, network;
    double slot[HOMES][WD_STAGE_KINDS][WD_PLACED_SLOTS_MAX]; /* when each is free again */
    int slots[HOMES][WD_STAGE_KINDS], slot_next[HOMES][WD_STAGE_KINDS];
    double staging[WD_PLACED_STAGINGS]; /* too */
    int staging_next;
    double *place; /* when each place of a micro-batch is free again */
} part;

/* The student's steps. */
typedef struct student {
    int64_t begun;
    double ready;    /* when targets of the next one are there, as far as they are made */
    double begin[2]; /* of the last one, of the one before it */
    double exchanged; /* when ranks have told one another what comes of the last one */
} student;

typedef struct player {
    const wd_placement *placement;
    const wd_teacher_size *size;
    const wd_cluster *cluster;
    const wd_sweep_load *load;
    wd_timeline_fn *fn;
    void *context;
    int parts;
    lane disk;
    student student;
    wd_sweep_work work;
    wd_sweep_schedule schedule;           /* of the sweep that is played */
    double weights[WD_PLACED_STAGES_MAX]; /* when each stage's may be used, */
    double *slot[WD_PLACED_STAGES_MAX];   /* and the slot that they are in, or NULL */
    double *place;                        /* of all devices */
    int sweep, sweeps, sweeps_apart;
    double from;                       /* when the sweep may begin */
    double uploaded[WD_SWEEP_UPLOADS]; /* when its last micro-batches came to the embedding */
    double launched; /* when the last one could be launched: not before the one so many before it
                      * had come there */
    int64_t entered;
    wd_timeline *out;
    double ready[WD_PLACED_EXPERTS_MAX][WD_TIMELINE_BATCHES_MAX]; /* when each micro-batch may go
                                                                     on; of `sweeps_apart` sweeps */
    part part[];                           /* [parts] */
} player;

static double later(double a, double b)
{
    return a > b ? a : b;
}

static double *ready_at(player *p, int expert, int batch)
{
    return &p->ready[expert][p->sweep % p->sweeps_apart * p->load->batches[expert] + batch];
}

static double *ready_of(player *p, const wd_sweep_entry *e)
{
    return ready_at(p, e->expert, e->batch);
}

static bool is_last(const player *p)
{
    return p->sweep == p->sweeps - 1;
}

/* How long `seconds` of work take on a lane that has half of it for the student, as long as that is
 * at work there, which then takes longer by as much. */
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

static double read_bytes(player *p, int expert, int stage, double bytes, double from)
{
    const wd_timeline_event read = {WD_LANE_DISK, -1, 0, expert, stage, -1, 0, 0};
    return work(p, &p->disk, from, bytes / p->cluster->disk_bytes_per_s, read);
}

static double read_file(player *p, int expert, int stage, double from)
{
    return read_bytes(p, expert, stage, (double)p->size->stage[expert][stage].file, from);
}

/* What is mapped is read when it is touched, and not before. */
static double fault_in(player *p, int expert, int stage, double from)
{
    const size_t mapped = wd_stage_mapped(&p->size->stage[expert][stage]);
    if (!p->cluster->uncached || !mapped) return from;
    return read_bytes(p, expert, stage, (double)mapped, from);
}

static double copy_over(player *p, int expert, int stage, double from)
{
    const wd_place *place = &p->placement->place[expert][stage];
    const wd_stage_size *size = &p->size->stage[expert][stage];
    const int device = place->device;
    const double bytes = (double)wd_stage_sent(size, place->home);
    const wd_timeline_event copy = {WD_LANE_LINK, device, 0, expert, stage, -1, 0, 0};
    return work(p, &p->part[device].link, from,
                bytes / wd_cluster_at(p->cluster, device)->link_bytes_per_s, copy);
}

/* When a streamed stage's weights are in a slot of its device; *slot: which. A processor's is read
 * into; what is for another device is read into a staging, while the slot is still in use. */
static double bring(player *p, int expert, int stage, double **slot)
{
    const wd_place *place = &p->placement->place[expert][stage];
    const int d = place->device;
    const wd_stage_kind kind = wd_stage_kind_of(stage, p->placement->stages);
    const bool from_disk = place->home == WD_HOME_DISK;
    part *on = &p->part[d];
    const int next = on->slot_next[place->home][kind]++ % on->slots[place->home][kind];
    *slot = &on->slot[place->home][kind][next];
    if (wd_cluster_at(p->cluster, d)->reads_host)
        return from_disk ? read_file(p, expert, stage, **slot) : **slot;
    if (!from_disk) return copy_over(p, expert, stage, **slot);
    double *staging = &on->staging[on->staging_next++ % WD_PLACED_STAGINGS];
    const double there = read_file(p, expert, stage, *staging);
    return *staging = copy_over(p, expert, stage, later(there, **slot));
}

static void compute(player *p, const wd_sweep_entry *e)
{
    const int d = e->device;
    const wd_timeline_event event = {WD_LANE_COMPUTE, d, 0, e->expert, e->stage, e->batch, 0, 0};
    double *ready = ready_of(p, e);
    const double flops = p->size->flops[e->stage] * p->load->batch_targets[e->expert];
    *ready = work(p, &p->part[d].compute, later(*ready, p->weights[e->stage]),
                  flops / wd_cluster_at(p->cluster, d)->flops_per_s, event);
}

static bool has_link(const player *p, int device)
{
    return device != HOST && !wd_cluster_at(p->cluster, device)->reads_host;
}

static double link_rate(const player *p, int device)
{
    return has_link(p, device) ? wd_cluster_at(p->cluster, device)->link_bytes_per_s : INFINITY;
}

/* Of the slower of two devices; what is in host memory has none. */
static double rate_between(const player *p, int a, int b)
{
    return fmin(link_rate(p, a), link_rate(p, b));
}

static double known_rate(double rate)
{
    return rate > 0 ? rate : INFINITY;
}

/* From rank to rank. */
static double network_rate(const player *p, int a, int b)
{
    const bool near = wd_cluster_host(p->cluster, a) == wd_cluster_host(p->cluster, b);
    return known_rate(near ? p->cluster->memory_bytes_per_s : p->cluster->network_bytes_per_s);
}

/* Bytes of a micro-batch that go to the stage of an entry. */
static double activations_of(const player *p, const wd_sweep_entry *e)
{
    const double states = p->load->batch_targets[e->expert];
    return e->stage == p->placement->stages - 1
               ? p->load->hop_head_bytes * states
               : p->load->hop_bytes * states + p->load->hop_batch_bytes;
}

/* Work of a micro-batch on a link, or on the way to another rank. */
static double carry(player *p, lane *on, wd_lane_kind kind, int device, const wd_sweep_entry *e,
                    double from, double seconds)
{
    const wd_timeline_event event = {kind, device, 0, e->expert, -1, e->batch, 0, 0};
    return work(p, on, from, seconds, event);
}

/* The device that a micro-batch leaves sends it when its place on the other one is free, and does
 * nothing else meanwhile. */
static void copy(player *p, const wd_sweep_entry *e)
{
    part *from = &p->part[e->device], *to = &p->part[e->to];
    double *ready = ready_of(p, e);
    const double free = later(from->compute.free, to->place[e->to_place]);
    *ready = carry(p, &to->link, WD_LANE_LINK, e->to, e, later(*ready, free),
                   activations_of(p, e) / rate_between(p, e->device, e->to));
    from->compute.free = from->place[e->place] = *ready;
}

/* To host memory, for which the device waits, and from rank to rank, for which it does not. */
static void send(player *p, const wd_sweep_entry *e)
{
    part *from = &p->part[e->device];
    double *ready = ready_of(p, e);
    const double bytes = activations_of(p, e);
    *ready = carry(p, &from->link, WD_LANE_LINK, e->device, e, later(*ready, from->compute.free),
                   bytes / link_rate(p, e->device));
    from->compute.free = from->place[e->place] = *ready;
    *ready = carry(p, &from->network, WD_LANE_NETWORK, e->device, e, *ready,
                   bytes / network_rate(p, e->device, e->to));
}

static void receive(player *p, const wd_sweep_entry *e)
{
    double *ready = ready_of(p, e);
    *ready = carry(p, &p->part[e->device].link, WD_LANE_LINK, e->device, e, *ready,
                   activations_of(p, e) / link_rate(p, e->device));
}

/* A device brings or sends something small of a micro-batch's, and does nothing else meanwhile. It
 * shares links with what is under way there, so that none waits for it. */
static void bring_states(player *p, const wd_sweep_entry *e, int other, double state_bytes)
{
    const int device = e->device;
    double *ready = ready_of(p, e);
    const double bytes = state_bytes * p->load->batch_targets[e->expert];
    const double seconds = bytes / rate_between(p, device, other);
    if (device == other || !(seconds > 0)) return;
    *ready = p->part[device].compute.free = later(*ready, p->part[device].compute.free) + seconds;
    if (!is_last(p)) return;
    if (has_link(p, device)) p->part[device].link.busy += seconds;
    if (other != HOST && has_link(p, other)) p->part[other].link.busy += seconds;
}

/* Where trajectories are, of the rank that has the device. */
static int home_of(const player *p, int device)
{
    return wd_placed_rank(p->placement, device) * p->placement->devices + p->load->home;
}

/* All ranks get a micro-batch's velocities, while it goes on with them. Where each rank has a
 * teacher, those of a host send theirs at the same time. */
static void tell(player *p, const wd_sweep_entry *e)
{
    const int ranks = wd_cluster_ranks(p->cluster), near = wd_cluster_host_ranks(p->cluster);
    const double bytes = p->load->latent_bytes * p->load->batch_targets[e->expert];
    const double senders = p->placement->each ? near : 1;
    if (ranks == 1) return;
    const double seconds = senders * bytes *
                           ((near - 1) / known_rate(p->cluster->memory_bytes_per_s) +
                            (ranks - near) / known_rate(p->cluster->network_bytes_per_s));
    carry(p, &p->part[e->device].network, WD_LANE_NETWORK, e->device, e, *ready_of(p, e), seconds);
}

static void enter(player *p, const wd_sweep_entry *e)
{
    double *ready = ready_of(p, e);
    *ready = later(*ready, p->from);
    bring_states(p, e, home_of(p, e->device), p->load->latent_bytes);
    bring_states(p, e, HOST, p->load->text_bytes);
    const int places = wd_cluster_at(p->cluster, e->device)->reads_host ? 1 : WD_SWEEP_UPLOADS;
    const int64_t now = p->entered++ + WD_SWEEP_UPLOADS;
    p->launched = p->uploaded[(now - places) % WD_SWEEP_UPLOADS];
    p->uploaded[now % WD_SWEEP_UPLOADS] = later(*ready, p->part[e->device].compute.free);
    compute(p, e);
}

static void leave(player *p, const wd_sweep_entry *e)
{
    compute(p, e);
    bring_states(p, e, home_of(p, e->device), p->load->latent_bytes);
    p->part[e->device].place[e->place] = *ready_of(p, e);
    tell(p, e);
}

/* ---- the student ---- */

/* When the first `targets` of the sweep that was played are there. States of both experts are
 * spread over a window, while those of the first are computed first. */
static double arrival_of(player *p, double targets)
{
    const wd_sweep_load *load = p->load;
    double all = 0, there = 0;
    for (int e = 0; e < p->placement->experts; e++)
        all += load->batches[e] * load->batch_targets[e];
    for (int e = 0; e < p->placement->experts; e++) {
        if (!load->batches[e]) continue;
        const double portion = load->batches[e] * load->batch_targets[e] / all;
        const double states = ceil((targets + 0.5) * portion - 0.5 - WHOLE);
        const int batch = (int)ceil(states / load->batch_targets[e] - WHOLE);
        const int batches = batch < load->batches[e] ? batch : load->batches[e];
        if (batches > 0) there = later(there, *ready_at(p, e, batches - 1));
    }
    return there;
}

/* Work of the student on a lane. It follows what is there of the step before, or begins anew. */
static void occupy(lane *on, double from, double seconds)
{
    if (from > on->student_end) on->student_begin = on->student_end = from;
    on->student_end += seconds;
}

static bool is_home(const player *p, int device)
{
    return device % p->cluster->devices == p->load->home;
}

/* When the last step is over, as far as is known: sweeps beside it make it longer. */
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
    const wd_student_load *load = &p->load->student;
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

/* Begins those steps that have all their targets with this sweep's. They are launched after it. */
static void play_steps(player *p)
{
    const double step = p->load->student.targets, window = p->load->window;
    const double first = p->sweep * window, end = first + window;
    student *s = &p->student;
    while (step > 0) {
        const double needed = (double)(s->begun + 1) * step;
        s->ready = later(s->ready, later(p->launched, arrival_of(p, fmin(needed, end) - first)));
        if (needed > end + WHOLE * step) return;
        begin_step(p);
    }
}

/* When states of the next sweep may begin: the step that needs its first target is the next one. */
static double release_of(const player *p)
{
    const double ahead = p->load->student.ahead, *begin = p->student.begin;
    if (!(p->load->student.targets > 0)) return 0;
    assert(ahead >= 0 && ahead <= 2);
    return ahead > 1 ? begin[1] + (2 - ahead) * (begin[0] - begin[1])
                     : begin[0] + (1 - ahead) * (step_end(p) - begin[0]);
}

/* ---- the sweep ---- */

/* When a stage's weights may be used; *slot: that they are in, or NULL. */
static double acquire(player *p, int expert, int stage, double **slot)
{
    const wd_place *place = &p->placement->place[expert][stage];
    *slot = NULL;
    if (place->home != WD_HOME_DEVICE) return bring(p, expert, stage, slot);
    if (!wd_cluster_at(p->cluster, place->device)->reads_host) return 0;
    return fault_in(p, expert, stage, p->part[place->device].compute.free);
}

static void play_entry(player *p, const wd_sweep_entry *e)
{
    const int s = e->stage;
    switch (e->kind) {
    case WD_ENTRY_FETCH: /* weights come as soon as there is a slot for them */
        break;
    case WD_ENTRY_ACQUIRE:
        p->weights[s] = acquire(p, e->expert, s, &p->slot[s]);
        break;
    case WD_ENTRY_RELEASE:
        if (p->slot[s]) *p->slot[s] = p->part[e->device].compute.free;
        break;
    case WD_ENTRY_ENTER:
        enter(p, e);
        break;
    case WD_ENTRY_RUN:
        compute(p, e);
        break;
    case WD_ENTRY_LEAVE:
        leave(p, e);
        break;
    case WD_ENTRY_COPY:
        copy(p, e);
        break;
    case WD_ENTRY_SEND:
        send(p, e);
        break;
    case WD_ENTRY_RECEIVE:
        receive(p, e);
        break;
    }
}

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
    for (int first = 0; first < p->parts; first += p->cluster->devices) {
        double seconds = 0;
        for (int d = first; d < first + p->cluster->devices; d++)
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
    for (int e = 0; e < p->placement->experts; e++)
        for (int b = 0; b < p->load->batches[e]; b++) end = later(end, *ready_at(p, e, b));
    return end;
}

/* Sweeps of the longer of a sweep and a step. */
static int sweeps_of_one(const wd_sweep_load *load)
{
    const double sweeps = load->student.targets > 0 ? load->student.targets / load->window : 1;
    return sweeps > 1 ? (int)ceil(sweeps - WHOLE) : 1;
}

/* Sweeps until steps are at the same place of a sweep again, or nearly, `least` or more. */
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

/* Sweeps between two of a state, as far as there is room for their micro-batches: more of these
 * than there are devices never wait for one another. */
static int find_sweeps_apart(const wd_sweep_load *load)
{
    int most = 1;
    for (int e = 0; e < WD_PLACED_EXPERTS_MAX; e++)
        if (load->batches[e] > most) most = load->batches[e];
    const int room = WD_TIMELINE_BATCHES_MAX / most;
    if (load->sweeps_apart < 1) return 1;
    return load->sweeps_apart < room ? load->sweeps_apart : room;
}

/* So many sweeps have been needed, or, without a student, have ended, by then. */
typedef struct mark {
    double sweeps, seconds;
} mark;

static mark mark_of(const player *p, double end)
{
    const student *s = &p->student;
    const double sweeps = (double)s->begun * p->load->student.targets / p->load->window;
    return s->begun ? (mark){sweeps, s->begin[0]} : (mark){p->sweep + 1, end};
}

static void count_slots(player *p)
{
    const wd_placement *to = p->placement;
    for (int e = 0; e < to->experts; e++)
        for (int s = 0; s < to->stages; s++) {
            const wd_place *place = &to->place[e][s];
            const wd_stage_kind kind = wd_stage_kind_of(s, to->stages);
            int *slots = &p->part[place->device].slots[place->home][kind];
            *slots = wd_placed_slots(kind, to->slots, *slots + 1);
        }
}

static void close_player(player *p)
{
    wd_sweep_schedule_close(&p->schedule);
    wd_free(p->place);
    wd_free(p);
}

static wd_status open_places(player *p, wd_err *err)
{
    size_t places = 0;
    for (int d = 0; d < p->parts; d++) places += (size_t)p->schedule.part[d].places;
    WD_TRY(wd_alloc((void **)&p->place, places, sizeof *p->place, "a timeline", err));
    places = 0;
    for (int d = 0; d < p->parts; d++) {
        p->part[d].place = p->place + places;
        places += (size_t)p->schedule.part[d].places;
    }
    return WD_OK;
}

/* The player of a placement's sweeps. It is too large for a stack. */
static wd_status open_player(player **out, const wd_placement *placement, const wd_cluster *cluster,
                             const wd_sweep_load *load, wd_err *err)
{
    player *p;
    const int parts = placement->each ? cluster->devices : wd_cluster_devices(cluster);
    const size_t bytes = sizeof *p + (size_t)parts * sizeof *p->part;
    int batches = cluster->batches;
    WD_TRY(wd_alloc((void **)&p, 1, bytes, "a timeline", err));
    p->placement = placement;
    p->cluster = cluster;
    p->load = load;
    p->parts = parts;
    for (int e = 0; e < placement->experts; e++) {
        WD_REQUIRE(load->batches[e] <= WD_TIMELINE_BATCHES_MAX,
                   "%d micro-batches of an expert, and there is room for %d", load->batches[e],
                   WD_TIMELINE_BATCHES_MAX);
        p->work.batches[e] = load->batches[e];
        if (load->batches[e] > batches) batches = load->batches[e];
    }
    count_slots(p);
    wd_status status =
        wd_sweep_schedule_open(&p->schedule, parts, placement, cluster, batches, err);
    if (status == WD_OK) status = open_places(p, err);
    if (status == WD_OK)
        *out = p;
    else
        close_player(p);
    return status;
}

wd_status wd_timeline_play(wd_timeline *out, const wd_placement *placement,
                           const wd_teacher_size *size, const wd_cluster *cluster,
                           const wd_sweep_load *load, wd_timeline_fn *fn, void *context,
                           wd_err *err)
{
    player *p;
    mark first = {0}, last = {0};
    WD_TRY(open_player(&p, placement, cluster, load, err));
    memset(out, 0, sizeof *out);
    p->size = size;
    p->fn = fn;
    p->context = context;
    p->out = out;
    p->sweeps_apart = find_sweeps_apart(load);
    const int before = BEFORE * sweeps_of_one(load);
    p->sweeps = before + whole_steps(load, p->sweeps_apart);
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
