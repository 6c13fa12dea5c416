/* GGUF's IQ4_XS: 256 values as a float16 factor, 2 and 4 bytes with the upper 2 and the lower 4
 * bits of 8 scales, one for each 32 values, then 16 bytes for each of these, with the halves as in
 * Q4_0. value = factor (scale - 32) level(half), exact. */
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
