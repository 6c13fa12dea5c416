/* GGUF's Q3_K: 256 values as 32 bytes with bit 2 of each value, 64 with the lower 2 bits, 12 of
 * scales, one of 6 bits for each 16 values, and a float16 factor. Bit g of byte i is bit 2 of value
 * 32 g + i; the lower bits lie as in Q2_K. Of scale s the lower 4 bits are in byte s % 8, the upper
 * 2 in byte 8 + s % 4. value = factor (scale - 32) (bits - 4), exact. */
#ifndef WD_DEV_CODEC_Q3_K_H
#define WD_DEV_CODEC_Q3_K_H

#include "dev/codec/block.h"

enum { Q3_K_VALUES = 256, Q3_K_BYTES = 110 };

/* The scale of values 16 s to 16 s + 15; `packed`: the 12 bytes. */
WD_ANYWHERE int q3_k_scale(const uint8_t *packed, int s)
{
    const int low = packed[s % 8] >> s / 8 * 4 & 15, high = packed[8 + s % 4] >> s / 4 * 2 & 3;
    return (low | high << 4) - 32;
}

WD_ANYWHERE float q3_k_value(const uint8_t *block, int i)
{
    const int low = block[32 + i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
    const int high = block[i % 32] >> i / 32 & 1;
    const float factor = block_factor(block + 108) * (float)q3_k_scale(block + 96, i / 16);
    return factor * (float)((low | high << 2) - 4);
}

#endif
