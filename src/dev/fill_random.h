/* Random values for operations whose time is measured: a GPU draws less power, and so runs at a
 * higher clock, where it computes with zeros or with one number. */
#ifndef WD_DEV_FILL_RANDOM_H
#define WD_DEV_FILL_RANDOM_H

#include "core/dtype.h"
#include "dev/device.h"

enum { WD_FILL_RANDOM_BLOCK = 65521 }; /* a prime, so that lines of a matrix differ */

/* to[i] = `scale` times a standard normal number, 0 <= i < count, `to` of fp32, bf16 or fp16 in
 * memory of the queue's device. The numbers are always the same, and repeat after
 * WD_FILL_RANDOM_BLOCK. They are there when it returns. It takes 256 KiB of the device and of the
 * host meanwhile: WD_OUT_OF_MEMORY. */
wd_status wd_fill_random(wd_queue *queue, void *to, wd_dtype type, int64_t count, float scale,
                         wd_err *err);

#endif
