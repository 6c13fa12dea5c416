/* GGUF's Q6_K: 256 values as 128 bytes with their lower 4 bits, 64 with the upper 2, 16 signed
 * scales, one for each 16 values, and a float16 factor. Of each 128 values, the first two groups of
 * 32 are the low halves of 64 bytes, the others the high ones; group g has its upper bits in bits
 * 2 g and 2 g + 1 of 32 bytes. value = factor scale (bits - 32), rounded once. */
#ifndef WD_DEV_CODEC_Q6_K_H
#define WD_DEV_CODEC_Q6_K_H

#include "dev/codec/block.h"

enum { Q6_K_VALUES = 256, Q6_K_BYTES = 210 };

WD_ANYWHERE float q6_k_value(const uint8_t *block, int i)
{
    const int part = i / 128, group = i % 128 / 32, at = i % 32;
    const int low = block[part * 64 + group % 2 * 32 + at] >> group / 2 * 4 & 15;
    const int high = block[128 + part * 32 + at] >> 2 * group & 3;
    const int8_t scale = (int8_t)block[192 + i / 16];
    return block_factor(block + 208) * (float)scale * (float)((low | high << 4) - 32);
}

#endif
