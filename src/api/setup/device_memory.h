/* What libraries take of GPUs' memory beside the pools (dev/library_memory.h): known from an
 * earlier run, or measured now, and reserved, so that what a plan counts on is there. */
#ifndef WD_API_SETUP_DEVICE_MEMORY_H
#define WD_API_SETUP_DEVICE_MEMORY_H

#include "dev/device.h"

/* For each of the `count` devices, none of which has a block yet. Figures are kept beside rates
 * (api/setup/rate_cache.h), by GPU and versions of libraries. A GPU without room to measure it
 * keeps the estimate that it was opened with. */
wd_status wd_device_memory_measure(wd_device *const *device, int count, wd_err *err);

#endif
