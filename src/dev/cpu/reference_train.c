/* Sums, loss and optimiser in plain C: see cpu/reference.h. */
#include <math.h>

#include "dev/cpu/reference.h"
#include "dev/moments.h"

void wd_ref_sum_rows(const void *args, wd_cpu_context *context)
{
    (void)context;
    const wd_sum_rows_args *a = args;
    int64_t stride = a->x_stride ? a->x_stride : a->width;
    for (int64_t i = 0; i < a->width; i++) {
        double sum = 0;
        for (int64_t r = 0; r < a->rows; r++) sum += wd__load(a->x, a->type, r * stride + i);
        a->y[i] = (float)(a->beta != 0 ? a->y[i] + sum : sum);
    }
}

void wd_ref_mse(const void *args, wd_cpu_context *context)
{
    (void)context;
    const wd_mse_args *a = args;
    for (int64_t b = 0; b < a->samples; b++) {
        const double slope = 2 * a->factor * (double)(a->weight ? a->weight[b] : 1);
        double sum = 0;
        for (int64_t i = b * a->width; i < (b + 1) * a->width; i++) {
            double d = wd__load(a->y, a->type, i) - (double)a->target[i];
            sum += d * d;
            if (a->dy) wd__store(a->dy, a->type, i, (float)(slope * d / (double)a->width));
        }
        a->loss[b] = (float)(sum / (double)a->width);
    }
}

static double square(const void *x, wd_dtype type, int64_t i)
{
    const double value = wd__load(x, type, i);
    return value * value;
}

void wd_ref_sum_squares(const void *args, wd_cpu_context *context)
{
    (void)context;
    const wd_sum_squares_args *a = args;
    double sum = 0;
    for (int64_t i = 0; i < a->count; i++) sum += square(a->x, a->type, i);
    a->sum[0] = (float)sum;
}

void wd_ref_sum_squares_chunks(const void *args, wd_cpu_context *context)
{
    (void)context;
    const wd_sum_squares_chunks_args *a = args;
    for (int64_t first = 0; first < a->count; first += WD_SUM_CHUNK) {
        const int64_t end = first + WD_SUM_CHUNK < a->count ? first + WD_SUM_CHUNK : a->count;
        double sum = 0;
        for (int64_t i = first; i < end; i++) sum += square(a->x, a->type, i);
        a->sums[first / WD_SUM_CHUNK] = sum;
    }
}

void wd_ref_clip_factor(const void *args, wd_cpu_context *context)
{
    (void)context;
    const wd_clip_factor_args *a = args;
    float norm = sqrtf(a->sum[0]), factor = 1;
    if (a->norm_max > 0) factor = fminf(1, a->norm_max / (norm + 1e-6f));
    *a->norm = norm;
    *a->factor = isfinite(norm) ? factor : 0;
    *a->steps += isfinite(norm) != 0;
}

/* ---- moments in 8 bits: dev/moments.h ---- */

static float unpacked(const wd_moments8 *from, wd_moment moment, int64_t i)
{
    const float scale = moment_scale_value(from->scales[i / WD_MOMENT_GROUP]);
    return moment == WD_MOMENT_FIRST ? first_moment(((const int8_t *)from->codes)[i], scale)
                                     : second_moment(((const uint8_t *)from->codes)[i], scale);
}

/* The group of n values that begins at element `at`. */
static void pack_group(const wd_moments8 *to, wd_moment moment, int64_t at, const float *x,
                       const uint32_t *dither, uint32_t scale_dither, int64_t n)
{
    const bool first = moment == WD_MOMENT_FIRST;
    uint32_t bits = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t one = moment_bits(first ? x[i] : sqrtf(x[i]));
        if (one > bits) bits = one;
    }
    const float most = moment_most(bits);
    to->scales[at / WD_MOMENT_GROUP] =
        moment_scale(bits, first ? scale_dither >> 16 : scale_dither & 0xffff);
    for (int64_t i = 0; i < n; i++) {
        const int32_t code =
            !(most > 0) ? 0
            : first     ? first_moment_code(x[i], most, moment_share_first(dither[i]))
                        : second_moment_code(sqrtf(x[i]), most, moment_share_second(dither[i]));
        ((uint8_t *)to->codes)[at + i] = (uint8_t)code;
    }
}

static int64_t group_elements(int64_t at, int64_t count)
{
    return count - at < WD_MOMENT_GROUP ? count - at : WD_MOMENT_GROUP;
}

void wd_ref_moments(const void *args, wd_cpu_context *context)
{
    (void)context;
    const wd_moments_args *a = args;
    uint32_t nearest[WD_MOMENT_GROUP];
    for (int i = 0; i < WD_MOMENT_GROUP; i++) nearest[i] = WD_MOMENT_NEAREST;
    for (int64_t i = 0; !a->pack && i < a->count; i++)
        a->values[i] = unpacked(&a->codes, a->moment, i);
    for (int64_t at = 0; a->pack && at < a->count; at += WD_MOMENT_GROUP)
        pack_group(&a->codes, a->moment, at, a->values + at, nearest, WD_MOMENT_NEAREST,
                   group_elements(at, a->count));
}

