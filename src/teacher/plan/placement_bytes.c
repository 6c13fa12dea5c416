/* Bytes of a placement: see teacher/plan/placement_bytes.h. */
#include "teacher/plan/placement_bytes.h"

void wd_placed_sizes_add(wd_placed_sizes *sizes, wd_stage_kind kind, const wd_stage_size *stage)
{
    sizes->stages++;
    wd_placed_most(&sizes->block[kind], stage->device);
    wd_placed_most(&sizes->reading, stage->reading);
    wd_placed_most(&sizes->converting, stage->converting);
    wd_placed_most(&sizes->casting, stage->casting);
    wd_placed_most(&sizes->widened, stage->widened);
}

/* The bytes that a block of `bytes` takes in the device's pool. */
static size_t block_bytes(const wd_sweep_need *need, size_t bytes)
{
    const size_t granule = need->granule ? need->granule : 1;
    return (bytes + granule - 1) / granule * granule;
}

size_t wd_placed_activations(const wd_sweep_device *part, const wd_sweep_need *need)
{
    if (!part->places) return 0;
    return need->tables + block_bytes(need, need->scratch + (size_t)part->places * need->place);
}

size_t wd_placed_workspace(const wd_sweep_device *part, const wd_cluster_device *device)
{
    const size_t bytes = device->need.workspace, there = device->workspace;
    return part->places && bytes > there ? bytes - there : 0;
}

/* Adds a stage that stays, opened after those that were added before. */
static void keep(wd_placed_device *bytes, const wd_stage_size *stage,
                 const wd_cluster_device *device)
{
    const bool on_host = device->reads_host;
    bytes->weights += block_bytes(&device->need, on_host ? stage->host : stage->device);
    bytes->mapped += on_host ? wd_stage_mapped(stage) : 0;
    const size_t casting = on_host ? 0 : block_bytes(&device->need, stage->casting);
    wd_placed_most(&bytes->opening, bytes->weights + casting);
}

/* Adds the buffers of a device's streamed stages of one home, and their other buffers. */
static void add_streaming(wd_placed_device *to, wd_placed_host *host, const wd_placed_sizes *m,
                          const wd_placed_stages *part, const wd_cluster *cluster)
{
    const wd_cluster_device *on = wd_cluster_at(cluster, part->device);
    for (int k = 0; k < WD_STAGE_KINDS; k++)
        to->streaming +=
            (size_t)wd_placed_buffers(part, (wd_stage_kind)k) * block_bytes(&on->need, m->block[k]);
    if (part->home != WD_HOME_DISK) return;
    const bool shared = part->placement->each &&
                        wd_cluster_host_ranks(cluster) > 1; /* by the host's ranks, a ring */
    if (!on->reads_host) to->streaming += block_bytes(&on->need, m->casting);
    host->reading += on->reads_host && !shared ? m->converting : WD_PLACED_STAGINGS * m->reading;
}

/* Adds the weights of a device, where they are kept and in the buffers that they are streamed to.
 * Stages of each home that are widened share a buffer. */
static void add_weights(wd_placed_device *to, wd_placed_host *host, const wd_placement *p,
                        const wd_teacher_size *size, const wd_cluster *cluster, int device)
{
    const wd_cluster_device *on = wd_cluster_at(cluster, device);
    wd_placed_sizes sizes[WD_HOMES] = {0};
    for (int e = 0; e < p->experts; e++)
        for (int s = 0; s < p->stages; s++) {
            const wd_stage_placement *place = &p->place[e][s];
            const wd_stage_size *stage = &size->stage[e][s];
            if (place->device != device) continue;
            wd_placed_sizes_add(&sizes[place->home], wd_stage_kind_of(s, p->stages), stage);
            if (place->home == WD_HOME_DEVICE) keep(to, stage, on);
            if (place->home == WD_HOME_HOST) host->weights += stage->device;
        }
    for (int h = 0; h < WD_HOMES; h++) {
        to->widening += block_bytes(&on->need, sizes[h].widened);
        if (h != WD_HOME_DEVICE && sizes[h].stages)
            add_streaming(to, host, &sizes[h], &(wd_placed_stages){p, (wd_home)h, device}, cluster);
    }
}

/* The bytes of a device, and in *host what is added in host memory. Its ranks share a processor's
 * weights. */
static wd_placed_device device_bytes(wd_placed_host *host, const wd_placement *placement,
                                     const wd_teacher_size *size, const wd_cluster *cluster,
                                     const wd_sweep_device *part, int device)
{
    const wd_cluster_device *on = wd_cluster_at(cluster, device);
    const size_t ranks = placement->each ? (size_t)wd_cluster_host_ranks(cluster) : 1;
    wd_placed_device to = {.taken = on->taken};
    add_weights(&to, host, placement, size, cluster, device);
    host->transfers +=
        (size_t)(WD_TRANSFERS_UNDER_WAY * (part->sends + part->receives)) * on->need.place;
    to.activations = wd_placed_activations(part, &on->need);
    to.workspace = wd_placed_workspace(part, on);
    if (on->reads_host)
        host->processors += to.weights + ranks * (wd_placed_total(&to) - to.weights);
    return to;
}

void wd__placement_bytes(wd_placed_bytes *out, const wd_placement *placement,
                         const wd_teacher_size *size, const wd_cluster *cluster)
{
    wd_sweep_device part[WD_CLUSTER_DEVICES_MAX];
    wd_placed_host host = {0};
    out->devices = placement->each ? cluster->devices : wd__cluster_devices(cluster);
    out->host = host;
    out->host_taken = cluster->host_taken;
    out->mapped = 0;
    wd__sweep_devices(part, out->devices, placement, cluster->batches);
    for (int d = 0, last = 0; d < out->devices; d++) {
        if (wd__cluster_host(cluster, d) != last) host = (wd_placed_host){0};
        last = wd__cluster_host(cluster, d);
        out->device[d] = device_bytes(&host, placement, size, cluster, &part[d], d);
        out->mapped += out->device[d].mapped;
        if (wd__placed_host_total(&host) >= wd__placed_host_total(&out->host)) out->host = host;
    }
}

size_t wd_placed_total(const wd_placed_device *device)
{
    return device->weights + device->streaming + device->widening + device->activations +
           device->workspace;
}

size_t wd__placed_host_total(const wd_placed_host *host)
{
    return host->weights + host->reading + host->transfers + host->processors;
}

static size_t peak_of(const wd_placed_device *bytes)
{
    size_t peak = wd_placed_total(bytes) + bytes->taken;
    wd_placed_most(&peak, bytes->opening);
    return peak;
}

size_t wd_placed_peak(const wd_placed_bytes *bytes, int device)
{
    return peak_of(&bytes->device[device]);
}

bool wd__placed_holds(const wd_placement *placement, const wd_teacher_size *size,
                      const wd_cluster *cluster, int device)
{
    wd_sweep_device part[WD_CLUSTER_DEVICES_MAX];
    const wd_cluster_device *on = wd_cluster_at(cluster, device);
    wd_placed_host host = {0};
    wd__sweep_devices(part, wd__cluster_devices(cluster), placement, cluster->batches);
    const wd_placed_device bytes =
        device_bytes(&host, placement, size, cluster, &part[device], device);
    return peak_of(&bytes) <= on->bytes;
}

size_t wd_placed_host_peak(const wd_placed_bytes *bytes, const wd_cluster *cluster)
{
    return wd__placed_host_total(&bytes->host) +
           (size_t)wd_cluster_host_ranks(cluster) * bytes->host_taken;
}
