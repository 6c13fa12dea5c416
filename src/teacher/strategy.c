/* Placements by strategy: see teacher/strategy.h. */
#include "teacher/strategy.h"

#include <string.h>

#include "core/append.h"

static const char *const names[] = {
#define X(name, what) #name,
    WD_STRATEGY_MAP(X)
#undef X
};

const char *wd_strategy_name(wd_strategy strategy)
{
    return names[strategy];
}

wd_status wd_strategy_of(wd_strategy *out, const char *name, wd_err *err)
{
    for (int i = 0; i < WD_STRATEGY_COUNT; i++)
        if (!strcmp(name, names[i])) {
            *out = (wd_strategy)i;
            return WD_OK;
        }
    char all[128] = "";
    size_t used = 0;
    for (int i = 0; i < WD_STRATEGY_COUNT; i++)
        used = wd_append(all, sizeof all, used, "%s%s", i ? ", " : "", names[i]);
    return wd_fail(err, WD_INVALID_ARGUMENT, "teacher_device_strategy: \"%s\" is not one of %s",
                   name, all);
}

/* ---- devices ---- */

/* The device that is the host's processor, or -1. */
static int processor_of(const wd_cluster *cluster)
{
    for (int d = 0; d < cluster->devices; d++)
        if (cluster->device[d].reads_host) return d;
    return -1;
}

/* out = the devices of a rank that are no processor, in order; returns how many. */
static int accelerators(int out[WD_PLACED_DEVICES_MAX], const wd_cluster *cluster)
{
    int n = 0;
    for (int d = 0; d < cluster->devices; d++)
        if (!cluster->device[d].reads_host) out[n++] = d;
    return n;
}

/* out = such devices of all ranks, in order; returns how many. */
static int all_accelerators(int out[WD_CLUSTER_DEVICES_MAX], const wd_cluster *cluster)
{
    int n = 0;
    for (int d = 0; d < wd_cluster_devices(cluster); d++)
        if (!wd_cluster_at(cluster, d)->reads_host) out[n++] = d;
    return n;
}

const char *wd_strategy_objection(wd_strategy strategy, const wd_cluster *cluster)
{
    int device[WD_PLACED_DEVICES_MAX];
    const int own = accelerators(device, cluster), ranks = wd_cluster_ranks(cluster);
    switch (strategy) {
    case WD_STRATEGY_cpu:
        return processor_of(cluster) < 0 ? "cpu needs the processor among the devices" : NULL;
    case WD_STRATEGY_gpu:
        return own < 1 ? "gpu needs a device" : NULL;
    case WD_STRATEGY_gpu0:
        return own < 1 && ranks < 2 ? "gpu0 needs a device" : NULL;
    case WD_STRATEGY_balanced:
        return ranks * own < 2 ? "balanced needs two devices or more" : NULL;
    case WD_STRATEGY_sequential:
        return ranks * own < 2 ? "sequential needs two devices or more" : NULL;
    case WD_STRATEGY_offload:
        return own < 1 ? "offload needs a device to stream to" : NULL;
    default:
        return NULL;
    }
}

bool wd_strategy_is_each(wd_strategy strategy, const wd_cluster *cluster)
{
    return wd_cluster_ranks(cluster) > 1 &&
           (strategy == WD_STRATEGY_cpu || strategy == WD_STRATEGY_gpu ||
            strategy == WD_STRATEGY_offload || strategy == WD_STRATEGY_disk);
}

wd_status wd_strategy_check(wd_strategy strategy, const wd_cluster *cluster, wd_err *err)
{
    char can[128] = "";
    size_t used = 0;
    if (!wd_strategy_objection(strategy, cluster)) return WD_OK;
    for (int i = 0; i < WD_STRATEGY_COUNT; i++) {
        if (wd_strategy_objection((wd_strategy)i, cluster)) continue;
        used = wd_append(can, sizeof can, used, "%s%s", used ? ", " : "", names[i]);
    }
    return wd_fail(err, WD_UNSUPPORTED, "teacher_device_strategy: %s; these devices can serve %s",
                   wd_strategy_objection(strategy, cluster), can);
}

/* ---- placements ---- */

static void place_all(wd_placement *out, wd_home home, int device)
{
    for (int e = 0; e < out->experts; e++)
        for (int s = 0; s < out->stages; s++) out->place[e][s] = (wd_place){home, device};
}

/* The bytes of stages [first, end) of both experts, which are cut alike, on a device. */
typedef struct run {
    int first, end;
    size_t weights[WD_PLACED_EXPERTS_MAX], opening[WD_PLACED_EXPERTS_MAX], widened;
} run;

