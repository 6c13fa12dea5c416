/* Devices: dispatch to the kind of device, and the counters that all kinds share. See dev/device.h
 * for the interface and dev/device_impl.h for the functions of a kind. */
#include "dev/device.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/checked.h"
#include "core/error.h"
#include "core/log.h"
#include "core/memory.h"
#include "dev/device_impl.h"
#include "dev/pinned.h"

/* ---- devices ---- */

wd_status wd_device_create(void *out, size_t bytes, const wd_device_kind *kind, wd_err *err)
{
    void *made;
    WD_TRY(wd_alloc(&made, 1, bytes, "a device", err));
    wd_device *device = made;
    device->kind = kind;
    device->bytes_max = SIZE_MAX;
    device->traits.granule = 1;
    device->event_bytes = sizeof(wd_event);
    device->queue_bytes = sizeof(wd_queue);
    pthread_mutex_init(&device->lock, NULL);
    *(void **)out = made;
    return WD_OK;
}

void wd_device_discard(wd_device *device)
{
    pthread_mutex_destroy(&device->lock);
    wd_free(device->block);
    wd_free(device);
}

void wd_device_close(wd_device *device)
{
    if (!device) return;
    for (size_t i = 0; i < device->blocks; i++)
        wd_log(WD_LOG_ERROR, "%s: %s (%zu bytes) was not freed before the device was closed",
               device->name, device->block[i].what, device->block[i].bytes);
    assert(!device->blocks && "all blocks must be freed before their device is closed");
    wd__pinned_close(device);
    device->kind->close(device);
}

const char *wd_device_name(const wd_device *device)
{
    return device->name;
}

const wd_traits *wd_device_traits(const wd_device *device)
{
    return &device->traits;
}

wd_status wd_device_fault(wd_device *device, wd_err *err)
{
    return device->kind->fault ? device->kind->fault(device, err) : WD_OK;
}

bool wd_device_is_dry(const wd_device *device)
{
    return device->is_dry;
}

/* ---- memory ---- */

/* The initial capacity of the list of blocks, which suffices for nearly all runs. A dry device has
 * no block for a queue's workspace, so a plan may grow the list one block later. */
enum { BLOCKS_MIN = 256 };

/* Reserves space for one more block, so that nothing can fail after the allocation. */
static wd_status reserve_block(wd_device *device, wd_err *err)
{
    if (device->blocks < device->blocks_max) return WD_OK;
    size_t grown = device->blocks_max ? 2 * device->blocks_max : BLOCKS_MIN;
    void *block = device->block;
    WD_TRY(wd_resize(&block, grown, sizeof *device->block, "the list of device blocks", err));
    device->block = block;
    device->blocks_max = grown;
    return WD_OK;
}

size_t wd__device_in_granules(const wd_device *device, size_t bytes)
{
    const size_t granule = device->traits.granule;
    return bytes > SIZE_MAX - granule ? SIZE_MAX : wd_round_up(bytes, granule);
}

static wd_status alloc_block(void **out, wd_device *device, size_t bytes, wd_err *err)
{
    if (bytes > device->bytes_max - device->bytes)
        return wd_fail(err, WD_OUT_OF_MEMORY,
                       "%s: %zu bytes asked for, %zu free: %zu of %zu are allocated", device->name,
                       bytes, device->bytes_max - device->bytes, device->bytes, device->bytes_max);
    WD_TRY(reserve_block(device, err));
    if (!bytes) bytes = 1;
    WD_TRY(device->kind->alloc(out, device, bytes, err));
    if (!device->pool_with) return WD_OK;
    const wd_status status = wd_host_register(device->pool_with, *out, bytes, device->name, err);
    if (status != WD_OK) device->kind->free(device, *out, bytes);
    return status;
}

/* The sum of all blocks with this name. */
static wd_block_sum *sum_of(wd_device *device, const char *what)
{
    int i = 0;
    while (i < device->sums && strcmp(device->sum[i].what, what)) i++;
    if (i == WD_BLOCK_SUMS_MAX) return &device->sum[i - 1];
    if (i == device->sums) device->sum[device->sums++] = (wd_block_sum){.what = what};
    return &device->sum[i];
}

