/* Floats as stored values: see dev/codec/encode.h. */
#include "dev/codec/encode.h"

#include <float.h>

#include "core/error.h"
#include "core/parallel.h"
#include "dev/codec/float8.h"
#include "dev/codec/k_quants.h"
#include "dev/codec/legacy_quants.h"
#include "dev/codec/q4_k_encode.h"

enum { GRAIN_VALUES = 1 << 14 };

bool wd__dtype_is_encoded(wd_dtype dtype)
{
    return dtype == WD_F32 || dtype == WD_F16 || dtype == WD_BF16 || dtype == WD_F8_E4M3 ||
           dtype == WD_Q8_0 || dtype == WD_Q4_K;
}

float wd_dtype_most(wd_dtype dtype)
{
    if (dtype == WD_F16) return 65519.996f; /* the next float is rounded to infinity */
    return wd_dtype_block(dtype) > 1 ? 65504 : FLT_MAX;
}

typedef struct job {
    uint8_t *to;
    wd_dtype dtype;
    const float *values;
} job;

static void encode_block(uint8_t *to, wd_dtype dtype, const float *values)
{
    uint16_t half;
    switch (dtype) {
    case WD_F32:
        memcpy(to, values, sizeof *values);
        break;
    case WD_F16:
        half = f32_to_f16(*values);
        memcpy(to, &half, sizeof half);
        break;
    case WD_BF16:
        half = (uint16_t)(bf16_bits(*values) >> 16);
        memcpy(to, &half, sizeof half);
        break;
    case WD_F8_E4M3:
        *to = float8_e4m3_bits(*values);
        break;
    case WD_Q8_0:
        q8_0_encode(to, values);
        break;
    default: /* WD_Q4_K */
        q4_k_encode(to, values);
    }
}

static void encode_blocks(int64_t begin, int64_t end, void *context)
{
    const job *j = context;
    const size_t bytes = wd_dtype_bytes(j->dtype);
    const int64_t block = wd_dtype_block(j->dtype);
    for (int64_t i = begin; i < end; i++)
        encode_block(j->to + (size_t)i * bytes, j->dtype, j->values + i * block);
}

void wd_values_encode(void *to, wd_dtype dtype, const float *values, int64_t count)
{
    const int64_t block = wd_dtype_block(dtype);
    job j = {to, dtype, values};
    WD_REQUIRE(wd__dtype_is_encoded(dtype), "values of a dtype that is not encoded");
    WD_REQUIRE(count % block == 0, "values that are not whole blocks");
    wd_parallel_for(count / block, GRAIN_VALUES / block, encode_blocks, &j);
}
