/* The CPU's kernel tests on a cuda device, with its libraries and our kernels: the generic kernels
 * of the processor with one thread, then the device, with arrays in its memory
 * (dev/cuda/device_arrays.h) and a workspace full of 0xff. See dev/cpu/executors.h.
 *
 * Which GPU that is says dev/cuda/tested_gpu.h.
 */
#ifndef WD_DEV_CUDA_DEVICE_EXECUTORS_H
#define WD_DEV_CUDA_DEVICE_EXECUTORS_H

#include <stdio.h>
#include <stdlib.h>

#include "dev/cpu/cpu.h"
#include "dev/cpu/parallel.h"
#include "dev/cuda/device_arrays.h"
#include "dev/cuda/tested_gpu.h"

/* How far cosine and sine of an executor lie from those of the C library: CUDA's differ in the last
 * place of values up to 1. */
#define EXECUTOR_TURN_ERROR 6e-8

enum { WAYS_LIGHT = 1, WAYS_ALL = 1 };
enum { EXECUTOR_GENERIC, EXECUTOR_DEVICE, EXECUTORS };
#ifdef WD_ON_STANDIN
enum { SLOW_STEP = 7 };
#else
enum { SLOW_STEP = 1 };
#endif

static wd_device *executor_device; /* kept for the whole test */
static wd_queue *executor_queue;

static inline void executor_open(void)
{
    wd_err err;
    if (executor_device) return;
    tested_gpu_begin(false);
    wd_status status = wd_device_open_cuda(&executor_device, tested_gpu_number(), &err);
    if (status == WD_OK) status = wd_queue_open(&executor_queue, executor_device, &err);
    tested_gpu_require(status, "kernels on a GPU", &err);
}

static inline void *executor_memory(size_t bytes)
{
    executor_open();
    return array_open(bytes);
}
static inline void executor_memory_free(void *block)
{
    array_close(wd_cuda_of(executor_device), block);
}

static inline int executors(void)
{
    return EXECUTORS;
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
    array_require(bytes <= sizeof named, "its arguments are too large", op);
    memcpy(named, args, bytes);
    arrays_name(named, bytes, outputs);
    wd_queue_launch(executor_queue, op, named, bytes);
    wd_queue_wait(executor_queue);
    if (wd_device_fault(executor_device, &err) == WD_OK) return;
    printf("%s: %s\n", wd_op_name(op), err.message);
    exit(EXIT_FAILURE);
}

static inline void executor_fill_workspace(wd_op op, const void *args)
{
    wd_err err;
    wd_cuda_device *d = wd_cuda_of(executor_device);
    const size_t bytes = wd_cuda_workspace(executor_device, op, args);
    tested_gpu_require(wd_queue_reserve_workspace(executor_queue, bytes, &err), "a workspace",
                       &err);
    if (!bytes) return;
    wd_cuda_enter(d);
    wd_cuda_driver_of(d)->memset_d8_async((wd_cu_address)(uintptr_t)executor_queue->workspace, 0xff,
                                          bytes, ((wd_cuda_queue *)executor_queue)->stream);
}

static inline void executor_run(wd_op op, const void *args, size_t bytes)
{
    wd_cuda_device *d = wd_cuda_of(executor_device);
    if (arrays_prepare(d, op, args, bytes)) {
        executor_fill_workspace(op, args);
        executor_launch(op, args, bytes, true);
        arrays_fill(d, op);
    }
    executor_fill_workspace(op, args);
    executor_launch(op, args, bytes, false);
    arrays_take(d, op);
}

/* Operations of the device as entries of the processor's table. It has a workspace of its own. */
#define X(op, name)                                                                                \
    static inline void device_##name(const void *args, wd_cpu_context *context)                    \
    {                                                                                              \
        (void)context;                                                                             \
        executor_run(WD_OP_##op, args, sizeof(wd_##name##_args));                                  \
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
    if (executor == EXECUTOR_GENERIC) {
        snprintf(name, 64, "generic CPU kernels");
        wd_parallel_set_threads(1);
        wd_cpu_table_fill(table, WD_CPU_ISA_generic);
        return;
    }
    snprintf(name, 64, "%.63s", wd_device_name(executor_device));
    *table = (wd_cpu_table){.entry = {
#define X(op, name) [WD_OP_##op] = {device_##name, device_workspace},
                                WD_OP_MAP(X)
#undef X
                            }};
}

/* That our kernels give the generic kernels' bits is tested without a GPU
 * (cuda/standin/executors.h); libraries add in an order of their own. */
static inline bool executors_agree(wd_op op, const void *args)
{
    return (void)op, (void)args, false;
}

#endif
