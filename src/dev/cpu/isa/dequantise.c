/* Quantised weights as floats: the values of dev/codec, in loops that the compiler vectorises. What
 * a block's values share is taken out of the loops; it is exact in fp32, so bits stay the same. */
#include "dev/cpu/isa/isa.h"

#include "dev/codec/codec.h"
#include "dev/cpu/isa/rows.h"

/* ---- bytes ---- */

static void widen_bytes(float *restrict to, const uint8_t *restrict from, wd_dtype type, int64_t n)
{
    if (type == WD_F8_E4M3)
        EACH(i, n) to[i] = float8_e4m3_value(from[i]);
    else if (type == WD_F8_E5M2)
        EACH(i, n) to[i] = float8_e5m2_value(from[i]);
    else
        EACH(i, n) to[i] = (float)(int8_t)from[i];
}

/* ---- blocks of GGUF files ---- */

static void widen_q8_0(float *restrict to, const uint8_t *restrict block)
{
    const float factor = block_factor(block);
    EACH(i, Q8_0_VALUES) to[i] = factor * (float)(int8_t)block[2 + i];
}

static void widen_q4_0(float *restrict to, const uint8_t *restrict block)
{
    const float factor = block_factor(block);
    EACH(i, 16) to[i] = factor * (float)((block[2 + i] & 15) - 8);
    EACH(i, 16) to[16 + i] = factor * (float)((block[2 + i] >> 4) - 8);
}

static void widen_q5_0(float *restrict to, const uint8_t *restrict block)
{
    const float factor = block_factor(block);
    uint32_t high;
    memcpy(&high, block + 2, sizeof high);
    EACH(i, 16)
    {
        const int low = (block[6 + i] & 15) | (int)(high >> i & 1) << 4;
        to[i] = factor * (float)(low - 16);
    }
    EACH(i, 16)
    {
        const int low = block[6 + i] >> 4 | (int)(high >> (i + 16) & 1) << 4;
        to[16 + i] = factor * (float)(low - 16);
    }
}

static void widen_q4_1(float *restrict to, const uint8_t *restrict block)
{
    const float factor = block_factor(block), offset = block_factor(block + 2);
    EACH(i, 16) to[i] = factor * (float)(block[4 + i] & 15) + offset;
    EACH(i, 16) to[16 + i] = factor * (float)(block[4 + i] >> 4) + offset;
}

static void widen_q5_1(float *restrict to, const uint8_t *restrict block)
{
    const float factor = block_factor(block), offset = block_factor(block + 2);
    uint32_t high;
    memcpy(&high, block + 4, sizeof high);
    EACH(i, 16)
    {
        const int bits = (block[8 + i] & 15) | (int)(high >> i & 1) << 4;
        to[i] = factor * (float)bits + offset;
    }
    EACH(i, 16)
    {
        const int bits = block[8 + i] >> 4 | (int)(high >> (i + 16) & 1) << 4;
        to[16 + i] = factor * (float)bits + offset;
    }
}

static void widen_q2_k(float *restrict to, const uint8_t *restrict block)
{
    const float factor = block_factor(block + 80), offset = block_factor(block + 82);
    for (int s = 0; s < 16; s++, to += 16) {
        const uint8_t *restrict from = block + 16 + s / 8 * 32 + s % 2 * 16;
        const int shift = s % 8 / 2 * 2;
        const float scale = factor * (float)(block[s] & 15), less = offset * (float)(block[s] >> 4);
        EACH(i, 16) to[i] = scale * (float)(from[i] >> shift & 3) - less;
    }
}

static void widen_q3_k(float *restrict to, const uint8_t *restrict block)
{
    const float factor = block_factor(block + 108);
    for (int s = 0; s < 16; s++, to += 16) {
        const uint8_t *restrict low = block + 32 + s / 8 * 32 + s % 2 * 16;
        const uint8_t *restrict high = block + s % 2 * 16;
        const int shift = s % 8 / 2 * 2, bit = s / 2;
        const float scale = factor * (float)q3_k_scale(block + 96, s);
        EACH(i, 16)
        {
            const int bits = (low[i] >> shift & 3) | (high[i] >> bit & 1) << 2;
            to[i] = scale * (float)(bits - 4);
        }
    }
}

/* 32 values whose halves stand for levels. */
static void widen_iq4(float *restrict to, const uint8_t *restrict halves, float factor)
{
    float level[16];
    EACH(i, 16) level[i] = factor * iq4_level((int)i);
    EACH(i, 16) to[i] = level[halves[i] & 15];
    EACH(i, 16) to[16 + i] = level[halves[i] >> 4];
}

static void widen_iq4_nl(float *restrict to, const uint8_t *restrict block)
{
    widen_iq4(to, block + 2, block_factor(block));
}

static void widen_iq4_xs(float *restrict to, const uint8_t *restrict block)
{
    for (int g = 0; g < 8; g++) widen_iq4(to + 32 * g, block + 8 + 16 * g, iq4_xs_factor(block, g));
}

