/* What libraries take of a device's memory beside its pool, once they compute.
 *
 * A GPU's libraries load kernels when they first need them. A device that is opened leaves an
 * estimate free for that. Whoever plans to the byte has it measured, once for a kind of device and
 * versions of libraries (wd_traits.kernels), keeps the figure, and reserves it whenever such a
 * device is opened, before anything is allocated: then the pool is as large in every run. */
#ifndef WD_DEV_LIBRARY_MEMORY_H
#define WD_DEV_LIBRARY_MEMORY_H

#include "dev/device.h"

/* Whether it is an estimate so far. Devices without libraries of their own have none. */
bool wd_device_beside_is_estimate(const wd_device *device);

/* *out = bytes that libraries took while they did one piece of every kind of work: products,
 * attention and convolutions, forward and backward; 0 where an earlier measurement of this process
 * has loaded all of it. No block is allocated yet; the device has no more blocks afterwards. What
 * other processes take or give back meanwhile is in the figure. WD_OUT_OF_MEMORY: there is no room
 * for the work. */
wd_status wd_device_measure_beside(size_t *out, wd_device *device, wd_err *err);

/* From now on the pool has what was free when the device was opened, less `bytes` and less
 * WD_BESIDE_MARGIN for kernels that other shapes need. No block is allocated yet. */
void wd_device_reserve_beside(wd_device *device, size_t bytes);

/* The pool has `bytes` less, in whole granules, for a library that connects this device with
 * others; where it has fewer, it has none. */
void wd_device_reserve_more_beside(wd_device *device, size_t bytes);

enum { WD_BESIDE_MARGIN = 32 << 20 };

#endif
