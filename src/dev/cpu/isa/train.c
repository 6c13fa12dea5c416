/* Sums, loss and optimiser. Sums are taken in fixed chunks, whose results are added in order, so
 * that bits do not depend on the number of threads. */
#include <math.h>

#include "dev/adamw.h"
#include "dev/cpu/isa/column_sums.h"
#include "dev/cpu/isa/isa.h"

/* ---- a bias' gradient ---- */

static void sum_rows_part(float *sums, int64_t begin, int64_t end, const void *args)
{
    const wd_sum_rows_args *a = args;
    int64_t stride = a->x_stride ? a->x_stride : a->width;
    float in[CHUNK];
    for (int64_t r = begin; r < end; r++)
        for (int64_t column = 0; column < a->width; column += CHUNK) {
            int64_t n = least(CHUNK, a->width - column);
            const float *x = widen(in, a->x, a->type, r * stride + column, n);
            float *sum = sums + column;
            EACH(i, n) sum[i] += x[i];
        }
}

void KERNEL(sum_rows)(const void *args, wd_cpu_context *context)
{
    const wd_sum_rows_args *a = args;
    if (a->rows == 0 && a->beta == 0) memset(a->y, 0, (size_t)a->width * sizeof *a->y);
    column_sums_run(&(column_sums){
        .out = {a->y},
        .outputs = 1,
        .add = a->beta != 0,
        .rows = a->rows,
        .group_rows = a->rows,
        .width = a->width,
        .fn = sum_rows_part,
        .args = args,
        .workspace = context->workspace,
    });
}

/* ---- loss ---- */

typedef struct mse_work {
    const wd_mse_args *args;
    double *partial; /* [B, chunks of a sample] */
} mse_work;

static void mse_chunks(int64_t begin, int64_t end, void *context)
{
    const mse_work *w = context;
    const wd_mse_args *a = w->args;
    int64_t per_sample = sum_chunks(a->width);
    float in[SUM_RUN], out[SUM_RUN], slope_of_all = 2.0f * a->factor / (float)a->width;
    for (int64_t chunk = begin; chunk < end; chunk++) {
        int64_t b = chunk / per_sample, sample = b * a->width;
        int64_t first = chunk % per_sample * WD_SUM_CHUNK;
        int64_t last = least(first + WD_SUM_CHUNK, a->width);
        float slope = a->weight ? slope_of_all * a->weight[b] : slope_of_all;
        double total = 0;
        for (int64_t i = first; i < last; i += SUM_RUN) {
            int64_t n = least(SUM_RUN, last - i), at = sample + i;
            const float *y = widen(in, a->y, a->type, at, n), *to = a->target + at;
            float squares;
            SUM_OF(squares, n, j, (y[j] - to[j]) * (y[j] - to[j]));
            total += squares;
            if (!a->dy) continue;
            float *dy = target(out, a->dy, a->type, at);
            EACH(j, n) dy[j] = slope * (y[j] - to[j]);
            narrow(a->dy, a->type, at, dy, n);
        }
        w->partial[chunk] = total;
    }
}

void KERNEL(mse)(const void *args, wd_cpu_context *context)
{
    const wd_mse_args *a = args;
    int64_t per_sample = sum_chunks(a->width);
    mse_work work = {a, context->workspace};
    wd_parallel_for(a->samples * per_sample, grain_rows(GRAIN, least(a->width, WD_SUM_CHUNK)),
                    mse_chunks, &work);
    for (int64_t b = 0; b < a->samples; b++) {
        double total = 0;
        for (int64_t i = 0; i < per_sample; i++) total += work.partial[b * per_sample + i];
        a->loss[b] = (float)(total / (double)a->width);
    }
}

/* ---- gradient norm ---- */

typedef struct squares_work {
    const float *x;
    int64_t count;
    double *partial;
} squares_work;

