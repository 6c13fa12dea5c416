/* Sums, loss and optimiser in plain C: see cpu/reference.h. */
#include <math.h>

#include "dev/cpu/reference.h"

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

void wd_ref_sum_squares(const void *args, wd_cpu_context *context)
{
    (void)context;
    const wd_sum_squares_args *a = args;
    double sum = 0;
    for (int64_t i = 0; i < a->count; i++) sum += (double)a->x[i] * a->x[i];
    a->sum[0] = (float)sum;
}

void wd_ref_sum_squares_chunks(const void *args, wd_cpu_context *context)
{
    (void)context;
    const wd_sum_squares_chunks_args *a = args;
    for (int64_t first = 0; first < a->count; first += WD_SUM_CHUNK) {
        const int64_t end = first + WD_SUM_CHUNK < a->count ? first + WD_SUM_CHUNK : a->count;
        double sum = 0;
        for (int64_t i = first; i < end; i++) sum += (double)a->x[i] * a->x[i];
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

void wd_ref_adamw(const void *args, wd_cpu_context *context)
{
    (void)context;
    const wd_adamw_args *a = args;
    if (a->factor[0] == 0) return;
    const double t = (double)a->step[0];
    double b1 = a->beta1, b2 = a->beta2, rate = a->lr[0] / (1 - pow(b1, t));
    double correction = 1 / (1 - pow(b2, t)), ema_decay = fmin(a->ema_decay, (1 + t) / (10 + t));
    for (int64_t i = 0; i < a->count; i++) {
        double g = a->factor[0] * a->grad[i];
        double m = b1 * a->m[i] + (1 - b1) * g, v = b2 * a->v[i] + (1 - b2) * g * g;
        double p = a->p[i] * (1 - (double)a->lr[0] * a->decay), move = rate * m;
        a->m[i] = (float)m;
        a->v[i] = (float)v;
        if (a->slow) {
            const double b3 = a->beta3[0], slow = b3 * a->slow[i] + (1 - b3) * g;
            a->slow[i] = (float)slow;
            move += (double)a->lr[0] * a->alpha[0] * slow;
            move *= move * g > 0 ? WD_CAUTIOUS_GAIN : 0;
        }
        a->p[i] = (float)(p - move / (sqrt(v * correction) + a->eps));
        if (a->copy) wd__store(a->copy, a->copy_type, i, a->p[i]);
        if (a->ema) a->ema[i] += (1 - ema_decay) * (a->p[i] - a->ema[i]);
    }
}
