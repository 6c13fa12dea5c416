/* Reports of planned and measured memory, as text and as JSON. */
#ifndef WD_API_SETUP_MEMORY_REPORT_H
#define WD_API_SETUP_MEMORY_REPORT_H

#include <jansson.h>

#include "job/watch/watch.h"
#include "train/loop/memory_plan.h"

/* Writes "412 MiB" into `out`, and returns `out`. */
const char *wd_bytes_text(char *out, size_t out_bytes, size_t bytes);

/* "host memory", or the device's name. */
const char *wd_place_name(const wd_devices *devices, int place);

/* "of its 80 GiB libraries take 1.5 GiB, the driver and other processes 1.2 GiB (nvidia-smi lists
 * them)": where the rest is of a GPU's memory. False: the device is no GPU. */
bool wd_device_beside_text(char out[160], const wd_device *device);

/* Logs the peak of host memory and of every device, and its items; items of less than a hundredth
 * of it only with --log_level debug. */
void wd_memory_report_plan(const wd_memory_plan *plan, const wd_devices *devices);

/* Logs planned beside measured peaks of host memory and of every device, item by item.
 * `host_bytes`: the measured peak of host memory. */
void wd_memory_report_measured(const wd_memory_plan *plan, const wd_devices *devices,
                               size_t host_bytes);

/* Logs the same figures of the other ranks, of each in a line for every place: peaks, and what the
 * teacher takes of them. Nothing with one rank. All ranks call it; rank 0's log shows it. */
wd_status wd_memory_report_ranks(wd_comm *comm, const wd_memory_plan *plan,
                                 const wd_devices *devices, size_t host_bytes, wd_err *err);

/* A record of the devices' memory at the time when an allocation failed. A run that ends has freed
 * its memory before the failure is reported. Any thread may read it. */
typedef struct wd_memory_witness {
    const wd_devices *devices;
    int sharers; /* number of ranks of this host, which share memory */
    _Atomic bool has_seen;
    char then[WD_PLACED_DEVICES_MAX][160];
} wd_memory_witness;

/* From now until wd_on_shortage(NULL, NULL) the first failed allocation of the calling thread is
 * recorded. */
void wd_memory_witness_begin(wd_memory_witness *witness);

/* Writes "allocated 1 MB, reserved 2 MB, total 3 GB, free 1 GB" of a device into `out`: at the
 * recorded failure, or now if there was none. */
const char *wd_memory_witness_says(char out[160], const wd_memory_witness *witness, int device);

/* Fills the memory of this rank for the watch (job/watch/watch.h); `witness`: a wd_memory_witness,
 * or NULL: there are no devices. */
void wd_memory_report_note(void *witness, wd_watch_note *out);

/* Adds to `run`, which the file run.json `path` of a run that has ended has, the most bytes that it
 * had allocated on each device, beside those that were planned. */
wd_status wd_memory_report_add(json_t *run, const char *path, const wd_devices *devices,
                               wd_err *err);

/* Makes an object with bytes_peak, bytes_before, bytes_mapped of host memory, devices and items;
 * the caller owns it. */
json_t *wd_memory_plan_json(const wd_memory_plan *plan, const wd_devices *devices, size_t before);

#endif
