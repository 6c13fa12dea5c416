/* GGUF's oldest formats: Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0. A block has 32 values. It begins with a
 * float16 factor; Q4_1 and Q5_1 have a float16 offset, too; then come the bits of the values. For
 * each format this file has the size of a block, and a function that gives value i of a block. */
#ifndef WD_DEV_CODEC_LEGACY_QUANTS_H
#define WD_DEV_CODEC_LEGACY_QUANTS_H

#include "dev/codec/block.h"

/* ---- Q4_0 ----
 *
 * A factor, then 16 bytes, the low halves of which have the first 16 values and the high ones the
 * others. value = factor (half - 8), exact. */

enum { Q4_0_VALUES = 32, Q4_0_BYTES = 18 };

WD_ANYWHERE float q4_0_value(const uint8_t *block, int i)
{
    const int half = block[2 + i % 16] >> i / 16 * 4 & 15;
    return block_factor(block) * (float)(half - 8);
}

/* ---- Q4_1 ----
 *
 * A factor and an offset, then 16 bytes with the halves as in Q4_0. value = factor half + offset;
 * only the sum is rounded. */

enum { Q4_1_VALUES = 32, Q4_1_BYTES = 20 };

WD_ANYWHERE float q4_1_value(const uint8_t *block, int i)
{
    const int half = block[4 + i % 16] >> i / 16 * 4 & 15;
    return block_factor(block) * (float)half + block_factor(block + 2);
}

/* ---- Q5_0 ----
 *
 * A factor, 4 bytes with bit 4 of each value (value i in bit i, little endian), then 16 bytes with
 * the lower bits, as in Q4_0. value = factor (bits - 16), exact. */

enum { Q5_0_VALUES = 32, Q5_0_BYTES = 22 };

WD_ANYWHERE float q5_0_value(const uint8_t *block, int i)
{
    const int low = block[6 + i % 16] >> i / 16 * 4 & 15, high = block[2 + i / 8] >> i % 8 & 1;
    return block_factor(block) * (float)((low | high << 4) - 16);
}

/* ---- Q5_1 ----
 *
 * A factor and an offset, 4 bytes with bit 4 of each value, and 16 bytes with the lower bits, as in
 * Q5_0. value = factor bits + offset; only the sum is rounded. */

enum { Q5_1_VALUES = 32, Q5_1_BYTES = 24 };

WD_ANYWHERE float q5_1_value(const uint8_t *block, int i)
{
    const int low = block[8 + i % 16] >> i / 16 * 4 & 15, high = block[4 + i / 8] >> i % 8 & 1;
    return block_factor(block) * (float)(low | high << 4) + block_factor(block + 2);
}

/* ---- Q8_0 ----
 *
 * A factor, then 32 signed bytes. value = factor byte, exact. */

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
