/* The workspace of kernels, the same for every instruction set (see dev/cpu/isa/isa.h): of matrix
 * products, convolutions and attention for the threads' operands, of sums for their parts. */
#include "core/parallel.h"
#include "dev/cpu/attention_plan.h"
#include "dev/cpu/isa/column_sums.h"
#include "dev/cpu/isa/isa.h"
#include "dev/cpu/product_plan.h"
#include "dev/cpu/winograd_plan.h"

/* ---- operands: the workspace grows with the number of threads, for each packs its own ---- */

size_t wd_isa_matmul_workspace(const void *args)
{
    const wd_matmul_args *a = args;
    wd_product_plan p = wd__product_plan_make(a->batch, a->m, a->n, a->k, wd_parallel_threads());
    return (size_t)p.parts * p.part_bytes;
}

size_t wd_isa_conv_workspace(const void *args)
{
    wd_winograd_plan p = wd__winograd_plan_make(args, wd_parallel_threads());
    return p.weight_bytes + (size_t)p.parts * p.part_bytes;
}

size_t wd_isa_attention_workspace(const void *args)
{
    const wd_attention_args *a = args;
    int64_t pairs = a->samples * a->heads, work = a->q_tokens * a->kv_tokens * a->head_dim;
    if (wd__attention_is_small(a->q_tokens, a->kv_tokens, a->head_dim))
        return (size_t)wd__attention_parts(pairs, work) *
               wd__attention_small_floats(a->kv_tokens, a->head_dim, false) * sizeof(float);
    wd_attention_plan p = wd__attention_plan_forward(pairs, a->q_tokens, a->head_dim);
    return (size_t)p.parts * p.part_floats * sizeof(float);
}

size_t wd_isa_attention_backward_workspace(const void *args)
{
    const wd_attention_backward_args *a = args;
    int64_t pairs = a->samples * a->heads, work = a->q_tokens * a->kv_tokens * a->head_dim;
    if (wd__attention_is_small(a->q_tokens, a->kv_tokens, a->head_dim))
        return (size_t)wd__attention_parts(pairs, 2 * work) *
               wd__attention_small_floats(a->kv_tokens, a->head_dim, true) * sizeof(float);
    wd_attention_plan p = wd__attention_plan_backward(pairs, a->q_tokens, a->head_dim);
    return (size_t)p.parts * p.part_floats * sizeof(float);
}

/* ---- sums of chunks: however many threads there are, chunks are the same ---- */

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
