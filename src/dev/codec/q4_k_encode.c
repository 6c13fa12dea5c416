/* Quantisation to Q4_K: see q4_k_encode.h.
 *
 * A value of a group of 32 becomes factor half - offset, with half in 0..15. For each group a
 * search finds both numbers: the range of values is divided in several ways, each way gives every
 * value its half, and for these halves the best factor and offset follow from linear regression.
 * The way with the least error wins. Then the 8 factors and 8 offsets of a block are rounded to 6
 * bits each, where a second search tries the neighbours of the nearest numbers. */
#include "dev/codec/q4_k_encode.h"

#include <string.h>

#include "dev/codec/k_quants.h"

enum { GROUP = 32, GROUPS = Q4_K_VALUES / GROUP, LANES = 8, WAYS = 12, MOST_6_BITS = 63 };

typedef struct group_fit {
    float factor, offset; /* both >= 0 */
} group_fit;

/* v rounded to nearest and limited to 0..15. */
static inline int half_of(float v)
{
    const float limited = v < 0 ? 0 : v > 15 ? 15 : v;
    return (int)(limited + 0.5f);
}

/* The sum of the lanes, always in the same order. */
static double sum_of(const float *lane)
{
    double sum = 0;
    for (int i = 0; i < LANES; i++) sum += (double)lane[i];
    return sum;
}

/* What regression needs to know of a group: sums of the values and of their squares. */
typedef struct group_sums {
    double x, xx;
} group_sums;

static group_sums sums_of(const float *x)
{
    float sum[LANES] = {0}, squares[LANES] = {0};
    for (int i = 0; i < GROUP; i += LANES)
        for (int k = 0; k < LANES; k++) {
            sum[k] += x[i + k];
            squares[k] += x[i + k] * x[i + k];
        }
    return (group_sums){sum_of(sum), sum_of(squares)};
}

/* Halves by `inverse` (x - low); then the best factor and offset for them. Returns the sum of
 * squared errors. */
static double fit(group_fit *out, const float *x, const group_sums *s, float low, float inverse)
{
    float products[LANES] = {0};
    int halves[LANES] = {0}, squares[LANES] = {0};
    for (int i = 0; i < GROUP; i += LANES)
        for (int k = 0; k < LANES; k++) {
            const int nearest = (int)(inverse * (x[i + k] - low) + 0.5f); /* 0 or more */
            const int half = nearest < 15 ? nearest : 15;
            halves[k] += half;
            squares[k] += half * half;
            products[k] += (float)half * x[i + k];
        }
    int q = 0, qq = 0;
    for (int k = 0; k < LANES; k++) q += halves[k], qq += squares[k];
    const double qx = sum_of(products), spread = (double)(GROUP * qq - q * q);
    const double slope = spread > 0 ? (GROUP * qx - q * s->x) / spread : 0;
    const double offset = (slope * q - s->x) / GROUP;
    if (spread > 0 && slope > 0 && offset >= 0) {
        *out = (group_fit){(float)slope, (float)offset};
        return s->xx - s->x * s->x / GROUP - slope * (qx - q * s->x / GROUP);
    }
    const double alone = qq > 0 && qx > 0 ? qx / qq : 0; /* without an offset, which has no sign */
    *out = (group_fit){(float)alone, 0};
    return s->xx - alone * qx;
}

static group_fit search(const float *x)
{
    float low = 0, high = x[0];
    for (int i = 0; i < GROUP; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    group_fit best = {0, -low}, candidate;
    /* all values are equal and none is above 0, or they differ by less than a factor can hold */
    if (high - low < 1e-20f) return best;
    const group_sums s = sums_of(x);
    double least = 0;
    for (int way = 0; way < WAYS; way++) { /* the range has 13.8 to 16 steps */
        const float steps = 13.8f + 0.2f * (float)way;
        const double error = fit(&candidate, x, &s, low, steps / (high - low));
        if (way && error >= least) continue;
        least = error;
        best = candidate;
    }
    return best;
}

/* The squared error of a group with rounded numbers. */
static float error_of(const float *x, float factor, float offset)
{
    float lane[LANES] = {0};
    const float inverse = factor > 0 ? 1 / factor : 0;
    for (int i = 0; i < GROUP; i += LANES)
        for (int k = 0; k < LANES; k++) {
            const int half = half_of(inverse * (x[i + k] + offset));
            const float error = factor * (float)half - offset - x[i + k];
            lane[k] += error * error;
        }
    return (float)sum_of(lane);
}

/* Writes the float16 of which `most` is 63 times. A small one has few bits: where it was rounded
 * down by much, the next one is taken, since 63 times it would be too little. */
static void put_unit(uint8_t *bytes, float most)
{
    put_block_factor(bytes, most / MOST_6_BITS);
    if (block_factor(bytes) * MOST_6_BITS >= most * 0.999f) return;
    const uint16_t next = (uint16_t)((bytes[0] | bytes[1] << 8) + 1);
    put_block_factor(bytes, f16_to_f32(next));
}

static int nearest_6_bits(float value, float unit)
{
    const float steps = unit > 0 ? value / unit : 0;
    return steps >= MOST_6_BITS ? MOST_6_BITS : (int)(steps + 0.5f);
}

/* The 6-bit numbers of a group: the nearest ones, or neighbours with a smaller error. */
static void round_fit(int *factor, int *offset, const float *x, const group_fit *exact,
                      float factor_unit, float offset_unit)
{
    const int f = nearest_6_bits(exact->factor, factor_unit);
    const int o = nearest_6_bits(exact->offset, offset_unit);
    float least = error_of(x, factor_unit * (float)f, offset_unit * (float)o);
    *factor = f;
    *offset = o;
    for (int i = -1; i <= 1; i++)
        for (int k = -1; k <= 1; k++) {
            if ((!i && !k) || f + i < 0 || f + i > MOST_6_BITS || o + k < 0 || o + k > MOST_6_BITS)
                continue;
            const float error =
                error_of(x, factor_unit * (float)(f + i), offset_unit * (float)(o + k));
            if (error >= least) continue;
            least = error;
            *factor = f + i;
            *offset = o + k;
        }
}

void q4_k_encode(uint8_t *block, const float *values)
{
    group_fit exact[GROUPS];
    float most_factor = 0, most_offset = 0;
    for (int g = 0; g < GROUPS; g++) {
        exact[g] = search(values + g * GROUP);
        most_factor = exact[g].factor > most_factor ? exact[g].factor : most_factor;
        most_offset = exact[g].offset > most_offset ? exact[g].offset : most_offset;
    }
    memset(block, 0, Q4_K_BYTES);
    put_unit(block, most_factor);
    put_unit(block + 2, most_offset);
    const float factor_unit = block_factor(block), offset_unit = block_factor(block + 2);
    for (int g = 0; g < GROUPS; g++) {
        int factor, offset;
        const float *x = values + g * GROUP;
        uint8_t *halves = block + 16 + g / 2 * GROUP;
        round_fit(&factor, &offset, x, &exact[g], factor_unit, offset_unit);
        put_k_scales(block + 4, g, factor, offset);
        const float scale = factor_unit * (float)factor, less = offset_unit * (float)offset;
        const float inverse = scale > 0 ? 1 / scale : 0;
        for (int i = 0; i < GROUP; i++)
            halves[i] = (uint8_t)(halves[i] | half_of(inverse * (x[i] + less)) << g % 2 * 4);
    }
}
