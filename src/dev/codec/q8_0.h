/* GGUF's Q8_0: 32 values as a float16 factor, then 32 signed bytes. value = factor byte, exact. */
#ifndef WD_DEV_CODEC_Q8_0_H
#define WD_DEV_CODEC_Q8_0_H

#include "dev/codec/block.h"

enum { Q8_0_VALUES = 32, Q8_0_BYTES = 34 };

WD_ANYWHERE float q8_0_value(const uint8_t *block, int i)
{
    return block_factor(block) * (float)(int8_t)block[2 + i];
}

/* The block of 32 finite values: the largest magnitude becomes 127, others are rounded to nearest,
 * halves away from zero. The bytes are those of ggml's reference (ggml-quants.c). */
WD_ANYWHERE void q8_0_encode(uint8_t *block, const float *values)
{
    float most = 0;
    for (int i = 0; i < Q8_0_VALUES; i++) {
        const float magnitude = values[i] < 0 ? -values[i] : values[i];
        most = magnitude > most ? magnitude : most;
    }
    /* a subnormal factor is 0 as float16, and its inverse may be infinite */
    const float factor = most / 127, inverse = factor >= 0x1p-126f ? 1 / factor : 0;
    put_block_factor(block, factor);
    for (int i = 0; i < Q8_0_VALUES; i++) {
        const float v = values[i] * inverse, magnitude = v < 0 ? -v : v;
        const int down = (int)magnitude, nearest = down + (magnitude - (float)down >= 0.5f);
        block[2 + i] = (uint8_t)(int8_t)(v < 0 ? -nearest : nearest);
    }
}

#endif
