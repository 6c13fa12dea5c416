/* Placements by strategy: see teacher/plan/strategy.h. */
#include "teacher/plan/strategy.h"

#include <math.h>
#include <string.h>

#include "core/text.h"

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
        used = wd_append_text(all, sizeof all, used, "%s%s", i ? ", " : "", names[i]);
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

/* The devices of all ranks that are no processor, in order: the first `own` are those of rank 0,
 * and every rank has as many. */
typedef struct accelerators {
    int device[WD_CLUSTER_DEVICES_MAX];
    int own, all;
} accelerators;

static accelerators accelerators_of(const wd_cluster *cluster)
{
    accelerators out = {.own = 0};
    for (int d = 0; d < wd__cluster_devices(cluster); d++) {
        if (wd_cluster_at(cluster, d)->reads_host) continue;
        out.device[out.all++] = d;
        out.own += d < cluster->devices;
    }
    return out;
}

const char *wd__strategy_objection(wd_strategy strategy, const wd_cluster *cluster)
{
    const accelerators on = accelerators_of(cluster);
    switch (strategy) {
    case WD_STRATEGY_cpu:
        return processor_of(cluster) < 0 ? "cpu needs the processor among the devices" : NULL;
    case WD_STRATEGY_gpu:
        return on.own < 1 ? "gpu needs a device" : NULL;
    case WD_STRATEGY_gpu0:
        return on.own < 1 && wd__cluster_ranks(cluster) < 2 ? "gpu0 needs a device" : NULL;
    case WD_STRATEGY_balanced:
        return on.all < 2 ? "balanced needs two devices or more" : NULL;
    case WD_STRATEGY_sequential:
        return on.all < 2 ? "sequential needs two devices or more" : NULL;
    case WD_STRATEGY_offload:
        return on.own < 1 ? "offload needs a device to stream to" : NULL;
    default:
        return NULL;
    }
}

bool wd__strategy_is_each(wd_strategy strategy, const wd_cluster *cluster)
{
    return wd__cluster_ranks(cluster) > 1 &&
           (strategy == WD_STRATEGY_cpu || strategy == WD_STRATEGY_gpu ||
            strategy == WD_STRATEGY_offload || strategy == WD_STRATEGY_disk);
}

wd_status wd__strategy_check(wd_strategy strategy, const wd_cluster *cluster, wd_err *err)
{
    char can[128] = "";
    size_t used = 0;
    if (!wd__strategy_objection(strategy, cluster)) return WD_OK;
    for (int i = 0; i < WD_STRATEGY_COUNT; i++) {
        if (wd__strategy_objection((wd_strategy)i, cluster)) continue;
        used = wd_append_text(can, sizeof can, used, "%s%s", used ? ", " : "", names[i]);
    }
    return wd_fail(err, WD_UNSUPPORTED, "teacher_device_strategy: %s; these devices can serve %s",
                   wd__strategy_objection(strategy, cluster), can);
}

/* ---- placements ---- */

/* Stages [from, end) of all experts. */
static void place_run(wd_placement *out, int from, int end, wd_home home, int device)
{
    for (int e = 0; e < out->experts; e++)
        for (int s = from; s < end; s++) out->place[e][s] = (wd_stage_placement){home, device};
}

static void place_all(wd_placement *out, wd_home home, int device)
{
    place_run(out, 0, out->stages, home, device);
}

/* Seconds per target of a device that has stages [from, end), beside its student. */
static double seconds_of(const wd_teacher_size *size, const wd_cluster *cluster, int device,
                         int from, int end)
{
    const double student = wd_cluster_at(cluster, device)->student_flops;
    double flops = 0;
    for (int s = from; s < end; s++) flops += size->flops[s];
    return flops / wd__cluster_teacher_rate(cluster, device) +
           student / wd_cluster_student_rate(cluster, device);
}

/* Each accelerator from `first` on takes stages until it is full, or the next one would make it
 * take `limit` seconds or more for a target. The last device takes what is left. Returns the
 * seconds of the slowest device that has stages; < 0: too much is left for the last one. A device
 * may get no stage, so that none waits for its student. */
