/* Products and convolutions in plain fp32, for what libraries do not take. */
#include "dev/cuda/kernels/args.h"
#include "dev/cuda/kernels/product.cuh"
#include "dev/math.h"

/* The grid's first dimension: tiles row by row; the second: the batch. */
WD_KERNEL(matmul, wd_matmul_args)
{
    int64_t across = (a.n + TILE - 1) / TILE;
    int64_t row = blockIdx.x / (uint32_t)across * TILE,
            column = blockIdx.x % (uint32_t)across * TILE;
    int64_t at_a = blockIdx.y * a.stride_a, at_b = blockIdx.y * a.stride_b;
    float sum[SIDE][SIDE];
    product_tile(
        sum, a.k, !a.transpose_a, a.transpose_b,
        [&](int i, int64_t k) {
            int64_t r = row + i;
            if (r >= a.m) return 0.0f;
            return load_one(a.a, a.a_type, at_a + (a.transpose_a ? k * a.lda + r : r * a.lda + k));
        },
        [&](int64_t k, int j) {
            int64_t c = column + j;
            if (c >= a.n) return 0.0f;
            return load_one(a.b, a.b_type, at_b + (a.transpose_b ? c * a.ldb + k : k * a.ldb + c));
        });
    EACH_OF_TILE (i, j) {
        int64_t r = row + threadIdx.y * SIDE + i, c = column + threadIdx.x * SIDE + j;
        if (r >= a.m || c >= a.n) continue;
        int64_t at = blockIdx.y * a.stride_c + r * a.ldc + c;
        float value = sum[i][j];
        if (a.bias) value += load_one(a.bias, a.bias_type, c);
        if (a.act == WD_ACT_GELU_TANH) value = gelu_f32(value);
        if (a.beta != 0) value += a.beta * load_one(a.c, a.c_type, at);
        store_one(a.c, a.c_type, at, value);
    }
}

/* ---- convolution: rows are places of the output, k is tap by tap, channel by channel ---- */

/* Where row `row` of the output comes from: its sample, and the first tap's frame, row and column.
 */
struct window {
    int64_t sample;
    int at[3];
};

WD_DEVICE window window_of(const wd_conv_args &a, uint32_t row)
{
    window w;
    WD_UNROLL for (int d = 2; d >= 0; d--)
    {
        uint32_t size = (uint32_t)a.out[d];
        w.at[d] = (int)(row % size * a.stride[d] - a.pad_before[d]);
        row /= size;
    }
    w.sample = row;
    return w;
}

/* The element of x that tap and channel `k` of the window reads; 0: padding. */
WD_DEVICE float window_element(const wd_conv_args &a, const window &w, uint32_t k)
{
    uint32_t channels = (uint32_t)a.ci, tap = k / channels, channel = k % channels;
    uint32_t across = (uint32_t)a.kernel[2], down = (uint32_t)a.kernel[1];
    int at[3] = {w.at[0] + (int)(tap / across / down), w.at[1] + (int)(tap / across % down),
                 w.at[2] + (int)(tap % across)};
    int64_t place = w.sample;
    WD_UNROLL for (int d = 0; d < 3; d++)
    {
        if (at[d] < 0 || at[d] >= a.in[d]) return 0;
        place = place * a.in[d] + at[d];
    }
    return load_one(a.x, a.type, place * a.ci + channel);
}

/* Weights are [CO, CI, taps]. */
WD_DEVICE float weight_element(const wd_conv_args &a, uint32_t k, int64_t channel_out)
{
    uint32_t channels = (uint32_t)a.ci, tap = k / channels, channel = k % channels;
    int64_t frame = a.kernel[1] * a.kernel[2];
    int64_t at = (channel_out * a.ci + channel) * a.kernel[0] * frame + a.tap0 * frame + tap;
    return load_one(a.w, a.w_type, at);
}

WD_KERNEL(conv, wd_cuda_conv)
{
    const wd_conv_args &op = a.op;
    int64_t across = (op.co + TILE - 1) / TILE;
    int64_t row = blockIdx.x / (uint32_t)across * TILE,
            column = blockIdx.x % (uint32_t)across * TILE;
    float sum[SIDE][SIDE];
    product_tile(
        sum, a.depth, true, false,
        [&](int i, int64_t k) {
            if (row + i >= a.rows) return 0.0f;
            return window_element(op, window_of(op, (uint32_t)(row + i)), (uint32_t)k);
        },
        [&](int64_t k, int j) {
            if (column + j >= op.co) return 0.0f;
            return weight_element(op, (uint32_t)k, column + j);
        });
    EACH_OF_TILE (i, j) {
        int64_t r = row + threadIdx.y * SIDE + i, c = column + threadIdx.x * SIDE + j;
        if (r >= a.rows || c >= op.co) continue;
        float bias = op.bias ? load_one(op.bias, op.w_type, c) : 0;
        store_one(op.y, op.type, r * op.co + c, sum[i][j] + bias);
    }
}
