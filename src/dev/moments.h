/* Moments of AdamW in 8 bits, in groups of WD_MOMENT_GROUP elements with a scale each. C, C++ and
 * CUDA.
 *
 * A first moment is `scale x`, |x| <= 1; its code is 127 times 2x / (1 + |x|), whose steps are
 * finer near zero (FlashOptim, arXiv 2602.23349). A second moment is the square of `scale x`; its
 * code is 255 times the root of x, whose steps are finer there, too: with 255 x, roots of moments
 * that are a hundredth of their group's largest were off by 47 %, and are off by 14 %. A scale is
 * the upper half of a float's bits without the sign, which is always 0: 8 bits of exponent and 8 of
 * mantissa. So it has the range of gradients, which fp16 does not have, and one more bit than bf16;
 * and what is unpacked packs to the same codes and scales, bit for bit.
 *
 * A step rounds up or down at random (`dither`), in proportion to what is lost: an average that
 * moves by less than a code in each step would else stay where it is, and second moments would grow
 * and never shrink. The random numbers follow from the step and the element's gradient, so they are
 * the same on every device and however ranges are cut. Without steps values are rounded to the
 * nearest.
 *
 * A second moment that is not zero has a code of at least 16, an x as small as that of a first
 * moment's smallest code: beside a first moment a smaller one would be too little to divide by.
 * Groups whose largest moment, or its root, is below 2^-56 (1e-17) become zero. Where the largest
 * is not finite, or not below 2^126, all of the group is not finite. */
#ifndef WD_DEV_MOMENTS_H
#define WD_DEV_MOMENTS_H

#include <math.h>

#include "dev/convert.h"

enum {
    WD_MOMENT_GROUP = 32,
    WD_MOMENT_SECOND_LEAST = 16,  /* code of a second moment that is not zero */
    WD_MOMENT_NOT_FINITE = 0xff00 /* scales from here on are infinite or NaN */
};

/* Random bits of a group, or of one of its elements, in both of which the upper half is for the
 * first moment and the lower one for the second. */
#define WD_MOMENT_NEAREST 0x80008000u

/* Of all elements of a step. */
WD_ANYWHERE uint32_t moment_seed(int64_t step)
{
    return (uint32_t)((uint64_t)step * 0x9e3779b97f4a7c15u >> 32);
}

WD_ANYWHERE uint32_t moment_dither(uint32_t seed, float gradient)
{
    uint32_t h = (bits_of(gradient) ^ seed) * 0x9e3779b1u;
    h = (h ^ h >> 15) * 0x85ebca77u;
    return h ^ h >> 13;
}

/* Of a group, by the bits of its first element. */
WD_ANYWHERE uint32_t moment_scale_dither(uint32_t first)
{
    return first * 0xc2b2ae3du;
}

WD_ANYWHERE float moment_share_first(uint32_t dither)
{
    return (float)(int32_t)(dither >> 16) * 0x1p-16f; /* in [0, 1) */
}

WD_ANYWHERE float moment_share_second(uint32_t dither)
{
    return (float)(int32_t)(dither & 0xffffu) * 0x1p-16f;
}

/* ---- scales ---- */

/* The bits of |x|, which are ordered as the values are, NaN above all. */
WD_ANYWHERE uint32_t moment_bits(float x)
{
    return bits_of(x) & 0x7fffffffu;
}

/* The largest of a group, of which these are the bits; 0: all its codes are 0. */
WD_ANYWHERE float moment_most(uint32_t bits)
{
    return bits >= 0x23800000u && bits < 0x7e800000u ? float_of(bits) : 0.0f;
}

/* The scale of a group. `dither`: 16 bits. */
WD_ANYWHERE uint16_t moment_scale(uint32_t bits, uint32_t dither)
{
    uint32_t finite = (bits + (dither >> 1)) >> 15;
    uint32_t scale = moment_most(bits) > 0 ? finite : 0;
    uint32_t not_finite = bits > 0x7f800000u ? 0xff80u : (uint32_t)WD_MOMENT_NOT_FINITE;
    return (uint16_t)(bits >= 0x7e800000u ? not_finite : scale);
}

WD_ANYWHERE float moment_scale_value(uint16_t scale)
{
    return float_of((uint32_t)scale << 15);
}

/* ---- codes ---- */

/* `most` is moment_most of the group, above 0; `share` in [0, 1), 0.5 rounds to the nearest. */
WD_ANYWHERE int32_t first_moment_code(float m, float most, float share)
{
    const float magnitude = float_of(moment_bits(m));
    const int32_t code = (int32_t)(254.0f * (magnitude / (most + magnitude)) + share);
    const int32_t negative = -(int32_t)(bits_of(m) >> 31); /* 0 or -1 */
    return (code ^ negative) - negative;
}

WD_ANYWHERE float first_moment(int32_t code, float scale)
{
    const int32_t magnitude = code < 0 ? -code : code;
    const float m = scale * ((float)magnitude / (float)(254 - magnitude));
    return code < 0 ? -m : m;
}

/* `root` of the moment, `most` that of the group. */
WD_ANYWHERE int32_t second_moment_code(float root, float most, float share)
{
    const int32_t code = (int32_t)(255.0f * sqrtf(root / most) + share);
    const int32_t at_least = root > 0 ? WD_MOMENT_SECOND_LEAST : 0;
    return code > at_least ? code : at_least;
}

WD_ANYWHERE float second_moment(int32_t code, float scale)
{
    const float x = (float)code * (1.0f / 255.0f), root = scale * (x * x);
    return root * root;
}

#endif