static void squares_chunks(int64_t begin, int64_t end, void *context)
{
    const squares_work *w = context;
    for (int64_t chunk = begin; chunk < end; chunk++) {
        int64_t last = least((chunk + 1) * WD_SUM_CHUNK, w->count);
        double total = 0;
        for (int64_t at = chunk * WD_SUM_CHUNK; at < last; at += SUM_RUN) {
            const float *x = w->x + at;
            float squares;
            SUM_OF(squares, least(SUM_RUN, last - at), i, x[i] * x[i]);
            total += squares;
        }
        w->partial[chunk] = total;
    }
}

void KERNEL(sum_squares)(const void *args, wd_cpu_context *context)
{
    const wd_sum_squares_args *a = args;
    squares_work work = {a->x, a->count, context->workspace};
    int64_t chunks = sum_chunks(a->count);
    double total = 0;
    wd_parallel_for(chunks, 1, squares_chunks, &work);
    for (int64_t i = 0; i < chunks; i++) total += work.partial[i];
    a->sum[0] = (float)total;
}

void KERNEL(sum_squares_chunks)(const void *args, wd_cpu_context *context)
{
    (void)context;
    const wd_sum_squares_chunks_args *a = args;
    squares_work work = {a->x, a->count, a->sums};
    wd_parallel_for(sum_chunks(a->count), 1, squares_chunks, &work);
}

/* ---- optimiser ---- */

typedef struct adamw_work {
    const wd_adamw_args *args;
    adamw_scalars by;
} adamw_work;

/* Moves p [n] by AdEMAMix, whose moments of all gradients but the slow one are up to date. */
static void ademamix_move(float *restrict p, const float *restrict m, const float *restrict v,
                          float *restrict slow, const float *restrict grad, int64_t n,
                          const adamw_scalars *by, float eps)
{
    EACH(i, n)
    {
        float g = by->grad_factor * grad[i];
        slow[i] = by->slow_keep * slow[i] + by->slow_new * g;
        float move = cautious(by->rate * m[i] + by->slow_rate * slow[i], g);
        p[i] = p[i] * by->keep - move / (sqrtf(v[i]) * by->correction + eps);
    }
}

static void adamw_part(int64_t begin, int64_t end, void *context)
{
    const adamw_work w = *(const adamw_work *)context;
    const wd_adamw_args *a = w.args;
    float beta1 = a->beta1, beta2 = a->beta2, eps = a->eps;
    for (int64_t at = begin; at < end; at += CHUNK) {
        int64_t n = least(CHUNK, end - at);
        float *restrict p = a->p + at, *restrict m = a->m + at, *restrict v = a->v + at;
        const float *restrict grad = a->grad + at;
        EACH(i, n)
        {
            float g = w.by.grad_factor * grad[i];
            float m_now = beta1 * m[i] + w.by.m_new * g;
            float v_now = beta2 * v[i] + w.by.v_new * (g * g);
            m[i] = m_now;
            v[i] = v_now;
            if (!a->slow)
                p[i] =
                    p[i] * w.by.keep - w.by.rate * m_now / (sqrtf(v_now) * w.by.correction + eps);
        }
        if (a->slow) ademamix_move(p, m, v, a->slow + at, grad, n, &w.by, eps);
        if (a->ema) {
            float *restrict ema = a->ema + at;
            EACH(i, n) ema[i] += w.by.ema_new * (p[i] - ema[i]);
        }
        if (!a->copy) continue;
        if (a->copy_type == WD_F32)
            memcpy((float *)a->copy + at, p, (size_t)n * sizeof *p);
        else
            narrow(a->copy, a->copy_type, at, p, n);
    }
}

void KERNEL(adamw)(const void *args, wd_cpu_context *context)
{
    (void)context;
    const wd_adamw_args *a = args;
    if (a->factor[0] == 0) return;
    adamw_work work = {a, adamw_scalars_of(a)};
    wd_parallel_for(a->count, GRAIN, adamw_part, &work);
}
