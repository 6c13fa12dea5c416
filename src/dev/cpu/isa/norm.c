/* LayerNorm, RMSNorm (with the rotation of RoPE) and the VAE's channel norm, forward and backward.
 * A row at a time: it is read from memory once, and every further pass over it hits the cache. */
#include <math.h>

#include "dev/cpu/isa/column_sums.h"
#include "dev/cpu/isa/isa.h"
#include "dev/cpu/isa/math.h"
#include "dev/cpu/reference.h"

/* ---- LayerNorm ---- */

typedef struct stats {
    float mean, rstd;
} stats;

static inline stats layernorm_stats(const float *x, int64_t width, float eps)
{
    float sum, squares;
    SUM_OF(sum, width, i, x[i]);
    float mean = sum / (float)width;
    SUM_OF(squares, width, i, (x[i] - mean) * (x[i] - mean));
    return (stats){mean, 1.0f / sqrtf(squares / (float)width + eps)};
}

static void layernorm_rows(int64_t begin, int64_t end, void *context)
{
    const wd_layernorm_args *a = context;
    float x_row[ROW_MAX], y_row[ROW_MAX];
    for (int64_t r = begin; r < end; r++) {
        int64_t sample = r / a->rows_per_sample * a->sample_stride;
        const float *x = widen(x_row, a->x, a->type, r * a->width, a->width);
        float *y = target(y_row, a->y, a->type, r * a->width);
        stats s = layernorm_stats(x, a->width, a->eps);
        if (a->scale && a->shift) {
            const float *scale = a->scale + sample, *shift = a->shift + sample;
            EACH(i, a->width)
            y[i] = (x[i] - s.mean) * s.rstd * (a->scale_one + scale[i]) + shift[i];
        } else {
            EACH(i, a->width) y[i] = (x[i] - s.mean) * s.rstd;
            if (a->scale)
                EACH(i, a->width) y[i] = y[i] * (a->scale_one + a->scale[sample + i]);
            if (a->shift)
                EACH(i, a->width) y[i] = y[i] + a->shift[sample + i];
        }
        narrow(a->y, a->type, r * a->width, y, a->width);
    }
}

void KERNEL(layernorm)(const void *args, wd_cpu_context *context)
{
    const wd_layernorm_args *a = args;
    if (a->width > ROW_MAX)
        wd_ref_layernorm(args, context);
    else
        wd_parallel_for(a->rows, grain_rows(GRAIN, a->width), layernorm_rows, (void *)args);
}

/* One row: see wd_ref_layernorm_backward. sums: dscale and dshift [2, D]. */
static void layernorm_backward_row(float *sums, int64_t r, const void *args)
{
    const wd_layernorm_backward_args *a = args;
    float x_row[ROW_MAX], dy_row[ROW_MAX], dx_row[ROW_MAX], g_row[ROW_MAX];
    int64_t width = a->width, at = r * width;
    const float *x = widen(x_row, a->x, a->type, at, width);
    const float *dy = widen(dy_row, a->dy, a->type, at, width);
    const float *dx_old = widen(dx_row, a->dx, a->type, at, width);
    float *dx = target(dx_row, a->dx, a->type, at), *dscale = sums, *dshift = sums + width;
    stats s = layernorm_stats(x, width, a->eps);
    const float *g = dy;
    if (a->scale) {
        const float *scale = a->scale + r / a->rows_per_sample * a->sample_stride;
        EACH(i, width) g_row[i] = dy[i] * (a->scale_one + scale[i]);
        g = g_row;
    }
    float sum_g, sum_gn;
    SUM_OF(sum_g, width, i, g[i]);
    SUM_OF(sum_gn, width, i, g[i] * ((x[i] - s.mean) * s.rstd));
    float mean_g = sum_g / (float)width, mean_gn = sum_gn / (float)width;
    EACH(i, width)
    {
        float n = (x[i] - s.mean) * s.rstd;
        dx[i] = dx_old[i] + s.rstd * (g[i] - mean_g - n * mean_gn);
    }
    narrow(a->dx, a->type, at, dx, width);
    if (a->dscale)
        EACH(i, width) dscale[i] += dy[i] * ((x[i] - s.mean) * s.rstd);
    if (a->dshift)
        EACH(i, width) dshift[i] += dy[i];
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
        .fn = layernorm_backward_row,
        .args = args,
        .workspace = context->workspace,
    });
}

