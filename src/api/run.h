/* The start of every job: it checks the options, clears earlier stop requests, and opens a device.
 */
#ifndef WD_API_RUN_H
#define WD_API_RUN_H

#include "dev/device.h"

typedef struct wd_run {
    wd_device *device;
    wd_queue *queue;
} wd_run;

/* Checks the options; then opens the device `device` of --device (NULL: "auto"), with `threads`
 * threads of the processor (0: all), and a queue. */
wd_status wd_run_open(wd_run *out, wd_job job, const void *options, const char *device,
                      int64_t threads, wd_err *err);
void wd_run_close(wd_run *run); /* a zeroed struct is allowed */

/* Returns WD_INTERRUPTED if a stop was requested. */
wd_status wd_run_go_on(wd_err *err);

#endif
