/* Playing sweeps through: see teacher/plan/timeline.h. */
#include "teacher/plan/timeline.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "core/memory.h"
#include "teacher/plan/sweep_schedule.h"

enum {
    BEFORE = 3, /* sweeps, or steps where these are longer, that are played before times repeat */
    TRIED = 16  /* numbers of sweeps that are tried: do they take a whole number of steps? */
};

/* Sums of fractions that differ by less are the same number. */
static const double WHOLE = 1e-9;

typedef struct resource {
    double free;                       /* when its work so far is done */
    double busy;                       /* seconds of work in the last sweep */
    double student_begin, student_end; /* the student works there, too, from then until then */
} resource;

/* The state of a device; times are when a resource, a buffer or a staging is free again. */
typedef struct device {
    resource resource[WD_RESOURCE_DISK]; /* compute, link, network */
    double buffer[WD_HOMES][WD_STAGE_KINDS][WD_STREAM_BUFFERS_MAX];
    int buffer_next[WD_HOMES][WD_STAGE_KINDS]; /* buffers and stagings are used in turn */
    double staging[WD_PLACED_STAGINGS];
    int staging_next;
} device;

/* The student's steps. Without a student a step takes no time, and each sweep serves one. */
typedef struct steps {
    double targets;   /* that a step needs */
    int64_t begun;    /* steps so far */
    double ready;     /* when those targets of the next step are there that have been made */
    double begin[2];  /* when the last step began, and the one before it */
    double exchanged; /* when ranks have exchanged the results of the last step */
} steps;

typedef struct player {
    wd_sweep_setting in;
    wd_timeline_fn *fn;
    void *context;
    resource disk;
    steps steps;
    double window;                        /* targets of a sweep */
    wd_sweep_schedule schedule;           /* of the sweep that is played */
    double weights[WD_PLACED_STAGES_MAX]; /* when the weights of each stage may be used */
    double *buffer[WD_PLACED_STAGES_MAX]; /* the buffer that each stage is in; NULL: it stays */
    double *place;                        /* [devices, places]: when places are free again */
    int places;                           /* of a device, at most */
    int sweep, sweeps, sweeps_apart;
    double from;                       /* when the sweep may begin */
    double uploaded[WD_SWEEP_UPLOADS]; /* when the last micro-batches came to the embedding */
    double launched; /* when the last micro-batch could be launched: once the one WD_SWEEP_UPLOADS
                      * before it had come to the embedding */
    int64_t entered; /* micro-batches so far */
    double *ready;   /* [experts, sweeps_apart, batches]: when each micro-batch may go on */
    int batches;     /* of an expert, at most */
    int devices;
    device device[]; /* [devices] */
} player;

static double later(double a, double b)
{
    return a > b ? a : b;
}

static double *ready_at(player *p, int expert, int batch)
{
    const int ring = expert * p->sweeps_apart + p->sweep % p->sweeps_apart;
    return &p->ready[ring * p->batches + batch];
}

/* How long `seconds` of work take on a resource. While the student works there, each gets half of
 * the resource, and the student's work takes longer by as much. */
static double halve(resource *on, double begin, double seconds)
{
    const double from = later(begin, on->student_begin);
    const double both = fmin(on->student_end - from, begin + seconds - from);
    if (!(both > 0)) return seconds;
    on->student_end += both;
    return seconds + both;
}

/* Work of `seconds` for an entry on a resource, not before `from`; returns when it is done. */
static double work(player *p, wd_resource kind, int number, double from, double seconds,
                   const wd_sweep_entry *e)
{
    resource *on = kind == WD_RESOURCE_DISK ? &p->disk : &p->device[number].resource[kind];
    wd_timeline_event event = {.resource = kind,
                               .device = kind == WD_RESOURCE_DISK ? -1 : number,
                               .sweep = p->sweep,
                               .expert = e->expert,
                               .stage = e->batch < 0 || kind == WD_RESOURCE_COMPUTE ? e->stage : -1,
                               .batch = e->batch};
    event.begin = later(on->free, from);
    event.end = on->free = event.begin + halve(on, event.begin, seconds);
    if (p->sweep == p->sweeps - 1) on->busy += seconds;
    if (p->fn) p->fn(p->context, &event);
    return event.end;
}

