/* Launches of norms and residuals: see cuda/launch.h. */
#include "dev/cuda/launch_impl.h"

void wd_cuda_launch_layernorm(wd_cuda_launcher *l, const void *args)
{
    const wd_layernorm_args *a = args;
    wd_cuda_run_rows(l, WD_CUDA_layernorm, a->rows, a->width, 1, a, sizeof *a);
}

void wd_cuda_launch_layernorm_backward(wd_cuda_launcher *l, const void *args)
{
    wd_cuda_layernorm_backward a = {.op = *(const wd_layernorm_backward_args *)args};
    if (a.op.rows == 0) return;
    a.stats = wd_cuda_take(l, 4 * a.op.rows, sizeof *a.stats);
    wd_cuda_run_rows(l, WD_CUDA_layernorm_backward_rows, a.op.rows, a.op.width, 2, &a, sizeof a);
    wd_cuda_column_sums finish = {.out = {a.op.dscale, a.op.dshift},
                                  .outputs = 2,
                                  .width = a.op.width,
                                  .out_stride = a.op.sample_stride,
                                  .add = a.op.sample_stride == 0};
    wd_cuda_run_columns(l, WD_CUDA_layernorm_backward_columns, a.op.rows,
                        a.op.sample_stride ? a.op.rows_per_sample : a.op.rows, finish, &a.sums, &a,
                        sizeof a);
}

void wd_cuda_launch_rmsnorm(wd_cuda_launcher *l, const void *args)
{
    const wd_rmsnorm_args *a = args;
    wd_cuda_run_rows(l, WD_CUDA_rmsnorm, a->rows, a->width, 1, a, sizeof *a);
}

void wd_cuda_launch_rmsnorm_backward(wd_cuda_launcher *l, const void *args)
{
    wd_cuda_rmsnorm_backward a = {.op = *(const wd_rmsnorm_backward_args *)args};
    if (a.op.rows == 0) return;
    a.stats = wd_cuda_take(l, 2 * a.op.rows, sizeof *a.stats);
    wd_cuda_run_rows(l, WD_CUDA_rmsnorm_backward_rows, a.op.rows, a.op.width, 2, &a, sizeof a);
    wd_cuda_column_sums finish = {.out = {a.op.dw}, .outputs = 1, .width = a.op.width, .add = true};
    wd_cuda_run_columns(l, WD_CUDA_rmsnorm_backward_columns, a.op.rows, a.op.rows, finish, &a.sums,
                        &a, sizeof a);
}

void wd_cuda_launch_channelnorm(wd_cuda_launcher *l, const void *args)
{
    const wd_channelnorm_args *a = args;
    wd_cuda_run_rows(l, WD_CUDA_channelnorm, a->rows, a->width, 1, a, sizeof *a);
}

void wd_cuda_launch_residual(wd_cuda_launcher *l, const void *args)
{
    const wd_residual_args *a = args;
    wd_cuda_run_rows(l, WD_CUDA_residual, a->rows, a->width, 0, a, sizeof *a);
}

void wd_cuda_launch_residual_backward(wd_cuda_launcher *l, const void *args)
{
    wd_cuda_residual_backward a = {.op = *(const wd_residual_backward_args *)args};
    if (a.op.rows == 0) return;
    wd_cuda_column_sums finish = {
        .out = {a.op.dgate}, .outputs = 1, .width = a.op.width, .out_stride = a.op.sample_stride};
    wd_cuda_run_columns(l, WD_CUDA_residual_backward_columns, a.op.rows, a.op.rows_per_sample,
                        finish, &a.sums, &a, sizeof a);
}
