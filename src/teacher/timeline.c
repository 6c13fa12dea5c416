/* Playing sweeps through: see teacher/timeline.h. */
#include "teacher/timeline.h"

#include <assert.h>
#include <math.h>

enum {
    BEFORE = 3, /* sweeps that are played until one is as all that follow */
    SWEEPS_MAX = BEFORE + WD_SWEEPS_UNDER_WAY,
    HOMES = 3,
    STAGINGS = 2, /* of what is read for a device: one is sent while one is read */
    HOST = -1     /* its memory */
};

typedef struct lane {
    double free, busy; /* busy: in the last sweep */
} lane;

typedef struct player {
    const wd_placement *placement;
    const wd_teacher_size *size;
    const wd_site *site;
    const wd_sweep_load *load;
    wd_timeline_fn *fn;
    void *context;
    lane compute[WD_PLACED_DEVICES_MAX], link[WD_PLACED_DEVICES_MAX], disk;
    double slot[WD_PLACED_DEVICES_MAX][HOMES][WD_STAGE_KINDS]
               [WD_PLACED_SLOTS_MAX]; /* when each is free again */
    int slot_next[WD_PLACED_DEVICES_MAX][HOMES][WD_STAGE_KINDS];
    double staging[WD_PLACED_DEVICES_MAX][STAGINGS]; /* too */
    int staging_next[WD_PLACED_DEVICES_MAX];
    double ready[WD_SWEEPS_UNDER_WAY][WD_PLACED_EXPERTS_MAX]
                [WD_TIMELINE_BATCHES_MAX]; /* when each micro-batch may go on; by round */
    int sweep, sweeps, rounds;
    wd_timeline *out;
} player;

static double later(double a, double b)
{
    return a > b ? a : b;
}

static double *ready_of(player *p, int expert, int batch)
{
    return &p->ready[p->sweep % p->rounds][expert][batch];
}

static bool is_last(const player *p)
{
    return p->sweep == p->sweeps - 1;
}

/* Work of `seconds` on a lane, not before `from`; returns when it is done. */
static double work(player *p, lane *on, double from, double seconds, wd_timeline_event event)
{
    event.begin = later(on->free, from);
    event.end = on->free = event.begin + seconds;
    event.sweep = p->sweep;
    if (is_last(p)) on->busy += seconds;
    if (p->fn) p->fn(p->context, &event);
    return event.end;
}

static double read_file(player *p, int expert, int stage, double from)
{
    const double bytes = (double)p->size->stage[expert][stage].file;
    const wd_timeline_event read = {WD_LANE_DISK, -1, 0, expert, stage, -1, 0, 0};
    if (is_last(p)) p->out->bytes_read += bytes;
    return work(p, &p->disk, from, bytes / p->site->disk_bytes_per_s, read);
}

/* From disk it comes as it is there, and is converted on the device. */
static double copy_over(player *p, int expert, int stage, double from)
{
    const wd_place *place = &p->placement->place[expert][stage];
    const wd_stage_size *size = &p->size->stage[expert][stage];
    const int device = place->device;
    const double bytes = (double)(place->home == WD_HOME_DISK ? size->file : size->device);
    const wd_timeline_event copy = {WD_LANE_LINK, device, 0, expert, stage, -1, 0, 0};
    if (is_last(p)) p->out->bytes_copied += bytes;
    return work(p, &p->link[device], from, bytes / p->site->device[device].link_bytes_per_s, copy);
}

/* When a streamed stage's weights are in a slot of its device; *slot: which. A processor's is read
 * into; what is for another device is read into a staging, while the slot is still in use. */
static double bring(player *p, int expert, int stage, double **slot)
{
    const wd_place *place = &p->placement->place[expert][stage];
    const int d = place->device;
    const wd_stage_kind kind = wd_stage_kind_of(stage, p->placement->stages);
    const int slots = wd_placed_slots(kind, p->placement->slots);
    const bool from_disk = place->home == WD_HOME_DISK;
    *slot = &p->slot[d][place->home][kind][p->slot_next[d][place->home][kind]++ % slots];
    if (p->site->device[d].reads_host)
        return from_disk ? read_file(p, expert, stage, **slot) : **slot;
    if (!from_disk) return copy_over(p, expert, stage, **slot);
    double *staging = &p->staging[d][p->staging_next[d]++ % STAGINGS];
    const double there = read_file(p, expert, stage, *staging);
    return *staging = copy_over(p, expert, stage, later(there, **slot));
}

static void compute(player *p, int expert, int stage, int batch, double weights)
{
    int d = p->placement->place[expert][stage].device;
    const wd_timeline_event event = {WD_LANE_COMPUTE, d, 0, expert, stage, batch, 0, 0};
    double *ready = ready_of(p, expert, batch);
    double flops = p->size->flops[stage] * p->load->batch_targets[expert];
    *ready = work(p, &p->compute[d], later(*ready, weights), flops / p->site->device[d].flops_per_s,
                  event);
}

static bool has_link(const player *p, int device)
{
    return device != HOST && !p->site->device[device].reads_host;
}

