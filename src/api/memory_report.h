/* Memory in words and as JSON: what was planned, and what was measured beside it. */
#ifndef WD_API_MEMORY_REPORT_H
#define WD_API_MEMORY_REPORT_H

#include <jansson.h>

#include "dist/watch.h"
#include "distill/plan.h"

/* "412 MiB" */
const char *wd_bytes_text(char *out, size_t out_bytes, size_t bytes);

/* "host memory", or the device's name. */
const char *wd_place_name(const wd_devices *devices, int place);

/* "of its 80 GiB libraries take 1.5 GiB, the driver and other processes 1.2 GiB (nvidia-smi lists
 * them)": where the rest is of a GPU's memory. False: the device is no GPU. */
bool wd_device_beside_text(char out[160], const wd_device *device);

/* Logs the peak of every place and what it is made of: items of less than a hundredth of it for
 * --log_level debug. */
void wd_memory_report_plan(const wd_memory_plan *plan, const wd_devices *devices);

/* Logs planned beside measured peaks, place by place and item by item. `host_bytes`: the most
 * that the job had of host memory. */
void wd_memory_report_measured(const wd_memory_plan *plan, const wd_devices *devices,
                               size_t host_bytes);

/* What the devices have: now, or, once memory has run out, what they had then. A run that ends has
 * freed everything by the time that it is reported. Any thread may ask. */
typedef struct wd_memory_witness {
    const wd_devices *devices;
    int sharers; /* ranks of this host, which share memory; 1: none */
    _Atomic bool has_seen;
    char then[WD_PLACED_DEVICES_MAX][160];
} wd_memory_witness;

/* From here until wd_on_shortage(NULL, NULL) a shortage of the calling thread is seen. */
void wd_memory_witness_begin(wd_memory_witness *witness);

/* "allocated 1 MB, reserved 2 MB, total 3 GB, free 1 GB" */
const char *wd_memory_witness_says(char out[160], const wd_memory_witness *witness, int device);

/* What the watch says of this rank; `witness`: a wd_memory_witness, or NULL: there are no
 * devices. */
void wd_memory_report_note(void *witness, wd_watch_note *out);

/* A new object: bytes_peak, bytes_before, bytes_mapped of host memory, devices, items. */
json_t *wd_memory_plan_json(const wd_memory_plan *plan, const wd_devices *devices, size_t before);

#endif
