/* Workspace of the kernels in cpu/isa, the same for every instruction set: partial sums. */
#include "dev/cpu/isa/column_sums.h"
#include "dev/cpu/isa/isa.h"

static size_t column_sums_bytes(int64_t rows, int64_t group_rows, int64_t outputs, int64_t width)
{
    if (rows == 0) return 0;
    int64_t chunks = rows / group_rows * column_sums_chunks(group_rows);
    return (size_t)(chunks * outputs * width) * sizeof(float);
}

size_t wd_isa_layernorm_backward_workspace(const void *args)
{
    const wd_layernorm_backward_args *a = args;
    return column_sums_bytes(a->rows, a->sample_stride ? a->rows_per_sample : a->rows, 2, a->width);
}

size_t wd_isa_rmsnorm_backward_workspace(const void *args)
{
    const wd_rmsnorm_backward_args *a = args;
    return column_sums_bytes(a->rows, a->rows, 1, a->width);
}

size_t wd_isa_residual_backward_workspace(const void *args)
{
    const wd_residual_backward_args *a = args;
    return column_sums_bytes(a->rows, a->rows_per_sample, 1, a->width);
}

size_t wd_isa_sum_rows_workspace(const void *args)
{
    const wd_sum_rows_args *a = args;
    return column_sums_bytes(a->rows, a->rows, 1, a->width);
}

size_t wd_isa_mse_workspace(const void *args)
{
    const wd_mse_args *a = args;
    return (size_t)(a->samples * sum_chunks(a->width)) * sizeof(double);
}

size_t wd_isa_sum_squares_workspace(const void *args)
{
    return (size_t)sum_chunks(((const wd_sum_squares_args *)args)->count) * sizeof(double);
}
