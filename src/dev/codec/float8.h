/* Floats of 8 bits, as PyTorch and safetensors have them: e4m3fn (3 bits of mantissa, up to 448, no
 * infinities, NaN is 0x7f and 0xff) and e5m2 (the upper half of a float16). Widening is exact.
 * Formats: Micikevicius et al., "FP8 Formats for Deep Learning", 2022. */
#ifndef WD_DEV_CODEC_FLOAT8_H
#define WD_DEV_CODEC_FLOAT8_H

#include "dev/convert.h"

WD_ANYWHERE float float8_e4m3_value(uint8_t v)
{
    const uint32_t magnitude = v & 0x7fu, sign = (uint32_t)(v & 0x80u) << 24;
    const uint32_t finite = bits_of(float_of(magnitude << 20) * 0x1p120f); /* subnormals too */
    return float_of(sign | (magnitude == 0x7fu ? 0x7fc00000u : finite));
}

WD_ANYWHERE float float8_e5m2_value(uint8_t v)
{
    return f16_to_f32((uint16_t)(v << 8));
}

#endif
