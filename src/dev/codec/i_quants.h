/* GGUF's formats whose half bytes stand for levels that are not equally far apart: IQ4_NL and
 * IQ4_XS. Of each format here are the size of a block and the float of value i of a block;
 * dev/codec/codec.h chooses. */
#ifndef WD_DEV_CODEC_I_QUANTS_H
#define WD_DEV_CODEC_I_QUANTS_H

#include "dev/codec/block.h"

/* The 16 levels of a half byte (ggml: kvalues_iq4nl): -127, -104, -83, -65, -49, -35, -22, -10, 1,
 * 13, 25, 38, 53, 69, 89, 113. They are the bytes of two numbers, since a table would lie in a
 * GPU's memory, a copy for each thread. */
WD_ANYWHERE float iq4_level(int half)
{
    const uint64_t levels = half < 8 ? 0xf6eaddcfbfad9881u : 0x7159453526190d01u;
    return (float)(int8_t)(levels >> half % 8 * 8 & 255);
}

/* ---- IQ4_NL ----
 *
 * A block of 32 values in the layout of Q4_0. value = factor level(half), exact. */

enum { IQ4_NL_VALUES = 32, IQ4_NL_BYTES = 18 };

WD_ANYWHERE float iq4_nl_value(const uint8_t *block, int i)
{
    return block_factor(block) * iq4_level(block[2 + i % 16] >> i / 16 * 4 & 15);
}

/* ---- IQ4_XS ----
 *
 * A block of 256 values in 8 groups of 32: a float16 factor, the scales of the groups (2 bytes with
 * their upper 2 bits, 4 bytes with their lower 4 bits), then 16 bytes for each group, which has its
 * halves as in Q4_0. value = factor (scale - 32) level(half), exact. */

enum { IQ4_XS_VALUES = 256, IQ4_XS_BYTES = 136 };

/* The factor of group g, of values 32 g to 32 g + 31. */
WD_ANYWHERE float iq4_xs_factor(const uint8_t *block, int g)
{
    const int low = block[4 + g / 2] >> g % 2 * 4 & 15, high = block[2 + g / 4] >> g % 4 * 2 & 3;
    return block_factor(block) * (float)((low | high << 4) - 32);
}

WD_ANYWHERE float iq4_xs_value(const uint8_t *block, int i)
{
    const int half = block[8 + i / 32 * 16 + i % 16] >> i % 32 / 16 * 4 & 15;
    return iq4_xs_factor(block, i / 32) * iq4_level(half);
}

#endif
