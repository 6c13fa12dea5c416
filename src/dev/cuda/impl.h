/* Folder dev/cuda. NVIDIA GPUs as devices.
 *
 * The cuda device from inside. Private to src/dev/cuda.
 *
 * cuda.c: opening, closing, traits; fault.c: what failed; memory.c: device memory and pinned host
 * memory; library_memory.c: what libraries take beside; queue.c: streams, events, copies; peers.c:
 * exchanges with GPUs of other ranks; dispatch.c: which library or kernel an operation goes to. All
 * of a device's work is in its GPU's primary context, which libraries use, too. Any thread may call
 * any function, so each one makes that context the current one of its thread first. */
#ifndef WD_DEV_CUDA_IMPL_H
#define WD_DEV_CUDA_IMPL_H

#include "dev/cuda/launch.h"
#include "dev/cuda/library.h"
#include "dev/device_impl.h"

typedef struct wd_cuda_device {
    wd_device base;
    wd_cuda_gpu gpu;
    wd_cuda_products *products; /* NULL, as the next two: opened without libraries */
    wd_cuda_attention *attention;
    wd_cuda_conv *conv;
    wd_cu_module module; /* of our kernels */
    wd_cu_function kernel[WD_CUDA_KERNEL_COUNT];
    wd_cu_stream setup;          /* on which blocks are zeroed */
    size_t bytes_free;           /* when it was opened, and libraries had begun */
    size_t bytes_loaded;         /* by these, until then */
    struct wd_cuda_device *next; /* of those that are open in this process */
    _Atomic bool failed;
    pthread_mutex_t fault_lock; /* of: */
    wd_err fault;               /* the first that failed */
} wd_cuda_device;

typedef struct wd_cuda_queue {
    wd_queue base;
    wd_cu_stream stream;
} wd_cuda_queue;

typedef struct wd_cuda_event {
    wd_event base;
    wd_cu_event event;
} wd_cuda_event;

static inline wd_cuda_device *wd__cuda_of(const wd_device *device)
{
    return (wd_cuda_device *)(uintptr_t)device;
}
static inline const wd_cuda_driver *wd__cuda_driver_of(const wd_cuda_device *device)
{
    return &device->gpu.api->driver;
}

/* ---- fault.c ---- */

/* Makes the device's context the current one of this thread. False: it has failed, now or before,
 * and nothing is to be asked of it. */
bool wd__cuda_enter(wd_cuda_device *device);

/* Before something is given back: makes the context the current one, whatever became of the device.
 * Where it has failed, nobody could wait for its work any more, so that is done here. */
void wd__cuda_wait_if_failed(wd_cuda_device *device);

/* True if `result` is success. Else `what` ("a copy of 64 bytes") is what failed; the first is
 * kept. */
bool wd__cuda_check(wd_cuda_device *device, wd_cu_result result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Keeps a failure that has a message already. */
void wd__cuda_keep_fault(wd_cuda_device *device, const wd_err *err);

/* Fills `err` with "what: CUDA_ERROR_NAME (text)"; OUT_OF_MEMORY becomes WD_OUT_OF_MEMORY. */
wd_status wd__cuda_fail(wd_err *err, const wd_cuda_driver *driver, wd_cu_result result,
                        const char *format, ...) __attribute__((format(printf, 4, 5)));

/* The functions of the kind (dev/device_impl.h). */
wd_status wd__cuda_fault(wd_device *device, wd_err *err);

/* ---- cuda.c ---- */

/* The open device whose pool the address lies in; NULL: it is host memory. */
wd_cuda_device *wd__cuda_owner(const void *address);

/* As wd_device_open_cuda, but without cuBLASLt and cuDNN: our kernels compute all that they can,
 * the rest is refused. For tests of our kernels. */
wd_status wd__cuda_open_kernels(wd_device **out, int number, wd_err *err);

/* ---- memory.c ---- */

enum { WD_CUDA_GRANULE = 2 << 20 };

/* How much of the GPU's memory a pool may have: what is free, less what libraries will take. */
wd_status wd__cuda_pool_measure(wd_cuda_device *device, size_t free_at_first, wd_err *err);
wd_status wd__cuda_alloc(void **out, wd_device *device, size_t bytes, wd_err *err);
void wd__cuda_free(wd_device *device, void *block, size_t bytes);

wd_status wd__cuda_host_alloc(void **out, wd_device *device, size_t bytes, wd_err *err);
void wd__cuda_host_free(wd_device *device, void *block, size_t bytes);
wd_status wd__cuda_host_register(wd_device *device, void *address, size_t bytes, wd_err *err);
void wd__cuda_host_unregister(wd_device *device, void *address, size_t bytes);

void wd__cuda_reserve_beside(wd_device *device, size_t bytes);

/* ---- library_memory.c ---- */

wd_status wd__cuda_measure_beside(size_t *out, wd_device *device, wd_err *err);

/* ---- queue.c ---- */

wd_status wd__cuda_queue_open(wd_queue **out, wd_device *device, wd_err *err);
void wd__cuda_queue_close(wd_queue *queue);
void wd__cuda_queue_copy(wd_queue *queue, void *to, const void *from, size_t bytes);
void wd__cuda_queue_copy_and_wait(wd_queue *queue, void *to, const void *from, size_t bytes);
void wd__cuda_queue_wait(wd_queue *queue);
wd_status wd__cuda_event_open(wd_event **out, wd_device *device, wd_err *err);
void wd__cuda_event_close(wd_event *event);
void wd__cuda_event_record(wd_event *event, wd_queue *queue);
void wd__cuda_event_wait_on(wd_queue *queue, wd_event *event);
void wd__cuda_event_wait(wd_event *event);
bool wd__cuda_event_is_done(wd_event *event);

/* ---- peers.c ---- */

extern const wd_peers_kind wd_cuda_peers_kind;

/* ---- dispatch.c ---- */

/* Loads our kernels, and opens the libraries if they are wanted. */
wd_status wd__cuda_dispatch_open(wd_cuda_device *device, bool libraries, wd_err *err);
void wd__cuda_dispatch_close(wd_cuda_device *device);
void wd__cuda_queue_launch(wd_queue *queue, wd_op op, const void *args);
size_t wd__cuda_workspace(const wd_device *device, wd_op op, const void *args);
wd_status wd__cuda_prepare(wd_device *device, wd_op op, const void *args, wd_err *err);
bool wd__cuda_can(const wd_device *device, wd_op op, const void *args);

#endif
