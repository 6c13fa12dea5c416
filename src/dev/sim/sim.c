/* Simulated devices: the behaviour of a machine with several GPUs on a machine without any.
 *
 * A device has a pool in host memory with a budget to the byte; queues with a thread each, so that
 * calls return before their work is done; a link for all copies to or from it, and a processor,
 * each with the given speed. It computes with the cpu device's kernels on one thread each, so its
 * results have the bits of the cpu device. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "dev/pinned.h"
#include "dev/sim/sim.h"

/* ---- the devices that are open ---- */

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static wd_sim_device *open_first;

wd_sim_device *wd__sim_owner(const void *address)
{
    pthread_mutex_lock(&open_lock);
    wd_sim_device *device = open_first;
    while (device && !wd_device_has(&device->base, address)) device = device->next;
    pthread_mutex_unlock(&open_lock);
    return device;
}

static void sim_close(wd_device *device)
{
    wd_sim_device *sim = (wd_sim_device *)device;
    pthread_mutex_lock(&open_lock);
    wd_sim_device **at = &open_first;
    while (*at != sim) at = &(*at)->next;
    *at = sim->next;
    pthread_mutex_unlock(&open_lock);
    pthread_mutex_destroy(&sim->link.lock);
    pthread_mutex_destroy(&sim->processor.lock);
    wd_device_discard(device);
}

/* ---- memory ---- */

static wd_status sim_alloc(void **out, wd_device *device, size_t bytes, wd_err *err)
{
    (void)device;
    return wd_host_block_map(out, bytes, err);
}

static void sim_free(wd_device *device, void *block, size_t bytes)
{
    (void)device;
    wd_host_block_unmap(block, bytes);
}

static bool sim_owns(wd_device *device, const void *address)
{
    (void)device;
    return wd__sim_owner(address) != NULL;
}

static size_t sim_workspace(const wd_device *device, wd_op op, const void *args)
{
    return wd_cpu_kernels_workspace(&((const wd_sim_device *)device)->kernels, op, args);
}

/* ---- faults ---- */

bool wd__sim_has_failed(const wd_sim_device *device)
{
    return device->failed_op != WD_OP_COUNT;
}

static wd_status sim_fault(wd_device *device, wd_err *err)
{
    const wd_sim_device *sim = (const wd_sim_device *)device;
    if (!wd__sim_has_failed(sim)) return WD_OK;
    return wd_fail(err, WD_DEVICE_FAULT, "%s failed at launch %" PRId64 " (%s), as it was asked to",
                   device->name, sim->failing_launch, wd_op_name((wd_op)sim->failed_op));
}

/* ---- events: the first `count` of a line are done ---- */

typedef struct sim_event {
    wd_event base;
    pthread_mutex_t lock; /* of the rest */
    wd_sim_line *line;    /* held; NULL: never recorded */
    int64_t count;
} sim_event;

static wd_status sim_event_open(wd_event **out, wd_device *device, wd_err *err)
{
    sim_event *event;
    WD_TRY(wd_event_create(&event, device, err));
    pthread_mutex_init(&event->lock, NULL);
    *out = &event->base;
    return WD_OK;
}

static void sim_event_close(wd_event *event)
{
    sim_event *e = (sim_event *)event;
    wd__sim_line_drop(e->line);
    pthread_mutex_destroy(&e->lock);
    wd_free(e);
}

static void sim_event_record(wd_event *event, wd_queue *queue)
{
    sim_event *e = (sim_event *)event;
    wd_sim_line *line = wd__sim_queue_line(queue);
    pthread_mutex_lock(&e->lock);
    if (e->line != line) {
        wd__sim_line_drop(e->line);
        e->line = wd__sim_line_hold(line);
    }
    e->count = wd__sim_line_submitted(line);
    pthread_mutex_unlock(&e->lock);
}

/* The line and the count of the event's latest record; the caller gets a reference to the line.
 * NULL: nothing to wait for. */
static wd_sim_line *look(sim_event *e, int64_t *count)
{
    pthread_mutex_lock(&e->lock);
    wd_sim_line *line = e->line ? wd__sim_line_hold(e->line) : NULL;
    *count = e->count;
    pthread_mutex_unlock(&e->lock);
    return line;
}

static void sim_event_wait(wd_event *event)
{
    int64_t count;
    wd_sim_line *line = look((sim_event *)event, &count);
    if (line) wd__sim_line_wait(line, count);
    wd__sim_line_drop(line);
}

