/* Small results that are copied from a device to the host, and read a step later, so that the host
 * does not wait.
 *
 * A ring of slots. During a step the caller gathers device values into the open slot; commit closes
 * it; take hands out the oldest closed slot, waiting for its copies if it must. Steady state:
 * gather, commit, and take once more than one is pending. */
#ifndef WD_TRAIN_NETWORK_READBACK_H
#define WD_TRAIN_NETWORK_READBACK_H

#include "dev/device.h"

typedef struct wd_readback wd_readback;

/* `slots` slots of up to `values_max` floats. */
wd_status wd_readback_open(wd_readback **out, wd_device *device, int slots, int64_t values_max,
                           wd_err *err);
/* Waits for the closed slots; of an open one the queue must be done. NULL is allowed. */
void wd_readback_close(wd_readback *readback);

/* Appends `count` floats from the device to the open slot. The device values may be overwritten by
 * later work of the queue. */
void wd_readback_gather(wd_readback *readback, const float *from, int64_t count, wd_queue *queue);

/* Closes the open slot under the caller's number `tag`. At least one slot must be free then. */
void wd_readback_commit(wd_readback *readback, int64_t tag, wd_queue *queue);

int wd_readback_pending(const wd_readback *readback); /* closed and not yet taken */

/* The oldest closed slot; its values are valid until the next gather. Asserts that one is pending.
 * On a dry device the values are zeros. */
typedef struct wd_readback_values {
    int64_t tag, count;
    const float *value;
} wd_readback_values;

wd_readback_values wd_readback_take(wd_readback *readback);

#endif
