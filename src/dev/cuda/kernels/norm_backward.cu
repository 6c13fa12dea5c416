/* Gradients of LayerNorm and RMSNorm, each in two kernels: the first finds a row's means, the
 * second goes down eight columns of 32 rows, writes dx and adds up what is summed over rows. Where
 * dx is dy a thread reads what it then writes, and nobody else does. The bits are those of
 * dev/cpu/isa/norm.c. */
#include "dev/cuda/kernels/args.h"
#include "dev/cuda/kernels/columns.cuh"
#include "dev/cuda/kernels/norm.cuh"

/* ---- LayerNorm: with n = (x - mean) rstd and g = dy (scale_one + scale),
 * dx += rstd (g - mean(g) - n mean(g n)); dscale gets dy n, dshift gets dy ---- */

WD_KERNEL(layernorm_backward_rows, wd_cuda_layernorm_backward)
{
    const wd_layernorm_backward_args &op = a.op;
    int64_t r = row_index();
    int width = (int)op.width;
    bool here = r < op.rows;
    row x = row_of(op.x, op.type, r * width, width, 2, 0);
    row dy = row_of(op.dy, op.type, r * width, width, 2, 1);
    if (here) row_keep(x, width);
    if (here) row_keep(dy, width);
    __syncthreads();
    if (!here || threadIdx.x >= WD_WARP) return;
    row_stats stats = row_mean_and_rstd(x, width, op.eps);
    const float *scale =
        op.scale ? op.scale + sample_of(r, op.rows_per_sample) * op.sample_stride : NULL;
    auto g = [&](int i) {
        return scale ? row_one(dy, i) * (op.scale_one + scale[i]) : row_one(dy, i);
    };
    auto gn = [&](int i) { return g(i) * ((row_one(x, i) - stats.mean) * stats.rstd); };
    float mean_g = sum_of(width, g) / (float)width, mean_gn = sum_of(width, gn) / (float)width;
    if (threadIdx.x > 0) return;
    a.stats[4 * r] = stats.mean;
    a.stats[4 * r + 1] = stats.rstd;
    a.stats[4 * r + 2] = mean_g;
    a.stats[4 * r + 3] = mean_gn;
}

WD_KERNEL(layernorm_backward_columns, wd_cuda_layernorm_backward)
{
    const wd_layernorm_backward_args &op = a.op;
    int64_t width = op.width;
    columns c = columns_of(op.sample_stride ? op.rows_per_sample : op.rows, width);
    if (c.n <= 0) return;
    float dscale[EIGHT] = {0}, dshift[EIGHT] = {0};
    for (int64_t r = c.row; r < c.end; r++) {
        int64_t at = r * width + c.at;
        float x[EIGHT], dy[EIGHT], dx[EIGHT], scale[EIGHT];
        const float *stats = a.stats + 4 * r;
        float mean = stats[0], rstd = stats[1], mean_g = stats[2], mean_gn = stats[3];
        load_eight(x, op.x, op.type, at, c.n);
        load_eight(dy, op.dy, op.type, at, c.n);
        load_eight(dx, op.dx, op.type, at, c.n);
        if (op.scale)
            load_eight(scale, op.scale, WD_F32,
                       sample_of(r, op.rows_per_sample) * op.sample_stride + c.at, c.n);
        EACH_OF_EIGHT (i) {
            float n = (x[i] - mean) * rstd;
            float g = op.scale ? dy[i] * (op.scale_one + scale[i]) : dy[i];
            dx[i] = dx[i] + rstd * (g - mean_g - n * mean_gn);
            dscale[i] += dy[i] * n;
            dshift[i] += dy[i];
        }
        store_eight(op.dx, op.type, at, dx, c.n);
    }
    if (op.dscale) columns_store(a.sums, c, 2, 0, width, dscale);
    if (op.dshift) columns_store(a.sums, c, 2, 1, width, dshift);
}

/* ---- RMSNorm: with n = x factor and g = dy turned back, dx = factor (g w - n mean(g w n)),
 * dw += g n ---- */

/* Eight elements of a row's gradient before the rotation. */
WD_DEVICE void unrotated_eight(float g[EIGHT], const wd_rmsnorm_backward_args &op, int64_t r,
                               int at, int n)
{
    int64_t stride = op.dy_stride ? op.dy_stride : op.width;
    load_eight(g, op.dy, op.type, r * stride + at, n);
    if (op.cos)
        rotate_eight(g, op.cos, op.sin, token_of(r, op.tokens), at, n, (int)op.head_dim, -1);
}

/* One of them: for rows that shared memory cannot hold. */
WD_DEVICE float unrotated_one(const wd_rmsnorm_backward_args &op, const row &g, int64_t r, int i)
{
    if (g.copy) return g.copy[i];
    float pair[EIGHT];
    unrotated_eight(pair, op, r, i / 2 * 2, op.cos ? 2 : 1 + i % 2);
    return i % 2 ? pair[1] : pair[0];
}

WD_KERNEL(rmsnorm_backward_rows, wd_cuda_rmsnorm_backward)
{
    const wd_rmsnorm_backward_args &op = a.op;
    int64_t r = row_index();
    int width = (int)op.width;
    bool here = r < op.rows;
    row x = row_of(op.x, op.type, r * (op.x_stride ? op.x_stride : width), width, 2, 0);
    row g = row_of(op.dy, op.type, r * (op.dy_stride ? op.dy_stride : width), width, 2, 1);
    if (here) row_keep(x, width);
    for (int at = row_first(); here && g.copy && at < width; at += row_step()) {
        float v[EIGHT];
        unrotated_eight(v, op, r, at, eight_below(at, width));
        store_eight(g.copy, WD_F32, at, v, EIGHT);
    }
    __syncthreads();
    if (!here || threadIdx.x >= WD_WARP) return;
    float factor = row_rms_factor(x, width, op.eps);
    float sum = sum_of(width, [&](int i) {
        float w = load_one(op.w, op.w_type, i);
        return unrotated_one(op, g, r, i) * w * (row_one(x, i) * factor);
    });
    if (threadIdx.x > 0) return;
    a.stats[2 * r] = factor;
    a.stats[2 * r + 1] = sum / (float)width;
}

WD_KERNEL(rmsnorm_backward_columns, wd_cuda_rmsnorm_backward)
{
    const wd_rmsnorm_backward_args &op = a.op;
    int64_t x_stride = op.x_stride ? op.x_stride : op.width;
    int64_t stride = op.dy_stride ? op.dy_stride : op.width;
    columns c = columns_of(op.rows, op.width);
    if (c.n <= 0) return;
    float dw[EIGHT] = {0}, w[EIGHT];
    load_eight(w, op.w, op.w_type, c.at, c.n);
    for (int64_t r = c.row; r < c.end; r++) {
        float x[EIGHT], g[EIGHT], dx[EIGHT], factor = a.stats[2 * r], mean = a.stats[2 * r + 1];
        load_eight(x, op.x, op.type, r * x_stride + c.at, c.n);
        unrotated_eight(g, op, r, (int)c.at, c.n);
        EACH_OF_EIGHT (i) {
            float n = x[i] * factor;
            dw[i] += g[i] * n;
            dx[i] = factor * (g[i] * w[i] - n * mean);
        }
        store_eight(op.dx, op.type, r * stride + c.at, dx, c.n);
    }
    columns_store(a.sums, c, 1, 0, op.width, dw);
}