static void widen_q4_k(float *restrict to, const uint8_t *restrict block)
{
    const float factor = block_factor(block), offset = block_factor(block + 2);
    for (int pair = 0; pair < 4; pair++, to += 64) {
        const uint8_t *restrict halves = block + 16 + pair * 32;
        const float low = factor * (float)k_factor(block + 4, 2 * pair);
        const float high = factor * (float)k_factor(block + 4, 2 * pair + 1);
        const float low_offset = offset * (float)k_offset(block + 4, 2 * pair);
        const float high_offset = offset * (float)k_offset(block + 4, 2 * pair + 1);
        EACH(i, 32) to[i] = low * (float)(halves[i] & 15) - low_offset;
        EACH(i, 32) to[32 + i] = high * (float)(halves[i] >> 4) - high_offset;
    }
}

static void widen_q5_k(float *restrict to, const uint8_t *restrict block)
{
    const float factor = block_factor(block), offset = block_factor(block + 2);
    const uint8_t *restrict upper = block + 16;
    for (int group = 0; group < 8; group++, to += 32) {
        const uint8_t *restrict halves = block + 48 + group / 2 * 32;
        const int shift = group % 2 * 4;
        const float scale = factor * (float)k_factor(block + 4, group);
        const float less = offset * (float)k_offset(block + 4, group);
        EACH(i, 32)
        {
            const int bits = (halves[i] >> shift & 15) | (upper[i] >> group & 1) << 4;
            to[i] = scale * (float)bits - less;
        }
    }
}

static void widen_q6_k(float *restrict to, const uint8_t *restrict block)
{
    const float factor = block_factor(block + 208);
    for (int eighth = 0; eighth < 16; eighth++, to += 16) {
        const int part = eighth / 8, group = eighth % 8 / 2, first = eighth % 2 * 16;
        const uint8_t *restrict low = block + part * 64 + group % 2 * 32 + first;
        const uint8_t *restrict high = block + 128 + part * 32 + first;
        const float scale = factor * (float)(int8_t)block[192 + eighth];
        EACH(i, 16)
        {
            const int bits = (low[i] >> group / 2 * 4 & 15) | (high[i] >> 2 * group & 3) << 4;
            to[i] = scale * (float)(bits - 32);
        }
    }
}

typedef void widen_block(float *restrict to, const uint8_t *restrict block);

static widen_block *block_kernel(wd_dtype type)
{
    switch (type) {
    case WD_Q8_0:
        return widen_q8_0;
    case WD_Q5_0:
        return widen_q5_0;
    case WD_Q4_0:
        return widen_q4_0;
    case WD_Q6_K:
        return widen_q6_k;
    case WD_Q5_K:
        return widen_q5_k;
    case WD_Q5_1:
        return widen_q5_1;
    case WD_Q4_1:
        return widen_q4_1;
    case WD_Q3_K:
        return widen_q3_k;
    case WD_Q2_K:
        return widen_q2_k;
    case WD_IQ4_NL:
        return widen_iq4_nl;
    case WD_IQ4_XS:
        return widen_iq4_xs;
    default:
        return widen_q4_k;
    }
}

/* ---- rows ---- */

/* Values [at, at + n) of the array, before scales: whole blocks. */
static void widen_values(float *to, const wd_dequantise_args *a, int64_t at, int64_t n)
{
    const int64_t block = wd_dtype_block(a->from_type);
    const uint8_t *from = (const uint8_t *)a->from + wd_dtype_size(a->from_type, at);
    if (block == 1) {
        widen_bytes(to, from, a->from_type, n);
        return;
    }
    widen_block *kernel = block_kernel(a->from_type);
    const size_t bytes = wd_dtype_bytes(a->from_type);
    for (int64_t done = 0; done < n; done += block, from += bytes) kernel(to + done, from);
}

/* to[i] times the scale of column `column` + i. */
static void scale_values(float *restrict to, const wd_dequantise_args *a, int64_t row,
                         int64_t column, int64_t n)
{
    const int64_t first = a->scale_rows > 1 ? row * a->scale_columns : 0;
    const int64_t part = a->width / a->scale_columns;
    for (int64_t done = 0; done < n;) {
        const int64_t which = (column + done) / part;
        const int64_t end = least(n, (which + 1) * part - column);
        float buffer[1];
        const float scale = *widen(buffer, a->scale, a->scale_type, first + which, 1);
        EACH(i, end - done) to[done + i] *= scale;
        done = end;
    }
}

static void dequantise_rows(int64_t begin, int64_t end, void *context)
{
    const wd_dequantise_args *a = context;
    float buffer[CHUNK];
    uint16_t narrowed[CHUNK];
    for (int64_t row = begin; row < end; row++)
        for (int64_t column = 0; column < a->width; column += CHUNK) {
            const int64_t n = least(CHUNK, a->width - column), at = row * a->width + column;
            widen_values(buffer, a, at, n);
            if (a->scale) scale_values(buffer, a, row, column, n);
            if (a->rounded != a->to_type && a->rounded != WD_F32) {
                narrow(narrowed, a->rounded, 0, buffer, n);
                widen(buffer, narrowed, a->rounded, 0, n);
            }
            if (a->to_type == WD_F32)
                memcpy((float *)a->to + at, buffer, (size_t)n * sizeof *buffer);
            else
                narrow(a->to, a->to_type, at, buffer, n);
        }
}

void KERNEL(dequantise)(const void *args, wd_cpu_context *context)
{
    (void)context;
    const wd_dequantise_args *a = args;
    wd_parallel_for(a->rows, grain_rows(GRAIN, a->width), dequantise_rows, (void *)args);
}
