/* Weights as floats: see dev/codec/values.h. */
#include "dev/codec/values.h"

void wd_tensor_values(float *out, const wd_tensor *t, int64_t at, int64_t count)
{
    const char *from = (const char *)t->data + (size_t)at * wd_dtype_bytes(t->dtype);
    if (t->dtype == WD_F32) {
        memcpy(out, from, (size_t)count * sizeof *out);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        uint16_t half;
        memcpy(&half, from + 2 * i, sizeof half);
        out[i] = t->dtype == WD_BF16 ? wd_bf16_to_f32(half) : wd_f16_to_f32(half);
    }
}