/* Of the slower of two devices; what is in host memory has none. */
static double rate_between(const player *p, int a, int b)
{
    double rate = INFINITY;
    if (has_link(p, a)) rate = p->site->device[a].link_bytes_per_s;
    if (has_link(p, b)) rate = fmin(rate, p->site->device[b].link_bytes_per_s);
    return rate;
}

/* A micro-batch goes from the device of the stage before to that of this one: the one that it
 * leaves sends it, and does nothing else meanwhile. */
static void hop(player *p, int expert, int stage, int batch)
{
    int to = p->placement->place[expert][stage].device;
    int from = p->placement->place[expert][stage - 1].device;
    const wd_timeline_event event = {WD_LANE_LINK, to, 0, expert, -1, batch, 0, 0};
    double *ready = ready_of(p, expert, batch);
    const double bytes = p->load->hop_bytes * p->load->batch_targets[expert];
    if (from == to) return;
    *ready = work(p, &p->link[to], later(*ready, p->compute[from].free),
                  bytes / rate_between(p, from, to), event);
    p->compute[from].free = *ready;
    if (is_last(p)) p->out->bytes_copied += bytes;
}

/* A device brings or sends something small of a micro-batch's, and does nothing else meanwhile. It
 * shares links with what is under way there, so that none waits for it. */
static void carry(player *p, int device, int other, double state_bytes, int expert, int batch)
{
    double *ready = ready_of(p, expert, batch);
    const double bytes = state_bytes * p->load->batch_targets[expert];
    const double seconds = bytes / rate_between(p, device, other);
    if (device == other || !(seconds > 0)) return;
    *ready = p->compute[device].free = later(*ready, p->compute[device].free) + seconds;
    if (!is_last(p)) return;
    if (has_link(p, device)) p->link[device].busy += seconds;
    if (has_link(p, other)) p->link[other].busy += seconds;
    p->out->bytes_copied += bytes;
}

static void enter(player *p, int expert, int batch)
{
    const int device = p->placement->place[expert][0].device;
    carry(p, device, p->load->home, p->load->latent_bytes, expert, batch);
    carry(p, device, HOST, p->load->text_bytes, expert, batch);
}

static void leave(player *p, int expert, int batch)
{
    const int device = p->placement->place[expert][p->placement->stages - 1].device;
    carry(p, device, p->load->home, p->load->latent_bytes, expert, batch);
}

/* Stages that stay take a micro-batch at a time; another one takes them all while it is there. */
static void play_leg(player *p, int expert, wd_leg leg)
{
    const wd_place *place = &p->placement->place[expert][leg.first];
    double *slot = NULL, weights = 0;
    if (place->home != WD_HOME_DEVICE) weights = bring(p, expert, leg.first, &slot);
    for (int b = 0; b < p->load->batches[expert]; b++)
        for (int s = leg.first; s < leg.end; s++) {
            if (s == 0)
                enter(p, expert, b);
            else
                hop(p, expert, s, b);
            compute(p, expert, s, b, weights);
            if (s + 1 == p->placement->stages) leave(p, expert, b);
        }
    if (slot) *slot = p->compute[place->device].free;
}

static void find_limit(const player *p, double seconds)
{
    wd_timeline *out = p->out;
    double most = p->disk.busy;
    out->limit = WD_LANE_DISK;
    out->limit_device = -1;
    for (int d = 0; d < p->site->devices; d++) {
        const lane *lanes[] = {&p->link[d], &p->compute[d]};
        for (int i = 0; i < 2; i++) {
            if (lanes[i]->busy < most) continue;
            most = lanes[i]->busy;
            out->limit = i ? WD_LANE_COMPUTE : WD_LANE_LINK;
            out->limit_device = d;
        }
    }
    out->busy = seconds > 0 ? most / seconds : 0;
}

wd_timeline wd_timeline_play(const wd_placement *placement, const wd_teacher_size *size,
                             const wd_site *site, const wd_sweep_load *load, wd_timeline_fn *fn,
                             void *context)
{
    wd_timeline out = {0};
    player p = {.placement = placement,
                .size = size,
                .site = site,
                .load = load,
                .fn = fn,
                .context = context,
                .out = &out};
    double end[SWEEPS_MAX] = {0};
    p.rounds = load->rounds < 1 ? 1 : load->rounds;
    if (p.rounds > WD_SWEEPS_UNDER_WAY) p.rounds = WD_SWEEPS_UNDER_WAY;
    p.sweeps = BEFORE + p.rounds;
    for (p.sweep = 0; p.sweep < p.sweeps; p.sweep++) {
        for (int e = 0; e < placement->experts; e++) {
            assert(load->batches[e] <= WD_TIMELINE_BATCHES_MAX);
            if (!load->batches[e]) continue;
            for (int s = 0; s < placement->stages;) {
                const wd_leg leg = wd_placement_leg(placement, e, s);
                play_leg(&p, e, leg);
                s = leg.end;
            }
            for (int b = 0; b < load->batches[e]; b++)
                end[p.sweep] = later(end[p.sweep], *ready_of(&p, e, b));
        }
    }
    for (int d = 0; d < site->devices; d++) out.compute_seconds[d] = p.compute[d].busy;
    out.sweep_seconds = (end[p.sweeps - 1] - end[BEFORE - 1]) / p.rounds;
    find_limit(&p, out.sweep_seconds);
    return out;
}
