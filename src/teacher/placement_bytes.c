/* Bytes of a placement: see teacher/placement_bytes.h. */
#include "teacher/placement_bytes.h"

/* Adds the slots of a device's streamed stages of one home, and their other buffers. Returns the
 * bytes of host memory that files are read into. */
static size_t add_streaming(wd_placed_device *bytes, const wd_sweep_part *part,
                            const wd_placement *p, const wd_teacher_size *size,
                            const wd_cluster *cluster, int device, wd_home home)
{
    size_t slot[WD_STAGE_KINDS] = {0}, reading = 0, casting = 0, converting = 0;
    const wd_sweep_need *need = &wd_cluster_at(cluster, device)->need;
    for (int e = 0; e < p->experts; e++)
        for (int s = 0; s < p->stages; s++) {
            const wd_place *place = &p->place[e][s];
            const wd_stage_size *stage = &size->stage[e][s];
            const wd_stage_kind kind = wd_stage_kind_of(s, p->stages);
            if (place->device != device || place->home != home) continue;
            wd_placed_most(&slot[kind], stage->device);
            wd_placed_most(&reading, stage->reading);
            wd_placed_most(&converting, stage->converting);
            wd_placed_most(&casting, stage->casting);
        }
    for (int k = 0; k < WD_STAGE_KINDS; k++)
        bytes->streaming += (size_t)part->slots[home][k] * wd_placed_block(need, slot[k]);
    if (home != WD_HOME_DISK) return 0;
    const bool shared =
        p->each && wd_cluster_host_ranks(cluster) > 1; /* by the host's ranks, a ring */
    if (wd_cluster_at(cluster, device)->reads_host && !shared) return converting;
    if (!wd_cluster_at(cluster, device)->reads_host)
        bytes->streaming += wd_placed_block(need, casting);
    return WD_PLACED_STAGINGS * reading;
}

/* Buffers for stages that are widened before they are computed: one for the stages of each home. */
static size_t widening(const wd_placement *p, const wd_teacher_size *size,
                       const wd_cluster *cluster, int device)
{
    size_t widened[WD_HOMES] = {0}, sum = 0;
    for (int e = 0; e < p->experts; e++)
        for (int s = 0; s < p->stages; s++) {
            const wd_place *place = &p->place[e][s];
            if (place->device != device) continue;
            wd_placed_most(&widened[place->home], size->stage[e][s].widened);
        }
    for (int h = 0; h < WD_HOMES; h++)
        sum += wd_placed_block(&wd_cluster_at(cluster, device)->need, widened[h]);
    return sum;
}

size_t wd_placed_activations(const wd_sweep_part *part, const wd_sweep_need *need)
{
    if (!part->places) return 0;
    return need->tables + wd_placed_block(need, need->scratch + (size_t)part->places * need->place);
}

size_t wd_placed_workspace(const wd_sweep_part *part, const wd_cluster_device *device)
{
    const size_t bytes = device->need.workspace, there = device->workspace;
    return part->places && bytes > there ? bytes - there : 0;
}

/* Adds a stage that stays, opened after those that were added before. */
static void keep(wd_placed_device *bytes, const wd_stage_size *stage,
                 const wd_cluster_device *device)
{
    const wd_sweep_need *need = &device->need;
    const size_t casting = device->reads_host ? stage->host_casting : stage->casting;
    bytes->weights += wd_placed_block(need, device->reads_host ? stage->host : stage->device);
    wd_placed_most(&bytes->opening, bytes->weights + wd_placed_block(need, casting));
}

/* Adds the weights that stay on a device. Returns the bytes of those that stay in host memory for
 * it. */
static size_t add_weights(wd_placed_device *bytes, const wd_placement *p,
                          const wd_teacher_size *size, const wd_cluster *cluster, int device)
{
    size_t host = 0;
    for (int e = 0; e < p->experts; e++)
        for (int s = 0; s < p->stages; s++) {
            const wd_place *place = &p->place[e][s];
            if (place->device != device) continue;
            if (place->home == WD_HOME_DEVICE)
                keep(bytes, &size->stage[e][s], wd_cluster_at(cluster, device));
            else if (place->home == WD_HOME_HOST)
                host += size->stage[e][s].device;
        }
    return host;
}

/* Bytes in the memory of one host. */
typedef struct host_bytes {
    size_t weights, reading, transfers, devices;
} host_bytes;

static size_t all_of(const host_bytes *host)
{
    return host->weights + host->reading + host->transfers + host->devices;
}