static void count(wd_device *device, const char *what, size_t bytes)
{
    wd_block_sum *sum = sum_of(device, what);
    sum->bytes += bytes;
    if (sum->bytes > sum->peak) sum->peak = sum->bytes;
    device->bytes += bytes;
    if (device->bytes > device->bytes_peak) device->bytes_peak = device->bytes;
}

wd_status wd_device_alloc(void **out, wd_device *device, size_t bytes, const char *what,
                          wd_err *err)
{
    void *address = NULL;
    bytes = wd__device_in_granules(device, bytes);
    pthread_mutex_lock(&device->lock);
    wd_status status = alloc_block(&address, device, bytes, err);
    if (status != WD_OK) {
        wd_fail_in(err, "%s", what);
        goto out;
    }
    device->block[device->blocks++] = (wd_block){address, bytes, what};
    count(device, what, bytes);
    device->allocs++;
    *out = address;
out:
    pthread_mutex_unlock(&device->lock);
    return status;
}

void wd_device_free(wd_device *device, void *address)
{
    if (!address) return;
    pthread_mutex_lock(&device->lock);
    size_t i = device->blocks; /* the latest first: blocks are mostly freed in reverse order */
    while (i > 0 && device->block[i - 1].address != address) i--;
    WD_REQUIRE(i > 0, "%s: %p is not one of its blocks", device->name, address);
    wd_block block = device->block[i - 1];
    device->block[i - 1] = device->block[--device->blocks];
    device->bytes -= block.bytes;
    sum_of(device, block.what)->bytes -= block.bytes;
    if (device->pool_with) wd_host_unregister(device->pool_with, address);
    device->kind->free(device, block.address, block.bytes ? block.bytes : 1);
    pthread_mutex_unlock(&device->lock);
}

size_t wd_device_bytes(const wd_device *device)
{
    return device->bytes;
}
size_t wd_device_bytes_peak(const wd_device *device)
{
    return device->bytes_peak;
}
size_t wd_device_bytes_max(const wd_device *device)
{
    return device->bytes_max;
}
void wd_device_restart_peak(wd_device *device)
{
    pthread_mutex_lock(&device->lock);
    device->bytes_peak = device->bytes;
    for (int i = 0; i < device->sums; i++) device->sum[i].peak = device->sum[i].bytes;
    pthread_mutex_unlock(&device->lock);
}
int64_t wd__device_alloc_count(const wd_device *device)
{
    return device->allocs;
}

bool wd_device_has(wd_device *device, const void *address)
{
    bool has = false;
    pthread_mutex_lock(&device->lock);
    for (size_t i = 0; i < device->blocks && !has; i++)
        has = (uintptr_t)address - (uintptr_t)device->block[i].address < device->block[i].bytes;
    pthread_mutex_unlock(&device->lock);
    return has;
}

void wd_device_each_block(wd_device *device, wd_device_block_fn *fn, void *context)
{
    pthread_mutex_lock(&device->lock);
    for (size_t i = 0; i < device->blocks; i++)
        fn(context, device->block[i].what, device->block[i].bytes);
    pthread_mutex_unlock(&device->lock);
}

void wd_device_each_peak(wd_device *device, wd_device_block_fn *fn, void *context)
{
    pthread_mutex_lock(&device->lock);
    for (int i = 0; i < device->sums; i++)
        if (device->sum[i].peak) fn(context, device->sum[i].what, device->sum[i].peak);
    pthread_mutex_unlock(&device->lock);
}

/* ---- queues ---- */

wd_status wd_queue_create(void *out, size_t bytes, wd_device *device, wd_err *err)
{
    void *made;
    WD_TRY(wd_alloc(&made, 1, bytes, "a queue", err));
    ((wd_queue *)made)->device = device;
    *(void **)out = made;
    return WD_OK;
}

wd_status wd_queue_open(wd_queue **out, wd_device *device, wd_err *err)
{
    return device->kind->queue_open(out, device, err);
}

void wd_queue_close(wd_queue *queue)
{
    if (!queue) return;
    wd_queue_wait(queue);
    queue->device->kind->queue_close(queue);
}

