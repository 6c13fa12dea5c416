/* The 16 levels that a half byte of IQ4_NL and IQ4_XS stands for (ggml: kvalues_iq4nl). */
#ifndef WD_DEV_CODEC_IQ4_H
#define WD_DEV_CODEC_IQ4_H

#include "dev/codec/block.h"

WD_ANYWHERE float iq4_level(int half)
{
    const int8_t level[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                              1,    13,   25,  38,  53,  69,  89,  113};
    return (float)level[half];
}

#endif
