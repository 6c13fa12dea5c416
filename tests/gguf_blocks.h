/* Blocks of GGUF files, made of floats, and the values that they stand for, by formulas that are
 * not the program's. */
#ifndef WD_TESTS_GGUF_BLOCKS_H
#define WD_TESTS_GGUF_BLOCKS_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/dtype.h"

/* ---- bytes ---- */

typedef struct wd_test_bytes {
    uint8_t *data;
    size_t used, room;
} wd_test_bytes;

static inline void wd_test_append(wd_test_bytes *b, const void *data, size_t bytes)
{
    if (!bytes) return;
    if (b->used + bytes > b->room) {
        b->room = 2 * (b->used + bytes) + 4096;
        b->data = realloc(b->data, b->room);
    }
    if (data)
        memcpy(b->data + b->used, data, bytes);
    else
        memset(b->data + b->used, 0, bytes);
    b->used += bytes;
}

static inline void wd_test_u32(wd_test_bytes *b, uint32_t v)
{
    wd_test_append(b, &v, sizeof v);
}

static inline void wd_test_u64(wd_test_bytes *b, uint64_t v)
{
    wd_test_append(b, &v, sizeof v);
}

static inline void wd_test_text(wd_test_bytes *b, const char *text)
{
    wd_test_u64(b, strlen(text));
    wd_test_append(b, text, strlen(text));
}

static inline void wd_test_f16(wd_test_bytes *b, float v)
{
    const uint16_t half = wd_f32_to_f16(v);
    wd_test_append(b, &half, sizeof half);
}

static inline float wd_test_round_f16(float v)
{
    return wd_f16_to_f32(wd_f32_to_f16(v));
}

/* ---- blocks: n values become bytes, and wide what these are ---- */

static inline int wd_test_step(float v, float step, int low, int high)
{
    const float q = step != 0 ? rintf(v / step) : 0;
    return q < (float)low ? low : q > (float)high ? high : (int)q;
}

static inline float wd_test_most(const float *v, int n)
{
    float most = 0;
    for (int i = 0; i < n; i++) most = fmaxf(most, fabsf(v[i]));
    return most;
}

/* Q8_0, Q5_0, Q4_0: 32 values with one step; integers from -half to half - 1. */
static inline void wd_test_block_0(wd_test_bytes *b, float *wide, const float *v, wd_dtype type)
{
    const int half = type == WD_Q8_0 ? 128 : type == WD_Q5_0 ? 16 : 8;
    const float step = wd_test_round_f16(wd_test_most(v, 32) / (float)(half - 1));
    uint8_t q[32], halves[16];
    uint32_t high = 0;
    wd_test_f16(b, step);
    for (int i = 0; i < 32; i++) {
        const int n = wd_test_step(v[i], step, -half, half - 1);
        wide[i] = step * (float)n;
        q[i] = (uint8_t)(type == WD_Q8_0 ? n : n + half);
        high |= (uint32_t)(q[i] >> 4 & 1) << i;
    }
    for (int i = 0; i < 16; i++) halves[i] = (uint8_t)((q[i] & 15) | q[i + 16] << 4);
    if (type == WD_Q5_0) wd_test_u32(b, high);
    if (type == WD_Q8_0)
        wd_test_append(b, q, 32);
    else
        wd_test_append(b, halves, 16);
}

/* Q4_K, Q5_K: 8 groups of 32 values, each with a factor and an offset of 6 bits. */
static inline void wd_test_block_k(wd_test_bytes *b, float *wide, const float *v, wd_dtype type)
{
    const int top = type == WD_Q5_K ? 31 : 15;
    float step[8], below[8];
    uint8_t q[256], scales[12] = {0}, high[32] = {0}, halves[128];
    int factor[8], offset[8];
    for (int g = 0; g < 8; g++) {
        float least = 0, most = 0;
        for (int i = 0; i < 32; i++) {
            least = fminf(least, v[32 * g + i]);
            most = fmaxf(most, v[32 * g + i]);
        }
        step[g] = (most - least) / (float)top;
        below[g] = -least;
    }
    const float d = wd_test_round_f16(wd_test_most(step, 8) / 63);
    const float dmin = wd_test_round_f16(wd_test_most(below, 8) / 63);
    for (int g = 0; g < 8; g++) {
        factor[g] = wd_test_step(step[g], d, 0, 63);
        offset[g] = wd_test_step(below[g], dmin, 0, 63);
        const float scale = d * (float)factor[g], less = dmin * (float)offset[g];
        for (int i = 32 * g; i < 32 * g + 32; i++) {
            q[i] = (uint8_t)wd_test_step(v[i] + less, scale, 0, top);
            wide[i] = scale * (float)q[i] - less;
            high[i % 32] |= (uint8_t)(q[i] >> 4 << g);
        }
    }
    for (int g = 0; g < 4; g++) { /* 6 bits of each pair of a group and the fourth behind it */
        scales[g] = (uint8_t)(factor[g] | factor[g + 4] >> 4 << 6);
        scales[g + 4] = (uint8_t)(offset[g] | offset[g + 4] >> 4 << 6);
        scales[g + 8] = (uint8_t)((factor[g + 4] & 15) | (offset[g + 4] & 15) << 4);
    }
    for (int i = 0; i < 128; i++) {
        const int at = i / 32 * 64 + i % 32;
        halves[i] = (uint8_t)((q[at] & 15) | (q[at + 32] & 15) << 4);
    }
    wd_test_f16(b, d);
    wd_test_f16(b, dmin);
    wd_test_append(b, scales, 12);
    if (type == WD_Q5_K) wd_test_append(b, high, 32);
    wd_test_append(b, halves, 128);
}

