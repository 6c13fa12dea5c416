/* Folder dev/codec. Quantised weights: their formats, encoding and decoding.
 *
 * Codecs: how a quantised value becomes a float. Each format has a function in a header of this
 * folder that defines the value bit for bit; this is the choice among them. C, C++ and CUDA.
 *
 * A value is what its codec says, times the tensor's scale for it where the tensor has scales
 * (core/tensor.h), rounded to nearest even. */
#ifndef WD_DEV_CODEC_CODEC_H
#define WD_DEV_CODEC_CODEC_H

#include "core/dtype.h"
#include "dev/codec/float8.h"
#include "dev/codec/i_quants.h"
#include "dev/codec/k_quants.h"
#include "dev/codec/legacy_quants.h"

#define WD_CODEC_OF_BLOCKS(format, FORMAT)                                                         \
    case WD_##FORMAT:                                                                              \
        return format##_value(bytes + at / FORMAT##_VALUES * FORMAT##_BYTES,                       \
                              (int)(at % FORMAT##_VALUES))

/* Value `at` of an array of a quantised dtype, before scales. */
WD_ANYWHERE float codec_value(const void *data, wd_dtype type, int64_t at)
{
    const uint8_t *bytes = (const uint8_t *)data;
    switch (type) {
    case WD_F8_E4M3:
        return float8_e4m3_value(bytes[at]);
    case WD_F8_E5M2:
        return float8_e5m2_value(bytes[at]);
        WD_CODEC_OF_BLOCKS(q8_0, Q8_0);
        WD_CODEC_OF_BLOCKS(q5_0, Q5_0);
        WD_CODEC_OF_BLOCKS(q4_0, Q4_0);
        WD_CODEC_OF_BLOCKS(q6_k, Q6_K);
        WD_CODEC_OF_BLOCKS(q5_k, Q5_K);
        WD_CODEC_OF_BLOCKS(q4_k, Q4_K);
        WD_CODEC_OF_BLOCKS(q5_1, Q5_1);
        WD_CODEC_OF_BLOCKS(q4_1, Q4_1);
        WD_CODEC_OF_BLOCKS(q3_k, Q3_K);
        WD_CODEC_OF_BLOCKS(q2_k, Q2_K);
        WD_CODEC_OF_BLOCKS(iq4_nl, IQ4_NL);
        WD_CODEC_OF_BLOCKS(iq4_xs, IQ4_XS);
    default: /* WD_I8 */
        return (float)(int8_t)bytes[at];
    }
}

#endif
