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
    const void *x;
    wd_dtype type;
    int64_t count;
    double *partial;
} squares_work;

static void squares_chunks(int64_t begin, int64_t end, void *context)
{
    const squares_work *w = context;
    float in[SUM_RUN];
    for (int64_t chunk = begin; chunk < end; chunk++) {
        int64_t last = least((chunk + 1) * WD_SUM_CHUNK, w->count);
        double total = 0;
        for (int64_t at = chunk * WD_SUM_CHUNK; at < last; at += SUM_RUN) {
            const int64_t n = least(SUM_RUN, last - at);
            const float *x = widen(in, w->x, w->type, at, n);
            float squares;
            SUM_OF(squares, n, i, x[i] * x[i]);
            total += squares;
        }
        w->partial[chunk] = total;
    }
}

void KERNEL(sum_squares)(const void *args, wd_cpu_context *context)
{
    const wd_sum_squares_args *a = args;
    squares_work work = {a->x, a->type, a->count, context->workspace};
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
    squares_work work = {a->x, a->type, a->count, a->sums};
    wd_parallel_for(sum_chunks(a->count), 1, squares_chunks, &work);
}

/* ---- moments in 8 bits: dev/moments.h ---- */

static int64_t groups_of(int64_t count)
{
    return (count + WD_MOMENT_GROUP - 1) / WD_MOMENT_GROUP;
}

static inline uint32_t most_bits(const float *restrict x, int64_t n)
{
    int32_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        const int32_t bits = (int32_t)moment_bits(x[i]);
        most = bits > most ? bits : most;
    }
    return (uint32_t)most;
}

/* One group of `n` elements, which is a constant where the compiler shall vectorise. */
static inline __attribute__((always_inline)) void
pack_first(int8_t *restrict codes, uint16_t *scale, const float *restrict m,
           const uint32_t *restrict dither, uint32_t scale_dither, int64_t n)
{
    const uint32_t bits = most_bits(m, n);
    const float most = moment_most(bits);
    *scale = moment_scale(bits, scale_dither >> 16);
    if (!(most > 0)) {
        memset(codes, 0, (size_t)n);
        return;
    }
    EACH(i, n) codes[i] = (int8_t)first_moment_code(m[i], most, moment_share_first(dither[i]));
}

static inline __attribute__((always_inline)) void
pack_second(uint8_t *restrict codes, uint16_t *scale, const float *restrict v,
            const uint32_t *restrict dither, uint32_t scale_dither, int64_t n)
{
    float root[WD_MOMENT_GROUP];
    EACH(i, n) root[i] = sqrtf(v[i]);
    const uint32_t bits = most_bits(root, n);
    const float most = moment_most(bits);
    *scale = moment_scale(bits, scale_dither & 0xffffu);
    if (!(most > 0)) {
        memset(codes, 0, (size_t)n);
        return;
    }
    EACH(i, n)
    codes[i] = (uint8_t)second_moment_code(root[i], most, moment_share_second(dither[i]));
}

/* Packs x [n] from element `at` on, a group's first. `dither` [n]; NULL: to the nearest. */
static void pack(const wd_moments8 *to, wd_moment moment, int64_t at, const float *x,
                 const uint32_t *dither, int64_t n)
{
    uint32_t nearest[WD_MOMENT_GROUP];
    EACH(i, WD_MOMENT_GROUP) nearest[i] = WD_MOMENT_NEAREST;
    for (int64_t first = 0; first < n; first += WD_MOMENT_GROUP) {
        const int64_t left = least(WD_MOMENT_GROUP, n - first);
        const uint32_t *by = dither ? dither + first : nearest;
        const uint32_t scale_by = dither ? moment_scale_dither(by[0]) : WD_MOMENT_NEAREST;
        int8_t *codes = (int8_t *)to->codes + at + first;
        uint16_t *scale = to->scales + (at + first) / WD_MOMENT_GROUP;
        const float *from = x + first;
        if (moment == WD_MOMENT_FIRST && left == WD_MOMENT_GROUP)
            pack_first(codes, scale, from, by, scale_by, WD_MOMENT_GROUP);
        else if (moment == WD_MOMENT_FIRST)
            pack_first(codes, scale, from, by, scale_by, left);
        else if (left == WD_MOMENT_GROUP)
            pack_second((uint8_t *)codes, scale, from, by, scale_by, WD_MOMENT_GROUP);
        else
            pack_second((uint8_t *)codes, scale, from, by, scale_by, left);
    }
}

