/* Gradients of LayerNorm and RMSNorm, each in two kernels: the first finds a row's means, the
 * second goes down eight columns of 32 rows, writes dx and adds up what is summed over rows. Where
 * dx is dy a thread reads what it then writes, and nobody else does. The bits are those of
 * dev/cpu/isa/norm.c. */
#include "dev/cuda/kernels/args.h"
#include "dev/cuda/kernels/columns.cuh"
#include "dev/cuda/kernels/norm.cuh"

/* ---- LayerNorm: with n = (x - mean) rstd and g = dy (scale_one + scale),
 * dx += rstd (g - mean(g) - n mean(g n)); dscale gets dy n, dshift gets dy ---- */

/* Of a row; mean_g: mean(g), mean_gn: mean(g n). */
struct alignas(16) layernorm_stats {
    float mean, rstd, mean_g, mean_gn;
};

/* By the 32 threads of a warp. */
template <class X, class G>
WD_DEVICE layernorm_stats layernorm_stats_of(X x, G g, int width, float eps)
{
    row_stats by = row_mean_and_rstd(x, width, eps);
    float mean_g = sum_of(width, g) / (float)width;
    float sum_gn = sum_of(width, [&](int i) { return g(i) * ((x(i) - by.mean) * by.rstd); });
    return layernorm_stats{by.mean, by.rstd, mean_g, sum_gn / (float)width};
}

WD_KERNEL(layernorm_backward_rows, wd_cuda_layernorm_backward)
{
    const wd_layernorm_backward_args &op = a.op;
    int64_t r = row_index();
    int width = (int)op.width;
    bool here = r < op.rows;
    row x = row_of(op.x, op.type, r * width, width, 2, 0);
    row g = row_of(op.dy, op.type, r * width, width, 2, 1); /* its copy has g, its data dy */
    const float *scale =
        here && op.scale ? op.scale + sample_of(r, op.rows_per_sample) * op.sample_stride : NULL;
    if (here) row_keep(x, width);
    if (here) row_keep(g, width);
    if (here)
        row_change(g, width, [&](float v[EIGHT], int at, int n) {
            float s[EIGHT];
            if (!scale) return;
            load_eight(s, scale, WD_F32, at, n);
            EACH_OF_EIGHT (i) v[i] = v[i] * (op.scale_one + s[i]);
        });
    __syncthreads();
    if (!here || threadIdx.x >= WD_WARP) return;
    auto g_of_dy = [&](int i) {
        float dy = load_one(g.data, g.type, g.at + i);
        return scale ? dy * (op.scale_one + scale[i]) : dy;
    };
    layernorm_stats stats =
        x.copy ? layernorm_stats_of(ones_of_copy(x), ones_of_copy(g), width, op.eps)
               : layernorm_stats_of(ones_of_data(x), g_of_dy, width, op.eps);
    if (threadIdx.x == 0) ((layernorm_stats *)a.stats)[r] = stats;
}

WD_COLUMNS_KERNEL(layernorm_backward_columns, wd_cuda_layernorm_backward)
{
    const wd_layernorm_backward_args &op = a.op;
    int64_t width = op.width;
    columns c = columns_of(op.sample_stride ? op.rows_per_sample : op.rows, width);
    if (c.n <= 0) return;
    float dscale[EIGHT] = {0}, dshift[EIGHT] = {0}, scale[EIGHT];
    if (op.scale) /* a group's rows are of one sample, or all samples have one scale */
        load_eight(scale, op.scale, WD_F32,
                   sample_of(c.row, op.rows_per_sample) * op.sample_stride + c.at, c.n);
    const column_of arrays[] = {
        {op.x, op.type, width}, {op.dy, op.type, width}, {op.dx, op.type, width}};
    auto stats_of_row = [&](int64_t r) { return ((const layernorm_stats *)a.stats)[r]; };
    each_row(c, arrays, stats_of_row, [&](int64_t r, float v[3][EIGHT], const layernorm_stats &s) {
        float *x = v[0], *dy = v[1], *dx = v[2];
        EACH_OF_EIGHT (i) {
            float n = (x[i] - s.mean) * s.rstd;
            float g = op.scale ? dy[i] * (op.scale_one + scale[i]) : dy[i];
            dx[i] = dx[i] + s.rstd * (g - s.mean_g - n * s.mean_gn);
            dscale[i] += dy[i] * n;
            dshift[i] += dy[i];
        }
        store_eight(op.dx, op.type, r * width + c.at, dx, c.n);
    });
    if (op.dscale) columns_store(a.sums, c, 2, 0, width, dscale);
    if (op.dshift) columns_store(a.sums, c, 2, 1, width, dshift);
}

/* ---- RMSNorm: with n = x factor and g = dy turned back, dx = factor (g w - n mean(g w n)),
 * dw += g n ---- */

