/* How our own kernels are launched: which of them an operation takes, in which grid of which
 * blocks, and in which workspace. See dev/cuda/launch.h. */
#include "dev/cuda/launch.h"

#include <limits.h>
#include <math.h>

#include "core/error.h"
#include "dev/cuda/kernels/args.h"
#include "dev/cuda/kernels/product_shape.h"
#include "dev/cuda/kernels/row_shape.h"
#include "dev/sum_order.h"

enum { BLOCK_THREADS = 256, EIGHT = 8, ALIGN = 16 };
enum { HEAD_MAX = 2048 }; /* shared memory holds five rows of a head */

static const char *const symbols[WD_CUDA_KERNEL_COUNT] = {
#define X(name) "wd_kernel_" #name,
    WD_CUDA_KERNEL_MAP(X)
#undef X
};

const char *wd__cuda_kernel_symbol(wd_cuda_kernel kernel)
{
    return symbols[kernel];
}

/* ---- grids ---- */

/* Whom to tell of launches, and the workspace that is left: zeroed, it only counts. */
typedef struct launcher {
    wd_cuda_run_fn *run; /* NULL: nothing is launched */
    void *context;
    char *workspace;
    size_t used; /* of the workspace so far */
} launcher;

static int64_t parts(int64_t count, int64_t part_size)
{
    return (count + part_size - 1) / part_size;
}

/* The next `count` elements of `size` bytes of the workspace; NULL where it is only counted. */
static void *take(launcher *l, int64_t count, size_t size)
{
    size_t at = l->used;
    l->used = (at + (size_t)count * size + ALIGN - 1) / ALIGN * ALIGN;
    return l->workspace ? l->workspace + at : NULL;
}

/* Launches `blocks` x `blocks_y` blocks; where one of them is 0, nothing. */
static void run_blocks(launcher *l, wd_cuda_kernel kernel, int64_t blocks, int64_t blocks_y,
                       const unsigned block[3], size_t shared_bytes, const void *args, size_t bytes)
{
    if (!l->run || blocks == 0 || blocks_y == 0) return;
    WD_REQUIRE(blocks <= INT_MAX && blocks_y <= 65535, "%s: a grid of %lld x %lld blocks",
               symbols[kernel], (long long)blocks, (long long)blocks_y);
    const unsigned grid[3] = {(unsigned)blocks, (unsigned)blocks_y, 1};
    l->run(l->context, kernel, grid, block, shared_bytes, args, bytes);
}

/* A thread for each of `count` things, in blocks of 256. */
static void run_flat(launcher *l, wd_cuda_kernel kernel, int64_t count, const void *args,
                     size_t bytes)
{
    const unsigned block[3] = {BLOCK_THREADS, 1, 1};
    run_blocks(l, kernel, parts(count, BLOCK_THREADS), 1, block, 0, args, bytes);
}

/* A thread for every eight of `count` elements of each of `samples`: kernels/flat.cuh. */
static void run_eights(launcher *l, wd_cuda_kernel kernel, int64_t count, int64_t samples,
                       const void *args, size_t bytes)
{
    const unsigned block[3] = {BLOCK_THREADS, 1, 1};
    run_blocks(l, kernel, parts(count, BLOCK_THREADS * EIGHT), samples, block, 0, args, bytes);
}

/* Rows as kernels/rows.cuh has them, with `kept` arrays' rows in shared memory. */
static void run_rows(launcher *l, wd_cuda_kernel kernel, int64_t rows, int64_t width, int kept,
                     const void *args, size_t bytes)
{
    WD_REQUIRE(rows <= INT_MAX && width <= INT_MAX - ROW_THREADS_MAX * EIGHT,
               "%s: %lld rows of %lld elements", symbols[kernel], (long long)rows,
               (long long)width);
    int together = row_block_rows(width, kept);
    const unsigned block[3] = {(unsigned)row_threads(width), (unsigned)together, 1};
    int64_t shared = row_shared_bytes(width, together, row_fits(width, together, kept) ? kept : 0);
    run_blocks(l, kernel, width ? parts(rows, together) : 0, 1, block, (size_t)shared, args, bytes);
}

/* Sums over rows as kernels/columns.cuh has them: the second half is launched with `finish`, whose
 * sums, samples and per_sample are filled in here. `sums` is where the kernel's args say where the
 * workspace for the groups' sums is. */
