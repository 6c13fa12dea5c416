/* Launches of products, convolution and attention: see cuda/launch.h. */
#include <limits.h>
#include <math.h>

#include "dev/cuda/kernels/product_shape.h"
#include "dev/cuda/kernels/row_shape.h"
#include "dev/cuda/launch_impl.h"

static const unsigned tile_block[3] = {16, 16, 1};

static int64_t tiles(int64_t rows, int64_t columns)
{
    return (rows + TILE - 1) / TILE * ((columns + TILE - 1) / TILE);
}

void wd_cuda_launch_matmul(wd_cuda_launcher *l, const void *args)
{
    const wd_matmul_args *a = args;
    wd_cuda_run_blocks(l, WD_CUDA_matmul, tiles(a->m, a->n), a->batch, tile_block, TILE_SHARED, a,
                       sizeof *a);
}

void wd_cuda_launch_conv(wd_cuda_launcher *l, const void *args)
{
    wd_cuda_conv a = {.op = *(const wd_conv_args *)args};
    a.rows = a.op.samples * a.op.out[0] * a.op.out[1] * a.op.out[2];
    a.depth = (a.op.tap1 - a.op.tap0) * a.op.kernel[1] * a.op.kernel[2] * a.op.ci;
    wd_cuda_run_blocks(l, WD_CUDA_conv, tiles(a.rows, a.op.co), 1, tile_block, TILE_SHARED, &a,
                       sizeof a);
}

/* A block of warps that have one of `tokens` each, with `floats` of shared memory each, as many as
 * fit, up to eight. */
static void run_warps(wd_cuda_launcher *l, wd_cuda_kernel kernel, int64_t heads, int64_t tokens,
                      int64_t floats, const void *args, size_t bytes)
{
    int64_t warps = ROW_SHARED_MAX / (int64_t)sizeof(float) / floats;
    if (warps > ROW_THREADS_MAX / 32) warps = ROW_THREADS_MAX / 32;
    const unsigned block[3] = {32, (unsigned)warps, 1};
    wd_cuda_run_blocks(l, kernel, heads * ((tokens + warps - 1) / warps), 1, block,
                       (size_t)(warps * floats) * sizeof(float), args, bytes);
}

static float log_of(int64_t repeat)
{
    return repeat > 1 ? (float)log((double)repeat) : 0;
}

void wd_cuda_launch_attention(wd_cuda_launcher *l, const void *args)
{
    wd_cuda_attention a = {.op = *(const wd_attention_args *)args};
    a.log_repeat = log_of(a.op.last_key_repeat);
    run_warps(l, WD_CUDA_attention, a.op.samples * a.op.heads, a.op.q_tokens,
              2 * a.op.head_dim + 32, &a, sizeof a);
}

void wd_cuda_launch_attention_backward(wd_cuda_launcher *l, const void *args)
{
    wd_cuda_attention_backward a = {.op = *(const wd_attention_backward_args *)args};
    int64_t heads = a.op.samples * a.op.heads;
    a.log_repeat = log_of(a.op.last_key_repeat);
    a.dot_o = wd_cuda_take(l, heads * a.op.q_tokens, sizeof *a.dot_o);
    run_warps(l, WD_CUDA_attention_backward_queries, heads, a.op.q_tokens, 3 * a.op.head_dim + 32,
              &a, sizeof a);
    run_warps(l, WD_CUDA_attention_backward_keys, heads, a.op.kv_tokens, 4 * a.op.head_dim + 64, &a,
              sizeof a);
}