/* Q6_K: 16 groups of 16 values, each with a factor of 8 bits. */
static inline void wd_test_block_6(wd_test_bytes *b, float *wide, const float *v)
{
    float step[16];
    uint8_t q[256], low[128], high[64] = {0};
    int8_t factor[16];
    for (int g = 0; g < 16; g++) step[g] = wd_test_most(v + 16 * g, 16) / 31;
    const float d = wd_test_round_f16(wd_test_most(step, 16) / 127);
    for (int g = 0; g < 16; g++) {
        factor[g] = (int8_t)wd_test_step(step[g], d, 0, 127);
        for (int i = 16 * g; i < 16 * g + 16; i++) {
            const int n = wd_test_step(v[i], d * (float)factor[g], -32, 31);
            wide[i] = d * (float)factor[g] * (float)n;
            q[i] = (uint8_t)(n + 32);
        }
    }
    for (int i = 0; i < 256; i++) { /* of 128: 32 and 32 below 32 and 32 */
        const int part = i / 128, group = i % 128 / 32, at = i % 32;
        uint8_t *to = &low[part * 64 + group % 2 * 32 + at];
        *to = (uint8_t)(group < 2 ? q[i] & 15 : (*to & 15) | (q[i] & 15) << 4);
        high[part * 32 + at] |= (uint8_t)(q[i] >> 4 << 2 * group);
    }
    wd_test_append(b, low, 128);
    wd_test_append(b, high, 64);
    wd_test_append(b, factor, 16);
    wd_test_f16(b, d);
}

/* *least and *most of 0 and n values. */
static inline void wd_test_range(float *least, float *most, const float *v, int n)
{
    *least = *most = 0;
    for (int i = 0; i < n; i++) {
        *least = fminf(*least, v[i]);
        *most = fmaxf(*most, v[i]);
    }
}

/* Q5_1, Q4_1: 32 values with one step, from an offset on. */
static inline void wd_test_block_1(wd_test_bytes *b, float *wide, const float *v, wd_dtype type)
{
    const int top = type == WD_Q5_1 ? 31 : 15;
    float least, most;
    uint8_t q[32], halves[16];
    uint32_t high = 0;
    wd_test_range(&least, &most, v, 32);
    const float step = wd_test_round_f16((most - least) / (float)top);
    const float low = wd_test_round_f16(least);
    for (int i = 0; i < 32; i++) {
        q[i] = (uint8_t)wd_test_step(v[i] - low, step, 0, top);
        wide[i] = step * (float)q[i] + low;
        high |= (uint32_t)(q[i] >> 4) << i;
    }
    for (int i = 0; i < 16; i++) halves[i] = (uint8_t)((q[i] & 15) | (q[i + 16] & 15) << 4);
    wd_test_f16(b, step);
    wd_test_f16(b, low);
    if (type == WD_Q5_1) wd_test_u32(b, high);
    wd_test_append(b, halves, 16);
}

/* Q2_K: 16 groups of 16 values, each with a factor and an offset of 4 bits. */
static inline void wd_test_block_2(wd_test_bytes *b, float *wide, const float *v)
{
    float step[16], below[16];
    uint8_t scales[16], quarters[64] = {0};
    for (int g = 0; g < 16; g++) {
        wd_test_range(&below[g], &step[g], v + 16 * g, 16);
        step[g] = (step[g] - below[g]) / 3;
    }
    const float d = wd_test_round_f16(wd_test_most(step, 16) / 15);
    const float dmin = wd_test_round_f16(wd_test_most(below, 16) / 15);
    for (int g = 0; g < 16; g++) {
        const int factor = wd_test_step(step[g], d, 0, 15);
        const int offset = wd_test_step(-below[g], dmin, 0, 15);
        const float scale = d * (float)factor, less = dmin * (float)offset;
        scales[g] = (uint8_t)(factor | offset << 4);
        for (int i = 16 * g; i < 16 * g + 16; i++) {
            const int q = wd_test_step(v[i] + less, scale, 0, 3);
            wide[i] = scale * (float)q - less;
            quarters[i / 128 * 32 + i % 32] |= (uint8_t)(q << i % 128 / 32 * 2);
        }
    }
    wd_test_append(b, scales, 16);
    wd_test_append(b, quarters, 64);
    wd_test_f16(b, d);
    wd_test_f16(b, dmin);
}

