/* Weights as floats, whatever dtype they are stored in. */
#ifndef WD_DEV_CODEC_VALUES_H
#define WD_DEV_CODEC_VALUES_H

#include "core/tensor.h"

/* out[i] = value at + i of the tensor, i < count, in fp32. The tensor is F32, F16 or BF16, in
 * memory that the host reads, where it may lie unaligned. */
void wd_tensor_values(float *out, const wd_tensor *tensor, int64_t at, int64_t count);

#endif