/* x [n] = what is packed from element `at` on, a group's first. */
static void unpack(float *restrict x, const wd_moments8 *from, wd_moment moment, int64_t at,
                   int64_t n)
{
    for (int64_t first = 0; first < n; first += WD_MOMENT_GROUP) {
        const int64_t left = least(WD_MOMENT_GROUP, n - first);
        const float scale = moment_scale_value(from->scales[(at + first) / WD_MOMENT_GROUP]);
        const int8_t *restrict m = (const int8_t *)from->codes + at + first;
        const uint8_t *restrict v = (const uint8_t *)m;
        float *restrict to = x + first;
        if (moment == WD_MOMENT_FIRST)
            EACH(i, left) to[i] = first_moment(m[i], scale);
        else
            EACH(i, left) to[i] = second_moment(v[i], scale);
    }
}

static void moments_groups(int64_t begin, int64_t end, void *context)
{
    const wd_moments_args *a = context;
    const int64_t at = begin * WD_MOMENT_GROUP;
    const int64_t n = least(end * WD_MOMENT_GROUP, a->count) - at;
    if (a->pack)
        pack(&a->codes, a->moment, at, a->values + at, NULL, n);
    else
        unpack(a->values + at, &a->codes, a->moment, at, n);
}

void KERNEL(moments)(const void *args, wd_cpu_context *context)
{
    (void)context;
    wd_moments_args a = *(const wd_moments_args *)args;
    wd_parallel_for(groups_of(a.count), GRAIN / WD_MOMENT_GROUP, moments_groups, &a);
}

/* ---- master weights as a copy and a remainder ---- */

static void merge(float *restrict values, const uint16_t *restrict copy,
                  const uint16_t *restrict remainder, int64_t n)
{
    EACH(i, n) values[i] = master_of(copy[i], remainder[i]);
}

static void settle(float *restrict values, int64_t n)
{
    EACH(i, n) values[i] = master_settled(values[i]);
}

/* Of settled values. */
static void split(uint16_t *restrict copy, uint16_t *restrict remainder,
                  const float *restrict values, int64_t n)
{
    EACH(i, n)
    {
        copy[i] = master_copy(values[i]);
        remainder[i] = master_remainder(values[i]);
    }
}

static void masters_rows(int64_t begin, int64_t end, void *context)
{
    const wd_masters_args *a = context;
    for (int64_t row = begin; row < end; row++) {
        const int64_t at = row * a->stride;
        float *values = a->values + row * a->values_stride;
        if (a->split) settle(values, a->count);
        if (!a->split)
            merge(values, a->copy + at, a->remainder + at, a->count);
        else if (a->copy)
            split(a->copy + at, a->remainder + at, values, a->count);
    }
}

/* Of one row. */
static void masters_part(int64_t begin, int64_t end, void *context)
{
    const wd_masters_args *a = context;
    wd_masters_args part = *a;
    part.values += begin;
    if (a->copy) part.copy += begin;
    if (a->copy) part.remainder += begin;
    part.count = end - begin;
    masters_rows(0, 1, &part);
}

