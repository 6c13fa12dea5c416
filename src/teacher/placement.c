/* Bytes of a placement, and the way through it: see teacher/placement.h. */
#include "teacher/placement.h"

enum { SLOTS_LEAST = 2 };

static bool takes_batches(const wd_teacher_size *size, const wd_site *site, int device)
{
    return !wd_site_at(site, device)->reads_host && !size->stage[0][0].widened;
}

wd_placement wd_placement_begin(const wd_teacher_size *size, const wd_site *site)
{
    wd_placement p = {.experts = size->experts,
                      .stages = size->stages,
                      .slots = SLOTS_LEAST,
                      .ranks = wd_site_ranks(site),
                      .devices = site->devices};
    for (int d = 0; d < site->devices; d++)
        if (takes_batches(size, site, d)) p.by_batch |= 1u << d;
    return p;
}

/* ---- bytes ---- */

/* Slots that the streamed stages of a device share that have one home, and other buffers. Returns
 * what of host memory files are read into. */
static size_t add_streaming(wd_placed_device *bytes, const wd_placement *p,
                            const wd_teacher_size *size, const wd_site *site, int device,
                            wd_home home)
{
    size_t slot[WD_STAGE_KINDS] = {0}, reading[WD_PLACED_STAGINGS] = {0};
    size_t casting = 0, converting = 0;
    int stages[WD_STAGE_KINDS] = {0};
    const wd_sweep_need *need = &wd_site_at(site, device)->need;
    for (int e = 0; e < p->experts; e++)
        for (int s = 0; s < p->stages; s++) {
            const wd_place *place = &p->place[e][s];
            const wd_stage_size *stage = &size->stage[e][s];
            const wd_stage_kind kind = wd_stage_kind_of(s, p->stages);
            if (place->device != device || place->home != home) continue;
            stages[kind]++;
            wd_placed_most(&slot[kind], stage->device);
            wd_placed_read(reading, stage->reading);
            wd_placed_most(&converting, stage->converting);
            wd_placed_most(&casting, stage->casting);
        }
    for (int k = 0; k < WD_STAGE_KINDS; k++)
        bytes->streaming += (size_t)wd_placed_slots((wd_stage_kind)k, p->slots, stages[k]) *
                            wd_placed_block(need, slot[k]);
    if (home != WD_HOME_DISK) return 0;
    const bool shared = p->each && wd_site_host_ranks(site) > 1; /* by the host's ranks, a ring */
    if (wd_site_at(site, device)->reads_host && !shared) return converting;
    if (!wd_site_at(site, device)->reads_host) bytes->streaming += wd_placed_block(need, casting);
    return reading[0] + (shared ? reading[0] : reading[1]);
}

/* Buffers for what is widened before it is computed: one for what has one home. */
static size_t widening(const wd_placement *p, const wd_teacher_size *size, const wd_site *site,
                       int device)
{
    size_t widened[3] = {0}, sum = 0;
    for (int e = 0; e < p->experts; e++)
        for (int s = 0; s < p->stages; s++) {
            const wd_place *place = &p->place[e][s];
            if (place->device != device) continue;
            wd_placed_most(&widened[place->home], size->stage[e][s].widened);
        }
    for (int h = WD_HOME_DEVICE; h <= WD_HOME_DISK; h++)
        sum += wd_placed_block(&wd_site_at(site, device)->need, widened[h]);
    return sum;
}

size_t wd_placed_activations(const wd_placed_sweep *sweep, const wd_sweep_need *need)
{
    size_t scratch = 0;
    for (int k = 0; k < WD_STAGE_KINDS; k++)
        if (sweep->kind[k]) wd_placed_most(&scratch, need->scratch[k]);
    if (!sweep->streams) return 0;
    const size_t arena = scratch + (sweep->kind[WD_STAGE_EMBED] ? need->entry : 0) +
                         (sweep->kind[WD_STAGE_HEAD] ? need->exit : 0) +
                         (size_t)sweep->streams * need->place;
    return need->tables + wd_placed_block(need, arena);
}

