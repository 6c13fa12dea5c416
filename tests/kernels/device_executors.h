/* The CPU's kernel tests on a cuda device: the generic kernels of the processor with one thread,
 * then our kernels alone, then the libraries, with arrays in the device's memory
 * (kernels/device_arrays.h) and a workspace full of 0xff. See kernels/executors.h.
 *
 * Our kernels are tested on a device that is opened without cuBLASLt and cuDNN, so that trouble
 * with these hides nothing; where they cannot be opened, that alone is a failure. Under a sanitizer
 * our kernels are all that is tested. On the stand-in, where kernels are slow, one device has both.
 *
 * Which GPU that is says kernels/tested_gpu.h.
 */
#ifndef WD_TESTS_KERNELS_DEVICE_EXECUTORS_H
#define WD_TESTS_KERNELS_DEVICE_EXECUTORS_H

#include <stdio.h>
#include <stdlib.h>

#include "core/parallel.h"
#include "dev/cpu/cpu.h"
#include "kernels/device_arrays.h"
#include "kernels/tested_gpu.h"

/* How far cosine and sine of an executor lie from those of the C library: CUDA's differ in the last
 * place of values up to 1. */
#define EXECUTOR_TURN_ERROR 6e-8

enum { WAYS_LIGHT = 1, WAYS_ALL = 1 };
#ifdef WD_ON_STANDIN
enum { SLOW_STEP = 7, EXECUTOR_IS_GPU = 0 };
enum { EXECUTOR_GENERIC, EXECUTOR_LIBRARIES, EXECUTORS, EXECUTOR_KERNELS = EXECUTORS };
#else
enum { SLOW_STEP = 1, EXECUTOR_IS_GPU = 1 };
enum { EXECUTOR_GENERIC, EXECUTOR_KERNELS, EXECUTOR_LIBRARIES, EXECUTORS };
#endif

/* A device and its queue, kept for the whole test. */
typedef struct tested_device {
    wd_device *device;
    wd_queue *queue;
} tested_device;

static tested_device executor_devices[EXECUTORS + 1]; /* by executor */
static tested_device *executor_device;                /* the one in use */
static int executor_count;                            /* 0: none was opened yet */

static inline wd_status executor_open_one(int executor, wd_err *err)
{
    tested_device *t = &executor_devices[executor];
    WD_TRY((executor == EXECUTOR_KERNELS ? wd__cuda_open_kernels : wd_device_open_cuda)(
        &t->device, tested_gpu_number(), err));
    return wd_queue_open(&t->queue, t->device, err);
}

static inline void executor_open(void)
{
    wd_err err;
    if (executor_count) return;
    tested_gpu_begin(false);
    executor_count = EXECUTORS;
    if (EXECUTOR_KERNELS < EXECUTORS) {
        tested_gpu_require(executor_open_one(EXECUTOR_KERNELS, &err), "kernels on a GPU", &err);
        executor_device = &executor_devices[EXECUTOR_KERNELS];
        if (*array_sanitizer()) {
            executor_count--;
            return;
        }
    }
    const wd_status status = executor_open_one(EXECUTOR_LIBRARIES, &err);
    if (status != WD_OK && executor_device) {
        printf("cuBLASLt and cuDNN cannot be tested: %s\n", err.message);
        kernel_case.failed++;
        executor_count--;
        return;
    }
    tested_gpu_require(status, "a GPU", &err);
    executor_device = &executor_devices[EXECUTOR_LIBRARIES];
}

static inline void *executor_memory(size_t bytes)
{
    executor_open();
    return array_open(bytes);
}
static inline void executor_memory_free(void *block)
{
    array_close(wd__cuda_of(executor_device->device), block);
}

static inline int executors(void)
{
    executor_open();
    return executor_count;
}

/* Prints the algorithm of cuBLASLt or the engine of cuDNN of every shape. */
static inline void executor_report(void)
{
    char text[512];
    if (executor_count <= EXECUTOR_LIBRARIES) return;
    const wd_cuda_device *d = wd__cuda_of(executor_devices[EXECUTOR_LIBRARIES].device);
    for (int64_t i = 0; wd__cuda_products_describe(d->products, i, text, sizeof text); i++)
        printf("cuBLASLt: %s\n", text);
    for (int64_t i = 0; wd__cuda_attention_describe(d->attention, i, text, sizeof text); i++)
        printf("cuDNN: %s\n", text);
    for (int64_t i = 0; wd__cuda_conv_describe(d->conv, i, text, sizeof text); i++)
        printf("cuDNN: %s\n", text);
}