void KERNEL(masters)(const void *args, wd_cpu_context *context)
{
    (void)context;
    wd_masters_args a = *(const wd_masters_args *)args;
    if (a.rows == 1)
        wd_parallel_for(a.count, GRAIN, masters_part, &a);
    else
        wd_parallel_for(a.rows, 1, masters_rows, &a);
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

/* Moves p [n], whose first element is number `at`, and its moments, wherever these are, by `grad`
 * [n]. */
static void adamw_move(const adamw_work *w, int64_t at, float *restrict p, float *restrict m,
                       float *restrict v, const float *restrict grad, int64_t n)
{
    const wd_adamw_args *a = w->args;
    const adamw_scalars by = w->by;
    float beta1 = a->beta1, beta2 = a->beta2, eps = a->eps;
    EACH(i, n)
    {
        float g = by.grad_factor * grad[i];
        float m_now = beta1 * m[i] + by.m_new * g;
        float v_now = beta2 * v[i] + by.v_new * (g * g);
        m[i] = m_now;
        v[i] = v_now;
        if (!a->slow)
            p[i] = p[i] * by.keep - by.rate * m_now / (sqrtf(v_now) * by.correction + eps);
    }
    if (a->slow) ademamix_move(p, m, v, a->slow + at, grad, n, &by, eps);
}

/* The same of moments in 8 bits. */
static void adamw_move_packed(const adamw_work *w, int64_t at, float *restrict p,
                              const float *restrict grad, int64_t n)
{
    const wd_adamw_args *a = w->args;
    const uint32_t seed = w->by.seed;
    float m[CHUNK], v[CHUNK];
    uint32_t dither[CHUNK];
    unpack(m, &a->m8, WD_MOMENT_FIRST, at, n);
    unpack(v, &a->v8, WD_MOMENT_SECOND, at, n);
    adamw_move(w, at, p, m, v, grad, n);
    EACH(i, n) dither[i] = moment_dither(seed, grad[i]);
    pack(&a->m8, WD_MOMENT_FIRST, at, m, dither, n);
    pack(&a->v8, WD_MOMENT_SECOND, at, v, dither, n);
}

/* Brings the EMA [n] nearer to p. */
static void ema_move(float *restrict ema, const float *restrict p, float share, int64_t n)
{
    EACH(i, n) ema[i] += share * (p[i] - ema[i]);
}

static void adamw_part(int64_t begin, int64_t end, void *context)
{
    const adamw_work *w = context;
    const wd_adamw_args *a = w->args;
    float in[CHUNK], merged[CHUNK];
    for (int64_t at = begin; at < end; at += CHUNK) {
        int64_t n = least(CHUNK, end - at);
        float *restrict p = a->p ? a->p + at : merged;
        const float *grad = widen(in, a->grad, a->grad_type, at, n);
        if (!a->p) merge(merged, (uint16_t *)a->copy + at, a->remainder + at, n);
        if (a->m)
            adamw_move(w, at, p, a->m + at, a->v + at, grad, n);
        else
            adamw_move_packed(w, at, p, grad, n);
        if (a->copy && a->copy_type == WD_BF16) settle(p, n);
        if (a->ema) ema_move(a->ema + at, p, w->by.ema_new, n);
        if (!a->p)
            split((uint16_t *)a->copy + at, a->remainder + at, p, n);
        else if (a->copy && a->copy_type == WD_F32)
            memcpy((float *)a->copy + at, p, (size_t)n * sizeof *p);
        else if (a->copy)
            narrow(a->copy, a->copy_type, at, p, n);
    }
}

/* Whole groups. */
static void adamw_groups(int64_t begin, int64_t end, void *context)
{
    const adamw_work *w = context;
    adamw_part(begin * WD_MOMENT_GROUP, least(end * WD_MOMENT_GROUP, w->args->count), context);
}

void KERNEL(adamw)(const void *args, wd_cpu_context *context)
{
    (void)context;
    const wd_adamw_args *a = args;
    if (a->factor[0] == 0) return;
    adamw_work work = {a, adamw_scalars_of(a)};
    if (a->m)
        wd_parallel_for(a->count, GRAIN, adamw_part, &work);
    else
        wd_parallel_for(groups_of(a->count), GRAIN / WD_MOMENT_GROUP, adamw_groups, &work);
}

static void ema_part(int64_t begin, int64_t end, void *context)
{
    const wd_ema_args *a = context;
    const float share = ema_share(a->ema_decay, a->step[0]);
    float merged[CHUNK];
    for (int64_t at = begin; at < end; at += CHUNK) {
        const int64_t n = least(CHUNK, end - at);
        if (!a->p) merge(merged, a->copy + at, a->remainder + at, n);
        ema_move(a->ema + at, a->p ? a->p + at : merged, share, n);
    }
}

void KERNEL(ema)(const void *args, wd_cpu_context *context)
{
    (void)context;
    wd_ema_args a = *(const wd_ema_args *)args;
    if (a.factor[0] != 0) wd_parallel_for(a.count, GRAIN, ema_part, &a);
}