/* ---- RMSNorm ---- */

static inline float rms_factor(const float *x, int64_t width, float eps)
{
    float squares;
    SUM_OF(squares, width, i, x[i] * x[i]);
    return 1.0f / sqrtf(squares / (float)width + eps);
}

/* y = x turned by the angles of `token`, pair by pair; `back`: by their negatives. */
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

static void rmsnorm_rows(int64_t begin, int64_t end, void *context)
{
    const wd_rmsnorm_args *a = context;
    float x_row[ROW_MAX], y_row[ROW_MAX], w_row[ROW_MAX];
    const float *w = widen(w_row, a->w, a->w_type, 0, a->width);
    for (int64_t r = begin; r < end; r++) {
        int64_t at_y = r * (a->y_stride ? a->y_stride : a->width);
        const float *x = widen(x_row, a->x, a->type, r * (a->x_stride ? a->x_stride : a->width),
                               a->width);
        float *y = target(y_row, a->y, a->type, at_y);
        float factor = rms_factor(x, a->width, a->eps);
        if (a->round_first && a->type == WD_BF16)
            EACH(i, a->width) y[i] = round_bf16(x[i] * factor) * w[i];
        else
            EACH(i, a->width) y[i] = x[i] * factor * w[i];
        if (a->cos) {
            if (a->type == WD_BF16)
                EACH(i, a->width) y[i] = round_bf16(y[i]);
            rotate(y, y, a->cos, a->sin, r % a->tokens, a->width, a->head_dim, 1);
        }
        narrow(a->y, a->type, at_y, y, a->width);
    }
}

void KERNEL(rmsnorm)(const void *args, wd_cpu_context *context)
{
    const wd_rmsnorm_args *a = args;
    if (a->width > ROW_MAX)
        wd_ref_rmsnorm(args, context);
    else
        wd_parallel_for(a->rows, grain_rows(GRAIN, a->width), rmsnorm_rows, (void *)args);
}

/* One row: see wd_ref_rmsnorm_backward. sums: dw [D]. */
static void rmsnorm_backward_row(float *dw, int64_t r, const void *args)
{
    const wd_rmsnorm_backward_args *a = args;
    float x_row[ROW_MAX], dy_row[ROW_MAX], w_row[ROW_MAX], dx_row[ROW_MAX];
    int64_t width = a->width, at = r * (a->dy_stride ? a->dy_stride : width);
    const float *x = widen(x_row, a->x, a->type, r * (a->x_stride ? a->x_stride : width), width);
    const float *dy = widen(dy_row, a->dy, a->type, at, width);
    const float *w = widen(w_row, a->w, a->w_type, 0, width);
    float *dx = target(dx_row, a->dx, a->type, at);
    float factor = rms_factor(x, width, a->eps), sum;
    if (a->cos) {
        rotate(dy_row, dy, a->cos, a->sin, r % a->tokens, width, a->head_dim, -1);
        dy = dy_row;
    }
    SUM_OF(sum, width, i, dy[i] * w[i] * (x[i] * factor));
    float mean = sum / (float)width;
    EACH(i, width)
    {
        float n = x[i] * factor, g = dy[i];
        dw[i] += g * n;
        dx[i] = factor * (g * w[i] - n * mean);
    }
    narrow(a->dx, a->type, at, dx, width);
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
        .fn = rmsnorm_backward_row,
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
        if (a->act == WD_ACT_SILU)
            EACH(i, a->width) y[i] = silu_f32(y[i]);
        narrow(a->y, a->type, r * a->width, y, a->width);
    }
}

void KERNEL(channelnorm)(const void *args, wd_cpu_context *context)
{
    const wd_channelnorm_args *a = args;
    if (a->width > ROW_MAX)
        wd_ref_channelnorm(args, context);
    else
        wd_parallel_for(a->rows, grain_rows(GRAIN_HEAVY, a->width), channelnorm_rows,
                        (void *)args);
}
