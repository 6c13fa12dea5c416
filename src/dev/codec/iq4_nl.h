/* GGUF's IQ4_NL: 32 values in the layout of Q4_0. value = factor level(half), exact. */
#ifndef WD_DEV_CODEC_IQ4_NL_H
#define WD_DEV_CODEC_IQ4_NL_H

#include "dev/codec/iq4.h"

enum { IQ4_NL_VALUES = 32, IQ4_NL_BYTES = 18 };

WD_ANYWHERE float iq4_nl_value(const uint8_t *block, int i)
{
    return block_factor(block) * iq4_level(block[2 + i % 16] >> i / 16 * 4 & 15);
}

#endif