/* The bytes of the processor of `ranks` ranks of a host, which share weights. */
static size_t processors(const wd_placed_device *bytes, int ranks)
{
    return bytes->weights + (size_t)ranks * (wd_placed_total(bytes) - bytes->weights);
}

/* The bytes of a device, and in *host what it takes in host memory besides. */
static wd_placed_device device_bytes(host_bytes *host, const wd_placement *placement,
                                     const wd_teacher_size *size, const wd_cluster *cluster,
                                     const wd_sweep_part *part, int device)
{
    const wd_cluster_device *on = wd_cluster_at(cluster, device);
    wd_placed_device to = {0};
    host->weights += add_weights(&to, placement, size, cluster, device);
    host->reading += add_streaming(&to, part, placement, size, cluster, device, WD_HOME_HOST);
    host->reading += add_streaming(&to, part, placement, size, cluster, device, WD_HOME_DISK);
    host->transfers +=
        (size_t)(WD_TRANSFERS_UNDER_WAY * (part->sends + part->receives)) * on->need.place;
    to.widening = widening(placement, size, cluster, device);
    to.activations = wd_placed_activations(part, &on->need);
    to.workspace = wd_placed_workspace(part, on);
    if (on->reads_host)
        host->devices += processors(&to, placement->each ? wd_cluster_host_ranks(cluster) : 1);
    return to;
}

wd_placed_bytes wd_placement_bytes(const wd_placement *placement, const wd_teacher_size *size,
                                   const wd_cluster *cluster)
{
    wd_placed_bytes bytes;
    wd_sweep_part part[WD_CLUSTER_DEVICES_MAX];
    host_bytes host = {0}, fullest = {0};
    bytes.devices = placement->each ? cluster->devices : wd_cluster_devices(cluster);
    wd_sweep_parts(part, bytes.devices, placement, cluster->batches);
    for (int d = 0, last = 0; d < bytes.devices; d++) {
        if (wd_cluster_host(cluster, d) != last) host = (host_bytes){0};
        last = wd_cluster_host(cluster, d);
        bytes.device[d] = device_bytes(&host, placement, size, cluster, &part[d], d);
        if (all_of(&host) >= all_of(&fullest)) fullest = host;
    }
    bytes.host_weights = fullest.weights;
    bytes.host_reading = fullest.reading;
    bytes.host_transfers = fullest.transfers;
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
    return bytes->host_weights + bytes->host_reading + bytes->host_transfers + bytes->host_devices;
}

static size_t peak_of(const wd_placed_device *bytes, const wd_cluster_device *device)
{
    size_t peak = wd_placed_total(bytes) + device->taken;
    wd_placed_most(&peak, bytes->opening);
    return peak;
}

size_t wd_placed_peak(const wd_placed_bytes *bytes, const wd_cluster *cluster, int device)
{
    return peak_of(&bytes->device[device], wd_cluster_at(cluster, device));
}

bool wd_placed_holds(const wd_placement *placement, const wd_teacher_size *size,
                     const wd_cluster *cluster, int device)
{
    wd_sweep_part part[WD_CLUSTER_DEVICES_MAX];
    const wd_cluster_device *on = wd_cluster_at(cluster, device);
    host_bytes host = {0};
    wd_sweep_parts(part, wd_cluster_devices(cluster), placement, cluster->batches);
    const wd_placed_device bytes =
        device_bytes(&host, placement, size, cluster, &part[device], device);
    return peak_of(&bytes, on) <= on->bytes;
}

size_t wd_placed_host_peak(const wd_placed_bytes *bytes, const wd_cluster *cluster)
{
    return wd_placed_host(bytes) + (size_t)wd_cluster_host_ranks(cluster) * cluster->host_taken;
}

size_t wd_placement_mapped(const wd_placement *placement, const wd_teacher_size *size,
                           const wd_cluster *cluster)
{
    size_t mapped = 0;
    for (int e = 0; e < placement->experts; e++)
        for (int s = 0; s < placement->stages; s++) {
            const wd_place *place = &placement->place[e][s];
            if (place->home == WD_HOME_DEVICE && wd_cluster_at(cluster, place->device)->reads_host)
                mapped += wd_stage_mapped(&size->stage[e][s]);
        }
    return mapped;
}

bool wd_placement_fits(const wd_placement *placement, const wd_teacher_size *size,
                       const wd_cluster *cluster)
{
    const wd_placed_bytes bytes = wd_placement_bytes(placement, size, cluster);
    for (int d = 0; d < bytes.devices; d++)
        if (wd_placed_peak(&bytes, cluster, d) > wd_cluster_at(cluster, d)->bytes) return false;
    return wd_placed_host_peak(&bytes, cluster) <= cluster->host_bytes;
}