static bool sim_event_is_done(wd_event *event)
{
    int64_t count;
    wd_sim_line *line = look((sim_event *)event, &count);
    const bool done = !line || wd__sim_line_is_done(line, count);
    wd__sim_line_drop(line);
    return done;
}

static void sim_event_wait_on(wd_queue *queue, wd_event *event)
{
    int64_t count;
    if (queue->device->kind !=
        event->device->kind) { /* a queue of a device that runs its work at once */
        sim_event_wait(event);
        return;
    }
    wd_sim_line *line = look((sim_event *)event, &count);
    if (line) wd__sim_queue_wait_for(queue, line, count);
}

/* ---- open ---- */

static const wd_device_kind sim_kind = {
    .close = sim_close,
    .alloc = sim_alloc,
    .free = sim_free,
    .host_alloc = sim_alloc, /* whole pages, as a GPU's driver gives them */
    .host_free = sim_free,
    .queue_open = wd__sim_queue_open,
    .queue_close = wd__sim_queue_close,
    .reserve = wd_queue_grow_workspace,
    .copy = wd__sim_queue_copy,
    .launch = wd__sim_queue_launch,
    .wait = wd__sim_queue_wait,
    .event_open = sim_event_open,
    .event_close = sim_event_close,
    .event_record = sim_event_record,
    .event_wait_on = sim_event_wait_on,
    .event_wait = sim_event_wait,
    .event_is_done = sim_event_is_done,
    .workspace = sim_workspace,
    .fault = sim_fault,
    .owns = sim_owns,
};

/* Writes "24 GiB", or the bytes if they are no whole number of GiB. */
static const char *bytes_text(char *out, size_t out_bytes, size_t bytes)
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int u = 0;
    while (u < 4 && bytes && bytes % 1024 == 0) bytes /= 1024, u++;
    snprintf(out, out_bytes, "%zu %s", bytes, unit[u]);
    return out;
}

/* Writes ", 20 GFLOP/s", or both speeds where they differ, or "" where neither is limited. */
static void processor_text(char *out, size_t out_bytes, const double flops_per_s[WD_PRECISIONS])
{
    const double narrow = flops_per_s[WD_16_BIT] / 1e9, wide = flops_per_s[WD_32_BIT] / 1e9;
    *out = 0;
    if (narrow == wide && narrow > 0)
        snprintf(out, out_bytes, ", %.4g GFLOP/s", narrow);
    else if (narrow > 0 || wide > 0)
        snprintf(out, out_bytes, ", GFLOP/s: %.4g in bf16, %.4g in fp32", narrow, wide);
}

wd_status wd_device_open_sim(wd_device **out, const wd_sim_options *options, wd_err *err)
{
    wd_sim_device *sim;
    char bytes[32], link[48] = "", processor[64];
    WD_TRY(wd_device_create(&sim, sizeof *sim, &sim_kind, err));
    wd_status status = wd_cpu_kernels_choose(&sim->kernels, 1, err);
    if (status != WD_OK) {
        wd_device_discard(&sim->base);
        return status;
    }
    sim->base.checks_copies = true;
    sim->base.bytes_max = options->bytes;
    wd_cpu_kernels_text(sim->base.traits.kernels, sim->kernels.isa);
    sim->failing_launch = options->failing_launch;
    sim->failed_op = WD_OP_COUNT;
    sim->base.event_bytes = sizeof(sim_event);
    sim->base.queue_bytes = wd__sim_queue_bytes();
    sim->base.queue_beside_bytes = sizeof(wd_sim_line);
    sim->link_bytes_per_s = options->link_bytes_per_s;
    memcpy(sim->flops_per_s, options->flops_per_s, sizeof sim->flops_per_s);
    pthread_mutex_init(&sim->link.lock, NULL);
    pthread_mutex_init(&sim->processor.lock, NULL);
    if (sim->link_bytes_per_s > 0)
        snprintf(link, sizeof link, ", link %.4g GB/s", sim->link_bytes_per_s / 1e9);
    processor_text(processor, sizeof processor, sim->flops_per_s);
    snprintf(sim->base.name, sizeof sim->base.name, "sim:%d (%s%s%s)", options->number,
             bytes_text(bytes, sizeof bytes, options->bytes), link, processor);
    pthread_mutex_lock(&open_lock);
    sim->next = open_first;
    open_first = sim;
    pthread_mutex_unlock(&open_lock);
    *out = &sim->base;
    return WD_OK;
}