wd_device *wd_queue_device(const wd_queue *queue)
{
    return queue->device;
}

wd_status wd_queue_reserve_workspace(wd_queue *queue, size_t bytes, wd_err *err)
{
    if (bytes <= queue->workspace_bytes) return WD_OK;
    return queue->device->kind->reserve(queue, bytes, err);
}

wd_status wd_queue_grow_workspace(wd_queue *queue, size_t bytes, wd_err *err)
{
    wd_queue_wait(queue);
    wd_device_free(queue->device, queue->workspace);
    queue->workspace = NULL;
    queue->workspace_bytes = 0;
    bytes = wd__device_in_granules(queue->device, bytes);
    WD_TRY(wd_device_alloc(&queue->workspace, queue->device, bytes, "workspace of a queue", err));
    queue->workspace_bytes = bytes;
    return WD_OK;
}

void wd_queue_need_workspace(wd_queue *queue, wd_op op, const void *args)
{
    wd_err err;
    size_t bytes = queue->device->kind->workspace(queue->device, op, args);
    if (wd_queue_reserve_workspace(queue, bytes, &err) == WD_OK) return;
    wd_log(WD_LOG_ERROR, "%s: %s", wd_op_name(op), err.message);
    abort();
}

size_t wd_queue_workspace_bytes(const wd_queue *queue)
{
    return queue->workspace_bytes;
}

static void count_copy(wd_queue *queue, size_t bytes)
{
    queue->total.copies++;
    queue->total.bytes_copied += (double)bytes;
}

void wd_queue_copy(wd_queue *queue, void *to, const void *from, size_t bytes)
{
    count_copy(queue, bytes);
    if (!bytes) return;
    if (queue->device->checks_copies) {
        wd__pinned_require(queue, to, bytes);
        wd__pinned_require(queue, from, bytes);
    }
    queue->device->kind->copy(queue, to, from, bytes);
}

void wd_queue_copy_and_wait(wd_queue *queue, void *to, const void *from, size_t bytes)
{
    const wd_device_kind *kind = queue->device->kind;
    count_copy(queue, bytes);
    if (!bytes) return;
    if (kind->copy_and_wait) {
        kind->copy_and_wait(queue, to, from, bytes);
        return;
    }
    kind->copy(queue, to, from, bytes);
    kind->wait(queue);
}

void wd_queue_wait(wd_queue *queue)
{
    queue->device->kind->wait(queue);
}

void wd_queue_launch(wd_queue *queue, int op, const void *args, size_t bytes)
{
    WD_REQUIRE(op >= 0 && op < WD_OP_COUNT && bytes == wd_op_args_bytes((wd_op)op),
               "operation %d with arguments of %zu bytes", op, bytes);
    queue->total.launches++;
    queue->total.flops += wd_op_flops((wd_op)op, args);
    queue->device->kind->launch(queue, (wd_op)op, args);
}

wd_queue_totals wd_queue_total(const wd_queue *queue)
{
    return queue->total;
}

/* ---- events ---- */

wd_status wd_event_create(void *out, wd_device *device, wd_err *err)
{
    void *made;
    WD_TRY(wd_alloc(&made, 1, device->event_bytes, "an event", err));
    ((wd_event *)made)->device = device;
    *(void **)out = made;
    return WD_OK;
}

wd_status wd_event_open(wd_event **out, wd_device *device, wd_err *err)
{
    return device->kind->event_open(out, device, err);
}

void wd_event_close(wd_event *event)
{
    if (event) event->device->kind->event_close(event);
}

void wd_event_record(wd_event *event, wd_queue *queue)
{
    WD_REQUIRE(event->device == queue->device, "an event of %s is recorded on a queue of %s",
               event->device->name, queue->device->name);
    event->device->kind->event_record(event, queue);
}

void wd_event_wait_on(wd_queue *queue, wd_event *event)
{
    event->device->kind->event_wait_on(queue, event);
}

void wd_event_wait(wd_event *event)
{
    event->device->kind->event_wait(event);
}

bool wd_event_is_done(wd_event *event)
{
    return event->device->kind->event_is_done(event);
}
