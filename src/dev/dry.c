/* The dry device plans for a target without using it. Its addresses are not real, and nothing is
 * computed or copied. device.c counts bytes, peaks and FLOPs; this file finds the largest workspace
 * that the target would need. So the code that runs a step also plans it. */
#include <stdio.h>

#include "core/checked.h"
#include "core/error.h"
#include "core/memory.h"
#include "dev/device_impl.h"

typedef struct dry_device {
    wd_device base;
    wd_device *target; /* borrowed */
    uintptr_t next;    /* address of the next block: never used twice, never mapped */
    bool prepares;     /* the target makes what launches need */
    wd_err refused;    /* why the first launch cannot be made that cannot; WD_OK: all can */
} dry_device;

static void dry_close(wd_device *device)
{
    wd_device_discard(device);
}

static wd_status dry_alloc(void **out, wd_device *device, size_t bytes, wd_err *err)
{
    dry_device *dry = (dry_device *)device;
    size_t rounded;
    if (bytes > SIZE_MAX - 63 || !wd_add_size(&rounded, wd_round_up(bytes, 64), dry->next) ||
        rounded > (size_t)1 << 62)
        return wd_fail(err, WD_OUT_OF_MEMORY, "%zu bytes are more than can be addressed", bytes);
    *out = (void *)dry->next;
    dry->next = rounded;
    return WD_OK;
}

static void dry_free(wd_device *device, void *block, size_t bytes)
{
    (void)device, (void)block, (void)bytes;
}

/* Allocates as much host memory as the target's queue does. The second block of the target's queue
 * is allocated as well, although a dry queue has no use for it. */
static wd_status dry_queue_open(wd_queue **out, wd_device *device, wd_err *err)
{
    wd_queue *queue;
    wd_status status = WD_OK;
    WD_TRY(wd_queue_create(&queue, device->queue_bytes, device, err));
    if (device->queue_beside_bytes)
        status = wd_alloc(&queue->workspace, 1, device->queue_beside_bytes, "a queue", err);
    if (status == WD_OK)
        *out = queue;
    else
        wd_free(queue);
    return status;
}

static void dry_queue_close(wd_queue *queue)
{
    wd_free(queue->workspace);
    wd_free(queue);
}

static wd_status dry_reserve(wd_queue *queue, size_t bytes, wd_err *err)
{
    (void)err;
    bytes = wd__device_in_granules(queue->device, bytes);
    if (bytes > queue->workspace_bytes) queue->workspace_bytes = bytes;
    return WD_OK;
}

static void dry_copy(wd_queue *queue, void *to, const void *from, size_t bytes)
{
    (void)queue, (void)to, (void)from, (void)bytes;
}

/* Whether the target can do it, and what it makes for that. */
static wd_status look_at(dry_device *dry, wd_op op, const void *args, wd_err *err)
{
    const wd_device_kind *kind = dry->target->kind;
    if (kind->can && !kind->can(dry->target, op, args))
        return wd_fail(err, WD_UNSUPPORTED,
                       "%s cannot compute the operation %s in a size that this model has; the "
                       "processor can: --devices cpu, or --device cpu where a command takes one "
                       "device",
                       dry->target->name, wd_op_name(op));
    return dry->prepares && kind->prepare ? kind->prepare(dry->target, op, args, err) : WD_OK;
}

static void dry_launch(wd_queue *queue, wd_op op, const void *args)
{
    dry_device *dry = (dry_device *)queue->device;
    wd_device *target = dry->target;
    wd_err err;
    if (dry->refused.status == WD_OK) dry->refused.status = look_at(dry, op, args, &dry->refused);
    dry_reserve(queue, target->kind->workspace(target, op, args), &err);
}

static void dry_wait(wd_queue *queue)
{
    (void)queue;
}

static wd_status dry_event_open(wd_event **out, wd_device *device, wd_err *err)
{
    return wd_event_create(out, device, err);
}

static void dry_event_close(wd_event *event)
{
    wd_free(event);
}
static void dry_event_record(wd_event *event, wd_queue *queue)
{
    (void)event, (void)queue;
}
static void dry_event_wait_on(wd_queue *queue, wd_event *event)
{
    (void)event, (void)queue;
}
static void dry_event_wait(wd_event *event)
{
    (void)event;
}
static bool dry_event_is_done(wd_event *event)
{
    return event != NULL;
}

static size_t dry_workspace(const wd_device *device, wd_op op, const void *args)
{
    const wd_device *target = ((const dry_device *)device)->target;
    return target->kind->workspace(target, op, args);
}

static bool dry_can(const wd_device *device, wd_op op, const void *args)
{
    const wd_device *target = ((const dry_device *)device)->target;
    return !target->kind->can || target->kind->can(target, op, args);
}

static const wd_device_kind dry_kind = {
    .close = dry_close,
    .alloc = dry_alloc,
    .free = dry_free,
    .queue_open = dry_queue_open,
    .queue_close = dry_queue_close,
    .reserve = dry_reserve,
    .copy = dry_copy,
    .launch = dry_launch,
    .wait = dry_wait,
    .event_open = dry_event_open,
    .event_close = dry_event_close,
    .event_record = dry_event_record,
    .event_wait_on = dry_event_wait_on,
    .event_wait = dry_event_wait,
    .event_is_done = dry_event_is_done,
    .workspace = dry_workspace,
    .can = dry_can,
};

wd_status wd_device_open_dry(wd_device **out, wd_device *target, wd_err *err)
{
    dry_device *dry;
    WD_TRY(wd_device_create(&dry, sizeof *dry, &dry_kind, err));
    dry->target = target;
    dry->next = (uintptr_t)1 << 40;
    dry->base.is_dry = true;
    dry->base.event_bytes = target->event_bytes; /* so that host memory is planned, too */
    dry->base.queue_bytes = target->queue_bytes;
    dry->base.queue_beside_bytes = target->queue_beside_bytes;
    dry->base.traits = target->traits;
    snprintf(dry->base.name, sizeof dry->base.name, "dry run for %.80s", target->name);
    *out = &dry->base;
    return WD_OK;
}

wd_status wd_device_check_planned(const wd_device *device, wd_err *err)
{
    const dry_device *dry = (const dry_device *)device;
    WD_REQUIRE(device->is_dry, "%s is no dry device", device->name);
    if (dry->refused.status != WD_OK && err) *err = dry->refused;
    return dry->refused.status;
}

wd_status wd_device_open_rehearsed(wd_device **out, wd_device *target, wd_err *err)
{
    WD_TRY(wd_device_open_dry(out, target, err));
    ((dry_device *)*out)->prepares = true;
    return WD_OK;
}

/* ---- rehearsals ---- */

wd_status wd_rehearsal_open(wd_queue **out, wd_queue *queue, wd_err *err)
{
    wd_device *dry;
    WD_TRY(wd_device_open_rehearsed(&dry, queue->device, err));
    wd_status status = wd_queue_open(out, dry, err);
    if (status != WD_OK) wd_device_close(dry);
    return status;
}

wd_status wd_rehearsal_close(wd_queue *rehearsal, wd_queue *queue, wd_err *err)
{
    wd_device *dry = rehearsal->device;
    const size_t bytes = rehearsal->workspace_bytes;
    const wd_status status = wd_device_check_planned(dry, err);
    wd_queue_close(rehearsal);
    wd_device_close(dry);
    if (status != WD_OK) return status;
    WD_TRY(wd_device_check_kernels(err));
    return wd_queue_reserve_workspace(queue, bytes, err);
}
