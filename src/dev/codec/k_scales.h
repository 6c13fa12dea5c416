/* The scales of Q4_K and Q5_K: 8 pairs of 6-bit numbers, a factor and an offset for each 32 values,
 * packed into 12 bytes. The first 4 pairs are the lower 6 bits of bytes 0..3 and 4..7; the others
 * have their lower 4 bits in bytes 8..11, and their upper 2 in the upper bits of those. */
#ifndef WD_DEV_CODEC_K_SCALES_H
#define WD_DEV_CODEC_K_SCALES_H

#include "dev/codec/block.h"

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

#endif