static void run_columns(launcher *l, wd_cuda_kernel kernel, int64_t rows, int64_t sample_rows,
                        wd_cuda_column_sums finish, float **sums, const void *args, size_t bytes)
{
    const unsigned block[3] = {COLUMN_THREADS, 1, 1};
    finish.samples = sample_rows ? rows / sample_rows : 1;
    finish.per_sample = column_sums_chunks(sample_rows);
    int64_t groups = finish.samples * finish.per_sample, width = finish.width;
    finish.sums = *sums = take(l, groups * finish.outputs * width, sizeof **sums);
    run_blocks(l, kernel, groups, parts(width, COLUMN_THREADS * EIGHT), block, 0, args, bytes);
    run_flat(l, WD_CUDA_column_sums_finish, finish.samples * finish.outputs * width, &finish,
             sizeof finish);
}

/* ---- norms and residuals ---- */

static void launch_layernorm(launcher *l, const void *args)
{
    const wd_layernorm_args *a = args;
    run_rows(l, WD_CUDA_layernorm, a->rows, a->width, 1, a, sizeof *a);
}

static void launch_layernorm_backward(launcher *l, const void *args)
{
    wd_cuda_layernorm_backward a = {.op = *(const wd_layernorm_backward_args *)args};
    if (a.op.rows == 0) return;
    a.stats = take(l, 4 * a.op.rows, sizeof *a.stats);
    run_rows(l, WD_CUDA_layernorm_backward_rows, a.op.rows, a.op.width, 2, &a, sizeof a);
    wd_cuda_column_sums finish = {.out = {a.op.dscale, a.op.dshift},
                                  .outputs = 2,
                                  .width = a.op.width,
                                  .out_stride = a.op.sample_stride,
                                  .add = a.op.sample_stride == 0};
    run_columns(l, WD_CUDA_layernorm_backward_columns, a.op.rows,
                a.op.sample_stride ? a.op.rows_per_sample : a.op.rows, finish, &a.sums, &a,
                sizeof a);
}

static void launch_rmsnorm(launcher *l, const void *args)
{
    const wd_rmsnorm_args *a = args;
    run_rows(l, WD_CUDA_rmsnorm, a->rows, a->width, 1, a, sizeof *a);
}

static void launch_rmsnorm_backward(launcher *l, const void *args)
{
    wd_cuda_rmsnorm_backward a = {.op = *(const wd_rmsnorm_backward_args *)args};
    if (a.op.rows == 0) return;
    a.stats = take(l, 2 * a.op.rows, sizeof *a.stats);
    run_rows(l, WD_CUDA_rmsnorm_backward_rows, a.op.rows, a.op.width, 2, &a, sizeof a);
    wd_cuda_column_sums finish = {.out = {a.op.dw}, .outputs = 1, .width = a.op.width, .add = true};
    run_columns(l, WD_CUDA_rmsnorm_backward_columns, a.op.rows, a.op.rows, finish, &a.sums, &a,
                sizeof a);
}

static void launch_channelnorm(launcher *l, const void *args)
{
    const wd_channelnorm_args *a = args;
    run_rows(l, WD_CUDA_channelnorm, a->rows, a->width, 1, a, sizeof *a);
}

static void launch_residual(launcher *l, const void *args)
{
    const wd_residual_args *a = args;
    run_rows(l, WD_CUDA_residual, a->rows, a->width, 0, a, sizeof *a);
}

static void launch_residual_backward(launcher *l, const void *args)
{
    wd_cuda_residual_backward a = {.op = *(const wd_residual_backward_args *)args};
    if (a.op.rows == 0) return;
    wd_cuda_column_sums finish = {
        .out = {a.op.dgate}, .outputs = 1, .width = a.op.width, .out_stride = a.op.sample_stride};
    run_columns(l, WD_CUDA_residual_backward_columns, a.op.rows, a.op.rows_per_sample, finish,
                &a.sums, &a, sizeof a);
}

/* ---- elementwise operations and copies ---- */

static void launch_activation(launcher *l, const void *args)
{
    const wd_activation_args *a = args;
    run_eights(l, WD_CUDA_activation, a->count, 1, a, sizeof *a);
}

