/* LayerNorm, RMSNorm (with the rotation of RoPE) and the VAE's channel norm: a row at a time, as
 * kernels/rows.cuh says. The formulas, and so the bits, are those of dev/cpu/isa/norm.c. */
#include "dev/cuda/kernels/norm.cuh"
#include "dev/ops.h"

/* ---- LayerNorm ---- */

WD_DEVICE void layernorm_eight(float y[EIGHT], const wd_layernorm_args &a, int64_t at, int n,
                               float mean, float rstd)
{
    EACH_OF_EIGHT (i) y[i] = (y[i] - mean) * rstd;
    float v[EIGHT];
    if (a.scale) {
        load_eight(v, a.scale, WD_F32, at, n);
        EACH_OF_EIGHT (i) y[i] = y[i] * (a.scale_one + v[i]);
    }
    if (a.shift) {
        load_eight(v, a.shift, WD_F32, at, n);
        EACH_OF_EIGHT (i) y[i] = y[i] + v[i];
    }
}

WD_KERNEL(layernorm, wd_layernorm_args)
{
    int64_t r = row_index();
    int width = (int)a.width;
    bool here = r < a.rows;
    row x = row_of(a.x, a.type, r * width, width, 1, 0);
    if (here) row_keep(x, width);
    __syncthreads();
    if (here && threadIdx.x < WD_WARP) {
        row_stats stats =
            with_ones(x, [&](auto one) { return row_mean_and_rstd(one, width, a.eps); });
        row_tell(0, stats.mean);
        row_tell(1, stats.rstd);
    }
    __syncthreads();
    if (!here) return;
    float mean = row_results()[0], rstd = row_results()[1];
    int64_t sample = sample_of(r, a.rows_per_sample) * a.sample_stride;
    for (int at = row_first(); at < width; at += row_step()) {
        int n = eight_below(at, width);
        float y[EIGHT];
        row_eight(y, x, at, n);
        layernorm_eight(y, a, sample + at, n, mean, rstd);
        store_eight(a.y, a.type, r * width + at, y, n);
    }
}

/* ---- RMSNorm ---- */

WD_DEVICE void rmsnorm_eight(float y[EIGHT], const wd_rmsnorm_args &a, int64_t token, int at, int n,
                             float factor)
{
    float w[EIGHT];
    load_eight(w, a.w, a.w_type, at, n);
    bool round_first = a.round_first && a.type == WD_BF16;
    EACH_OF_EIGHT (i) {
        float scaled = y[i] * factor;
        y[i] = (round_first ? round_bf16(scaled) : scaled) * w[i];
    }
    if (!a.cos) return;
    if (a.type == WD_BF16) {
        EACH_OF_EIGHT (i) y[i] = round_bf16(y[i]);
    }
    rotate_eight(y, turns_of(a.cos, a.sin, token, at, n, (int)a.head_dim), 1);
}

WD_KERNEL(rmsnorm, wd_rmsnorm_args)
{
    int64_t r = row_index();
    int width = (int)a.width;
    bool here = r < a.rows;
    row x = row_of(a.x, a.type, r * (a.x_stride ? a.x_stride : width), width, 1, 0);
    if (here) row_keep(x, width);
    __syncthreads();
    if (here && threadIdx.x < WD_WARP)
        row_tell(0, with_ones(x, [&](auto one) { return row_rms_factor(one, width, a.eps); }));
    __syncthreads();
    if (!here) return;
    int64_t to = r * (a.y_stride ? a.y_stride : width), token = a.cos ? token_of(r, a.tokens) : 0;
    float factor = row_results()[0];
    for (int at = row_first(); at < width; at += row_step()) {
        int n = eight_below(at, width);
        float y[EIGHT];
        row_eight(y, x, at, n);
        rmsnorm_eight(y, a, token, at, n, factor);
        store_eight(a.y, a.type, to + at, y, n);
    }
}

/* ---- the VAE's channel norm ---- */

WD_DEVICE void channelnorm_eight(float y[EIGHT], const wd_channelnorm_args &a, int at, int n,
                                 float norm, float root)
{
    float gamma[EIGHT];
    load_eight(gamma, a.gamma, a.w_type, at, n);
    EACH_OF_EIGHT (i) {
        if (a.type == WD_BF16) {
            float unit = round_bf16(round_bf16(y[i] / norm) * root);
            y[i] = round_bf16(unit * gamma[i]);
        } else {
            y[i] = y[i] / norm * root * gamma[i];
        }
        if (a.act == WD_ACT_SILU) y[i] = silu_f32(y[i]);
    }
}

WD_KERNEL(channelnorm, wd_channelnorm_args)
{
    int64_t r = row_index();
    int width = (int)a.width;
    bool here = r < a.rows;
    row x = row_of(a.x, a.type, r * width, width, 1, 0);
    if (here) row_keep(x, width);
    __syncthreads();
    if (here && threadIdx.x < WD_WARP) {
        float root = sqrtf(with_ones(x, [&](auto one) { return row_squares(one, width); }));
        row_tell(0, fmaxf(a.type == WD_BF16 ? round_bf16(root) : root, 1e-12f));
    }
    __syncthreads();
    if (!here) return;
    float norm = row_results()[0], root = sqrtf((float)width);
    for (int at = row_first(); at < width; at += row_step()) {
        int n = eight_below(at, width);
        float y[EIGHT];
        row_eight(y, x, at, n);
        channelnorm_eight(y, a, at, n, norm, root);
        store_eight(a.y, a.type, r * width + at, y, n);
    }
}
