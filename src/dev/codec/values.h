/* Weights as floats, whatever dtype they are stored in. */
#ifndef WD_DEV_CODEC_VALUES_H
#define WD_DEV_CODEC_VALUES_H

#include "core/tensor.h"
#include "dev/device.h"

/* out[i] = value at + i of the tensor, i < count, in fp32. The tensor is F32, F16, BF16 or
 * quantised, in memory that the host reads, where it may lie unaligned. */
void wd_tensor_values(float *out, const wd_tensor *tensor, int64_t at, int64_t count);

/* Launches on `queue`: to = the quantised tensor's values, rounded to `rounded`, then to `dtype`.
 * The tensor, its scales and `to` are memory that the queue's device reads and writes; `to` has
 * room for the tensor in `dtype`. */
void wd_tensor_dequantise(wd_queue *queue, void *to, wd_dtype dtype, wd_dtype rounded,
                          const wd_tensor *tensor);

#endif