void wd_ref_masters(const void *args, wd_cpu_context *context)
{
    (void)context;
    const wd_masters_args *a = args;
    for (int64_t row = 0; row < a->rows; row++)
        for (int64_t i = 0; i < a->count; i++) {
            float *value = &a->values[row * a->values_stride + i];
            const int64_t at = row * a->stride + i;
            if (!a->split) {
                *value = master_of(a->copy[at], a->remainder[at]);
                continue;
            }
            *value = master_settled(*value);
            if (!a->copy) continue;
            a->copy[at] = master_copy(*value);
            a->remainder[at] = master_remainder(*value);
        }
}

/* A step of AdamW whose moments are in 8 bits: group by group, of values in fp32. */
static void adamw_packed(const wd_adamw_args *a, wd_cpu_context *context)
{
    const uint32_t seed = moment_seed(a->step[0]);
    for (int64_t at = 0; at < a->count; at += WD_MOMENT_GROUP) {
        const int64_t n = group_elements(at, a->count);
        float m[WD_MOMENT_GROUP], v[WD_MOMENT_GROUP];
        uint32_t dither[WD_MOMENT_GROUP];
        const size_t copy_at = (size_t)at * wd_dtype_bytes(a->copy_type);
        const size_t grad_at = (size_t)at * wd_dtype_bytes(a->grad_type);
        wd_adamw_args group = *a;
        for (int64_t i = 0; i < n; i++) {
            m[i] = unpacked(&a->m8, WD_MOMENT_FIRST, at + i);
            v[i] = unpacked(&a->v8, WD_MOMENT_SECOND, at + i);
            dither[i] = moment_dither(seed, wd__load(a->grad, a->grad_type, at + i));
        }
        if (a->p) group.p += at;
        if (!a->p) group.remainder += at;
        group.m = m;
        group.v = v;
        group.grad = (const char *)a->grad + grad_at;
        group.copy = a->copy ? (char *)a->copy + copy_at : NULL;
        group.ema = a->ema ? a->ema + at : NULL;
        group.count = n;
        wd_ref_adamw(&group, context);
        const uint32_t scale_dither = moment_scale_dither(dither[0]);
        pack_group(&a->m8, WD_MOMENT_FIRST, at, m, dither, scale_dither, n);
        pack_group(&a->v8, WD_MOMENT_SECOND, at, v, dither, scale_dither, n);
    }
}

void wd_ref_adamw(const void *args, wd_cpu_context *context)
{
    const wd_adamw_args *a = args;
    if (a->factor[0] == 0) return;
    if (!a->m) {
        adamw_packed(a, context);
        return;
    }
    const double t = (double)a->step[0];
    double b1 = a->beta1, b2 = a->beta2, rate = a->lr[0] / (1 - pow(b1, t));
    double correction = 1 / (1 - pow(b2, t)), ema_decay = fmin(a->ema_decay, (1 + t) / (10 + t));
    for (int64_t i = 0; i < a->count; i++) {
        double g = a->factor[0] * wd__load(a->grad, a->grad_type, i);
        double m = b1 * a->m[i] + (1 - b1) * g, v = b2 * a->v[i] + (1 - b2) * g * g;
        uint16_t *copy = (uint16_t *)a->copy;
        const float before = a->p ? a->p[i] : master_of(copy[i], a->remainder[i]);
        double p = before * (1 - (double)a->lr[0] * a->decay), move = rate * m;
        a->m[i] = (float)m;
        a->v[i] = (float)v;
        if (a->slow) {
            const double b3 = a->beta3[0], slow = b3 * a->slow[i] + (1 - b3) * g;
            a->slow[i] = (float)slow;
            move += (double)a->lr[0] * a->alpha[0] * slow;
            move *= move * g > 0 ? WD_CAUTIOUS_GAIN : 0;
        }
        float after = (float)(p - move / (sqrt(v * correction) + a->eps));
        if (copy && a->copy_type == WD_BF16) after = master_settled(after);
        if (a->p)
            a->p[i] = after;
        else
            a->remainder[i] = master_remainder(after);
        if (copy) wd__store(copy, a->copy_type, i, after);
        if (a->ema) a->ema[i] += (1 - ema_decay) * (after - a->ema[i]);
    }
}

void wd_ref_ema(const void *args, wd_cpu_context *context)
{
    (void)context;
    const wd_ema_args *a = args;
    const double t = (double)a->step[0], decay = fmin(a->ema_decay, (1 + t) / (10 + t));
    if (a->factor[0] == 0) return;
    for (int64_t i = 0; i < a->count; i++) {
        const double p = a->p ? a->p[i] : master_of(a->copy[i], a->remainder[i]);
        a->ema[i] = (float)(a->ema[i] + (1 - decay) * (p - a->ema[i]));
    }
}
