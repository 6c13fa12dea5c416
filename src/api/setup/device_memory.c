/* See api/setup/run.h. */
#include "api/setup/run.h"

#include <stdio.h>

#include "api/setup/rate_cache.h"
#include "core/log.h"
#include "dev/library_memory.h"

static wd_status measure(wd_device *device, wd_rate_cache *cache, wd_err *err)
{
    char key[WD_RATE_KEY_MAX];
    size_t bytes;
    snprintf(key, sizeof key, "bytes beside the pool, %s", wd_device_traits(device)->kernels);
    double known = wd_rate_cache_get(cache, key);
    if (!(known > 0)) {
        const wd_status status = wd_device_measure_beside(&bytes, device, err);
        if (status == WD_OUT_OF_MEMORY) return WD_OK;
        WD_TRY(status);
        if (!bytes) return WD_OK; /* loaded already, by an earlier device of this process */
        known = wd_rate_cache_put(cache, key, (double)bytes);
        wd_log(WD_LOG_DEBUG, "%s: libraries took %.0f MiB when they first computed",
               wd_device_name(device), known / (1 << 20));
    }
    wd_device_reserve_beside(device, (size_t)known);
    return WD_OK;
}

wd_status wd_device_memory_measure(wd_device *const *device, int count, wd_err *err)
{
    wd_rate_cache cache = {0};
    wd_status status = WD_OK;
    bool open = false;
    for (int i = 0; i < count && status == WD_OK; i++) {
        if (!wd_device_beside_is_estimate(device[i])) continue;
        if (!open) wd_rate_cache_open(&cache);
        open = true;
        status = measure(device[i], &cache, err);
    }
    if (open) wd_rate_cache_close(&cache);
    return status;
}