/* Adds the stage before the first one. The peak while the others were brought is now on top of its
 * weights, as wd_placement_bytes counts it. */
static void prepend(run *r, const wd_teacher_size *size, const wd_cluster_device *device)
{
    const int stage = --r->first;
    for (int e = 0; e < size->experts; e++) {
        const wd_stage_size *s = &size->stage[e][stage];
        const size_t weights = wd_placed_kept(s, device);
        const size_t casting = wd_placed_casting(s, device);
        r->opening[e] = weights + (r->opening[e] > casting ? r->opening[e] : casting);
        r->weights[e] += weights;
        if (s->widened > r->widened) r->widened = s->widened;
    }
}

/* What the device would do in sweeps, as wd_sweep_parts says it: a whole window waits for blocks
 * that do not compute one micro-batch at a time. `sent`: as in `holds`. */
static wd_sweep_part part_of(const run *r, const wd_teacher_size *size, const wd_cluster *cluster,
                             int device, bool sent)
{
    wd_sweep_part part = {.places = 0};
    for (int s = r->first; s < r->end; s++) part.kind[wd_stage_kind_of(s, size->stages)] = true;
    const bool waits = part.kind[WD_STAGE_BLOCK] && !wd_placed_by_batch(size, cluster, device);
    part.places = wd_sweep_places(waits, sent, cluster->batches);
    return part;
}

/* Whether the stages fit on the device, if all others are elsewhere. `sent`: another device of its
 * rank has stages before them. */
static bool holds(const run *r, const wd_teacher_size *size, const wd_cluster *cluster, int device,
                  bool sent)
{
    const wd_cluster_device *d = wd_cluster_at(cluster, device);
    wd_placed_device bytes = {.widening = wd_placed_block(&d->need, r->widened)};
    const wd_sweep_part part = part_of(r, size, cluster, device, sent);
    if (r->first == r->end) return true;
    for (int e = 0; e < size->experts; e++) {
        const size_t opening = bytes.weights + r->opening[e];
        if (opening > bytes.opening) bytes.opening = opening;
        bytes.weights += r->weights[e];
    }
    bytes.activations = wd_placed_activations(&part, &d->need);
    bytes.workspace = wd_placed_workspace(&part, d);
    return bytes.opening <= d->bytes && wd_placed_total(&bytes) + d->taken <= d->bytes;
}

static bool holds_stages(const wd_teacher_size *size, const wd_cluster *cluster, int device,
                         int from, int end, bool sent)
{
    run r = {.first = end, .end = end};
    while (r.first > from) prepend(&r, size, wd_cluster_at(cluster, device));
    return holds(&r, size, cluster, device, sent);
}

static bool are_of_one_rank(const wd_cluster *cluster, int a, int b)
{
    return a / cluster->devices == b / cluster->devices;
}

/* Stages [0, cut[0]) go to device[0], [cut[0], cut[1]) to device[1], ... */
static void place_cut(wd_placement *out, const int *cut, const int *device, int n)
{
    for (int s = 0, i = 0; s < out->stages; s++) {
        while (i + 1 < n && s >= cut[i]) i++;
        for (int e = 0; e < out->experts; e++)
            out->place[e][s] = (wd_place){WD_HOME_DEVICE, device[i]};
    }
}

/* The last device takes what is left, whether it fits or not. */
static void place_sequential(wd_placement *out, const wd_teacher_size *size,
                             const wd_cluster *cluster, const int *device, int n)
{
    int cut[WD_CLUSTER_DEVICES_MAX];
    bool sent = false;
    for (int i = 0, from = 0; i < n; i++) {
        int end = size->stages;
        sent &= i > 0 && are_of_one_rank(cluster, device[i - 1], device[i]);
        while (i + 1 < n && end > from && !holds_stages(size, cluster, device[i], from, end, sent))
            end--;
        sent |= end > from;
        cut[i] = from = end;
    }
    place_cut(out, cut, device, n);
}

/* The first stages go to the first devices, so that the slowest device that has stages is as fast
 * as possible beside its student. A device may get none, so that no stage waits for its student. */
typedef struct division {
    double slowest[2][WD_PLACED_STAGES_MAX + 1]; /* [i % 2][end]: seconds per target of stages
                                                  * [0, end) on devices [0, i]; < 0: no room */
    uint8_t from[WD_CLUSTER_DEVICES_MAX]
                [WD_PLACED_STAGES_MAX + 1]; /* where the last of these begins */
} division;