static void launch_activation_backward(launcher *l, const void *args)
{
    const wd_activation_backward_args *a = args;
    run_eights(l, WD_CUDA_activation_backward, a->count, 1, a, sizeof *a);
}

static void launch_multiply(launcher *l, const void *args)
{
    const wd_multiply_args *a = args;
    run_eights(l, WD_CUDA_multiply, a->count, 1, a, sizeof *a);
}

static void launch_add_table(launcher *l, const void *args)
{
    const wd_add_table_args *a = args;
    run_rows(l, WD_CUDA_add_table, a->rows, a->width, 0, a, sizeof *a);
}

static void launch_combine(launcher *l, const void *args)
{
    const wd_combine_args *a = args;
    run_eights(l, WD_CUDA_combine, a->count, 1, a, sizeof *a);
}

static void launch_guidance(launcher *l, const void *args)
{
    const wd_guidance_args *a = args;
    run_eights(l, WD_CUDA_guidance, a->width, a->samples, a, sizeof *a);
}

static void launch_step_samples(launcher *l, const void *args)
{
    const wd_step_samples_args *a = args;
    run_eights(l, WD_CUDA_step_samples, a->width, a->samples, a, sizeof *a);
}

static void launch_timestep_embed(launcher *l, const void *args)
{
    const wd_timestep_embed_args *a = args;
    run_flat(l, WD_CUDA_timestep_embed, a->samples * (a->width / 2), a, sizeof *a);
}

static void launch_cast(launcher *l, const void *args)
{
    const wd_cast_args *a = args;
    run_eights(l, WD_CUDA_cast, a->count, 1, a, sizeof *a);
}

static void launch_dequantise(launcher *l, const void *args)
{
    const wd_dequantise_args *a = args;
    run_eights(l, WD_CUDA_dequantise, a->rows * a->width, 1, a, sizeof *a);
}

static void launch_fill(launcher *l, const void *args)
{
    const wd_fill_args *a = args;
    run_eights(l, WD_CUDA_fill, a->count, 1, a, sizeof *a);
}

static void launch_gather_rows(launcher *l, const void *args)
{
    const wd_gather_rows_args *a = args;
    run_rows(l, WD_CUDA_gather_rows, a->rows, a->width, 0, a, sizeof *a);
}

static void launch_strided_copy(launcher *l, const void *args)
{
    const wd_strided_copy_args *op = args;
    wd_cuda_strided_copy a = {.to = op->to,
                              .from = op->from,
                              .to_type = op->to_type,
                              .from_type = op->from_type,
                              .alpha = op->alpha,
                              .beta = op->beta};
    if (!wd_strided_walk_plan(&a.walk, op)) return;
    int64_t eights = parts(a.walk.inner.count, EIGHT), threads = eights;
    for (int i = 0; i < a.walk.outers; i++) threads *= a.walk.outer[i].count;
    WD_REQUIRE(threads <= INT_MAX && a.walk.repeat_count <= INT_MAX,
               "a strided copy of %lld times 8 elements", (long long)threads);
    a.eights = (uint32_t)eights;
    a.threads = (uint32_t)threads;
    run_flat(l, WD_CUDA_strided_copy, threads, &a, sizeof a);
}

/* ---- sums, loss and optimiser ---- */

enum { CHUNK_THREADS = 256, RUN_SUMS = WD_SUM_CHUNK / SUM_RUN };

static const unsigned one_warp[3] = {32, 1, 1}, chunk_block[3] = {CHUNK_THREADS, 1, 1};

static void launch_sum_rows(launcher *l, const void *args)
{
    wd_cuda_sum_rows a = {.op = *(const wd_sum_rows_args *)args};
    wd_cuda_column_sums finish = {
        .out = {a.op.y}, .outputs = 1, .width = a.op.width, .add = a.op.beta != 0};
    run_columns(l, WD_CUDA_sum_rows_columns, a.op.rows, a.op.rows, finish, &a.sums, &a, sizeof a);
}

static void run_squares(launcher *l, wd_cuda_squares a)
{
    run_blocks(l, WD_CUDA_squares_chunks, sum_chunks(a.count), 1, chunk_block,
               RUN_SUMS * sizeof(float), &a, sizeof a);
}

