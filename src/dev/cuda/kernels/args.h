/* Argument structs of kernels that need more than the argument struct of their operation
 * (dev/ops.h), which all other kernels take. C, C++ and CUDA. */
#ifndef WD_DEV_CUDA_KERNELS_ARGS_H
#define WD_DEV_CUDA_KERNELS_ARGS_H

#include "dev/adamw.h"
#include "dev/ops.h"
#include "dev/strided_walk.h"

/* Means of a row, which the first of two kernels finds: mean, 1 / deviation, mean of g, mean of g
 * n. */
typedef struct wd_cuda_layernorm_backward {
    wd_layernorm_backward_args op;
    float *stats; /* [R, 4] workspace */
    float *sums;  /* [groups of rows, 2, D] workspace: dscale and dshift */
} wd_cuda_layernorm_backward;

/* Of a row: 1 / root of the mean square, mean of g n. */
typedef struct wd_cuda_rmsnorm_backward {
    wd_rmsnorm_backward_args op;
    float *stats; /* [R, 2] workspace */
    float *sums;  /* [groups of rows, D] workspace: dw */
} wd_cuda_rmsnorm_backward;

typedef struct wd_cuda_residual_backward {
    wd_residual_backward_args op;
    float *sums; /* [groups of rows, D] workspace: dgate */
} wd_cuda_residual_backward;

/* The second half of a sum over rows: see dev/sum_order.h. Each sample (or all rows together) has a
 * result, and `per_sample` groups of rows. */
typedef struct wd_cuda_column_sums {
    float *out[2];     /* [samples, D], from sample to sample out_stride; or NULL */
    const float *sums; /* [samples, per_sample, outputs, D] */
    int64_t outputs, samples, per_sample, width, out_stride;
    bool add; /* += instead of = */
} wd_cuda_column_sums;

/* A thread for each `eights`-th part of a run: eight elements, or what is left of them. */
typedef struct wd_cuda_strided_copy {
    void *to;
    const void *from;
    wd_dtype to_type, from_type;
    wd_strided_walk walk;
    uint32_t eights, threads; /* per run, and of all runs */
    float alpha, beta;
} wd_cuda_strided_copy;

typedef struct wd_cuda_sum_rows {
    wd_sum_rows_args op;
    float *sums; /* [groups of rows, D] workspace */
} wd_cuda_sum_rows;

/* sums[i] = sum of x^2 in chunk i. */
typedef struct wd_cuda_squares {
    const void *x; /* [count] type */
    double *sums;  /* [chunks] */
    int64_t count;
    wd_dtype type;
} wd_cuda_squares;

/* Sums that a thread of squares_finish brings at a time. */
enum { SUMS_OF_THREAD = 16 };

/* sum[0] = their sum in order. */
typedef struct wd_cuda_squares_finish {
    float *sum;
    const double *sums; /* [chunks] */
    int64_t chunks;
} wd_cuda_squares_finish;

typedef struct wd_cuda_adamw {
    wd_adamw_args op;
    adamw_scalars *scalars; /* [1] workspace */
} wd_cuda_adamw;

typedef struct wd_cuda_attention {
    wd_attention_args op;
    float log_repeat; /* of how many the last key stands for */
} wd_cuda_attention;

typedef struct wd_cuda_attention_backward {
    wd_attention_backward_args op;
    float *dot_o; /* [B, N, L] workspace: do o */
    float log_repeat;
} wd_cuda_attention_backward;

/* As a product: rows are places of the output. */
typedef struct wd_cuda_conv {
    wd_conv_args op;
    int64_t rows, depth;
} wd_cuda_conv;

typedef struct wd_cuda_mse {
    wd_mse_args op;
    double *sums; /* [B, chunks of a sample] workspace */
} wd_cuda_mse;

#endif