/* Operations for which there are no libraries run once. */
static inline bool executor_runs(int executor, wd_op op)
{
    const bool by_library = op == WD_OP_MATMUL || op == WD_OP_ATTENTION ||
                            op == WD_OP_ATTENTION_BACKWARD || op == WD_OP_CONV;
    return executor != EXECUTOR_LIBRARIES || by_library || EXECUTOR_KERNELS == EXECUTORS;
}

static inline int executor_ways(int executor, int ways)
{
    return (void)executor, (void)ways, 1;
}

/* A launch with the addresses of the arrays' copies, or, of arrays that are only written, with
 * those of their outputs. */
static inline void executor_launch(wd_op op, const char *args, size_t bytes, bool outputs)
{
    wd_err err;
    char named[512];
    array_require(bytes <= sizeof named, "its arguments are too large");
    memcpy(named, args, bytes);
    arrays_name(named, bytes, outputs);
    wd_queue_launch(executor_device->queue, op, named, bytes);
    wd_queue_wait(executor_device->queue);
    if (wd_device_fault(executor_device->device, &err) == WD_OK) return;
    kernel_case_fail("%s", err.message);
    kernel_case_restart();
}

static inline void executor_fill_workspace(wd_op op, const void *args)
{
    wd_err err;
    wd_queue *queue = executor_device->queue;
    wd_cuda_device *d = wd__cuda_of(executor_device->device);
    const size_t bytes = wd__cuda_workspace(&d->base, op, args);
    tested_gpu_require(wd_queue_reserve_workspace(queue, bytes, &err), "a workspace", &err);
    if (!bytes) return;
    wd__cuda_enter(d);
    wd__cuda_driver_of(d)->memset_d8_async((wd_cu_address)(uintptr_t)queue->workspace, 0xff, bytes,
                                           ((wd_cuda_queue *)queue)->stream);
}

static inline void executor_run(wd_op op, const void *args, size_t bytes)
{
    wd_cuda_device *d = wd__cuda_of(executor_device->device);
    if (arrays_prepare(d, op, args, bytes)) {
        executor_fill_workspace(op, args);
        executor_launch(op, args, bytes, true);
        arrays_fill(d);
    }
    executor_fill_workspace(op, args);
    executor_launch(op, args, bytes, false);
    arrays_take(d);
}

/* Operations of the device as entries of the processor's table. It has a workspace of its own. */
#define X(op, name)                                                                                \
    static inline void device_##name(const void *args, wd_cpu_context *context)                    \
    {                                                                                              \
        wd_##name##_args given = *(const wd_##name##_args *)args;                                  \
        (void)context;                                                                             \
        CLEAR_PADDING(&given);                                                                     \
        executor_run(WD_OP_##op, &given, sizeof given);                                            \
    }
WD_OP_MAP(X)
#undef X

static inline size_t device_workspace(const void *args)
{
    return (void)args, 0;
}

static inline void executor_use(wd_cpu_table *table, char name[64], int executor, int way)
{
    (void)way;
    executor_open();
    if (executor <= EXECUTOR_GENERIC) {
        snprintf(name, 64, "generic CPU kernels");
        wd_parallel_set_threads(1);
        wd__cpu_table_fill(table, WD_CPU_ISA_generic);
        return;
    }
    executor_device = &executor_devices[executor];
    snprintf(name, 64, "%.40s, %s", wd_device_name(executor_device->device),
             executor == EXECUTOR_KERNELS ? "our kernels" : "libraries");
    *table = (wd_cpu_table){.entry = {
#define X(op, name) [WD_OP_##op] = {device_##name, device_workspace},
                                WD_OP_MAP(X)
#undef X
                            }};
}

/* That our kernels give the generic kernels' bits is tested without a GPU
 * (standin/executors.h); libraries add in an order of their own. */
static inline bool executors_agree(wd_op op, const void *args)
{
    return (void)op, (void)args, false;
}

#endif
