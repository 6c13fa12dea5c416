/* What the codecs of GGUF files share: a block of a row is bytes that lie anywhere, with a float16
 * factor among them. */
#ifndef WD_DEV_CODEC_BLOCK_H
#define WD_DEV_CODEC_BLOCK_H

#include "dev/convert.h"

WD_ANYWHERE float block_factor(const uint8_t *bytes)
{
    return f16_to_f32((uint16_t)(bytes[0] | bytes[1] << 8));
}

WD_ANYWHERE void put_block_factor(uint8_t *bytes, float factor)
{
    const uint16_t bits = f32_to_f16(factor);
    bytes[0] = (uint8_t)bits;
    bytes[1] = (uint8_t)(bits >> 8);
}

#endif
