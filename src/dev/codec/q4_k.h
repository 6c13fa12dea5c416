/* GGUF's Q4_K: 256 values as two float16 factors, 12 bytes of scales (codec/k_scales.h), then 128
 * bytes: of each 64 values the first 32 are the low halves of 32 bytes, the others the high halves.
 * value = factor scale half - offset_factor offset; only the difference is rounded. */
#ifndef WD_DEV_CODEC_Q4_K_H
#define WD_DEV_CODEC_Q4_K_H

#include "dev/codec/k_scales.h"

enum { Q4_K_VALUES = 256, Q4_K_BYTES = 144 };

WD_ANYWHERE float q4_k_value(const uint8_t *block, int i)
{
    const int group = i / 32, half = block[16 + i / 64 * 32 + i % 32] >> group % 2 * 4 & 15;
    const float factor = block_factor(block) * (float)k_factor(block + 4, group);
    const float offset = block_factor(block + 2) * (float)k_offset(block + 4, group);
    return factor * (float)half - offset;
}

#endif