/* A processor, whose memory is host memory, has no link. */
static double link_rate(const player *p, int number)
{
    if (number == WD_LINK_HOST || wd_cluster_at(p->in.cluster, number)->reads_host) return INFINITY;
    return wd_cluster_at(p->in.cluster, number)->link_bytes_per_s;
}

/* How long a move takes if nothing else is under way. A copy between two devices goes at the rate
 * of the slower link. A rate that is not known is that of a link that takes no time. Where each
 * rank has a teacher, all ranks of a host gather velocities at the same time. */
static double seconds_of(const player *p, const wd_move *move)
{
    const wd_cluster *cluster = p->in.cluster;
    const bool all_send = move->gathers && p->in.placement->each;
    const double bytes = (all_send ? wd_cluster_host_ranks(cluster) : 1) * move->bytes;
    const double rate = move->kind == WD_LINK_READ   ? cluster->disk_bytes_per_s
                        : move->kind == WD_LINK_NEAR ? cluster->memory_bytes_per_s
                        : move->kind == WD_LINK_FAR
                            ? cluster->network_bytes_per_s
                            : fmin(link_rate(p, move->from), link_rate(p, move->to));
    return rate > 0 ? bytes / rate : 0;
}

/* ---- weights ---- */

/* The next buffer for a stage that is streamed to its device; NULL: the stage stays there. */
static double *next_buffer(player *p, const wd_sweep_entry *e)
{
    const wd_home home = p->in.placement->place[e->expert][e->stage].home;
    const wd_stage_kind kind = wd_stage_kind_of(e->stage, p->in.placement->stages);
    const wd_placed_stages part = {p->in.placement, home, e->device};
    device *on = &p->device[e->device];
    if (home == WD_HOME_DEVICE) return NULL;
    const int next = on->buffer_next[home][kind]++;
    return &on->buffer[home][kind][next % wd_placed_buffers(&part, kind)];
}

/* The weights of a stage come as soon as there is room for them: a buffer, and where they are read
 * for a device that does not read host memory, a staging, while the buffer may still be in use.
 * Mapped weights are read when the processor comes to them. */
static void acquire(player *p, const wd_sweep_entry *e)
{
    wd_move move[WD_MOVES_MAX];
    const int moves = wd__sweep_moves(move, &p->in, e, 0, 0);
    device *on = &p->device[e->device];
    double *buffer = next_buffer(p, e), *staging = NULL;
    double ready = buffer ? *buffer : moves ? on->resource[WD_RESOURCE_COMPUTE].free : 0;
    if (moves == 2) ready = *(staging = &on->staging[on->staging_next++ % WD_PLACED_STAGINGS]);
    for (int i = 0; i < moves; i++) {
        const bool reads = move[i].kind == WD_LINK_READ;
        if (!reads) ready = later(ready, *buffer);
        ready = work(p, reads ? WD_RESOURCE_DISK : WD_RESOURCE_LINK, e->device, ready,
                     seconds_of(p, &move[i]), e);
    }
    if (staging) *staging = ready;
    p->weights[e->stage] = ready;
    p->buffer[e->stage] = buffer;
}

/* ---- micro-batches ---- */

static void compute(player *p, const wd_sweep_entry *e)
{
    double *ready = ready_at(p, e->expert, e->batch);
    const double flops = p->in.size->flops[e->stage] * p->in.load->batch_targets[e->expert];
    *ready = work(p, WD_RESOURCE_COMPUTE, e->device, later(*ready, p->weights[e->stage]),
                  flops / wd__cluster_teacher_rate(p->in.cluster, e->device), e);
}

/* A copy of states or velocities is small, and shares links with whatever is under way there, so
 * that nothing waits for it. */