/* Whether any of stages [0, end) on devices [0, i) are on a device of the rank of device i. */
static bool is_sent(const division *best, const wd_cluster *cluster, const int *device, int i,
                    int end)
{
    for (int k = i - 1; k >= 0 && are_of_one_rank(cluster, device[k], device[i]); k--)
        if (best->from[k][end] < end) return true;
    return false;
}

/* Finds the best division of stages [0, end) among devices [0, i]. */
static void divide(division *best, const wd_teacher_size *size, const wd_cluster *cluster, int i,
                   const int *device, int end)
{
    const wd_cluster_device *d = wd_cluster_at(cluster, device[i]);
    const double *before = best->slowest[(i + 1) % 2];
    double flops = 0, slowest = -1;
    run r = {.first = end, .end = end};
    best->from[i][end] = (uint8_t)end;
    for (int from = end; from >= 0; from--) {
        if (from < end) flops += size->flops[from], prepend(&r, size, d);
        if (!holds(&r, size, cluster, device[i], is_sent(best, cluster, device, i, from))) continue;
        const double others = i ? before[from] : from ? -1 : 0;
        double seconds = from < end ? (flops + d->student_flops) / d->flops_per_s : 0;
        if (others < 0) continue;
        if (others > seconds) seconds = others;
        if (slowest >= 0 && seconds >= slowest) continue;
        slowest = seconds;
        best->from[i][end] = (uint8_t)from;
    }
    best->slowest[i % 2][end] = slowest;
}

/* Where nothing fits, stages are placed as by sequential, so that bytes are missing on the last
 * device. */
static void place_balanced(wd_placement *out, const wd_teacher_size *size,
                           const wd_cluster *cluster, const int *device, int n)
{
    division best;
    int cut[WD_CLUSTER_DEVICES_MAX], end = size->stages;
    best.slowest[0][end] = best.slowest[1][end] = -1;
    for (int i = 0; i < n; i++)
        for (int s = 0; s <= size->stages; s++) divide(&best, size, cluster, i, device, s);
    if (best.slowest[(n - 1) % 2][end] < 0) {
        place_sequential(out, size, cluster, device, n);
        return;
    }
    for (int i = n - 1; i >= 0; i--) {
        cut[i] = end;
        end = best.from[i][end];
    }
    place_cut(out, cut, device, n);
}

/* *out = the device of gpu0: that one of the only rank, or the first one of rank `rank`. */
static wd_status teacher_device(int *out, const wd_cluster *cluster, int rank, const int *device,
                                int n, wd_err *err)
{
    const int ranks = wd_cluster_ranks(cluster), there = ranks > 1 ? ranks : n;
    if (rank < 0 || rank >= there)
        return wd_fail(err, WD_INVALID_ARGUMENT, "teacher_rank: %d is no %s; there are 0 to %d",
                       rank, ranks > 1 ? "rank" : "device", there - 1);
    if (ranks == 1)
        *out = device[rank];
    else
        *out = rank * cluster->devices + (n ? device[0] : processor_of(cluster));
    return WD_OK;
}

wd_status wd_strategy_place(wd_placement *out, wd_strategy strategy, const wd_teacher_size *size,
                            const wd_cluster *cluster, int teacher_rank, wd_err *err)
{
    int device[WD_PLACED_DEVICES_MAX], all[WD_CLUSTER_DEVICES_MAX];
    const int own = accelerators(device, cluster), n = all_accelerators(all, cluster);
    WD_TRY(wd_strategy_check(strategy, cluster, err));
    *out = wd_placement_begin(size, cluster);
    out->each = wd_strategy_is_each(strategy, cluster);
    int streamed = own ? device[0] : processor_of(cluster);
    switch (strategy) {
    case WD_STRATEGY_cpu:
        place_all(out, WD_HOME_DEVICE, processor_of(cluster));
        return WD_OK;
    case WD_STRATEGY_gpu:
        place_all(out, WD_HOME_DEVICE, device[0]);
        return WD_OK;
    case WD_STRATEGY_gpu0:
        WD_TRY(teacher_device(&streamed, cluster, teacher_rank, device, own, err));
        place_all(out, WD_HOME_DEVICE, streamed);
        return WD_OK;
    case WD_STRATEGY_balanced:
        place_balanced(out, size, cluster, all, n);
        return WD_OK;
    case WD_STRATEGY_sequential:
        place_sequential(out, size, cluster, all, n);
        return WD_OK;
    case WD_STRATEGY_offload:
        place_all(out, WD_HOME_HOST, streamed);
        return WD_OK;
    case WD_STRATEGY_disk:
        place_all(out, WD_HOME_DISK, streamed);
        return WD_OK;
    default:
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "teacher_device_strategy: %s is not placed by sizes alone", names[strategy]);
    }
}