size_t wd_placed_workspace(const wd_placed_sweep *sweep, const wd_site_device *device)
{
    size_t bytes = device->workspace;
    for (int k = 0; k < WD_STAGE_KINDS; k++)
        if (sweep->kind[k]) wd_placed_most(&bytes, device->need.workspace[k]);
    return bytes - device->workspace;
}

size_t wd_placed_kept(const wd_stage_size *stage, const wd_site_device *device)
{
    return wd_placed_block(&device->need, device->reads_host ? stage->host : stage->device);
}

size_t wd_placed_casting(const wd_stage_size *stage, const wd_site_device *device)
{
    return wd_placed_block(&device->need,
                           device->reads_host ? stage->host_casting : stage->casting);
}

void wd_placed_keep(wd_placed_device *bytes, const wd_stage_size *stage,
                    const wd_site_device *device)
{
    bytes->weights += wd_placed_kept(stage, device);
    wd_placed_most(&bytes->opening, bytes->weights + wd_placed_casting(stage, device));
}

/* Weights that stay; returns what of them is in host memory. */
static size_t add_weights(wd_placed_device *bytes, const wd_placement *p,
                          const wd_teacher_size *size, const wd_site *site, int device)
{
    size_t host = 0;
    for (int e = 0; e < p->experts; e++)
        for (int s = 0; s < p->stages; s++) {
            const wd_place *place = &p->place[e][s];
            if (place->device != device) continue;
            if (place->home == WD_HOME_DEVICE)
                wd_placed_keep(bytes, &size->stage[e][s], wd_site_at(site, device));
            else if (place->home == WD_HOME_HOST)
                host += size->stage[e][s].device;
        }
    return host;
}

/* In memory of one host. */
typedef struct host_bytes {
    size_t weights, reading, crossing, devices;
} host_bytes;

static size_t all_of(const host_bytes *host)
{
    return host->weights + host->reading + host->crossing + host->devices;
}

/* A processor's, where every rank of a host has one: they share weights. */
static size_t processors(const wd_placed_device *bytes, int ranks)
{
    return bytes->weights + (size_t)ranks * (wd_placed_total(bytes) - bytes->weights);
}

wd_placed_bytes wd_placement_bytes(const wd_placement *placement, const wd_teacher_size *size,
                                   const wd_site *site)
{
    wd_placed_bytes bytes;
    host_bytes host = {0}, fullest = {0};
    bytes.devices = placement->each ? site->devices : wd_site_devices(site);
    for (int d = 0, last = 0; d < bytes.devices; d++) {
        wd_placed_device *to = &bytes.device[d];
        const wd_placed_sweep sweep = wd_placement_sweep(placement, site, d);
        const wd_placed_crossings crossings = wd_placement_crossings(placement, d);
        if (wd_site_host(site, d) != last) host = (host_bytes){0};
        last = wd_site_host(site, d);
        *to = (wd_placed_device){0};
        host.weights += add_weights(to, placement, size, site, d);
        host.reading += add_streaming(to, placement, size, site, d, WD_HOME_HOST);
        host.reading += add_streaming(to, placement, size, site, d, WD_HOME_DISK);
        host.crossing += (size_t)(WD_CROSSINGS_UNDER_WAY * (crossings.out + crossings.in)) *
                         wd_site_at(site, d)->need.place;
        to->widening = widening(placement, size, site, d);
        to->activations = wd_placed_activations(&sweep, &wd_site_at(site, d)->need);
        to->workspace = wd_placed_workspace(&sweep, wd_site_at(site, d));
        if (wd_site_at(site, d)->reads_host)
            host.devices += processors(to, placement->each ? wd_site_host_ranks(site) : 1);
        if (all_of(&host) >= all_of(&fullest)) fullest = host;
    }
    bytes.host_weights = fullest.weights;
    bytes.host_reading = fullest.reading;
    bytes.host_crossing = fullest.crossing;
    bytes.host_devices = fullest.devices;
    return bytes;
}

