/* The start of a job: see api/run.h. */
#include "api/run.h"

#include "api/device_memory.h"
#include "api/ranks.h"
#include "core/stop.h"
#include "dev/device_open.h"

wd_status wd_run_open(wd_run *out, wd_job job, const void *options, const char *device,
                      int64_t threads, wd_err *err)
{
    *out = (wd_run){0};
    WD_TRY(wd_options_check(job, options, err));
    wd_stop_begin();
    WD_TRY(wd_device_open_one(&out->device, device ? device : "auto",
                              (int)wd_threads_alone(threads), err));
    wd_status status = wd_device_memory_settle(&out->device, 1, err);
    if (status == WD_OK) status = wd_queue_open(&out->queue, out->device, err);
    if (status != WD_OK) wd_run_close(out);
    return status;
}

void wd_run_close(wd_run *run)
{
    wd_queue_close(run->queue);
    wd_device_close(run->device);
    *run = (wd_run){0};
}

wd_status wd_run_go_on(wd_err *err)
{
    return wd_stop_requested() ? wd_fail(err, WD_INTERRUPTED, "stopped on request") : WD_OK;
}