static void share_links(player *p, const wd_move *move, double seconds)
{
    const int ends[2] = {move->from, move->to};
    for (int i = 0; i < 2 && p->sweep == p->sweeps - 1; i++)
        if (ends[i] != WD_LINK_HOST) p->device[ends[i]].resource[WD_RESOURCE_LINK].busy += seconds;
}

/* The device does nothing else while it copies what a micro-batch needs. It does not wait for
 * messages between ranks, and a micro-batch goes on while its velocities are gathered. */
static void play_move(player *p, const wd_sweep_entry *e, const wd_move *move)
{
    double *ready = ready_at(p, e->expert, e->batch), end;
    const bool is_message = move->kind == WD_LINK_NEAR || move->kind == WD_LINK_FAR;
    const bool shares = e->kind == WD_ENTRY_ENTER || e->kind == WD_ENTRY_LEAVE;
    if (move->gathers && !is_message) return;
    const double seconds = seconds_of(p, move);
    if (is_message) {
        end = work(p, WD_RESOURCE_NETWORK, e->device, *ready, seconds, e);
    } else if (shares) {
        end = *ready + seconds;
        share_links(p, move, seconds);
    } else {
        const int number = move->to == WD_LINK_HOST ? move->from : move->to;
        end = work(p, WD_RESOURCE_LINK, number, *ready, seconds, e);
    }
    if (!is_message) p->device[e->device].resource[WD_RESOURCE_COMPUTE].free = end;
    if (!move->gathers) *ready = end;
}

/* Notes when a micro-batch has come to the embedding: the launch of a sweep is so many ahead. */
static void note_upload(player *p, const wd_sweep_entry *e, double uploaded)
{
    const int places = wd_cluster_at(p->in.cluster, e->device)->reads_host ? 1 : WD_SWEEP_UPLOADS;
    const int64_t now = p->entered++ + WD_SWEEP_UPLOADS;
    p->launched = p->uploaded[(now - places) % WD_SWEEP_UPLOADS];
    p->uploaded[now % WD_SWEEP_UPLOADS] = uploaded;
}

/* An entry of a micro-batch begins when the micro-batch is ready and its device is free. A device
 * that copies to another one waits for a place there. */
static void play_batch(player *p, const wd_sweep_entry *e)
{
    wd_move move[WD_MOVES_MAX];
    const int moves = wd__sweep_moves(move, &p->in, e, 1, p->in.load->batch_targets[e->expert]);
    double *free = &p->device[e->device].resource[WD_RESOURCE_COMPUTE].free;
    double *ready = ready_at(p, e->expert, e->batch);
    *ready = later(*ready, *free);
    if (e->kind == WD_ENTRY_ENTER) *ready = later(*ready, p->from);
    if (e->kind == WD_ENTRY_COPY)
        *ready = *free = later(*ready, p->place[e->to * p->places + e->to_place]);
    if (e->kind == WD_ENTRY_RUN || e->kind == WD_ENTRY_LEAVE) compute(p, e);
    for (int i = 0; i < moves; i++) play_move(p, e, &move[i]);
    if (e->kind == WD_ENTRY_ENTER) {
        note_upload(p, e, later(*ready, *free));
        compute(p, e);
    }
    if (e->kind == WD_ENTRY_COPY || e->kind == WD_ENTRY_SEND || e->kind == WD_ENTRY_LEAVE)
        p->place[e->device * p->places + e->place] = *free;
}

static void play_entry(player *p, const wd_sweep_entry *e)
{
    double *buffer = p->buffer[e->stage];
    if (e->kind == WD_ENTRY_ACQUIRE) acquire(p, e);
    if (e->kind == WD_ENTRY_RELEASE && buffer)
        *buffer = p->device[e->device].resource[WD_RESOURCE_COMPUTE].free;
    if (e->batch >= 0) play_batch(p, e);
}

/* ---- the student ---- */

/* When the first `targets` targets of the sweep that was played are there. A window has states of
 * both experts in turn, but those of the first expert are computed first. */