static double fill_in_turn(wd_placement *out, const wd_teacher_size *size,
                           const wd_cluster *cluster, const accelerators *on, int first,
                           double limit)
{
    const int last = on->device[on->all - 1];
    double slowest = 0;
    int from = 0;
    place_all(out, WD_HOME_DEVICE, last);
    for (int i = first; i + 1 < on->all && from < out->stages; i++) {
        const int number = on->device[i];
        int end = from;
        while (end < out->stages && seconds_of(size, cluster, number, from, end + 1) < limit) end++;
        place_run(out, from, end, WD_HOME_DEVICE, number);
        for (; end > from && !wd__placed_holds(out, size, cluster, number); end--)
            place_run(out, end - 1, end, WD_HOME_DEVICE, last);
        if (end > from) slowest = fmax(slowest, seconds_of(size, cluster, number, from, end));
        from = end;
    }
    if (from == out->stages) return slowest;
    const double left = seconds_of(size, cluster, last, from, out->stages);
    return left < limit && wd__placed_holds(out, size, cluster, last) ? fmax(slowest, left) : -1;
}

/* The slowest device that has stages is as fast as possible: devices are filled in turn, each time
 * with a lower limit, as long as they hold all stages. Each device of rank 0 may be the one that
 * begins, which no device sends to, so that it has room for more weights. Where nothing fits,
 * stages are placed as by sequential, so that bytes are missing on the last device. */
static void place_balanced(wd_placement *out, const wd_teacher_size *size,
                           const wd_cluster *cluster, const accelerators *on)
{
    double limit = INFINITY;
    wd_placement faster = *out;
    fill_in_turn(out, size, cluster, on, 0, limit);
    for (int first = 0; first < on->own;) {
        const double slowest = fill_in_turn(&faster, size, cluster, on, first, limit);
        if (slowest < 0) {
            first++;
            continue;
        }
        *out = faster;
        limit = slowest;
    }
}

/* *out = the device of gpu0: that one of the only rank, or the first one of rank `rank`. */
static wd_status teacher_device(int *out, const wd_cluster *cluster, int rank,
                                const accelerators *on, wd_err *err)
{
    const int ranks = wd__cluster_ranks(cluster), there = ranks > 1 ? ranks : on->own;
    if (rank < 0 || rank >= there)
        return wd_fail(err, WD_INVALID_ARGUMENT, "teacher_rank: %d is no %s; there are 0 to %d",
                       rank, ranks > 1 ? "rank" : "device", there - 1);
    if (ranks == 1)
        *out = on->device[rank];
    else
        *out = rank * cluster->devices + (on->own ? on->device[0] : processor_of(cluster));
    return WD_OK;
}

wd_status wd_strategy_place(wd_placement *out, wd_strategy strategy, const wd_teacher_size *size,
                            const wd_cluster *cluster, int teacher_rank, wd_err *err)
{
    const accelerators on = accelerators_of(cluster);
    int device = on.own ? on.device[0] : processor_of(cluster);
    wd_home home = WD_HOME_DEVICE;
    WD_TRY(wd__strategy_check(strategy, cluster, err));
    *out = wd_placement_begin(size, cluster);
    out->each = wd__strategy_is_each(strategy, cluster);
    switch (strategy) {
    case WD_STRATEGY_balanced:
        place_balanced(out, size, cluster, &on);
        return WD_OK;
    case WD_STRATEGY_sequential:
        fill_in_turn(out, size, cluster, &on, 0, INFINITY);
        return WD_OK;
    case WD_STRATEGY_cpu:
        device = processor_of(cluster);
        break;
    case WD_STRATEGY_gpu:
        break;
    case WD_STRATEGY_gpu0:
        WD_TRY(teacher_device(&device, cluster, teacher_rank, &on, err));
        break;
    case WD_STRATEGY_offload:
        home = WD_HOME_HOST;
        break;
    case WD_STRATEGY_disk:
        home = WD_HOME_DISK;
        break;
    default:
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "teacher_device_strategy: %s is not placed by sizes alone", names[strategy]);
    }
    place_all(out, home, device);
    return WD_OK;
}