/* Q3_K: 16 groups of 16 values, each with a factor of 6 bits, of which 32 is taken. */
static inline void wd_test_block_3(wd_test_bytes *b, float *wide, const float *v)
{
    float step[16];
    uint8_t scales[12] = {0}, quarters[64] = {0}, high[32] = {0};
    for (int g = 0; g < 16; g++) step[g] = wd_test_most(v + 16 * g, 16) / 4;
    const float d = wd_test_round_f16(wd_test_most(step, 16) / 31);
    for (int g = 0; g < 16; g++) {
        const int factor = wd_test_step(step[g], d, 0, 31) * (g % 3 ? 1 : -1), bits = factor + 32;
        scales[g % 8] |= (uint8_t)((bits & 15) << g / 8 * 4);
        scales[8 + g % 4] |= (uint8_t)(bits >> 4 << g / 4 * 2);
        for (int i = 16 * g; i < 16 * g + 16; i++) {
            const int q = wd_test_step(v[i], d * (float)factor, -4, 3) + 4;
            wide[i] = d * (float)factor * (float)(q - 4);
            quarters[i / 128 * 32 + i % 32] |= (uint8_t)((q & 3) << i % 128 / 32 * 2);
            high[i % 32] |= (uint8_t)(q >> 2 << i / 32);
        }
    }
    wd_test_append(b, high, 32);
    wd_test_append(b, quarters, 64);
    wd_test_append(b, scales, 12);
    wd_test_f16(b, d);
}

/* 32 values as halves that stand for levels, which are multiplied by `step`. */
static inline void wd_test_levels(uint8_t halves[16], float *wide, const float *v, float step)
{
    static const int level[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};
    memset(halves, 0, 16);
    for (int i = 0; i < 32; i++) {
        int best = 0;
        for (int k = 1; k < 16; k++)
            if (fabsf(step * (float)level[k] - v[i]) < fabsf(step * (float)level[best] - v[i]))
                best = k;
        wide[i] = step * (float)level[best];
        halves[i % 16] |= (uint8_t)(best << i / 16 * 4);
    }
}

static inline void wd_test_block_iq4_nl(wd_test_bytes *b, float *wide, const float *v)
{
    const float step = wd_test_round_f16(wd_test_most(v, 32) / 127);
    uint8_t halves[16];
    wd_test_levels(halves, wide, v, step);
    wd_test_f16(b, step);
    wd_test_append(b, halves, 16);
}

/* 8 groups of 32 values, each with a factor of 6 bits, of which 32 is taken. */
static inline void wd_test_block_iq4_xs(wd_test_bytes *b, float *wide, const float *v)
{
    float step[8];
    uint8_t low[4] = {0}, halves[128];
    uint16_t high = 0;
    for (int g = 0; g < 8; g++) step[g] = wd_test_most(v + 32 * g, 32) / 127;
    const float d = wd_test_round_f16(wd_test_most(step, 8) / 31);
    for (int g = 0; g < 8; g++) {
        const int factor = wd_test_step(step[g], d, 0, 31) * (g % 3 ? 1 : -1), bits = factor + 32;
        low[g / 2] |= (uint8_t)((bits & 15) << g % 2 * 4);
        high |= (uint16_t)(bits >> 4 << 2 * g);
        wd_test_levels(halves + 16 * g, wide + 32 * g, v + 32 * g, d * (float)factor);
    }
    wd_test_f16(b, d);
    wd_test_append(b, &high, 2);
    wd_test_append(b, low, 4);
    wd_test_append(b, halves, 128);
}

static inline void wd_test_block(wd_test_bytes *b, float *wide, const float *v, wd_dtype type)
{
    switch (type) {
    case WD_Q6_K:
        wd_test_block_6(b, wide, v);
        break;
    case WD_Q5_K:
    case WD_Q4_K:
        wd_test_block_k(b, wide, v, type);
        break;
    case WD_Q5_1:
    case WD_Q4_1:
        wd_test_block_1(b, wide, v, type);
        break;
    case WD_Q2_K:
        wd_test_block_2(b, wide, v);
        break;
    case WD_Q3_K:
        wd_test_block_3(b, wide, v);
        break;
    case WD_IQ4_NL:
        wd_test_block_iq4_nl(b, wide, v);
        break;
    case WD_IQ4_XS:
        wd_test_block_iq4_xs(b, wide, v);
        break;
    default:
        wd_test_block_0(b, wide, v, type);
    }
}

#endif