static double arrival_of(player *p, double targets)
{
    const wd_sweep_load *load = p->in.load;
    double states[WD_PLACED_EXPERTS_MAX], there = 0;
    for (int e = 0; e < WD_PLACED_EXPERTS_MAX; e++)
        states[e] = load->batches[e] * load->batch_targets[e];
    for (int e = 0; e < WD_PLACED_EXPERTS_MAX; e++) {
        if (!load->batches[e]) continue;
        const double share = states[e] / (states[0] + states[1]);
        const double own = ceil((targets + 0.5) * share - 0.5 - WHOLE);
        const int batches = (int)ceil(own / load->batch_targets[e] - WHOLE);
        const int last = batches < load->batches[e] ? batches : load->batches[e];
        if (last > 0) there = later(there, *ready_at(p, e, last - 1));
    }
    return there;
}

/* Adds work of the student on a resource: after that of the step before, or from `from` on. */
static void occupy(resource *on, double from, double seconds)
{
    if (from > on->student_end) on->student_begin = on->student_end = from;
    on->student_end += seconds;
}

/* When the last step ends, as far as is known: sweeps that are played later make it longer. */
static double step_end(const player *p)
{
    double end = p->steps.exchanged;
    for (int d = p->in.load->latents_device; d < p->devices; d += p->in.cluster->devices) {
        end = later(end, p->device[d].resource[WD_RESOURCE_COMPUTE].student_end);
        end = later(end, p->device[d].resource[WD_RESOURCE_LINK].student_end);
    }
    return end;
}

