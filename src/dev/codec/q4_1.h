/* GGUF's Q4_1: 32 values as a float16 factor and a float16 offset, then 16 bytes with the halves as
 * in Q4_0. value = factor half + offset; only the sum is rounded. */
#ifndef WD_DEV_CODEC_Q4_1_H
#define WD_DEV_CODEC_Q4_1_H

#include "dev/codec/block.h"

enum { Q4_1_VALUES = 32, Q4_1_BYTES = 20 };

WD_ANYWHERE float q4_1_value(const uint8_t *block, int i)
{
    const int half = block[4 + i % 16] >> i / 16 * 4 & 15;
    return block_factor(block) * (float)half + block_factor(block + 2);
}

#endif
