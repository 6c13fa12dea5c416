/* LayerNorm, RMSNorm (with the rotation of RoPE) and the VAE's channel norm, forward and backward.
 * Kernels process a block of rows at a time, which is read from memory once, and then from the
 * cache. */
#include <math.h>

#include "dev/cpu/isa/column_sums.h"
#include "dev/cpu/isa/isa.h"
#include "dev/cpu/reference.h"
#include "dev/math.h"

/* ---- LayerNorm ---- */

/* Of rows of x, one after the other. */
static inline void layernorm_stats(float *mean, float *rstd, const float *x, int64_t count,
                                   int64_t width, float eps)
{
    for (int64_t r = 0; r < count; r++) {
        const float *row = x + r * width;
        SUM_OF(mean[r], width, i, row[i]);
    }
    EACH(r, count) mean[r] /= (float)width;
    for (int64_t r = 0; r < count; r++) {
        const float *row = x + r * width;
        SUM_OF(rstd[r], width, i, (row[i] - mean[r]) * (row[i] - mean[r]));
    }
    EACH(r, count) rstd[r] = 1.0f / sqrtf(rstd[r] / (float)width + eps);
}

static inline void layernorm_row(float *y, const float *x, float mean, float rstd, int64_t sample,
                                 const wd_layernorm_args *a)
{
    if (a->scale && a->shift) {
        const float *scale = a->scale + sample, *shift = a->shift + sample;
        EACH(i, a->width) y[i] = (x[i] - mean) * rstd * (a->scale_one + scale[i]) + shift[i];
        return;
    }
    EACH(i, a->width) y[i] = (x[i] - mean) * rstd;
    if (a->scale) EACH(i, a->width) y[i] = y[i] * (a->scale_one + a->scale[sample + i]);
    if (a->shift) EACH(i, a->width) y[i] = y[i] + a->shift[sample + i];
}

static void layernorm_part(int64_t begin, int64_t end, void *context)
{
    const wd_layernorm_args *a = context;
    float x_rows[ROW_MAX], y_rows[ROW_MAX], mean[BLOCK_ROWS], rstd[BLOCK_ROWS];
    int64_t width = a->width, count;
    for (int64_t first = begin; first < end; first += count) {
        count = least(block_rows(width), end - first);
        int64_t at = first * width;
        const float *x = widen(x_rows, a->x, a->type, at, count * width);
        float *y = target(y_rows, a->y, a->type, at);
        layernorm_stats(mean, rstd, x, count, width, a->eps);
        for (int64_t r = 0; r < count; r++)
            layernorm_row(y + r * width, x + r * width, mean[r], rstd[r],
                          (first + r) / a->rows_per_sample * a->sample_stride, a);
        narrow(a->y, a->type, at, y, count * width);
    }
}

void KERNEL(layernorm)(const void *args, wd_cpu_context *context)
{
    const wd_layernorm_args *a = args;
    if (a->width > ROW_MAX)
        wd_ref_layernorm(args, context);
    else
        wd_parallel_for(a->rows, grain_rows(GRAIN, a->width), layernorm_part, (void *)args);
}

/* g = dy times the row's scale, if any, which may replace dy in its buffer. */
static inline const float *scaled_gradient(float *buffer, const float *dy, int64_t first,
                                           int64_t count, const wd_layernorm_backward_args *a)
{
    if (!a->scale) return dy;
    for (int64_t r = 0; r < count; r++) {
        const float *scale = a->scale + (first + r) / a->rows_per_sample * a->sample_stride;
        const float *from = dy + r * a->width;
        float *g = buffer + r * a->width;
        EACH(i, a->width) g[i] = from[i] * (a->scale_one + scale[i]);
    }
    return buffer;
}

/* See wd_ref_layernorm_backward. sums: dscale and dshift [2, D]. */
static void layernorm_backward_part(float *sums, int64_t begin, int64_t end, const void *args)
{
    const wd_layernorm_backward_args *a = args;
    float x_rows[ROW_MAX], dy_rows[ROW_MAX], dx_rows[ROW_MAX];
    float mean[BLOCK_ROWS], rstd[BLOCK_ROWS], mean_g[BLOCK_ROWS], mean_gn[BLOCK_ROWS];
    int64_t width = a->width, count;
    float *dscale = sums, *dshift = sums + width;
    for (int64_t first = begin; first < end; first += count) {
        count = least(block_rows(width), end - first);
        int64_t at = first * width;
        const float *x = widen(x_rows, a->x, a->type, at, count * width);
        const float *dy = widen(dy_rows, a->dy, a->type, at, count * width);
        const float *dx_old = widen(dx_rows, a->dx, a->type, at, count * width);
        float *dx = target(dx_rows, a->dx, a->type, at);
        layernorm_stats(mean, rstd, x, count, width, a->eps);
        for (int64_t r = 0; r < count; r++) {
            const float *x_row = x + r * width, *dy_row = dy + r * width;
            const float m = mean[r], s = rstd[r];
            if (a->dscale) EACH(i, width) dscale[i] += dy_row[i] * ((x_row[i] - m) * s);
            if (a->dshift) EACH(i, width) dshift[i] += dy_row[i];
        }
        const float *g = scaled_gradient(dy_rows, dy, first, count, a);
        for (int64_t r = 0; r < count; r++) {
            const float *x_row = x + r * width, *g_row = g + r * width;
            SUM_OF(mean_g[r], width, i, g_row[i]);
            SUM_OF(mean_gn[r], width, i, g_row[i] * ((x_row[i] - mean[r]) * rstd[r]));
        }
        EACH(r, count) mean_g[r] /= (float)width;
        EACH(r, count) mean_gn[r] /= (float)width;
        for (int64_t r = 0; r < count; r++) {
            const float *x_row = x + r * width, *g_row = g + r * width, *old = dx_old + r * width;
            float *dx_row = dx + r * width, m = mean[r], s = rstd[r];
            EACH(i, width)
            {
                float n = (x_row[i] - m) * s;
                dx_row[i] = old[i] + s * (g_row[i] - mean_g[r] - n * mean_gn[r]);
            }
        }
        narrow(a->dx, a->type, at, dx, count * width);
    }
}

