/* See standin/immediate_gpu.h. */
#include "standin/immediate_gpu.h"

#include <stdlib.h>
#include <string.h>

#include "dev/cpu/cpu.h"

static wd_cuda_api api;
static wd_cuda_gpu gpu;
static int64_t own_launches, calls_left = -1;

static bool fails(void)
{
    return calls_left >= 0 && calls_left-- == 0;
}

static wd_cu_result get_error_name(wd_cu_result result, const char **name)
{
    *name = result == WD_CU_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR";
    return WD_CU_SUCCESS;
}

static wd_cu_result mem_alloc(wd_cu_address *address, size_t bytes)
{
    void *block = fails() ? NULL : aligned_alloc(256, (bytes + 255) / 256 * 256);
    *address = (wd_cu_address)(uintptr_t)block;
    return block ? WD_CU_SUCCESS : WD_CU_OUT_OF_MEMORY;
}

static wd_cu_result mem_free(wd_cu_address address)
{
    free((void *)(uintptr_t)address);
    return WD_CU_SUCCESS;
}

static wd_cu_result mem_host_alloc(void **block, size_t bytes, unsigned flags)
{
    (void)flags;
    *block = fails() ? NULL : malloc(bytes);
    return *block ? WD_CU_SUCCESS : WD_CU_OUT_OF_MEMORY;
}

static wd_cu_result mem_free_host(void *block)
{
    free(block);
    return WD_CU_SUCCESS;
}

static wd_cu_result memcpy_async(wd_cu_address to, wd_cu_address from, size_t bytes,
                                 wd_cu_stream stream)
{
    (void)stream;
    if (fails()) return WD_CU_LAUNCH_FAILED;
    memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
    return WD_CU_SUCCESS;
}

static wd_cu_result mem_copy(wd_cu_address to, wd_cu_address from, size_t bytes)
{
    return memcpy_async(to, from, bytes, NULL);
}

static wd_cu_result ctx_synchronize(void)
{
    return fails() ? WD_CU_LAUNCH_FAILED : WD_CU_SUCCESS;
}

static wd_cu_result stream_create(wd_cu_stream *stream, unsigned flags)
{
    (void)flags;
    *stream = NULL;
    if (fails()) return WD_CU_LAUNCH_FAILED;
    *stream = (wd_cu_stream)&gpu; /* an address that is not NULL */
    return WD_CU_SUCCESS;
}

static wd_cu_result stream_done(wd_cu_stream stream)
{
    (void)stream;
    return fails() ? WD_CU_LAUNCH_FAILED : WD_CU_SUCCESS;
}

const wd_cuda_gpu *wd_standin_gpu(void)
{
    wd_standin_libraries(&api, NULL);
    api.has[WD_CUDA_DRIVER] = true;
    api.driver = (wd_cuda_driver){.get_error_name = get_error_name,
                                  .mem_alloc = mem_alloc,
                                  .mem_free = mem_free,
                                  .mem_host_alloc = mem_host_alloc,
                                  .mem_free_host = mem_free_host,
                                  .memcpy_async = memcpy_async,
                                  .mem_copy = mem_copy,
                                  .ctx_synchronize = ctx_synchronize,
                                  .stream_create = stream_create,
                                  .stream_destroy = stream_done,
                                  .stream_synchronize = stream_done};
    gpu = (wd_cuda_gpu){.api = &api, .capability = 90, .multiprocessors = 132};
    calls_left = -1;
    return &gpu;
}

int64_t wd_standin_own_launches(void)
{
    return own_launches;
}

void wd_standin_driver_fail_after(int64_t calls)
{
    calls_left = calls;
}

wd_status __wrap_wd__cuda_kernels_launch(const wd_cuda_work *work, wd_op op, const void *args,
                                         wd_err *err);

wd_status __wrap_wd__cuda_kernels_launch(const wd_cuda_work *work, wd_op op, const void *args,
                                         wd_err *err)
{
    wd_cpu_table table;
    (void)work, (void)err;
    wd__cpu_table_reference(&table);
    size_t bytes = wd__cpu_workspace_bytes(&table, op, args);
    wd_cpu_context context = {
        .workspace = bytes ? malloc(bytes) : NULL, .workspace_bytes = bytes, .table = &table};
    table.entry[op].kernel(args, &context);
    free(context.workspace);
    own_launches++;
    return WD_OK;
}
