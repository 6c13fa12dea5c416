/* Elementwise operations. Light ones are bound by memory: each array is read or written once. */
#include <assert.h>

#include "dev/cpu/isa/column_sums.h"
#include "dev/cpu/isa/isa.h"
#include "dev/math.h"

/* ---- activations ---- */

/* transformers' NewGELUActivation on bf16 tensors: the result of each tensor operation is rounded.
 */
static inline float gelu_new_bf16(float x)
{
    float cube = round_bf16(round_bf16(x * x) * x);
    float inner = round_bf16(x + round_bf16(gelu_k * cube));
    float t = round_bf16(tanh_f32(round_bf16(0.5f * gelu_2c * inner)));
    return round_bf16(0.5f * x) * round_bf16(1.0f + t);
}

/* transformers' NewGELUActivation on fp32 tensors. */
static inline float gelu_new_f32(float x)
{
    float inner = x + gelu_k * (x * x * x);
    return 0.5f * x * (1.0f + tanh_f32(0.5f * gelu_2c * inner));
}

static void activation_part(int64_t begin, int64_t end, void *context)
{
    const wd_activation_args *a = context;
    float in[CHUNK], out[CHUNK];
    for (int64_t at = begin; at < end; at += CHUNK) {
        int64_t n = least(CHUNK, end - at);
        const float *x = widen(in, a->x, a->type, at, n);
        float *y = target(out, a->y, a->type, at);
        if (a->round_steps && a->type == WD_BF16)
            EACH(i, n) y[i] = gelu_new_bf16(x[i]);
        else if (a->round_steps)
            EACH(i, n) y[i] = gelu_new_f32(x[i]);
        else if (a->act == WD_ACT_GELU_TANH)
            EACH(i, n) y[i] = gelu_f32(x[i]);
        else if (a->act == WD_ACT_SILU)
            EACH(i, n) y[i] = silu_f32(x[i]);
        else
            EACH(i, n) y[i] = x[i];
        narrow(a->y, a->type, at, y, n);
    }
}

void KERNEL(activation)(const void *args, wd_cpu_context *context)
{
    (void)context;
    const wd_activation_args *a = args;
    assert(!a->round_steps || a->act == WD_ACT_GELU_TANH);
    wd_parallel_for(a->count, GRAIN_HEAVY, activation_part, (void *)args);
}

static void activation_backward_part(int64_t begin, int64_t end, void *context)
{
    const wd_activation_backward_args *a = context;
    float x_in[CHUNK], dy_in[CHUNK], out[CHUNK];
    for (int64_t at = begin; at < end; at += CHUNK) {
        int64_t n = least(CHUNK, end - at);
        const float *x = widen(x_in, a->x, a->type, at, n);
        const float *dy = widen(dy_in, a->dy, a->type, at, n);
        float *dx = target(out, a->dx, a->type, at);
        if (a->act == WD_ACT_GELU_TANH)
            EACH(i, n) dx[i] = dy[i] * gelu_slope_f32(x[i]);
        else if (a->act == WD_ACT_SILU)
            EACH(i, n) dx[i] = dy[i] * silu_slope_f32(x[i]);
        else
            EACH(i, n) dx[i] = dy[i];
        narrow(a->dx, a->type, at, dx, n);
    }
}

void KERNEL(activation_backward)(const void *args, wd_cpu_context *context)
{
    (void)context;
    const wd_activation_backward_args *a = args;
    wd_parallel_for(a->count, GRAIN_HEAVY, activation_backward_part, (void *)args);
}

/* ---- products and sums of arrays ---- */

static void multiply_part(int64_t begin, int64_t end, void *context)
{
    const wd_multiply_args *args = context;
    float a_in[CHUNK], b_in[CHUNK], out[CHUNK];
    for (int64_t at = begin; at < end; at += CHUNK) {
        int64_t n = least(CHUNK, end - at);
        const float *a = widen(a_in, args->a, args->type, at, n);
        const float *b = widen(b_in, args->b, args->type, at, n);
        float *y = target(out, args->y, args->type, at);
        EACH(i, n) y[i] = a[i] * b[i];
        narrow(args->y, args->type, at, y, n);
    }
}

void KERNEL(multiply)(const void *args, wd_cpu_context *context)
{
    (void)context;
    wd_parallel_for(((const wd_multiply_args *)args)->count, GRAIN, multiply_part, (void *)args);
}

static void add_table_rows(int64_t begin, int64_t end, void *context)
{
    const wd_add_table_args *a = context;
    float in[CHUNK];
    for (int64_t r = begin; r < end; r++)
        for (int64_t at = 0; at < a->width; at += CHUNK) {
            int64_t n = least(CHUNK, a->width - at);
            const float *x = widen(in, a->x, a->type, r * a->x_stride + at, n);
            const float *table = a->table + at;
            float *y = a->y + r * a->width + at;
            EACH(i, n) y[i] = table[i] + x[i];
        }
}

void KERNEL(add_table)(const void *args, wd_cpu_context *context)
{
    (void)context;
    const wd_add_table_args *a = args;
    wd_parallel_for(a->rows, grain_rows(GRAIN, a->width), add_table_rows, (void *)args);
}

