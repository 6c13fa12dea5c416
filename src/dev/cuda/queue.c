/* Queues, events and copies of cuda devices: a queue is a stream that waits for no other, an event
 * is the driver's. Copies go on after the call has returned; what they name is memory of a device
 * or pinned host memory (device.c has checked it). Between GPUs a copy goes directly where they
 * reach one another, and by way of host memory, by the driver, where they do not. */
#include "core/memory.h"
#include "dev/cuda/impl.h"

static wd_cu_stream stream_of(const wd_queue *queue)
{
    return ((const wd_cuda_queue *)queue)->stream;
}

/* ---- queues ---- */

wd_status wd__cuda_queue_open(wd_queue **out, wd_device *device, wd_err *err)
{
    wd_cuda_device *d = wd__cuda_of(device);
    const wd_cuda_driver *driver = wd__cuda_driver_of(d);
    wd_cuda_queue *q;
    if (!wd__cuda_enter(d)) return wd__cuda_fault(device, err);
    WD_TRY(wd_queue_create(&q, sizeof *q, device, err));
    const wd_cu_result result = driver->stream_create(&q->stream, WD_CU_STREAM_NON_BLOCKING);
    if (result) {
        wd_free(q);
        return wd__cuda_fail(err, driver, result, "%s: a stream", device->name);
    }
    *out = &q->base;
    return WD_OK;
}

void wd__cuda_queue_close(wd_queue *queue)
{
    wd_cuda_device *d = wd__cuda_of(queue->device);
    wd__cuda_wait_if_failed(d);
    const wd_cu_result result = wd__cuda_driver_of(d)->stream_destroy(stream_of(queue));
    if (!d->failed) wd__cuda_check(d, result, "closing a stream");
    wd_device_free(queue->device, queue->workspace);
    wd_free(queue);
}

void wd__cuda_queue_wait(wd_queue *queue)
{
    wd_cuda_device *d = wd__cuda_of(queue->device);
    if (!wd__cuda_enter(d)) return;
    wd__cuda_check(d, wd__cuda_driver_of(d)->stream_synchronize(stream_of(queue)),
                   "work of a stream");
}

/* ---- copies ---- */

void wd__cuda_queue_copy(wd_queue *queue, void *to, const void *from, size_t bytes)
{
    wd_cuda_device *d = wd__cuda_of(queue->device);
    const wd_cuda_driver *driver = wd__cuda_driver_of(d);
    const wd_cuda_device *target = wd__cuda_owner(to), *source = wd__cuda_owner(from);
    const wd_cu_address target_at = (uintptr_t)to, source_at = (uintptr_t)from;
    wd_cu_result result;
    if (!wd__cuda_enter(d)) return;
    if (target && source && target->gpu.context != source->gpu.context)
        result = driver->memcpy_peer_async(target_at, target->gpu.context, source_at,
                                           source->gpu.context, bytes, stream_of(queue));
    else
        result = driver->memcpy_async(target_at, source_at, bytes, stream_of(queue));
    wd__cuda_check(d, result, "a copy of %zu bytes", bytes);
}

/* The driver's synchronous copy takes any host memory. It waits for no stream of ours, and may
 * return before the GPU has what was read from the host; hence a wait before it and one after. */
void wd__cuda_queue_copy_and_wait(wd_queue *queue, void *to, const void *from, size_t bytes)
{
    wd_cuda_device *d = wd__cuda_of(queue->device);
    const wd_cuda_driver *driver = wd__cuda_driver_of(d);
    const wd_cu_address target_at = (uintptr_t)to, source_at = (uintptr_t)from;
    wd__cuda_queue_wait(queue);
    if (!wd__cuda_enter(d)) return;
    if (!wd__cuda_check(d, driver->mem_copy(target_at, source_at, bytes), "a copy of %zu bytes",
                        bytes))
        return;
    wd__cuda_check(d, driver->ctx_synchronize(), "a copy of %zu bytes", bytes);
}

/* ---- events ---- */

static wd_cu_event handle_of(const wd_event *event)
{
    return ((const wd_cuda_event *)event)->event;
}

wd_status wd__cuda_event_open(wd_event **out, wd_device *device, wd_err *err)
{
    wd_cuda_device *d = wd__cuda_of(device);
    const wd_cuda_driver *driver = wd__cuda_driver_of(d);
    wd_cuda_event *e;
    if (!wd__cuda_enter(d)) return wd__cuda_fault(device, err);
    WD_TRY(wd_event_create(&e, device, err));
    const wd_cu_result result = driver->event_create(&e->event, WD_CU_EVENT_DISABLE_TIMING);
    if (result) {
        wd_free(e);
        return wd__cuda_fail(err, driver, result, "%s: an event", device->name);
    }
    *out = &e->base;
    return WD_OK;
}

void wd__cuda_event_close(wd_event *event)
{
    wd_cuda_device *d = wd__cuda_of(event->device);
    wd__cuda_wait_if_failed(d);
    const wd_cu_result result = wd__cuda_driver_of(d)->event_destroy(handle_of(event));
    if (!d->failed) wd__cuda_check(d, result, "closing an event");
    wd_free(event);
}

void wd__cuda_event_record(wd_event *event, wd_queue *queue)
{
    wd_cuda_device *d = wd__cuda_of(event->device);
    if (!wd__cuda_enter(d)) return;
    wd__cuda_check(d, wd__cuda_driver_of(d)->event_record(handle_of(event), stream_of(queue)),
                   "recording an event");
}

/* A queue of another kind runs its work at once, so it waits here. */
void wd__cuda_event_wait_on(wd_queue *queue, wd_event *event)
{
    if (queue->device->kind != event->device->kind) {
        wd__cuda_event_wait(event);
        return;
    }
    wd_cuda_device *d = wd__cuda_of(queue->device);
    if (!wd__cuda_enter(d)) return;
    wd__cuda_check(d,
                   wd__cuda_driver_of(d)->stream_wait_event(stream_of(queue), handle_of(event), 0),
                   "a stream's wait for an event of %s", event->device->name);
}

void wd__cuda_event_wait(wd_event *event)
{
    wd_cuda_device *d = wd__cuda_of(event->device);
    if (!wd__cuda_enter(d)) return;
    wd__cuda_check(d, wd__cuda_driver_of(d)->event_synchronize(handle_of(event)),
                   "work before an event");
}

bool wd__cuda_event_is_done(wd_event *event)
{
    wd_cuda_device *d = wd__cuda_of(event->device);
    if (!wd__cuda_enter(d)) return true;
    const wd_cu_result result = wd__cuda_driver_of(d)->event_query(handle_of(event));
    if (result == WD_CU_NOT_READY) return false;
    wd__cuda_check(d, result, "work before an event");
    return true;
}
