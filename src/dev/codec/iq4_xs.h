/* GGUF's IQ4_XS: a block of 256 values in 8 groups of 32. It has a float16 factor, then the scales
 * of the groups (2 bytes with their upper 2 bits, 4 bytes with their lower 4 bits), then 16 bytes
 * for each group, which has its halves as in Q4_0. value = factor (scale - 32) level(half), exact.
 */
#ifndef WD_DEV_CODEC_IQ4_XS_H
#define WD_DEV_CODEC_IQ4_XS_H

#include "dev/codec/iq4.h"

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
