/* Floats as values of a stored dtype: the inverse of dev/codec/values.h. */
#ifndef WD_DEV_CODEC_ENCODE_H
#define WD_DEV_CODEC_ENCODE_H

#include "core/dtype.h"

/* Whether wd_values_encode makes this dtype: F32, F16, BF16, F8_E4M3, Q8_0 and Q4_K. */
bool wd__dtype_is_encoded(wd_dtype dtype);

/* The largest magnitude that the dtype takes: beyond it a value of F16 would be infinite, and one
 * of blocks might be. Magnitudes above 448 become 448 in F8_E4M3: its caller divides by a scale. */
float wd_dtype_most(wd_dtype dtype);

/* to = `count` values in `dtype`, a multiple of the dtype's block. Values of F8_E4M3 and of blocks
 * are finite. The bits depend on the values alone; the host's threads share the work. */
void wd_values_encode(void *to, wd_dtype dtype, const float *values, int64_t count);

#endif
