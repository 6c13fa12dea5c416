/* GGUF's Q2_K: 256 values as 16 bytes of scales, one for each 16 values, whose low half is a factor
 * and whose high half an offset; then 64 bytes, and two float16 factors. Of each 128 values, group
 * g of 32 is bits 2 g and 2 g + 1 of 32 bytes. value = factor scale bits - offset_factor offset;
 * only the difference is rounded. */
#ifndef WD_DEV_CODEC_Q2_K_H
#define WD_DEV_CODEC_Q2_K_H

#include "dev/codec/block.h"

enum { Q2_K_VALUES = 256, Q2_K_BYTES = 84 };

WD_ANYWHERE float q2_k_value(const uint8_t *block, int i)
{
    const int bits = block[16 + i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
    const float factor = block_factor(block + 80) * (float)(block[i / 16] & 15);
    const float offset = block_factor(block + 82) * (float)(block[i / 16] >> 4);
    return factor * (float)bits - offset;
}

#endif
