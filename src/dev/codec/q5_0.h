/* GGUF's Q5_0: 32 values as a float16 factor, 4 bytes with bit 4 of each value (value i in bit i,
 * little endian), then 16 bytes with the lower bits, as in Q4_0. value = factor (bits - 16), exact.
 */
#ifndef WD_DEV_CODEC_Q5_0_H
#define WD_DEV_CODEC_Q5_0_H

#include "dev/codec/block.h"

enum { Q5_0_VALUES = 32, Q5_0_BYTES = 22 };

WD_ANYWHERE float q5_0_value(const uint8_t *block, int i)
{
    const int low = block[6 + i % 16] >> i / 16 * 4 & 15, high = block[2 + i / 8] >> i % 8 & 1;
    return block_factor(block) * (float)((low | high << 4) - 16);
}

#endif