void KERNEL(layernorm_backward)(const void *args, wd_cpu_context *context)
{
    const wd_layernorm_backward_args *a = args;
    if (a->width > ROW_MAX) {
        wd_ref_layernorm_backward(args, context);
        return;
    }
    column_sums_run(&(column_sums){
        .out = {a->dscale, a->dshift},
        .outputs = 2,
        .add = a->sample_stride == 0,
        .rows = a->rows,
        .group_rows = a->sample_stride ? a->rows_per_sample : a->rows,
        .width = a->width,
        .out_stride = a->sample_stride,
        .fn = layernorm_backward_part,
        .args = args,
        .workspace = context->workspace,
    });
}

/* ---- RMSNorm ---- */

static inline void rms_factors(float *factor, row_block x, int64_t count, int64_t width, float eps)
{
    for (int64_t r = 0; r < count; r++) {
        const float *row = x.at + r * x.stride;
        SUM_OF(factor[r], width, i, row[i] * row[i]);
    }
    EACH(r, count) factor[r] = 1.0f / sqrtf(factor[r] / (float)width + eps);
}

/* y = x rotated by the angles of `token`, pair by pair; sign -1: by their negatives. */
static inline void rotate(float *y, const float *x, const float *cos, const float *sin,
                          int64_t token, int64_t width, int64_t head_dim, float sign)
{
    int64_t half = head_dim / 2;
    for (int64_t head = 0; head < width; head += head_dim) {
        const float *from = x + head, *c = cos + token * half, *s = sin + token * half;
        float *to = y + head;
        EACH(j, half)
        {
            float even = from[2 * j], odd = from[2 * j + 1], turn = sign * s[j];
            to[2 * j] = even * c[j] - odd * turn;
            to[2 * j + 1] = even * turn + odd * c[j];
        }
    }
}

static inline void rmsnorm_row(float *y, const float *x, const float *w, float factor,
                               int64_t token, const wd_rmsnorm_args *a)
{
    if (a->round_first && a->type == WD_BF16)
        EACH(i, a->width) y[i] = round_bf16(x[i] * factor) * w[i];
    else
        EACH(i, a->width) y[i] = x[i] * factor * w[i];
    if (!a->cos) return;
    if (a->type == WD_BF16) EACH(i, a->width) y[i] = round_bf16(y[i]);
    rotate(y, y, a->cos, a->sin, token, a->width, a->head_dim, 1);
}

static void rmsnorm_part(int64_t begin, int64_t end, void *context)
{
    const wd_rmsnorm_args *a = context;
    float x_rows[ROW_MAX], y_row[ROW_MAX], w_row[ROW_MAX], factor[BLOCK_ROWS];
    const float *w = widen(w_row, a->w, a->w_type, 0, a->width);
    int64_t width = a->width, x_stride = a->x_stride ? a->x_stride : width;
    int64_t y_stride = a->y_stride ? a->y_stride : width, block = block_rows(width), count;
    for (int64_t first = begin; first < end; first += count) {
        count = least(block, end - first);
        int64_t next = first + count, ahead = least(block, end - next);
        fetch_rows(a->x, a->type, next * x_stride, x_stride, ahead, width);
        fetch_rows(a->y, a->type, next * y_stride, y_stride, ahead, width);
        row_block x = widen_rows(x_rows, a->x, a->type, first * x_stride, x_stride, count, width);
        rms_factors(factor, x, count, width, a->eps);
        for (int64_t r = 0; r < count; r++) {
            int64_t at = (first + r) * y_stride;
            float *y = target(y_row, a->y, a->type, at);
            rmsnorm_row(y, x.at + r * x.stride, w, factor[r], (first + r) % a->tokens, a);
            narrow(a->y, a->type, at, y, width);
        }
    }
}

