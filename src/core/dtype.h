/* Element types, as safetensors names them, and conversions of single values. */
#ifndef WD_CORE_DTYPE_H
#define WD_CORE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* name, bytes, safetensors name, name in the options (torch's) */
#define WD_DTYPE_MAP(X)                                                                            \
    X(F32, 4, "F32", "float32")                                                                    \
    X(F16, 2, "F16", "float16")                                                                    \
    X(BF16, 2, "BF16", "bfloat16")                                                                 \
    X(F64, 8, "F64", "float64")                                                                    \
    X(I64, 8, "I64", "int64")                                                                      \
    X(I32, 4, "I32", "int32")                                                                      \
    X(I16, 2, "I16", "int16")                                                                      \
    X(I8, 1, "I8", "int8")                                                                         \
    X(U8, 1, "U8", "uint8")                                                                        \
    X(BOOL, 1, "BOOL", "bool")

typedef enum wd_dtype {
#define X(name, bytes, file_name, option_name) WD_##name,
    WD_DTYPE_MAP(X)
#undef X
        WD_DTYPE_COUNT
} wd_dtype;

size_t wd_dtype_bytes(wd_dtype dtype);
const char *wd_dtype_file_name(wd_dtype dtype);   /* "BF16" */
const char *wd_dtype_option_name(wd_dtype dtype); /* "bfloat16" */

/* Finds a dtype by either of its names; returns false if there is none. */
bool wd_dtype_parse(wd_dtype *dtype, const char *name);

/* One bf16 value as float: exact. */
static inline float wd_bf16_to_f32(uint16_t v)
{
    uint32_t bits = (uint32_t)v << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Rounds to nearest even; NaN stays NaN. */
static inline uint16_t wd_f32_to_bf16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float wd_f16_to_f32(uint16_t v);
uint16_t wd_f32_to_f16(float f); /* to nearest even; overflow gives infinity */

#endif
