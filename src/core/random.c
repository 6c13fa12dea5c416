/* Counter-based random numbers: see core/random.h. Constants: Philox4x32-10 of Salmon et al. */
#include "core/random.h"

#include <math.h>

void wd_random_bits(uint32_t out[4], wd_random key, uint64_t position)
{
    const uint64_t mul0 = 0xD2511F53u, mul1 = 0xCD9E8D57u;
    uint32_t k0 = (uint32_t)key.seed, k1 = (uint32_t)(key.seed >> 32);
    /* the stream takes the upper byte of the index: 2^56 indices are plenty */
    uint64_t index = key.index ^ (uint64_t)key.stream << 56;
    uint32_t c0 = (uint32_t)position, c1 = (uint32_t)(position >> 32);
    uint32_t c2 = (uint32_t)index, c3 = (uint32_t)(index >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = mul0 * c0, p1 = mul1 * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

float wd_random_uniform(wd_random key, uint64_t position)
{
    uint32_t bits[4];
    wd_random_bits(bits, key, position);
    return (float)(bits[0] >> 8) * 0x1p-24f;
}

uint64_t wd_random_below(wd_random key, uint64_t position, uint64_t bound)
{
    uint32_t bits[4];
    wd_random_bits(bits, key, position);
    uint64_t wide = (uint64_t)bits[1] << 32 | bits[0];
    return (uint64_t)((unsigned __int128)wide * bound >> 64);
}

/* Two normals of one position: Box-Muller on 32-bit uniforms, in double so that every libm agrees
 * to the last bit of the float. */
static void normal_pair(float out[2], uint32_t a, uint32_t b)
{
    double radius = sqrt(-2.0 * log(((double)a + 1.0) * 0x1p-32));
    double angle = 6.283185307179586477 * ((double)b * 0x1p-32);
    out[0] = (float)(radius * cos(angle));
    out[1] = (float)(radius * sin(angle));
}

void wd_random_normal(float *out, int64_t count, wd_random key, uint64_t first)
{
    int64_t i = 0;
    while (i < count) {
        uint64_t at = first + (uint64_t)i;
        uint32_t bits[4];
        float four[4];
        wd_random_bits(bits, key, at / 4);
        normal_pair(four, bits[0], bits[1]);
        normal_pair(four + 2, bits[2], bits[3]);
        for (uint64_t j = at % 4; j < 4 && i < count; j++) out[i++] = four[j];
    }
}
