/* The 16 levels that a half byte of IQ4_NL and IQ4_XS stands for (ggml: kvalues_iq4nl): -127, -104,
 * -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113. They are the bytes of two numbers,
 * since a table would lie in a GPU's memory, a copy for each thread. */
#ifndef WD_DEV_CODEC_IQ4_H
#define WD_DEV_CODEC_IQ4_H

#include "dev/codec/block.h"

WD_ANYWHERE float iq4_level(int half)
{
    const uint64_t levels = half < 8 ? 0xf6eaddcfbfad9881u : 0x7159453526190d01u;
    return (float)(int8_t)(levels >> half % 8 * 8 & 255);
}

#endif