/* Eight elements of a row's gradient before the rotation, of what they are behind it. */
WD_DEVICE void unrotate_eight(float g[EIGHT], const wd_rmsnorm_backward_args &op, int64_t r, int at,
                              int n)
{
    if (op.cos)
        rotate_eight(g, turns_of(op.cos, op.sin, token_of(r, op.tokens), at, n, (int)op.head_dim),
                     -1);
}

/* One of them, for rows that shared memory cannot hold; dy: the row. */
WD_DEVICE float unrotated_one(const wd_rmsnorm_backward_args &op, const row &dy, int64_t r, int i)
{
    const int n = op.cos ? 2 : 1 + i % 2; /* a pair; without rotations the last may lack its twin */
    float pair[EIGHT];
    load_eight(pair, dy.data, dy.type, dy.at + i / 2 * 2, n);
    unrotate_eight(pair, op, r, i / 2 * 2, n);
    return i % 2 ? pair[1] : pair[0];
}

struct alignas(8) rmsnorm_stats {
    float factor, mean; /* mean(g w n) */
};

/* By the 32 threads of a warp; gw(i): g w of element i. */
template <class X, class Gw>
WD_DEVICE rmsnorm_stats rmsnorm_stats_of(X x, Gw gw, int width, float eps)
{
    float factor = row_rms_factor(x, width, eps);
    float sum = sum_of(width, [&](int i) { return gw(i) * (x(i) * factor); });
    return rmsnorm_stats{factor, sum / (float)width};
}

WD_KERNEL(rmsnorm_backward_rows, wd_cuda_rmsnorm_backward)
{
    const wd_rmsnorm_backward_args &op = a.op;
    int64_t r = row_index();
    int width = (int)op.width;
    bool here = r < op.rows;
    row x = row_of(op.x, op.type, r * (op.x_stride ? op.x_stride : width), width, 2, 0);
    /* its copy has g w, its data dy */
    row gw = row_of(op.dy, op.type, r * (op.dy_stride ? op.dy_stride : width), width, 2, 1);
    if (here) row_keep(x, width);
    if (here) row_keep(gw, width);
    if (here)
        row_change(gw, width, [&](float v[EIGHT], int at, int n) {
            float w[EIGHT];
            load_eight(w, op.w, op.w_type, at, n);
            unrotate_eight(v, op, r, at, n);
            EACH_OF_EIGHT (i) v[i] = v[i] * w[i];
        });
    __syncthreads();
    if (!here || threadIdx.x >= WD_WARP) return;
    auto gw_of_dy = [&](int i) {
        return unrotated_one(op, gw, r, i) * load_one(op.w, op.w_type, i);
    };
    rmsnorm_stats stats = x.copy
                              ? rmsnorm_stats_of(ones_of_copy(x), ones_of_copy(gw), width, op.eps)
                              : rmsnorm_stats_of(ones_of_data(x), gw_of_dy, width, op.eps);
    if (threadIdx.x == 0) ((rmsnorm_stats *)a.stats)[r] = stats;
}

/* What the second kernel needs of a row beside x and dy. */
struct rmsnorm_beside {
    rmsnorm_stats stats;
    turns angles;
};

WD_COLUMNS_KERNEL(rmsnorm_backward_columns, wd_cuda_rmsnorm_backward)
{
    const wd_rmsnorm_backward_args &op = a.op;
    int64_t x_stride = op.x_stride ? op.x_stride : op.width;
    int64_t stride = op.dy_stride ? op.dy_stride : op.width;
    columns c = columns_of(op.rows, op.width);
    if (c.n <= 0) return;
    float dw[EIGHT] = {0}, w[EIGHT];
    load_eight(w, op.w, op.w_type, c.at, c.n);
    const column_of arrays[] = {{op.x, op.type, x_stride}, {op.dy, op.type, stride}};
    auto beside_of_row = [&](int64_t r) {
        rmsnorm_beside b = {((const rmsnorm_stats *)a.stats)[r], {{0}, {0}}};
        if (op.cos)
            b.angles =
                turns_of(op.cos, op.sin, token_of(r, op.tokens), (int)c.at, c.n, (int)op.head_dim);
        return b;
    };
    each_row(c, arrays, beside_of_row, [&](int64_t r, float v[2][EIGHT], const rmsnorm_beside &b) {
        float *x = v[0], *g = v[1], dx[EIGHT];
        if (op.cos) rotate_eight(g, b.angles, -1);
        EACH_OF_EIGHT (i) {
            float n = x[i] * b.stats.factor;
            dw[i] += g[i] * n;
            dx[i] = b.stats.factor * (g[i] * w[i] - n * b.stats.mean);
        }
        store_eight(op.dx, op.type, r * stride + c.at, dx, c.n);
    });
    columns_store(a.sums, c, 1, 0, op.width, dw);
}