void KERNEL(rmsnorm)(const void *args, wd_cpu_context *context)
{
    const wd_rmsnorm_args *a = args;
    if (a->width > ROW_MAX)
        wd_ref_rmsnorm(args, context);
    else
        wd_parallel_for(a->rows, grain_rows(GRAIN, a->width), rmsnorm_part, (void *)args);
}

/* See wd_ref_rmsnorm_backward. sums: dw [D]. */
static void rmsnorm_backward_part(float *dw, int64_t begin, int64_t end, const void *args)
{
    const wd_rmsnorm_backward_args *a = args;
    float x_rows[ROW_MAX], dy_rows[ROW_MAX], w_row[ROW_MAX];
    float factor[BLOCK_ROWS], mean[BLOCK_ROWS];
    const float *w = widen(w_row, a->w, a->w_type, 0, a->width);
    int64_t width = a->width, x_stride = a->x_stride ? a->x_stride : width;
    int64_t stride = a->dy_stride ? a->dy_stride : width, block = block_rows(width), count;
    for (int64_t first = begin; first < end; first += count) {
        count = least(block, end - first);
        int64_t next = first + count, ahead = least(block, end - next);
        fetch_rows(a->x, a->type, next * x_stride, x_stride, ahead, width);
        fetch_rows(a->dy, a->type, next * stride, stride, ahead, width);
        row_block x = widen_rows(x_rows, a->x, a->type, first * x_stride, x_stride, count, width);
        row_block dy = widen_rows(dy_rows, a->dy, a->type, first * stride, stride, count, width);
        if (a->cos) {
            for (int64_t r = 0; r < count; r++)
                rotate(dy_rows + r * width, dy.at + r * dy.stride, a->cos, a->sin,
                       (first + r) % a->tokens, width, a->head_dim, -1);
            dy = (row_block){dy_rows, width};
        }
        rms_factors(factor, x, count, width, a->eps);
        for (int64_t r = 0; r < count; r++) {
            const float *x_row = x.at + r * x.stride, *g = dy.at + r * dy.stride;
            SUM_OF(mean[r], width, i, g[i] * w[i] * (x_row[i] * factor[r]));
        }
        EACH(r, count) mean[r] /= (float)width;
        for (int64_t r = 0; r < count; r++) {
            const float *x_row = x.at + r * x.stride, *g = dy.at + r * dy.stride;
            int64_t at = (first + r) * stride;
            /* the gradient of a row is replaced by what becomes of it */
            float *dx = target(dy_rows + r * width, a->dx, a->type, at), f = factor[r];
            EACH(i, width)
            {
                float n = x_row[i] * f;
                dw[i] += g[i] * n;
                dx[i] = f * (g[i] * w[i] - n * mean[r]);
            }
            narrow(a->dx, a->type, at, dx, width);
        }
    }
}

void KERNEL(rmsnorm_backward)(const void *args, wd_cpu_context *context)
{
    const wd_rmsnorm_backward_args *a = args;
    if (a->width > ROW_MAX) {
        wd_ref_rmsnorm_backward(args, context);
        return;
    }
    column_sums_run(&(column_sums){
        .out = {a->dw},
        .outputs = 1,
        .add = true,
        .rows = a->rows,
        .group_rows = a->rows,
        .width = a->width,
        .fn = rmsnorm_backward_part,
        .args = args,
        .workspace = context->workspace,
    });
}

/* ---- the VAE's channel norm ---- */

static void channelnorm_rows(int64_t begin, int64_t end, void *context)
{
    const wd_channelnorm_args *a = context;
    float x_row[ROW_MAX], y_row[ROW_MAX], gamma_row[ROW_MAX];
    const float *gamma = widen(gamma_row, a->gamma, a->w_type, 0, a->width);
    float root = sqrtf((float)a->width);
    for (int64_t r = begin; r < end; r++) {
        const float *x = widen(x_row, a->x, a->type, r * a->width, a->width);
        float *y = target(y_row, a->y, a->type, r * a->width);
        float squares;
        SUM_OF(squares, a->width, i, x[i] * x[i]);
        if (a->type == WD_BF16) {
            float norm = fmaxf(round_bf16(sqrtf(squares)), 1e-12f);
            EACH(i, a->width)
            {
                float unit = round_bf16(round_bf16(x[i] / norm) * root);
                y[i] = round_bf16(unit * gamma[i]);
            }
        } else {
            float norm = fmaxf(sqrtf(squares), 1e-12f);
            EACH(i, a->width) y[i] = x[i] / norm * root * gamma[i];
        }
        if (a->act == WD_ACT_SILU) EACH(i, a->width) y[i] = silu_f32(y[i]);
        narrow(a->y, a->type, r * a->width, y, a->width);
    }
}

void KERNEL(channelnorm)(const void *args, wd_cpu_context *context)
{
    const wd_channelnorm_args *a = args;
    if (a->width > ROW_MAX)
        wd_ref_channelnorm(args, context);
    else
        wd_parallel_for(a->rows, grain_rows(GRAIN_HEAVY, a->width), channelnorm_rows, (void *)args);
}