static void combine_part(int64_t begin, int64_t end, void *context)
{
    const wd_combine_args *a = context;
    float sum[CHUNK];
    for (int64_t at = begin; at < end; at += CHUNK) {
        int64_t n = least(CHUNK, end - at);
        const float *x = a->x[0] + at;
        EACH(i, n) sum[i] = a->factor[0] * x[i];
        for (int term = 1; term < a->terms; term++) {
            x = a->x[term] + at;
            EACH(i, n) sum[i] += a->factor[term] * x[i];
        }
        if (a->round_bf16) EACH(i, n) sum[i] = round_bf16(sum[i]);
        memcpy(a->y + at, sum, (size_t)n * sizeof *sum);
    }
}

void KERNEL(combine)(const void *args, wd_cpu_context *context)
{
    (void)context;
    wd_parallel_for(((const wd_combine_args *)args)->count, GRAIN, combine_part, (void *)args);
}

/* ---- per sample: elements of all samples in one range ---- */

static void guidance_part(int64_t begin, int64_t end, void *context)
{
    const wd_guidance_args *a = context;
    float c_in[CHUNK], u_in[CHUNK];
    int64_t n;
    for (int64_t at = begin; at < end; at += n) {
        n = least(least(CHUNK, end - at), a->width - at % a->width);
        const float *c = widen(c_in, a->c, a->type, at, n);
        float *v = a->v + at;
        if (!a->u) {
            EACH(i, n) v[i] = c[i];
            continue;
        }
        const float *u = widen(u_in, a->u, a->type, at, n);
        float scale = a->scale[at / a->width];
        if (a->type == WD_BF16) EACH(i, n)
        v[i] = round_bf16(u[i] + round_bf16(scale * round_bf16(c[i] - u[i])));
        else EACH(i, n) v[i] = u[i] + scale * (c[i] - u[i]);
    }
}

void KERNEL(guidance)(const void *args, wd_cpu_context *context)
{
    (void)context;
    const wd_guidance_args *a = args;
    wd_parallel_for(a->samples * a->width, GRAIN, guidance_part, (void *)args);
}

static void step_samples_part(int64_t begin, int64_t end, void *context)
{
    const wd_step_samples_args *a = context;
    int64_t n;
    for (int64_t at = begin; at < end; at += n) {
        n = least(end - at, a->width - at % a->width);
        float dt = a->dt[at / a->width], *x = a->x + at;
        const float *v = a->v + at;
        EACH(i, n) x[i] += dt * v[i];
    }
}

void KERNEL(step_samples)(const void *args, wd_cpu_context *context)
{
    (void)context;
    const wd_step_samples_args *a = args;
    wd_parallel_for(a->samples * a->width, GRAIN, step_samples_part, (void *)args);
}

/* ---- residuals ---- */

static void residual_rows(int64_t begin, int64_t end, void *context)
{
    const wd_residual_args *a = context;
    float x_in[CHUNK], branch_in[CHUNK], out[CHUNK];
    for (int64_t r = begin; r < end; r++)
        for (int64_t column = 0; column < a->width; column += CHUNK) {
            int64_t n = least(CHUNK, a->width - column), at = r * a->width + column;
            const float *x = widen(x_in, a->x, a->type, at, n);
            const float *branch = widen(branch_in, a->branch, a->type, at, n);
            float *y = target(out, a->y, a->type, at);
            if (a->gate) {
                const float *gate = a->gate + r / a->rows_per_sample * a->sample_stride + column;
                EACH(i, n) y[i] = x[i] + branch[i] * gate[i];
            } else {
                EACH(i, n) y[i] = x[i] + branch[i];
            }
            narrow(a->y, a->type, at, y, n);
        }
}

void KERNEL(residual)(const void *args, wd_cpu_context *context)
{
    (void)context;
    const wd_residual_args *a = args;
    wd_parallel_for(a->rows, grain_rows(GRAIN, a->width), residual_rows, (void *)args);
}

/* sums: dgate [D]. */
static void residual_backward_part(float *dgate, int64_t begin, int64_t end, const void *args)
{
    const wd_residual_backward_args *a = args;
    float dy_in[CHUNK], branch_in[CHUNK], out[CHUNK];
    for (int64_t r = begin; r < end; r++)
        for (int64_t column = 0; column < a->width; column += CHUNK) {
            int64_t n = least(CHUNK, a->width - column), at = r * a->width + column;
            const float *dy = widen(dy_in, a->dy, a->type, at, n);
            const float *branch = widen(branch_in, a->branch, a->type, at, n);
            const float *gate = a->gate + r / a->rows_per_sample * a->sample_stride + column;
            float *dbranch = target(out, a->dbranch, a->type, at), *sum = dgate + column;
            EACH(i, n) sum[i] += dy[i] * branch[i];
            EACH(i, n) dbranch[i] = dy[i] * gate[i];
            narrow(a->dbranch, a->type, at, dbranch, n);
        }
}

void KERNEL(residual_backward)(const void *args, wd_cpu_context *context)
{
    const wd_residual_backward_args *a = args;
    column_sums_run(&(column_sums){
        .out = {a->dgate},
        .outputs = 1,
        .rows = a->rows,
        .group_rows = a->rows_per_sample,
        .width = a->width,
        .out_stride = a->sample_stride,
        .fn = residual_backward_part,
        .args = args,
        .workspace = context->workspace,
    });
}