static void launch_sum_squares_chunks(launcher *l, const void *args)
{
    const wd_sum_squares_chunks_args *a = args;
    run_squares(l, (wd_cuda_squares){a->x, a->sums, a->count, a->type});
}

static void launch_sum_squares(launcher *l, const void *args)
{
    const wd_sum_squares_args *a = args;
    int64_t chunks = sum_chunks(a->count);
    double *sums = take(l, chunks, sizeof *sums);
    run_squares(l, (wd_cuda_squares){a->x, sums, a->count, a->type});
    wd_cuda_squares_finish finish = {a->sum, sums, chunks};
    run_blocks(l, WD_CUDA_squares_finish, 1, 1, chunk_block,
               CHUNK_THREADS * SUMS_OF_THREAD * sizeof(double), &finish, sizeof finish);
}

static void launch_mse(launcher *l, const void *args)
{
    wd_cuda_mse a = {.op = *(const wd_mse_args *)args};
    int64_t chunks = sum_chunks(a.op.width);
    a.sums = take(l, a.op.samples * chunks, sizeof *a.sums);
    run_blocks(l, WD_CUDA_mse_chunks, chunks, a.op.samples, chunk_block, RUN_SUMS * sizeof(float),
               &a, sizeof a);
    run_flat(l, WD_CUDA_mse_finish, a.op.samples, &a, sizeof a);
}

static void launch_clip_factor(launcher *l, const void *args)
{
    const wd_clip_factor_args *a = args;
    run_blocks(l, WD_CUDA_clip_factor, 1, 1, one_warp, 0, a, sizeof *a);
}

static void launch_adamw(launcher *l, const void *args)
{
    wd_cuda_adamw a = {.op = *(const wd_adamw_args *)args};
    a.scalars = take(l, 1, sizeof *a.scalars);
    run_blocks(l, WD_CUDA_adamw_scalars, 1, 1, one_warp, 0, &a, sizeof a);
    if (a.op.m)
        run_eights(l, WD_CUDA_adamw, a.op.count, 1, &a, sizeof a);
    else
        run_flat(l, WD_CUDA_adamw_packed, a.op.count, &a, sizeof a);
}

static void launch_ema(launcher *l, const void *args)
{
    const wd_ema_args *a = args;
    run_eights(l, WD_CUDA_ema, a->count, 1, a, sizeof *a);
}

static void launch_moments(launcher *l, const void *args)
{
    const wd_moments_args *a = args;
    run_flat(l, WD_CUDA_moments, a->count, a, sizeof *a);
}

static void launch_masters(launcher *l, const void *args)
{
    const wd_masters_args *a = args;
    run_eights(l, WD_CUDA_masters, a->count, a->rows, a, sizeof *a);
}

/* ---- products, convolutions and attention ---- */

static const unsigned tile_block[3] = {16, 16, 1};

static int64_t tiles(int64_t rows, int64_t columns)
{
    return parts(rows, TILE) * parts(columns, TILE);
}

static void launch_matmul(launcher *l, const void *args)
{
    const wd_matmul_args *a = args;
    run_blocks(l, WD_CUDA_matmul, tiles(a->m, a->n), a->batch, tile_block, TILE_SHARED, a,
               sizeof *a);
}

static void launch_conv(launcher *l, const void *args)
{
    wd_cuda_conv a = {.op = *(const wd_conv_args *)args};
    a.rows = a.op.samples * a.op.out[0] * a.op.out[1] * a.op.out[2];
    a.depth = (a.op.tap1 - a.op.tap0) * a.op.kernel[1] * a.op.kernel[2] * a.op.ci;
    run_blocks(l, WD_CUDA_conv, tiles(a.rows, a.op.co), 1, tile_block, TILE_SHARED, &a, sizeof a);
}

/* A block of warps that have one of `tokens` each, with `floats` of shared memory each, as many as
 * fit, up to eight. */
static void run_warps(launcher *l, wd_cuda_kernel kernel, int64_t heads, int64_t tokens,
                      int64_t floats, const void *args, size_t bytes)
{
    int64_t warps = ROW_SHARED_MAX / (int64_t)sizeof(float) / floats;
    if (warps > ROW_THREADS_MAX / 32) warps = ROW_THREADS_MAX / 32;
    const unsigned block[3] = {32, (unsigned)warps, 1};
    run_blocks(l, kernel, heads * parts(tokens, warps), 1, block,
               (size_t)(warps * floats) * sizeof(float), args, bytes);
}