static void begin_step(player *p)
{
    const wd_student_load *load = &p->in.load->student;
    steps *s = &p->steps;
    const double begin = later(step_end(p), s->ready), then = begin + load->after_seconds;
    for (int d = p->in.load->latents_device; d < p->devices; d += p->in.cluster->devices) {
        occupy(&p->device[d].resource[WD_RESOURCE_COMPUTE], begin, load->compute_seconds);
        occupy(&p->device[d].resource[WD_RESOURCE_LINK], then, load->link_seconds);
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
    const double first = p->sweep * p->window, end = first + p->window;
    steps *s = &p->steps;
    for (;;) {
        const double needed = (double)(s->begun + 1) * s->targets;
        const double arrival = arrival_of(p, fmin(needed, end) - first);
        s->ready = later(s->ready, later(p->launched, arrival));
        if (needed > end + WHOLE * s->targets) return;
        begin_step(p);
    }
}

/* When states of the next sweep may begin, whose first target the next step needs. */
static double release_of(const player *p)
{
    const double ahead = p->in.load->student.ahead, *begin = p->steps.begin;
    if (!(p->in.load->student.targets > 0)) return 0;
    assert(ahead >= 0 && ahead <= 2);
    return ahead > 1 ? begin[1] + (2 - ahead) * (begin[0] - begin[1])
                     : begin[0] + (1 - ahead) * (step_end(p) - begin[0]);
}

/* ---- the sweep ---- */

static void sum_up(const player *p, wd_timeline *out)
{
    double most = p->disk.busy, sends = 0;
    out->limit = WD_RESOURCE_DISK;
    out->limit_device = -1;
    for (int d = 0; d < p->devices; d++) {
        const resource *on = p->device[d].resource;
        out->compute_seconds[d] = on[WD_RESOURCE_COMPUTE].busy;
        sends = (d % p->in.cluster->devices ? sends : 0) + on[WD_RESOURCE_NETWORK].busy;
        out->network_seconds = fmax(out->network_seconds, sends);
        for (int i = WD_RESOURCE_NETWORK; i >= WD_RESOURCE_COMPUTE; i--) {
            if (on[i].busy < most) continue;
            most = on[i].busy;
            out->limit = (wd_resource)i;
            out->limit_device = d;
        }
    }
    out->busy = out->sweep_seconds > 0 ? most / out->sweep_seconds : 0;
}

/* How many sweeps the longer of a sweep and a step has. */
static int sweeps_of_one(const player *p)
{
    const double sweeps = p->steps.targets / p->window;
    return sweeps > 1 ? (int)ceil(sweeps - WHOLE) : 1;
}

/* A number of sweeps, `least` or more, that is a whole number of steps, or nearly. */
static int whole_steps(const player *p, int least)
{
    const int most = least + TRIED + sweeps_of_one(p);
    for (int n = least; n < most; n++) {
        const double count = n * p->window / p->steps.targets;
        if (fabs(count - round(count)) < WHOLE * count) return n;
    }
    return most;
}

/* ---- open and close ---- */

static void close_player(player *p)
{
    wd_sweep_schedule_close(&p->schedule);
    wd_free(p->place);
    wd_free(p->ready);
    wd_free(p);
}

static wd_status open_arrays(player *p, wd_err *err)
{
    const char *what = "a timeline";
    const size_t devices = (size_t)p->devices;
    const int most = p->in.cluster->batches, batches = p->batches > most ? p->batches : most;
    WD_TRY(wd_sweep_schedule_open(&p->schedule, p->devices, p->in.placement, batches, err));
    for (int d = 0; d < p->devices; d++)
        if (p->schedule.of_device[d].places > p->places)
            p->places = p->schedule.of_device[d].places;
    const size_t all = (size_t)(WD_PLACED_EXPERTS_MAX * p->sweeps_apart) * (size_t)p->batches;
    WD_TRY(wd_alloc((void **)&p->place, devices * (size_t)p->places, sizeof(double), what, err));
    return wd_alloc((void **)&p->ready, all, sizeof(double), what, err);
}

/* Opens the player of a sweep, which is too large for a stack. */
static wd_status open_player(player **out, const wd_sweep_setting *sweep, wd_err *err)
{
    player *p;
    const wd_cluster *cluster = sweep->cluster;
    const wd_sweep_load *load = sweep->load;
    const int devices = sweep->placement->each ? cluster->devices : wd__cluster_devices(cluster);
    WD_TRY(wd_alloc((void **)&p, 1, sizeof *p + (size_t)devices * sizeof *p->device, "a timeline",
                    err));
    p->in = *sweep;
    p->devices = devices;
    p->window = load->window > 0 ? load->window : 1;
    p->steps.targets = load->student.targets > 0 ? load->student.targets : p->window;
    p->sweeps_apart = load->sweeps_apart > 1 ? load->sweeps_apart : 1;
    p->batches = load->batches[0] > load->batches[1] ? load->batches[0] : load->batches[1];
    const wd_status status = open_arrays(p, err);
    if (status == WD_OK)
        *out = p;
    else
        close_player(p);
    return status;
}

wd_status wd__timeline_play(wd_timeline *out, const wd_sweep_setting *sweep, wd_timeline_fn *fn,
                            void *context, wd_err *err)
{
    player *p;
    const int *batches = sweep->load->batches;
    const wd_sweep_work window = {.batches = {batches[0], batches[1]}};
    steps first = {0};
    WD_TRY(open_player(&p, sweep, err));
    p->fn = fn;
    p->context = context;
    const int before = BEFORE * sweeps_of_one(p);
    p->sweeps = before + whole_steps(p, p->sweeps_apart);
    for (p->sweep = 0; p->sweep < p->sweeps; p->sweep++) {
        p->from = release_of(p);
        wd_sweep_schedule_make(&p->schedule, &window);
        for (int i = 0; i < p->schedule.count; i++) play_entry(p, &p->schedule.entry[i]);
        play_steps(p);
        if (p->sweep == before - 1) first = p->steps;
    }
    const double sweeps = (double)(p->steps.begun - first.begun) * p->steps.targets / p->window;
    *out = (wd_timeline){.sweep_seconds = (p->steps.begin[0] - first.begin[0]) / sweeps};
    sum_up(p, out);
    close_player(p);
    return WD_OK;
}
