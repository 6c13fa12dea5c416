/* What the codecs of GGUF files share: a block of a row is bytes that lie anywhere, with a float16
 * factor among them. */
#ifndef WD_DEV_CODEC_BLOCK_H
#define WD_DEV_CODEC_BLOCK_H

#include "dev/convert.h"

WD_ANYWHERE float block_factor(const uint8_t *bytes)
{
    return f16_to_f32((uint16_t)(bytes[0] | bytes[1] << 8));
}

#endif