static float log_of(int64_t repeat)
{
    return repeat > 1 ? (float)log((double)repeat) : 0;
}

static void launch_attention(launcher *l, const void *args)
{
    wd_cuda_attention a = {.op = *(const wd_attention_args *)args};
    a.log_repeat = log_of(a.op.last_key_repeat);
    run_warps(l, WD_CUDA_attention, a.op.samples * a.op.heads, a.op.q_tokens,
              2 * a.op.head_dim + 32, &a, sizeof a);
}

static void launch_attention_backward(launcher *l, const void *args)
{
    wd_cuda_attention_backward a = {.op = *(const wd_attention_backward_args *)args};
    int64_t heads = a.op.samples * a.op.heads;
    a.log_repeat = log_of(a.op.last_key_repeat);
    a.dot_o = take(l, heads * a.op.q_tokens, sizeof *a.dot_o);
    run_warps(l, WD_CUDA_attention_backward_queries, heads, a.op.q_tokens, 3 * a.op.head_dim + 32,
              &a, sizeof a);
    run_warps(l, WD_CUDA_attention_backward_keys, heads, a.op.kv_tokens, 4 * a.op.head_dim + 64, &a,
              sizeof a);
}

/* ---- operations ---- */

typedef void launch_fn(launcher *l, const void *args);

static launch_fn *const launch[WD_OP_COUNT] = {
    [WD_OP_LAYERNORM] = launch_layernorm,
    [WD_OP_LAYERNORM_BACKWARD] = launch_layernorm_backward,
    [WD_OP_RMSNORM] = launch_rmsnorm,
    [WD_OP_RMSNORM_BACKWARD] = launch_rmsnorm_backward,
    [WD_OP_CHANNELNORM] = launch_channelnorm,
    [WD_OP_RESIDUAL] = launch_residual,
    [WD_OP_RESIDUAL_BACKWARD] = launch_residual_backward,
    [WD_OP_ACTIVATION] = launch_activation,
    [WD_OP_ACTIVATION_BACKWARD] = launch_activation_backward,
    [WD_OP_MULTIPLY] = launch_multiply,
    [WD_OP_ADD_TABLE] = launch_add_table,
    [WD_OP_SUM_ROWS] = launch_sum_rows,
    [WD_OP_TIMESTEP_EMBED] = launch_timestep_embed,
    [WD_OP_STRIDED_COPY] = launch_strided_copy,
    [WD_OP_GATHER_ROWS] = launch_gather_rows,
    [WD_OP_CAST] = launch_cast,
    [WD_OP_DEQUANTISE] = launch_dequantise,
    [WD_OP_FILL] = launch_fill,
    [WD_OP_COMBINE] = launch_combine,
    [WD_OP_GUIDANCE] = launch_guidance,
    [WD_OP_STEP_SAMPLES] = launch_step_samples,
    [WD_OP_MSE] = launch_mse,
    [WD_OP_SUM_SQUARES] = launch_sum_squares,
    [WD_OP_SUM_SQUARES_CHUNKS] = launch_sum_squares_chunks,
    [WD_OP_CLIP_FACTOR] = launch_clip_factor,
    [WD_OP_MOMENTS] = launch_moments,
    [WD_OP_MASTERS] = launch_masters,
    [WD_OP_ADAMW] = launch_adamw,
    [WD_OP_EMA] = launch_ema,
    [WD_OP_MATMUL] = launch_matmul,
    [WD_OP_ATTENTION] = launch_attention,
    [WD_OP_ATTENTION_BACKWARD] = launch_attention_backward,
    [WD_OP_CONV] = launch_conv,
};

bool wd__cuda_kernels_take(wd_op op, const void *args)
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

size_t wd__cuda_kernels_workspace(wd_op op, const void *args)
{
    launcher l = {0};
    launch[op](&l, args);
    return l.used;
}

void wd__cuda_kernels_run(wd_op op, const void *args, void *workspace, wd_cuda_run_fn *run,
                          void *context)
{
    launcher l = {.run = run, .context = context, .workspace = workspace};
    launch[op](&l, args);
}
