/* Floats of 8 bits, as PyTorch and safetensors have them: e4m3fn (3 bits of mantissa, up to 448, no
 * infinities, NaN is 0x7f and 0xff) and e5m2 (the upper half of a float16). Widening is exact.
 * Neither widening nor rounding has branches, so that compilers vectorise it: comparisons become
 * masks. A subnormal value is its integer times a power of two, whose operands are normal floats,
 * since processors multiply subnormal ones many times slower.
 * Formats: Micikevicius et al., "FP8 Formats for Deep Learning", 2022. */
#ifndef WD_DEV_CODEC_FLOAT8_H
#define WD_DEV_CODEC_FLOAT8_H

#include "dev/convert.h"

WD_ANYWHERE float float8_e4m3_value(uint8_t v)
{
    const uint32_t magnitude = v & 0x7fu, sign = (uint32_t)(v & 0x80u) << 24;
    const uint32_t small = bits_of((float)(int)magnitude * 0x1p-9f); /* of a subnormal: below 8 */
    const uint32_t is_small = 0u - ((magnitude - 8) >> 31), is_nan = 0u - ((magnitude + 1) >> 7);
    const uint32_t normal = (magnitude << 20) + (120u << 23);
    return float_of(sign | (small & is_small) | (normal & ~is_small) | (is_nan & 0x7fc00000u));
}

/* The byte of `f` in e4m3fn: rounded to nearest even, magnitudes above 448 become 448, infinity
 * too; NaN stays NaN. (PyTorch's cast makes NaN of magnitudes above 464, so quantisers clamp.) */
WD_ANYWHERE uint8_t float8_e4m3_bits(float f)
{
    const uint32_t bits = bits_of(f), magnitude = bits & 0x7fffffffu;
    const uint32_t normal = (magnitude - (120u << 23) + 0x7ffffu + (magnitude >> 20 & 1u)) >> 20;
    /* below 2^-6: the sum has units of 2^-9 */
    const uint32_t subnormal = bits_of(float_of(magnitude) + 0x1p14f) - 0x46800000u;
    uint32_t out = magnitude < 0x3c800000u ? subnormal : normal;
    out = magnitude >= 0x43e00000u ? 0x7eu : out;
    out = magnitude > 0x7f800000u ? 0x7fu : out;
    return (uint8_t)(out | (bits >> 24 & 0x80u));
}

WD_ANYWHERE float float8_e5m2_value(uint8_t v)
{
    const uint32_t magnitude = v & 0x7fu, sign = (uint32_t)(v & 0x80u) << 24;
    const uint32_t small = bits_of((float)(int)magnitude * 0x1p-16f); /* of a subnormal: below 4 */
    const uint32_t is_small = 0u - ((magnitude - 4) >> 31);
    const uint32_t is_special = 0u - ((magnitude + 4) >> 7); /* infinity or NaN */
    const uint32_t normal = (magnitude << 21) + (112u << 23);
    return float_of(sign | (small & is_small) | (normal & ~is_small) | (is_special & 0x7f800000u));
}

#endif
