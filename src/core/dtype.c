/* Element types: see core/dtype.h. */
#include "core/dtype.h"

static const struct {
    int64_t block;
    size_t bytes;
    const char *file_name, *option_name;
} dtypes[WD_DTYPE_COUNT] = {
#define X(name, block, bytes, file_name, option_name)                                              \
    [WD_##name] = {block, bytes, file_name, option_name},
    WD_DTYPE_MAP(X)
#undef X
};

size_t wd_dtype_bytes(wd_dtype dtype)
{
    return dtypes[dtype].bytes;
}
int64_t wd_dtype_block(wd_dtype dtype)
{
    return dtypes[dtype].block;
}
const char *wd_dtype_file_name(wd_dtype dtype)
{
    return dtypes[dtype].file_name;
}
const char *wd_dtype_option_name(wd_dtype dtype)
{
    return dtypes[dtype].option_name;
}

size_t wd_dtype_size(wd_dtype dtype, int64_t count)
{
    return (size_t)(count / dtypes[dtype].block) * dtypes[dtype].bytes;
}

size_t wd_dtype_align(wd_dtype dtype)
{
    return dtypes[dtype].block == 1 ? dtypes[dtype].bytes : 1;
}

bool wd_dtype_is_quantised(wd_dtype dtype)
{
    return dtype == WD_I8 || dtype >= WD_F8_E4M3;
}

bool wd_dtype_parse(wd_dtype *dtype, const char *name)
{
    for (int i = 0; i < WD_DTYPE_COUNT; i++) {
        if (strcmp(name, dtypes[i].file_name) && strcmp(name, dtypes[i].option_name)) continue;
        *dtype = (wd_dtype)i;
        return true;
    }
    return false;
}

float wd_f16_to_f32(uint16_t v)
{
    uint32_t sign = (uint32_t)(v & 0x8000u) << 16, exponent = (v >> 10) & 0x1fu;
    uint32_t mantissa = v & 0x3ffu, bits;
    if (exponent == 0x1f) {
        bits = sign | 0x7f800000u | mantissa << 13;
    } else if (exponent) {
        bits = sign | (exponent + 112) << 23 | mantissa << 13;
    } else { /* subnormal: mantissa 2^-24, exact in fp32 */
        float magnitude = (float)mantissa * 0x1p-24f;
        memcpy(&bits, &magnitude, sizeof bits);
        bits |= sign;
    }
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

uint16_t wd_f32_to_f16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);  /* NaN */
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 and more */
    if (magnitude < 0x38800000u) { /* below 2^-14: adding 0.5 aligns and rounds the mantissa */
        float aligned;
        memcpy(&aligned, &magnitude, sizeof aligned);
        aligned += 0.5f;
        memcpy(&magnitude, &aligned, sizeof magnitude);
        return (uint16_t)(sign | (magnitude - 0x3f000000u));
    }
    uint32_t odd = magnitude >> 13 & 1u;
    return (uint16_t)(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
}

float wd_float_at(const void *data, wd_dtype dtype, int64_t at)
{
    const char *from = (const char *)data + (size_t)at * wd_dtype_bytes(dtype);
    uint16_t half;
    float f;
    if (dtype == WD_F32) {
        memcpy(&f, from, sizeof f);
        return f;
    }
    memcpy(&half, from, sizeof half);
    return dtype == WD_BF16 ? wd_bf16_to_f32(half) : wd_f16_to_f32(half);
}