size_t wd_placed_total(const wd_placed_device *device)
{
    return device->weights + device->streaming + device->widening + device->activations +
           device->workspace;
}

size_t wd_placed_host(const wd_placed_bytes *bytes)
{
    return bytes->host_weights + bytes->host_reading + bytes->host_crossing + bytes->host_devices;
}

size_t wd_placed_peak(const wd_placed_bytes *bytes, const wd_site *site, int device)
{
    const wd_placed_device *d = &bytes->device[device];
    size_t peak = wd_placed_total(d) + wd_site_at(site, device)->taken;
    wd_placed_most(&peak, d->opening);
    return peak;
}

size_t wd_placed_host_peak(const wd_placed_bytes *bytes, const wd_site *site)
{
    return wd_placed_host(bytes) + (size_t)wd_site_host_ranks(site) * site->host_taken;
}

size_t wd_placement_mapped(const wd_placement *placement, const wd_teacher_size *size,
                           const wd_site *site)
{
    size_t mapped = 0;
    for (int e = 0; e < placement->experts; e++)
        for (int s = 0; s < placement->stages; s++) {
            const wd_place *place = &placement->place[e][s];
            if (place->home == WD_HOME_DEVICE && wd_site_at(site, place->device)->reads_host)
                mapped += wd_stage_mapped(&size->stage[e][s]);
        }
    return mapped;
}

bool wd_placement_fits(const wd_placement *placement, const wd_teacher_size *size,
                       const wd_site *site)
{
    const wd_placed_bytes bytes = wd_placement_bytes(placement, size, site);
    for (int d = 0; d < bytes.devices; d++)
        if (wd_placed_peak(&bytes, site, d) > wd_site_at(site, d)->bytes) return false;
    return wd_placed_host_peak(&bytes, site) <= site->host_bytes;
}

/* ---- the way through ---- */

static bool takes_by_batch(const wd_placement *p, int device)
{
    return p->by_batch >> wd_placed_local(p, device) & 1;
}

static bool goes_by_batch(const wd_placement *p, wd_place place)
{
    return place.home == WD_HOME_DEVICE && takes_by_batch(p, place.device);
}

/* Whether a window would only wait where it was embedded. */
static bool embeds_on_the_way(const wd_placement *p, const wd_place *place, int first)
{
    return first == 0 && (place[0].device != place[1].device || goes_by_batch(p, place[1]));
}

/* Whether a window that comes to the last blocks, from stage `from` on, would only wait there for
 * the head. It does for a processor's head, which would keep several devices waiting, and where
 * stages are widened, one at a time. */
static bool head_follows(const wd_placement *p, const wd_place *place, int from)
{
    const int device = place[from].device, head = place[p->stages - 1].device;
    if (!takes_by_batch(p, device)) return false;
    if (place[from].home != WD_HOME_DEVICE) return place[from - 1].device != device;
    return head == place[p->stages - 2].device || takes_by_batch(p, head);
}

wd_leg wd_placement_leg(const wd_placement *placement, int expert, int first)
{
    const wd_place *place = placement->place[expert];
    const int head = placement->stages - 1;
    const int from = first + embeds_on_the_way(placement, place, first);
    wd_leg leg = {first, from + 1};
    if (goes_by_batch(placement, place[from]))
        while (leg.end < head && goes_by_batch(placement, place[leg.end])) leg.end++;
    if (leg.end == head && head_follows(placement, place, from)) leg.end++;
    return leg;
}

/* Where micro-batches of a window pass. */
static int passing(const wd_site *site, bool sent)
{
    return !sent ? 1 : site->batches < WD_PIPELINE_STREAMS ? site->batches : WD_PIPELINE_STREAMS;
}

