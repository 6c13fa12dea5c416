/* Pinned host memory of cuda devices: pages that the system does not move, so that a GPU reads and
 * writes them by itself. It is "portable": good for all GPUs of the process. */
#include <string.h>
#include <unistd.h>

#include "core/checked.h"
#include "dev/cuda/impl.h"

wd_status wd_cuda_host_alloc(void **out, wd_device *device, size_t bytes, wd_err *err)
{
    wd_cuda_device *d = wd_cuda_of(device);
    const wd_cuda_driver *driver = wd_cuda_driver_of(d);
    void *block = NULL;
    if (!wd_cuda_enter(d)) return wd_cuda_fault(device, err);
    const wd_cu_result result = driver->mem_host_alloc(&block, bytes, WD_CU_HOST_ALLOC_PORTABLE);
    if (result)
        return wd_cuda_fail(err, driver, result,
                            "the driver cannot pin %zu bytes of host memory, which the machine, a "
                            "container (docker run --ulimit memlock=-1) or WSL may limit",
                            bytes);
    memset(block, 0, bytes);
    *out = block;
    return WD_OK;
}

void wd_cuda_host_free(wd_device *device, void *block, size_t bytes)
{
    wd_cuda_device *d = wd_cuda_of(device);
    (void)bytes;
    wd_cuda_settle(d);
    const wd_cu_result result = wd_cuda_driver_of(d)->mem_free_host(block);
    if (!d->failed) wd_cuda_check(d, result, "freeing pinned host memory");
}

wd_status wd_cuda_host_register(wd_device *device, void *address, size_t bytes, wd_err *err)
{
    wd_cuda_device *d = wd_cuda_of(device);
    const wd_cuda_driver *driver = wd_cuda_driver_of(d);
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (!wd_cuda_enter(d)) return wd_cuda_fault(device, err);
    const wd_cu_result result =
        driver->mem_host_register(address, wd_round_up(bytes, page), WD_CU_HOST_REGISTER_PORTABLE);
    if (!result) return WD_OK;
    wd_cuda_fail(err, driver, result, "the driver cannot pin %zu bytes of host memory", bytes);
    return result == WD_CU_INVALID_VALUE || result == WD_CU_HOST_MEMORY_ALREADY_REGISTERED
               ? WD_INTERNAL
               : WD_OUT_OF_MEMORY;
}

void wd_cuda_host_unregister(wd_device *device, void *address, size_t bytes)
{
    wd_cuda_device *d = wd_cuda_of(device);
    (void)bytes;
    wd_cuda_settle(d);
    const wd_cu_result result = wd_cuda_driver_of(d)->mem_host_unregister(address);
    if (!d->failed) wd_cuda_check(d, result, "unpinning host memory");
}
