/* The start of every job: it checks the options, clears earlier stop requests, and opens the device
 * that computes, and the processor. */
#ifndef WD_API_SETUP_RUN_H
#define WD_API_SETUP_RUN_H

#include "dev/device.h"
#include "model/files/pipeline.h"
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

/* ---- merged LoRAs of a job that has no folder of its own ----
 *
 * They lie in a temporary folder until it ends. If it is killed, the next such job removes the
 * folder. */

typedef struct wd_merged {
    char folder[WD_PATH_MAX]; /* "": there is none */
    int lock;                 /* of the folder: see core/temporary_folder.h */
} wd_merged;

/* Makes a new folder below TMPDIR (or /tmp). */
wd_status wd_merged_make_folder(wd_merged *out, wd_err *err);

/* Writes what p->overlay says of the pipeline, and its LoRAs, into the folder, which is made if it
 * is not there; the log says before how much that is, and where. The pipeline refers to `merged`,
 * which must not be moved. Close it, too, where this fails. */
wd_status wd_merged_add(wd_merged *merged, wd_pipeline *pipeline, wd_err *err);

/* Merges the pipeline's LoRAs, if it has any, in `dtype` (see wd_overlay), as wd_merged_add does.
 */
wd_status wd_merged_open(wd_merged *out, wd_pipeline *pipeline, wd_dtype dtype, wd_err *err);
void wd_merged_close(wd_merged *merged); /* a zeroed one is fine */

/* ---- memory beside the pools ----
 *
 * What libraries take of GPUs' memory beside the pools (dev/library_memory.h): known from an
 * earlier run, or measured now, and reserved, so that what a plan counts on is there. */

/* For each of the `count` devices, none of which has a block yet. Figures are kept beside rates
 * (api/setup/rate_cache.h), by GPU and versions of libraries. A GPU without room to measure it
 * keeps the estimate that it was opened with. */
wd_status wd_device_memory_measure(wd_device *const *device, int count, wd_err *err);

#endif
