/* GGUF's Q8_0: 32 values as a float16 factor, then 32 signed bytes. value = factor byte, exact. */
#ifndef WD_DEV_CODEC_Q8_0_H
#define WD_DEV_CODEC_Q8_0_H

#include "dev/codec/block.h"

enum { Q8_0_VALUES = 32, Q8_0_BYTES = 34 };

WD_ANYWHERE float q8_0_value(const uint8_t *block, int i)
{
    return block_factor(block) * (float)(int8_t)block[2 + i];
}

#endif
