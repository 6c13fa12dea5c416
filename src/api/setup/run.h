/* The start of every job: it checks the options, clears earlier stop requests, and opens the device
 * that computes, and the processor. */
#ifndef WD_API_SETUP_RUN_H
#define WD_API_SETUP_RUN_H

#include "dev/device.h"
#include "wandistiller.h"

typedef struct wd_run {
    wd_device *device;
    wd_queue *queue;
    wd_device
        *processor; /* the processor and its queue; `device` and `queue` where that computes */
    wd_queue *host;
    size_t bytes_before; /* memory of the process when the job began */
} wd_run;

/* Checks the options; then opens the device `device` of --device (NULL: "auto") and the processor,
 * with `threads` threads (0: all), and their queues. */
wd_status wd_run_open(wd_run *out, wd_job job, const void *options, const char *device,
                      int64_t threads, wd_err *err);
void wd_run_close(wd_run *run); /* a zeroed struct is allowed */

/* Returns WD_INTERRUPTED if a stop was requested. */
wd_status wd__run_go_on(wd_err *err);

#endif
