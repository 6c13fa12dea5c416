/* What the files that launch kernels share: see cuda/launch.h. */
#ifndef WD_DEV_CUDA_LAUNCH_IMPL_H
#define WD_DEV_CUDA_LAUNCH_IMPL_H

#include "dev/cuda/kernels/args.h"
#include "dev/cuda/launch.h"

/* Whom to tell of launches, and the workspace that is left: zeroed, it only counts. */
typedef struct wd_cuda_launcher {
    wd_cuda_run_fn *run; /* NULL: nothing is launched */
    void *context;
    char *workspace;
    size_t used; /* of the workspace so far */
} wd_cuda_launcher;

/* The next `count` elements of `size` bytes of the workspace; NULL where it is only counted. */
void *wd_cuda_take(wd_cuda_launcher *l, int64_t count, size_t size);

/* Launches `blocks` x `blocks_y` blocks; where one of them is 0, nothing. */
void wd_cuda_run_blocks(wd_cuda_launcher *l, wd_cuda_kernel kernel, int64_t blocks,
                        int64_t blocks_y, const unsigned block[3], size_t shared_bytes,
                        const void *args, size_t bytes);

/* A thread for each of `count` things, in blocks of 256. */
void wd_cuda_run_flat(wd_cuda_launcher *l, wd_cuda_kernel kernel, int64_t count, const void *args,
                      size_t bytes);

/* A thread for every eight of `count` elements of each of `samples`: kernels/flat.cuh. */
void wd_cuda_run_eights(wd_cuda_launcher *l, wd_cuda_kernel kernel, int64_t count, int64_t samples,
                        const void *args, size_t bytes);

/* Rows as kernels/rows.cuh has them, with `kept` arrays' rows in shared memory. */
void wd_cuda_run_rows(wd_cuda_launcher *l, wd_cuda_kernel kernel, int64_t rows, int64_t width,
                      int kept, const void *args, size_t bytes);

/* Sums over rows as kernels/columns.cuh has them: the second half is launched with `finish`, whose
 * sums, samples and per_sample are filled in here. `sums` is where the kernel's args say where the
 * workspace for the groups' sums is. */
void wd_cuda_run_columns(wd_cuda_launcher *l, wd_cuda_kernel kernel, int64_t rows,
                         int64_t sample_rows, wd_cuda_column_sums finish, float **sums,
                         const void *args, size_t bytes);

/* One function per operation: launch_norm.c, launch_pointwise.c, ... */
typedef void wd_cuda_launch_fn(wd_cuda_launcher *l, const void *args);

wd_cuda_launch_fn wd_cuda_launch_layernorm, wd_cuda_launch_layernorm_backward,
    wd_cuda_launch_rmsnorm, wd_cuda_launch_rmsnorm_backward, wd_cuda_launch_channelnorm,
    wd_cuda_launch_residual, wd_cuda_launch_residual_backward, wd_cuda_launch_activation,
    wd_cuda_launch_activation_backward, wd_cuda_launch_multiply, wd_cuda_launch_add_table,
    wd_cuda_launch_sum_rows, wd_cuda_launch_timestep_embed, wd_cuda_launch_strided_copy,
    wd_cuda_launch_gather_rows, wd_cuda_launch_cast, wd_cuda_launch_dequantise, wd_cuda_launch_fill,
    wd_cuda_launch_combine, wd_cuda_launch_guidance, wd_cuda_launch_step_samples,
    wd_cuda_launch_mse, wd_cuda_launch_sum_squares, wd_cuda_launch_sum_squares_chunks,
    wd_cuda_launch_clip_factor, wd_cuda_launch_adamw, wd_cuda_launch_attention,
    wd_cuda_launch_attention_backward, wd_cuda_launch_matmul, wd_cuda_launch_conv;

#endif
