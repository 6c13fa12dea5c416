/* Launches of sums, loss and optimiser: see cuda/launch.h. */
#include "dev/cuda/launch_impl.h"
#include "dev/sum_order.h"

enum { CHUNK_THREADS = 256, RUN_SUMS = WD_SUM_CHUNK / SUM_RUN };

static const unsigned one_warp[3] = {32, 1, 1}, chunk_block[3] = {CHUNK_THREADS, 1, 1};

void wd_cuda_launch_sum_rows(wd_cuda_launcher *l, const void *args)
{
    wd_cuda_sum_rows a = {.op = *(const wd_sum_rows_args *)args};
    wd_cuda_column_sums finish = {
        .out = {a.op.y}, .outputs = 1, .width = a.op.width, .add = a.op.beta != 0};
    wd_cuda_run_columns(l, WD_CUDA_sum_rows_columns, a.op.rows, a.op.rows, finish, &a.sums, &a,
                        sizeof a);
}

static void run_squares(wd_cuda_launcher *l, wd_cuda_squares a)
{
    wd_cuda_run_blocks(l, WD_CUDA_squares_chunks, sum_chunks(a.count), 1, chunk_block,
                       RUN_SUMS * sizeof(float), &a, sizeof a);
}

void wd_cuda_launch_sum_squares_chunks(wd_cuda_launcher *l, const void *args)
{
    const wd_sum_squares_chunks_args *a = args;
    run_squares(l, (wd_cuda_squares){a->x, a->sums, a->count});
}

void wd_cuda_launch_sum_squares(wd_cuda_launcher *l, const void *args)
{
    const wd_sum_squares_args *a = args;
    int64_t chunks = sum_chunks(a->count);
    double *sums = wd_cuda_take(l, chunks, sizeof *sums);
    run_squares(l, (wd_cuda_squares){a->x, sums, a->count});
    wd_cuda_squares_finish finish = {a->sum, sums, chunks};
    wd_cuda_run_blocks(l, WD_CUDA_squares_finish, 1, 1, chunk_block,
                       CHUNK_THREADS * SUMS_OF_THREAD * sizeof(double), &finish, sizeof finish);
}

void wd_cuda_launch_mse(wd_cuda_launcher *l, const void *args)
{
    wd_cuda_mse a = {.op = *(const wd_mse_args *)args};
    int64_t chunks = sum_chunks(a.op.width);
    a.sums = wd_cuda_take(l, a.op.samples * chunks, sizeof *a.sums);
    wd_cuda_run_blocks(l, WD_CUDA_mse_chunks, chunks, a.op.samples, chunk_block,
                       RUN_SUMS * sizeof(float), &a, sizeof a);
    wd_cuda_run_flat(l, WD_CUDA_mse_finish, a.op.samples, &a, sizeof a);
}

void wd_cuda_launch_clip_factor(wd_cuda_launcher *l, const void *args)
{
    const wd_clip_factor_args *a = args;
    wd_cuda_run_blocks(l, WD_CUDA_clip_factor, 1, 1, one_warp, 0, a, sizeof *a);
}

void wd_cuda_launch_adamw(wd_cuda_launcher *l, const void *args)
{
    wd_cuda_adamw a = {.op = *(const wd_adamw_args *)args};
    a.scalars = wd_cuda_take(l, 1, sizeof *a.scalars);
    wd_cuda_run_blocks(l, WD_CUDA_adamw_scalars, 1, 1, one_warp, 0, &a, sizeof a);
    wd_cuda_run_eights(l, WD_CUDA_adamw, a.op.count, 1, &a, sizeof a);
}
