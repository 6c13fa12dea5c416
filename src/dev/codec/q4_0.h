/* GGUF's Q4_0: 32 values as a float16 factor, then 16 bytes, the low halves of which have the first
 * 16 values and the high ones the others. value = factor (half - 8), exact. */
#ifndef WD_DEV_CODEC_Q4_0_H
#define WD_DEV_CODEC_Q4_0_H

#include "dev/codec/block.h"

enum { Q4_0_VALUES = 32, Q4_0_BYTES = 18 };

WD_ANYWHERE float q4_0_value(const uint8_t *block, int i)
{
    const int half = block[2 + i % 16] >> i / 16 * 4 & 15;
    return block_factor(block) * (float)(half - 8);
}

#endif
