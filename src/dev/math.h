/* exp, tanh and the activations as code that compilers vectorise: no branches, tables, calls or
 * fused multiply-adds, so that all instruction sets and GPUs give the same bits. dev/math_test.c
 * measures errors over the whole range; NaN, infinities and denormal results are correct. */
#ifndef WD_DEV_MATH_H
#define WD_DEV_MATH_H

#include "dev/convert.h"

/* x clamped to [-bound, bound]; NaN gives a bound. It uses integer minima of the bits, since gcc
 * turns comparisons of floats into branches and duplicates the code after them: positive floats are
 * ordered as signed integers, negative ones by magnitude as unsigned ones. */
WD_ANYWHERE float clamp_f32(float x, float bound)
{
    int32_t above = (int32_t)bits_of(x), most = (int32_t)bits_of(bound);
    uint32_t below = (uint32_t)(above < most ? above : most), least_bits = bits_of(-bound);
    return float_of(below < least_bits ? below : least_bits);
}

/* e^x: at most 1 ulp off. x = n ln 2 + r, |r| <= ln 2 / 2: a polynomial for e^r (fitted to 0.05
 * ulp), then times 2^n in two factors, so that denormals and overflow come out right. */
WD_ANYWHERE float exp_f32(float x)
{
    float held = clamp_f32(x, 105.0f);                 /* beyond it the result overflows or is 0 */
    float shifted = held * 0x1.715476p+0f + 0x1.8p23f; /* n in the low bits of the mantissa */
    float n = shifted - 0x1.8p23f;
    /* ln 2 in two parts; the product with the first, of 14 bits, is exact */
    float r = held - n * 0x1.62e4p-1f - n * 0x1.7f7d1cp-20f;
    float p = 0x1.6a234ep-10f;
    p = p * r + 0x1.123a6cp-7f;
    p = p * r + 0x1.5558f4p-5f;
    p = p * r + 0x1.55549p-3f;
    p = p * r + 0x1.fffffcp-2f;
    p = p * (r * r) + r + 1.0f;
    uint32_t twice = bits_of(shifted) + 254u - 0x4b400000u; /* n + 2 bias, in 102 .. 406 */
    uint32_t half = twice >> 1;
    float e = p * float_of(half << 23) * float_of((twice - half) << 23);
    return float_of(bits_of(e) | (x != x ? 0x7fc00000u : 0u));
}

/* tanh(x): at most 1.5 ulp off. */
WD_ANYWHERE float tanh_f32(float x)
{
    float a = float_of(bits_of(x) & 0x7fffffffu), z = a * a;
    float p = -0x1.75e1a8p-8f; /* a < 0.625: a + a^3 P(a^2) */
    p = p * z + 0x1.522692p-6f;
    p = p * z - 0x1.b83c58p-5f;
    p = p * z + 0x1.110726p-3f;
    p = p * z - 0x1.555532p-2f;
    float small = a + a * (z * p), large = 1.0f - 2.0f / (exp_f32(2.0f * a) + 1.0f);
    float t = a < 0.625f ? small : large;
    return float_of(bits_of(t) | (bits_of(x) & 0x80000000u));
}

/* gelu(x) = x / 2 (1 + tanh(u)) = x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3). The last
 * form has no cancellation for negative x. */
static const float gelu_2c = 1.5957691216057308f, gelu_k = 0.044715f;

WD_ANYWHERE float gelu_f32(float x)
{
    float u2 = gelu_2c * (x + gelu_k * (x * x * x));
    return x / (1.0f + exp_f32(-u2));
}

WD_ANYWHERE float silu_f32(float x)
{
    return x / (1.0f + exp_f32(-x));
}

/* Derivatives. If the sigmoid s is 0 or 1, the second term is 0, also for large x, since x is
 * clamped. */
WD_ANYWHERE float gelu_slope_f32(float x)
{
    float s = 1.0f / (1.0f + exp_f32(-gelu_2c * (x + gelu_k * (x * x * x))));
    float held = clamp_f32(x, 30.0f);
    return s + held * (s * (1.0f - s)) * (gelu_2c * (1.0f + 3.0f * gelu_k * (held * held)));
}

WD_ANYWHERE float silu_slope_f32(float x)
{
    float s = 1.0f / (1.0f + exp_f32(-x));
    return s + clamp_f32(x, 120.0f) * (s * (1.0f - s));
}

#endif
