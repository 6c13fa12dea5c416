/* GGUF's Q5_K: as Q4_K, with 32 bytes between scales and halves: bit g of byte i is bit 4 of value
 * 32 g + i. */
#ifndef WD_DEV_CODEC_Q5_K_H
#define WD_DEV_CODEC_Q5_K_H

#include "dev/codec/k_scales.h"

enum { Q5_K_VALUES = 256, Q5_K_BYTES = 176 };

WD_ANYWHERE float q5_k_value(const uint8_t *block, int i)
{
    const int group = i / 32, low = block[48 + i / 64 * 32 + i % 32] >> group % 2 * 4 & 15;
    const int bits = low | (block[16 + i % 32] >> group & 1) << 4;
    const float factor = block_factor(block) * (float)k_factor(block + 4, group);
    const float offset = block_factor(block + 2) * (float)k_offset(block + 4, group);
    return factor * (float)bits - offset;
}

#endif
