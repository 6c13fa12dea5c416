/* Elementwise operations: a thread has eight elements. The formulas, and so the bits, are those of
 * dev/cpu/isa/pointwise.c. */
#include "dev/cuda/kernels/flat.cuh"
#include "dev/cuda/kernels/rows.cuh"
#include "dev/math.h"
#include "dev/ops.h"

/* ---- activations ---- */

/* transformers' NewGELUActivation on bf16 tensors, one rounded tensor operation after the other. */
WD_DEVICE float gelu_new_bf16(float x)
{
    float cube = round_bf16(round_bf16(x * x) * x);
    float inner = round_bf16(x + round_bf16(gelu_k * cube));
    float t = round_bf16(tanh_f32(round_bf16(0.5f * gelu_2c * inner)));
    return round_bf16(0.5f * x) * round_bf16(1.0f + t);
}

/* The same on fp32 tensors. */
WD_DEVICE float gelu_new_f32(float x)
{
    float inner = x + gelu_k * (x * x * x);
    return 0.5f * x * (1.0f + tanh_f32(0.5f * gelu_2c * inner));
}

WD_KERNEL(activation, wd_activation_args)
{
    flat f = flat_of(a.count, a.type);
    if (flat_is_empty(f)) return;
    float v[EIGHT];
    flat_load(v, a.x, a.type, f);
    if (a.round_steps && a.type == WD_BF16) {
        EACH_OF_EIGHT (i) v[i] = gelu_new_bf16(v[i]);
    } else if (a.round_steps) {
        EACH_OF_EIGHT (i) v[i] = gelu_new_f32(v[i]);
    } else if (a.act == WD_ACT_GELU_TANH) {
        EACH_OF_EIGHT (i) v[i] = gelu_f32(v[i]);
    } else if (a.act == WD_ACT_SILU) {
        EACH_OF_EIGHT (i) v[i] = silu_f32(v[i]);
    }
    flat_store(a.y, a.type, f, v);
}

WD_KERNEL(activation_backward, wd_activation_backward_args)
{
    flat f = flat_of(a.count, a.type);
    if (flat_is_empty(f)) return;
    float x[EIGHT], dy[EIGHT];
    flat_load_two(x, a.x, dy, a.dy, a.type, f);
    if (a.act == WD_ACT_GELU_TANH) {
        EACH_OF_EIGHT (i) dy[i] = dy[i] * gelu_slope_f32(x[i]);
    } else if (a.act == WD_ACT_SILU) {
        EACH_OF_EIGHT (i) dy[i] = dy[i] * silu_slope_f32(x[i]);
    }
    flat_store(a.dx, a.type, f, dy);
}

/* ---- products and sums of arrays ---- */

WD_KERNEL(multiply, wd_multiply_args)
{
    flat f = flat_of(a.count, a.type);
    if (flat_is_empty(f)) return;
    float v[EIGHT], w[EIGHT];
    flat_load_two(v, a.a, w, a.b, a.type, f);
    EACH_OF_EIGHT (i) v[i] = v[i] * w[i];
    flat_store(a.y, a.type, f, v);
}

WD_KERNEL(add_table, wd_add_table_args)
{
    int64_t r = row_index();
    int width = (int)a.width;
    if (r >= a.rows) return;
    for (int at = row_first(); at < width; at += row_step()) {
        int n = eight_below(at, width);
        float v[EIGHT], x[EIGHT];
        load_eight(v, a.table, WD_F32, at, n);
        load_eight(x, a.x, a.type, r * a.x_stride + at, n);
        EACH_OF_EIGHT (i) v[i] = v[i] + x[i];
        store_eight(a.y, WD_F32, r * width + at, v, n);
    }
}

WD_KERNEL(combine, wd_combine_args)
{
    flat f = flat_of(a.count, WD_F32);
    if (flat_is_empty(f)) return;
    float sum[EIGHT], x[EIGHT];
    flat_load(x, a.x[0], WD_F32, f);
    EACH_OF_EIGHT (i) sum[i] = a.factor[0] * x[i];
    for (int term = 1; term < a.terms; term++) {
        flat_load(x, a.x[term], WD_F32, f);
        EACH_OF_EIGHT (i) sum[i] += a.factor[term] * x[i];
    }
    if (a.round_bf16) {
        EACH_OF_EIGHT (i) sum[i] = round_bf16(sum[i]);
    }
    flat_store(a.y, WD_F32, f, sum);
}

/* ---- per sample: the grid's second dimension ---- */

WD_KERNEL(guidance, wd_guidance_args)
{
    flat f = flat_of(a.width, WD_F32);
    if (flat_is_empty(f)) return;
    f.at += blockIdx.y * a.width;
    float c[EIGHT], u[EIGHT];
    flat_load(c, a.c, a.type, f);
    if (a.u) {
        float scale = a.scale[blockIdx.y];
        flat_load(u, a.u, a.type, f);
        EACH_OF_EIGHT (i) {
            if (a.type == WD_BF16)
                c[i] = round_bf16(u[i] + round_bf16(scale * round_bf16(c[i] - u[i])));
            else
                c[i] = u[i] + scale * (c[i] - u[i]);
        }
    }
    flat_store(a.v, WD_F32, f, c);
}

WD_KERNEL(step_samples, wd_step_samples_args)
{
    flat f = flat_of(a.width, WD_F32);
    if (flat_is_empty(f)) return;
    f.at += blockIdx.y * a.width;
    float x[EIGHT], v[EIGHT], dt = a.dt[blockIdx.y];
    flat_load(x, a.x, WD_F32, f);
    flat_load(v, a.v, WD_F32, f);
    EACH_OF_EIGHT (i) x[i] += dt * v[i];
    flat_store(a.x, WD_F32, f, x);
}

/* Exponential, cosine and sine are taken in double and rounded to fp32: nearly always the fp32
 * value that is the closest, as the host's functions give, too. */
WD_KERNEL(timestep_embed, wd_timestep_embed_args)
{
    int64_t number = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, half = a.width / 2;
    if (number >= a.samples * half) return;
    int64_t b = number / half, i = number % half;
    float e = (float)exp((double)(-9.210340371976184f * (float)i / (float)half));
    float angle = a.t[b] * e;
    a.y[b * a.width + i] = (float)cos((double)angle);
    a.y[b * a.width + half + i] = (float)sin((double)angle);
}
