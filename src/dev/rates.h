/* How fast devices and host memory are: predictions start from these rates where the description of
 * a device states none. Measured in a fraction of a second, on the device itself. */
#ifndef WD_DEV_RATES_H
#define WD_DEV_RATES_H

#include "core/dtype.h"
#include "dev/device.h"

/* FLOP/s of matrix products [m, k] x [k, n] of `dtype` on the queue's device, of random values (see
 * dev/fill_random.h); sizes are capped, so
 * that it takes little memory and time: a processor's at 1024, others', which need more to be kept
 * busy, at 8192 or what their pools have room for, launched up to 64 times in a row. */
wd_status wd_rate_of_products(double *flops_per_s, wd_queue *queue, wd_dtype dtype, int64_t m,
                              int64_t k, int64_t n, wd_err *err);

/* Bytes/s from host memory to the queue's device. */
wd_status wd_rate_of_link(double *bytes_per_s, wd_queue *queue, wd_err *err);

/* Bytes/s of copying within host memory, by one thread. */
wd_status wd_rate_of_memory(double *bytes_per_s, wd_err *err);

/* Weights that a processor's queue steps by AdamW in a second, with an EMA and a copy in bf16; the
 * same of moments in 8 bits. */
wd_status wd_rate_of_adamw(double *weights_per_s, wd_queue *queue, wd_err *err);
wd_status wd_rate_of_adamw8bit(double *weights_per_s, wd_queue *queue, wd_err *err);

/* Weights of which it updates an EMA in a second, apart from a step. */
wd_status wd_rate_of_ema(double *weights_per_s, wd_queue *queue, wd_err *err);

#endif
