/* Placements by strategy: see teacher/strategy.h. */
#include "teacher/strategy.h"

#include <stdio.h>
#include <string.h>

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
    return wd_fail(err, WD_INVALID_ARGUMENT,
                   "teacher_device_strategy: \"%s\" is not one of cpu, gpu, gpu0, balanced, "
                   "sequential, custom, offload, disk, auto",
                   name);
}

/* ---- devices ---- */

/* The device that is the host's processor, or -1. */
static int processor_of(const wd_site *site)
{
    for (int d = 0; d < site->devices; d++)
        if (site->device[d].reads_host) return d;
    return -1;
}

/* Devices that are none, in order; returns how many. */
static int accelerators(int out[WD_PLACED_DEVICES_MAX], const wd_site *site)
{
    int n = 0;
    for (int d = 0; d < site->devices; d++)
        if (!site->device[d].reads_host) out[n++] = d;
    return n;
}

const char *wd_strategy_objection(wd_strategy strategy, const wd_site *site)
{
    int device[WD_PLACED_DEVICES_MAX], n = accelerators(device, site);
    switch (strategy) {
    case WD_STRATEGY_cpu:
        return processor_of(site) < 0 ? "cpu needs the processor among the devices" : NULL;
    case WD_STRATEGY_gpu:
        return n < 1 ? "gpu needs a device" : NULL;
    case WD_STRATEGY_gpu0:
        return n < 1 ? "gpu0 needs a device" : NULL;
    case WD_STRATEGY_balanced:
        return n < 2 ? "balanced needs two devices or more" : NULL;
    case WD_STRATEGY_sequential:
        return n < 2 ? "sequential needs two devices or more" : NULL;
    case WD_STRATEGY_offload:
        return n < 1 ? "offload needs a device to stream to" : NULL;
    default:
        return NULL;
    }
}

wd_status wd_strategy_check(wd_strategy strategy, const wd_site *site, wd_err *err)
{
    char can[128] = "";
    if (!wd_strategy_objection(strategy, site)) return WD_OK;
    for (int i = 0; i < WD_STRATEGY_COUNT; i++) {
        if (wd_strategy_objection((wd_strategy)i, site)) continue;
        size_t used = strlen(can);
        snprintf(can + used, sizeof can - used, "%s%s", used ? ", " : "", names[i]);
    }
    return wd_fail(err, WD_UNSUPPORTED, "teacher_device_strategy: %s; these devices can serve %s",
                   wd_strategy_objection(strategy, site), can);
}

/* ---- placements ---- */

static void place_all(wd_placement *out, wd_home home, int device)
{
    for (int e = 0; e < out->experts; e++)
        for (int s = 0; s < out->stages; s++) out->place[e][s] = (wd_place){home, device};
}

/* Whether stages [from, end) of both experts, which are cut alike, fit a device, the rest being on
 * others. */
static bool holds(const wd_teacher_size *size, const wd_site *site, int device, int from, int end)
{
    const wd_site_device *d = &site->device[device];
    wd_placed_device bytes = {0};
    wd_placed_sweep sweep = {
        .streams = wd_pipeline_streams(size, site, device, end - from == size->stages)};
    size_t widened = 0;
    if (from == end) return true;
    for (int e = 0; e < size->experts; e++)
        for (int s = from; s < end; s++) {
            wd_placed_keep(&bytes, &size->stage[e][s], d->reads_host);
            sweep.kind[wd_stage_kind_of(s, size->stages)] = true;
            if (size->stage[e][s].widened > widened) widened = size->stage[e][s].widened;
        }
    bytes.widening = WD_WIDENED_SLOTS * widened;
    bytes.activations = wd_placed_activations(&sweep, &d->need);
    bytes.workspace = wd_placed_workspace(&sweep, d);
    return bytes.opening <= d->bytes && wd_placed_total(&bytes) + d->taken <= d->bytes;
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
static void place_sequential(wd_placement *out, const wd_teacher_size *size, const wd_site *site,
                             const int *device, int n)
{
    int cut[WD_PLACED_DEVICES_MAX];
    for (int i = 0, from = 0; i < n; i++) {
        int end = size->stages;
        while (i + 1 < n && end > from && !holds(size, site, device[i], from, end)) end--;
        cut[i] = from = end;
    }
    place_cut(out, cut, device, n);
}

/* The first stages on the first devices, so that the slowest is as fast as can be. */
typedef struct partial {
    double slowest; /* seconds per target; < 0: does not fit */
    int from;       /* stage where the last of these devices begins */
} partial;

/* best[i][end]: stages [0, end) on devices [0, i]. */
static void divide(partial best[WD_PLACED_DEVICES_MAX][WD_PLACED_STAGES_MAX + 1],
                   const wd_teacher_size *size, const wd_site *site, const int *device, int n)
{
    for (int i = 0; i < n; i++)
        for (int end = 0; end <= size->stages; end++) {
            const wd_site_device *d = &site->device[device[i]];
            partial most = {-1, end};
            double flops = 0;
            for (int from = end; from >= 0; from--) {
                if (from < end) flops += size->flops[from];
                if (!holds(size, site, device[i], from, end)) continue;
                double before = i ? best[i - 1][from].slowest : from ? -1 : 0;
                if (before < 0) continue;
                double seconds = flops / d->flops_per_s;
                if (before > seconds) seconds = before;
                if (most.slowest < 0 || seconds < most.slowest) most = (partial){seconds, from};
            }
            best[i][end] = most;
        }
}

/* Where it cannot fit, as sequential: what is missing is then said for the last device. */
static void place_balanced(wd_placement *out, const wd_teacher_size *size, const wd_site *site,
                           const int *device, int n)
{
    partial best[WD_PLACED_DEVICES_MAX][WD_PLACED_STAGES_MAX + 1] = {0};
    int cut[WD_PLACED_DEVICES_MAX], end = size->stages;
    divide(best, size, site, device, n);
    if (best[n - 1][end].slowest < 0) {
        place_sequential(out, size, site, device, n);
        return;
    }
    for (int i = n - 1; i >= 0; i--) {
        cut[i] = end;
        end = best[i][end].from;
    }
    place_cut(out, cut, device, n);
}

wd_status wd_strategy_place(wd_placement *out, wd_strategy strategy, const wd_teacher_size *size,
                            const wd_site *site, int teacher_device, wd_err *err)
{
    int device[WD_PLACED_DEVICES_MAX], n = accelerators(device, site);
    WD_TRY(wd_strategy_check(strategy, site, err));
    *out = wd_placement_begin(size, site);
    int streamed = n ? device[0] : processor_of(site);
    switch (strategy) {
    case WD_STRATEGY_cpu:
        place_all(out, WD_HOME_DEVICE, processor_of(site));
        return WD_OK;
    case WD_STRATEGY_gpu:
        place_all(out, WD_HOME_DEVICE, device[0]);
        return WD_OK;
    case WD_STRATEGY_gpu0:
        if (teacher_device < 0 || teacher_device >= n)
            return wd_fail(err, WD_INVALID_ARGUMENT,
                           "teacher_rank: %d is no device; there are 0 to %d", teacher_device,
                           n - 1);
        place_all(out, WD_HOME_DEVICE, device[teacher_device]);
        return WD_OK;
    case WD_STRATEGY_balanced:
        place_balanced(out, size, site, device, n);
        return WD_OK;
    case WD_STRATEGY_sequential:
        place_sequential(out, size, site, device, n);
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
