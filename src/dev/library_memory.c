/* See dev/library_memory.h. */
#include "dev/library_memory.h"

#include "core/error.h"
#include "dev/device_impl.h"

bool wd_device_beside_is_estimate(const wd_device *device)
{
    return device->beside_is_estimate;
}

wd_status wd_device_measure_beside(size_t *out, wd_device *device, wd_err *err)
{
    *out = 0;
    WD_REQUIRE(!device->blocks, "%s: memory beside the pool is measured, and it has %zu blocks",
               device->name, device->blocks);
    if (!device->kind->measure_beside) return WD_OK;
    WD_TRY(device->kind->measure_beside(out, device, err));
    wd_device_restart_peak(device); /* what measuring took is no part of a run */
    return WD_OK;
}

void wd_device_reserve_beside(wd_device *device, size_t bytes)
{
    WD_REQUIRE(!device->blocks, "%s: memory beside the pool is reserved, and it has %zu blocks",
               device->name, device->blocks);
    if (!device->kind->reserve_beside) return;
    device->kind->reserve_beside(device, bytes + WD_BESIDE_MARGIN);
    device->beside_is_estimate = false;
}

void wd_device_reserve_more_beside(wd_device *device, size_t bytes)
{
    const size_t taken = wd__device_in_granules(device, bytes);
    device->traits.bytes_beside += taken;
    device->bytes_max -= taken < device->bytes_max ? taken : device->bytes_max;
}
