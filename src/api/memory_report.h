/* Memory in words and as JSON: what was planned, and what was measured beside it. */
#ifndef WD_API_MEMORY_REPORT_H
#define WD_API_MEMORY_REPORT_H

#include <jansson.h>

#include "dist/watch.h"
#include "distill/plan.h"

/* "412 MB" */
const char *wd_bytes_text(char *out, size_t out_bytes, size_t bytes);

/* "host memory", or the device's name. */
const char *wd_place_name(const wd_devices *devices, int place);

/* Logs the peak of every place and what it is made of: items of less than a hundredth of it for
 * --log_level debug. */
void wd_memory_report_plan(const wd_memory_plan *plan, const wd_devices *devices);

/* Logs planned beside measured peaks, place by place and item by item. `host_bytes`: the most
 * that the job had of host memory. */
void wd_memory_report_measured(const wd_memory_plan *plan, const wd_devices *devices,
                               size_t host_bytes);

/* "allocated 1 MB, reserved 2 MB, total 3 GB, free 1 GB": of a device, now. Any thread may ask. */
const char *wd_memory_report_now(char *out, size_t out_bytes, const wd_devices *devices,
                                 int device);

/* What the watch says of this rank; `devices`: a wd_devices, or NULL while there are none. */
void wd_memory_report_note(void *devices, wd_watch_note *out);

/* A new object: bytes_peak, bytes_before, bytes_mapped of host memory, devices, items. */
json_t *wd_memory_plan_json(const wd_memory_plan *plan, const wd_devices *devices, size_t before);

#endif
