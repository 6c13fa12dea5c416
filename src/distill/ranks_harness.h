/* The devices of ranks that are threads of a test. */
#ifndef WD_DISTILL_RANKS_HARNESS_H
#define WD_DISTILL_RANKS_HARNESS_H

#include "distill/machine_harness.h"

#include <pthread.h>

#include "dist/comm_harness.h"
#include "distill/devices.h"

enum { RANKS_MAX = 4, MICRO_BATCHES = 4 };

/* What ranks have: a processor; a device as fast as it goes; one so slow that whoever does not wait
 * comes too early. */
#define CPU "cpu"
#define SIM "sim:1x1GiB"
#define SLOW_SIM "sim:1x1GiB@link=50MB/s,compute=3GFLOP/s"

/* Nothing but what queues have for their work is left on them. */
static inline void close_devices(wd_devices *d)
{
    for (int i = 0; i < d->count; i++) {
        size_t bytes = wd_queue_workspace_bytes(d->teacher[i]);
        if (!i && d->student != d->host) bytes += wd_queue_workspace_bytes(d->student);
        HARNESS_CHECK(wd_device_bytes(d->device[i]) == bytes);
    }
    wd_devices_close(d);
}

#endif
