/* GGUF's K formats: Q2_K to Q6_K. A block has 256 values in groups of 16 or 32; each group has a
 * scale, in some formats an offset, too, and the block has a float16 factor of all scales, and one
 * of all offsets. Of each format here are the size of a block and the float of value i of a block;
 * dev/codec/codec.h chooses. */
#ifndef WD_DEV_CODEC_K_QUANTS_H
#define WD_DEV_CODEC_K_QUANTS_H

#include "dev/codec/block.h"

/* ---- Q2_K ----
 *
 * 16 bytes of scales, one for each 16 values, whose low half is a factor and whose high half an
 * offset; then 64 bytes, and two float16 factors. Of each 128 values, group g of 32 is bits 2 g and
 * 2 g + 1 of 32 bytes. value = factor scale bits - offset_factor offset; only the difference is
 * rounded. */

enum { Q2_K_VALUES = 256, Q2_K_BYTES = 84 };

WD_ANYWHERE float q2_k_value(const uint8_t *block, int i)
{
    const int bits = block[16 + i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
    const float factor = block_factor(block + 80) * (float)(block[i / 16] & 15);
    const float offset = block_factor(block + 82) * (float)(block[i / 16] >> 4);
    return factor * (float)bits - offset;
}

/* ---- Q3_K ----
 *
 * 32 bytes with bit 2 of each value, 64 with the lower 2 bits, 12 of scales, one of 6 bits for each
 * 16 values, and a float16 factor. Bit g of byte i is bit 2 of value 32 g + i; the lower bits lie
 * as in Q2_K. Of scale s the lower 4 bits are in byte s % 8, the upper 2 in byte 8 + s % 4.
 * value = factor (scale - 32) (bits - 4), exact. */

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

/* ---- the scales of Q4_K and Q5_K ----
 *
 * 8 pairs of 6-bit numbers, a factor and an offset for each 32 values, packed into 12 bytes. The
 * first 4 pairs are the lower 6 bits of bytes 0..3 and 4..7; the others have their lower 4 bits in
 * bytes 8..11, and their upper 2 in the upper bits of those. */

WD_ANYWHERE int k_factor(const uint8_t *packed, int group)
{
    if (group < 4) return packed[group] & 63;
    return (packed[group + 4] & 15) | packed[group - 4] >> 6 << 4;
}

WD_ANYWHERE int k_offset(const uint8_t *packed, int group)
{
    if (group < 4) return packed[group + 4] & 63;
    return packed[group + 4] >> 4 | packed[group] >> 6 << 4;
}

/* Writes both numbers of a group, each below 64, into bytes that were 0 before the first group. */
WD_ANYWHERE void put_k_scales(uint8_t *packed, int group, int factor, int offset)
{
    if (group < 4) {
        packed[group] = (uint8_t)(packed[group] | factor);
        packed[group + 4] = (uint8_t)(packed[group + 4] | offset);
        return;
    }
    packed[group + 4] = (uint8_t)((factor & 15) | (offset & 15) << 4);
    packed[group - 4] = (uint8_t)(packed[group - 4] | factor >> 4 << 6);
    packed[group] = (uint8_t)(packed[group] | offset >> 4 << 6);
}

/* ---- Q4_K ----
 *
 * Two float16 factors, 12 bytes of scales, then 128 bytes: of each 64 values the first 32 are the
 * low halves of 32 bytes, the others the high halves. value = factor scale half - offset_factor
 * offset; only the difference is rounded. */

enum { Q4_K_VALUES = 256, Q4_K_BYTES = 144 };

WD_ANYWHERE float q4_k_value(const uint8_t *block, int i)
{
    const int group = i / 32, half = block[16 + i / 64 * 32 + i % 32] >> group % 2 * 4 & 15;
    const float factor = block_factor(block) * (float)k_factor(block + 4, group);
    const float offset = block_factor(block + 2) * (float)k_offset(block + 4, group);
    return factor * (float)half - offset;
}

/* ---- Q5_K ----
 *
 * As Q4_K, with 32 bytes between scales and halves: bit g of byte i is bit 4 of value 32 g + i. */

enum { Q5_K_VALUES = 256, Q5_K_BYTES = 176 };

WD_ANYWHERE float q5_k_value(const uint8_t *block, int i)
{
    const int group = i / 32, low = block[48 + i / 64 * 32 + i % 32] >> group % 2 * 4 & 15;
    const int bits = low | (block[16 + i % 32] >> group & 1) << 4;
    const float factor = block_factor(block) * (float)k_factor(block + 4, group);
    const float offset = block_factor(block + 2) * (float)k_offset(block + 4, group);
    return factor * (float)bits - offset;
}

/* ---- Q6_K ----
 *
 * 128 bytes with the lower 4 bits, 64 with the upper 2, 16 signed scales, one for each 16 values,
 * and a float16 factor. Of each 128 values, the first two groups of 32 are the low halves of 64
 * bytes, the others the high ones; group g has its upper bits in bits 2 g and 2 g + 1 of 32 bytes.
 * value = factor scale (bits - 32), rounded once. */

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
