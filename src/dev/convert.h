/* Conversions of single values between fp32, bf16 and f16 by integer arithmetic, so that all
 * instruction sets and devices give the same bits. C, C++ and CUDA.
 */
#ifndef WD_DEV_CONVERT_H
#define WD_DEV_CONVERT_H

#include <stdint.h>
#include <string.h>

/* An inline function of the host, which nvcc also compiles for the GPU. */
#ifdef __CUDACC__
#define WD_ANYWHERE static __host__ __device__ __forceinline__
#else
#define WD_ANYWHERE static inline
#endif

WD_ANYWHERE uint32_t bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

WD_ANYWHERE float float_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* The bits of `f` rounded to bf16, in the upper half; NaN stays NaN. */
WD_ANYWHERE uint32_t bf16_bits(float f)
{
    uint32_t bits = bits_of(f), nan = bits | 0x400000u;
    uint32_t rounded = bits + 0x7fffu + (bits >> 16 & 1u);
    return (bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded;
}

WD_ANYWHERE float round_bf16(float f)
{
    return float_of(bf16_bits(f) & 0xffff0000u);
}

/* A master weight, which is fp32, as the bf16 value that it rounds to and a remainder: its bits are
 * copy << 16 plus the remainder, which is signed. Of the 65,537 values that round to an even bf16
 * value one would need a remainder of 0x8000, which is -0x8000: the one half way to the next value
 * away from zero. So no master has that value: master_settled takes the one before it, one unit in
 * the last place (at most 2^-23 of a normal value) nearer to zero, which rounds to the same copy.
 * NaN stays NaN, with other bits. */
WD_ANYWHERE float master_settled(float f)
{
    const uint32_t bits = bits_of(f);
    return float_of(bits - ((bits & 0x1ffffu) == 0x8000u));
}

/* Of a settled one. */
WD_ANYWHERE uint16_t master_copy(float f)
{
    return (uint16_t)(bf16_bits(f) >> 16);
}

WD_ANYWHERE uint16_t master_remainder(float f)
{
    return (uint16_t)(bits_of(f) & 0xffffu);
}

WD_ANYWHERE float master_of(uint16_t copy, uint16_t remainder)
{
    return float_of(((uint32_t)copy << 16) + (uint32_t)(int32_t)(int16_t)remainder);
}

WD_ANYWHERE float f16_to_f32(uint16_t v)
{
    uint32_t magnitude = (uint32_t)(v & 0x7fffu) << 13, sign = (uint32_t)(v & 0x8000u) << 16;
    uint32_t finite = bits_of(float_of(magnitude) * 0x1p112f); /* exact, subnormals too */
    return float_of(sign | (magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : finite));
}

WD_ANYWHERE uint16_t f32_to_f16(float f)
{
    uint32_t bits = bits_of(f), magnitude = bits & 0x7fffffffu;
    uint32_t normal = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
    uint32_t subnormal = bits_of(float_of(magnitude) + 0.5f) - 0x3f000000u; /* rounds at 2^-24 */
    uint32_t out = magnitude < 0x38800000u ? subnormal : normal;
    out = magnitude >= 0x477ff000u ? 0x7c00u : out;
    out = magnitude > 0x7f800000u ? 0x7e00u : out;
    return (uint16_t)(out | (bits >> 16 & 0x8000u));
}

#endif
