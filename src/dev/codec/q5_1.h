/* GGUF's Q5_1: 32 values as a float16 factor and a float16 offset, 4 bytes with bit 4 of each
 * value, and 16 bytes with the lower bits, as in Q5_0. value = factor bits + offset; only the sum
 * is rounded. */
#ifndef WD_DEV_CODEC_Q5_1_H
#define WD_DEV_CODEC_Q5_1_H

#include "dev/codec/block.h"

enum { Q5_1_VALUES = 32, Q5_1_BYTES = 24 };

WD_ANYWHERE float q5_1_value(const uint8_t *block, int i)
{
    const int low = block[8 + i % 16] >> i / 16 * 4 & 15, high = block[4 + i / 8] >> i % 8 & 1;
    return block_factor(block) * (float)(low | high << 4) + block_factor(block + 2);
}

#endif
