/* Grids, and which function launches which operation: see cuda/launch.h. */
#include "dev/cuda/launch.h"

#include <limits.h>

#include "core/require.h"
#include "dev/cuda/kernels/row_shape.h"
#include "dev/cuda/launch_impl.h"
#include "dev/sum_order.h"

enum { BLOCK_THREADS = 256, EIGHT = 8, ALIGN = 16 };
enum { HEAD_MAX = 2048 }; /* shared memory holds five rows of a head */

static const char *const symbols[WD_CUDA_KERNEL_COUNT] = {
#define X(name) "wd_kernel_" #name,
    WD_CUDA_KERNEL_MAP(X)
#undef X
};

const char *wd_cuda_kernel_symbol(wd_cuda_kernel kernel)
{
    return symbols[kernel];
}

static int64_t parts(int64_t count, int64_t part_size)
{
    return (count + part_size - 1) / part_size;
}

void *wd_cuda_take(wd_cuda_launcher *l, int64_t count, size_t size)
{
    size_t at = l->used;
    l->used = (at + (size_t)count * size + ALIGN - 1) / ALIGN * ALIGN;
    return l->workspace ? l->workspace + at : NULL;
}

void wd_cuda_run_blocks(wd_cuda_launcher *l, wd_cuda_kernel kernel, int64_t blocks,
                        int64_t blocks_y, const unsigned block[3], size_t shared_bytes,
                        const void *args, size_t bytes)
{
    if (!l->run || blocks == 0 || blocks_y == 0) return;
    WD_REQUIRE(blocks <= INT_MAX && blocks_y <= 65535, "%s: a grid of %lld x %lld blocks",
               symbols[kernel], (long long)blocks, (long long)blocks_y);
    const unsigned grid[3] = {(unsigned)blocks, (unsigned)blocks_y, 1};
    l->run(l->context, kernel, grid, block, shared_bytes, args, bytes);
}

void wd_cuda_run_flat(wd_cuda_launcher *l, wd_cuda_kernel kernel, int64_t count, const void *args,
                      size_t bytes)
{
    const unsigned block[3] = {BLOCK_THREADS, 1, 1};
    wd_cuda_run_blocks(l, kernel, parts(count, BLOCK_THREADS), 1, block, 0, args, bytes);
}

void wd_cuda_run_eights(wd_cuda_launcher *l, wd_cuda_kernel kernel, int64_t count, int64_t samples,
                        const void *args, size_t bytes)
{
    const unsigned block[3] = {BLOCK_THREADS, 1, 1};
    wd_cuda_run_blocks(l, kernel, parts(count, BLOCK_THREADS * EIGHT), samples, block, 0, args,
                       bytes);
}

void wd_cuda_run_rows(wd_cuda_launcher *l, wd_cuda_kernel kernel, int64_t rows, int64_t width,
                      int kept, const void *args, size_t bytes)
{
    WD_REQUIRE(rows <= INT_MAX && width <= INT_MAX - ROW_THREADS_MAX * EIGHT,
               "%s: %lld rows of %lld elements", symbols[kernel], (long long)rows,
               (long long)width);
    int together = row_block_rows(width, kept);
    const unsigned block[3] = {(unsigned)row_threads(width), (unsigned)together, 1};
    int64_t shared = row_shared_bytes(width, together, row_fits(width, together, kept) ? kept : 0);
    wd_cuda_run_blocks(l, kernel, width ? parts(rows, together) : 0, 1, block, (size_t)shared, args,
                       bytes);
}

void wd_cuda_run_columns(wd_cuda_launcher *l, wd_cuda_kernel kernel, int64_t rows,
                         int64_t sample_rows, wd_cuda_column_sums finish, float **sums,
                         const void *args, size_t bytes)
{
    const unsigned block[3] = {COLUMN_THREADS, 1, 1};
    finish.samples = sample_rows ? rows / sample_rows : 1;
    finish.per_sample = column_sums_chunks(sample_rows);
    int64_t groups = finish.samples * finish.per_sample, width = finish.width;
    finish.sums = *sums = wd_cuda_take(l, groups * finish.outputs * width, sizeof **sums);
    wd_cuda_run_blocks(l, kernel, groups, parts(width, COLUMN_THREADS * EIGHT), block, 0, args,
                       bytes);
    wd_cuda_run_flat(l, WD_CUDA_column_sums_finish, finish.samples * finish.outputs * width,
                     &finish, sizeof finish);
}