wd_placed_sweep wd_pipeline_sweep(const wd_teacher_size *size, const wd_site *site, int device,
                                  int first, int end, bool sent)
{
    const bool by_batch = takes_batches(size, site, device);
    wd_placed_sweep sweep = {.streams = site->batches};
    for (int s = first; s < end; s++) sweep.kind[wd_stage_kind_of(s, size->stages)] = true;
    if (by_batch)
        sweep.streams = sent ? WD_PIPELINE_STREAMS : 1;
    else if (!sweep.kind[WD_STAGE_BLOCK])
        sweep.streams = passing(site, sent);
    sweep.windows = !by_batch && sweep.streams == site->batches;
    return sweep;
}

/* Whether an expert's micro-batches go through all of its stages, those of one sweep after those of
 * another. */
static bool flows(const wd_placement *p, int expert)
{
    return wd_placement_leg(p, expert, 0).end == p->stages;
}

/* Whether an expert's whole window waits on a device, between two legs. */
static bool waits(const wd_placement *p, int expert, int device)
{
    for (int s = 0; s < p->stages;) {
        s = wd_placement_leg(p, expert, s).end;
        if (s < p->stages && p->place[expert][s - 1].device == device) return true;
    }
    return false;
}

/* Whether other devices send it micro-batches, which it has not asked for. What another rank sent
 * waits in host memory, as does what a processor has, until the device itself fetches it in the
 * order of its work, when nothing else is in its place. */
static bool is_sent(const wd_placement *p, const wd_site *site, int from, int to)
{
    return from != to && wd_placed_rank(p, from) == wd_placed_rank(p, to) &&
           (!wd_site_at(site, from)->reads_host || wd_site_at(site, to)->reads_host);
}

/* An expert's stages on a device, and how its micro-batches come to them. */
typedef struct stay {
    bool any; /* there are some */
    bool kind[WD_STAGE_KINDS];
    bool sent;  /* whether others of its rank send them */
    bool waits; /* whether a whole window does, between two legs */
} stay;

static stay stay_of(const wd_placement *p, const wd_site *site, int expert, int device)
{
    const wd_place *place = p->place[expert];
    stay out = {.any = false};
    for (int s = 0; s < p->stages; s++) {
        if (place[s].device != device) continue;
        const wd_stage_kind kind = wd_stage_kind_of(s, p->stages);
        const bool sent = s && is_sent(p, site, place[s - 1].device, device);
        out.any = out.kind[kind] = true;
        out.sent |= sent;
    }
    out.waits = out.any && waits(p, expert, device);
    return out;
}

/* A device sends a micro-batch on before it begins another: only where they are sent do several
 * meet. */
static int streams_of(const stay *of, const wd_site *site, bool flows)
{
    if (!of->any) return 0;
    if (flows) return of->sent ? WD_PIPELINE_STREAMS : 1;
    return of->waits ? site->batches : passing(site, of->sent);
}

wd_placed_crossings wd_placement_crossings(const wd_placement *placement, int device)
{
    wd_placed_crossings crossings = {.out = false};
    for (int e = 0; e < placement->experts; e++)
        for (int s = 1; s < placement->stages; s++) {
            const int from = placement->place[e][s - 1].device;
            const int to = placement->place[e][s].device;
            if (wd_placed_rank(placement, from) == wd_placed_rank(placement, to)) continue;
            crossings.out |= from == device;
            crossings.in |= to == device;
        }
    return crossings;
}

wd_placed_sweep wd_placement_sweep(const wd_placement *placement, const wd_site *site, int device)
{
    wd_placed_sweep sweep = {.windows = true};
    for (int e = 0; e < placement->experts; e++) {
        const bool flow = flows(placement, e);
        const stay here = stay_of(placement, site, e, device);
        const int streams = streams_of(&here, site, flow);
        for (int k = 0; k < WD_STAGE_KINDS; k++) sweep.kind[k] |= here.kind[k];
        sweep.waits[e] = here.waits;
        if (streams > sweep.streams) sweep.streams = streams;
        if (streams) sweep.windows &= !flow && streams == site->batches;
    }
    return sweep;
}
