/* Element types, as safetensors names them, and conversions of single values. */
#ifndef WD_CORE_DTYPE_H
#define WD_CORE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* name, elements of a block, bytes of a block, name in files, name in the options (torch's). From
 * Q8_0 on they are those of GGUF files, where each block of a row has scales of its own. */
#define WD_DTYPE_MAP(X)                                                                            \
    X(F32, 1, 4, "F32", "float32")                                                                 \
    X(F16, 1, 2, "F16", "float16")                                                                 \
    X(BF16, 1, 2, "BF16", "bfloat16")                                                              \
    X(F64, 1, 8, "F64", "float64")                                                                 \
    X(I64, 1, 8, "I64", "int64")                                                                   \
    X(I32, 1, 4, "I32", "int32")                                                                   \
    X(I16, 1, 2, "I16", "int16")                                                                   \
    X(I8, 1, 1, "I8", "int8")                                                                      \
    X(U8, 1, 1, "U8", "uint8")                                                                     \
    X(BOOL, 1, 1, "BOOL", "bool")                                                                  \
    X(F8_E4M3, 1, 1, "F8_E4M3", "float8_e4m3fn")                                                   \
    X(F8_E5M2, 1, 1, "F8_E5M2", "float8_e5m2")                                                     \
    X(Q8_0, 32, 34, "Q8_0", "q8_0")                                                                \
    X(Q5_0, 32, 22, "Q5_0", "q5_0")                                                                \
    X(Q4_0, 32, 18, "Q4_0", "q4_0")                                                                \
    X(Q6_K, 256, 210, "Q6_K", "q6_k")                                                              \
    X(Q5_K, 256, 176, "Q5_K", "q5_k")                                                              \
    X(Q4_K, 256, 144, "Q4_K", "q4_k")                                                              \
    X(Q5_1, 32, 24, "Q5_1", "q5_1")                                                                \
    X(Q4_1, 32, 20, "Q4_1", "q4_1")                                                                \
    X(Q3_K, 256, 110, "Q3_K", "q3_k")                                                              \
    X(Q2_K, 256, 84, "Q2_K", "q2_k")                                                               \
    X(IQ4_NL, 32, 18, "IQ4_NL", "iq4_nl")                                                          \
    X(IQ4_XS, 256, 136, "IQ4_XS", "iq4_xs")

typedef enum wd_dtype {
#define X(name, block, bytes, file_name, option_name) WD_##name,
    WD_DTYPE_MAP(X)
#undef X
        WD_DTYPE_COUNT
} wd_dtype;

size_t wd_dtype_bytes(wd_dtype dtype);  /* of an element; of a block, where blocks have several */
int64_t wd_dtype_block(wd_dtype dtype); /* elements of a block: 1, but for those of GGUF files */

/* Bytes of `count` elements, a multiple of a block's. */
size_t wd_dtype_size(wd_dtype dtype, int64_t count);

/* What the address of an array must be a multiple of: blocks may lie anywhere. */
size_t wd_dtype_align(wd_dtype dtype);

/* Whether weights of this dtype are quantised: they are widened before they are computed with. I8
 * counts, which no weight has otherwise. */
bool wd_dtype_is_quantised(wd_dtype dtype);

/* What products are computed in. A device has a rate for each: GPUs multiply 16 bits several times
 * as fast as fp32. */
typedef enum wd_precision { WD_16_BIT, WD_32_BIT, WD_PRECISIONS } wd_precision;

/* The precision of products of values in fp32 or bf16. */
static inline wd_precision wd_precision_of(wd_dtype dtype)
{
    return dtype == WD_F32 ? WD_32_BIT : WD_16_BIT;
}

static inline const char *wd_precision_name(wd_precision precision)
{
    return precision == WD_32_BIT ? "fp32" : "bf16";
}

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

/* Value `at` of values in fp32, fp16 or bf16, which need not be aligned. */
float wd_float_at(const void *data, wd_dtype dtype, int64_t at);
uint16_t wd_f32_to_f16(float f); /* to nearest even; overflow gives infinity */

#endif