static wd_cuda_launch_fn *const launch[WD_OP_COUNT] = {
    [WD_OP_LAYERNORM] = wd_cuda_launch_layernorm,
    [WD_OP_LAYERNORM_BACKWARD] = wd_cuda_launch_layernorm_backward,
    [WD_OP_RMSNORM] = wd_cuda_launch_rmsnorm,
    [WD_OP_RMSNORM_BACKWARD] = wd_cuda_launch_rmsnorm_backward,
    [WD_OP_CHANNELNORM] = wd_cuda_launch_channelnorm,
    [WD_OP_RESIDUAL] = wd_cuda_launch_residual,
    [WD_OP_RESIDUAL_BACKWARD] = wd_cuda_launch_residual_backward,
    [WD_OP_ACTIVATION] = wd_cuda_launch_activation,
    [WD_OP_ACTIVATION_BACKWARD] = wd_cuda_launch_activation_backward,
    [WD_OP_MULTIPLY] = wd_cuda_launch_multiply,
    [WD_OP_ADD_TABLE] = wd_cuda_launch_add_table,
    [WD_OP_SUM_ROWS] = wd_cuda_launch_sum_rows,
    [WD_OP_TIMESTEP_EMBED] = wd_cuda_launch_timestep_embed,
    [WD_OP_STRIDED_COPY] = wd_cuda_launch_strided_copy,
    [WD_OP_GATHER_ROWS] = wd_cuda_launch_gather_rows,
    [WD_OP_CAST] = wd_cuda_launch_cast,
    [WD_OP_DEQUANTISE] = wd_cuda_launch_dequantise,
    [WD_OP_FILL] = wd_cuda_launch_fill,
    [WD_OP_COMBINE] = wd_cuda_launch_combine,
    [WD_OP_GUIDANCE] = wd_cuda_launch_guidance,
    [WD_OP_STEP_SAMPLES] = wd_cuda_launch_step_samples,
    [WD_OP_MSE] = wd_cuda_launch_mse,
    [WD_OP_SUM_SQUARES] = wd_cuda_launch_sum_squares,
    [WD_OP_SUM_SQUARES_CHUNKS] = wd_cuda_launch_sum_squares_chunks,
    [WD_OP_CLIP_FACTOR] = wd_cuda_launch_clip_factor,
    [WD_OP_ADAMW] = wd_cuda_launch_adamw,
    [WD_OP_MATMUL] = wd_cuda_launch_matmul,
    [WD_OP_ATTENTION] = wd_cuda_launch_attention,
    [WD_OP_ATTENTION_BACKWARD] = wd_cuda_launch_attention_backward,
    [WD_OP_CONV] = wd_cuda_launch_conv,
};

bool wd_cuda_kernels_take(wd_op op, const void *args)
{
    const wd_attention_args *forth = args;
    const wd_attention_backward_args *back = args;
    switch (op) {
    case WD_OP_ATTENTION:
        return forth->head_dim <= HEAD_MAX;
    case WD_OP_ATTENTION_BACKWARD:
        return back->head_dim <= HEAD_MAX;
    default:
        return launch[op] != NULL;
    }
}

size_t wd_cuda_kernels_workspace(wd_op op, const void *args)
{
    wd_cuda_launcher l = {0};
    launch[op](&l, args);
    return l.used;
}

void wd_cuda_kernels_run(wd_op op, const void *args, void *workspace, wd_cuda_run_fn *run,
                         void *context)
{
    wd_cuda_launcher l = {.run = run, .context = context, .workspace = workspace};
    launch[op](&l, args);
}
