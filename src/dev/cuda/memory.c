/* Memory of a GPU, and pinned host memory.
 *
 * Of the GPU's memory each block is one allocation of the driver, for blocks are few and large
 * (arenas). The driver gives large blocks out in pieces of 2 MiB, which is the granule that the
 * books count. Beside the pool there are the context, kernels and what libraries keep for
 * themselves. Part of that is there when a device is opened, and is measured; libraries load the
 * rest when they first compute, for which a reserve is left free: an estimate, or what
 * library_memory.c has measured. */
#include <string.h>
#include <unistd.h>

#include "core/checked.h"
#include "core/log.h"
#include "dev/cuda/impl.h"

/* Of the GPU's memory, for kernels of libraries that are loaded when they are first used, until it
 * is measured (library_memory.c): a 64th, at most 512 MiB. */
enum { RESERVE_PART = 64, RESERVE_MAX = 512 << 20 };

/* ---- what there is, and what is left free ---- */

static double gib(size_t bytes)
{
    return (double)bytes / (1 << 30);
}

static size_t reserve_of(size_t total)
{
    return total / RESERVE_PART < RESERVE_MAX ? total / RESERVE_PART : RESERVE_MAX;
}

static void reserve(wd_cuda_device *device, size_t bytes)
{
    size_t room = device->bytes_free > bytes ? device->bytes_free - bytes : 0;
    room /= (size_t)device->gpu.shares;
    device->base.traits.bytes_beside = device->bytes_loaded + bytes;
    device->base.bytes_max = room - room % WD_CUDA_GRANULE;
}

void wd__cuda_reserve_beside(wd_device *device, size_t bytes)
{
    reserve(wd__cuda_of(device), bytes);
}

wd_status wd__cuda_pool_measure(wd_cuda_device *device, size_t free_at_first, wd_err *err)
{
    const wd_cuda_driver *driver = wd__cuda_driver_of(device);
    size_t free, total;
    const wd_cu_result result = driver->mem_get_info(&free, &total);
    if (result) return wd__cuda_fail(err, driver, result, "%s: its memory", device->base.name);
    device->bytes_loaded = free_at_first > free ? free_at_first - free : 0;
    device->bytes_free = free;
    device->base.traits.granule = WD_CUDA_GRANULE;
    device->base.traits.bytes_of_others = total - free_at_first;
    reserve(device, reserve_of(total));
    device->base.beside_is_estimate = true;
    if (total - free_at_first > total / 16)
        wd_log(WD_LOG_INFO,
               "%s: %.1f of %.1f GiB were taken before this run came, by contexts and other "
               "processes (nvidia-smi lists them)",
               device->base.name, gib(total - free_at_first), gib(total));
    return WD_OK;
}

/* ---- blocks of device memory ---- */

static wd_status explain_shortage(wd_cuda_device *device, size_t bytes, wd_err *err)
{
    size_t free = 0, total = 0;
    wd__cuda_driver_of(device)->mem_get_info(&free, &total);
    const size_t own = device->base.bytes + device->base.traits.bytes_beside;
    return wd_fail(err, WD_OUT_OF_MEMORY,
                   "%s: %zu bytes asked for, %zu free: of %zu this device has %zu, and other "
                   "processes and contexts %zu (nvidia-smi lists them)",
                   device->base.name, bytes, free, total, (size_t)device->base.bytes,
                   total - free > own ? total - free - own : 0);
}

wd_status wd__cuda_alloc(void **out, wd_device *device, size_t bytes, wd_err *err)
{
    wd_cuda_device *d = wd__cuda_of(device);
    const wd_cuda_driver *driver = wd__cuda_driver_of(d);
    wd_cu_address address = 0;
    if (!wd__cuda_enter(d)) return wd__cuda_fault(device, err);
    wd_cu_result result = driver->mem_alloc(&address, bytes);
    if (result == WD_CU_OUT_OF_MEMORY) return explain_shortage(d, bytes, err);
    if (result)
        return wd__cuda_fail(err, driver, result, "%s: %zu bytes of memory", device->name, bytes);
    result = driver->memset_d8_async(address, 0, bytes, d->setup);
    if (!result) result = driver->stream_synchronize(d->setup);
    if (result) {
        driver->ctx_synchronize(); /* nothing writes to the block any more */
        driver->mem_free(address);
        return wd__cuda_fail(err, driver, result, "%s: zeroing %zu bytes", device->name, bytes);
    }
    *out = (void *)(uintptr_t)address;
    return WD_OK;
}

void wd__cuda_free(wd_device *device, void *block, size_t bytes)
{
    wd_cuda_device *d = wd__cuda_of(device);
    (void)bytes;
    wd__cuda_wait_if_failed(d);
    const wd_cu_result result = wd__cuda_driver_of(d)->mem_free((wd_cu_address)(uintptr_t)block);
    if (!d->failed) wd__cuda_check(d, result, "freeing a block of memory");
}

/* ---- pinned host memory ---- */

wd_status wd__cuda_host_alloc(void **out, wd_device *device, size_t bytes, wd_err *err)
{
    wd_cuda_device *d = wd__cuda_of(device);
    const wd_cuda_driver *driver = wd__cuda_driver_of(d);
    void *block = NULL;
    if (!wd__cuda_enter(d)) return wd__cuda_fault(device, err);
    const wd_cu_result result = driver->mem_host_alloc(&block, bytes, WD_CU_HOST_ALLOC_PORTABLE);
    if (result)
        return wd__cuda_fail(err, driver, result,
                             "the driver cannot pin %zu bytes of host memory, which the machine, a "
                             "container (docker run --ulimit memlock=-1) or WSL may limit",
                             bytes);
    memset(block, 0, bytes);
    *out = block;
    return WD_OK;
}

void wd__cuda_host_free(wd_device *device, void *block, size_t bytes)
{
    wd_cuda_device *d = wd__cuda_of(device);
    (void)bytes;
    wd__cuda_wait_if_failed(d);
    const wd_cu_result result = wd__cuda_driver_of(d)->mem_free_host(block);
    if (!d->failed) wd__cuda_check(d, result, "freeing pinned host memory");
}

wd_status wd__cuda_host_register(wd_device *device, void *address, size_t bytes, wd_err *err)
{
    wd_cuda_device *d = wd__cuda_of(device);
    const wd_cuda_driver *driver = wd__cuda_driver_of(d);
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (!wd__cuda_enter(d)) return wd__cuda_fault(device, err);
    const wd_cu_result result =
        driver->mem_host_register(address, wd_round_up(bytes, page), WD_CU_HOST_REGISTER_PORTABLE);
    if (!result) return WD_OK;
    wd__cuda_fail(err, driver, result, "the driver cannot pin %zu bytes of host memory", bytes);
    return result == WD_CU_INVALID_VALUE || result == WD_CU_HOST_MEMORY_ALREADY_REGISTERED
               ? WD_INTERNAL
               : WD_OUT_OF_MEMORY;
}

void wd__cuda_host_unregister(wd_device *device, void *address, size_t bytes)
{
    wd_cuda_device *d = wd__cuda_of(device);
    (void)bytes;
    wd__cuda_wait_if_failed(d);
    const wd_cu_result result = wd__cuda_driver_of(d)->mem_host_unregister(address);
    if (!d->failed) wd__cuda_check(d, result, "unpinning host memory");
}
