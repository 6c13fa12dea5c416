/* Folder dev/cuda/kernels. The kernels in CUDA C.
 *
 * All kernels of this folder by name. X(name): the function wd_kernel_<name> of the compiled image,
 * whose one argument is the struct that cuda/kernels/args.h says. */
#ifndef WD_DEV_CUDA_KERNELS_LIST_H
#define WD_DEV_CUDA_KERNELS_LIST_H

#define WD_CUDA_KERNEL_MAP(X)                                                                      \
    X(layernorm)                                                                                   \
    X(layernorm_backward_rows)                                                                     \
    X(layernorm_backward_columns)                                                                  \
    X(rmsnorm)                                                                                     \
    X(rmsnorm_backward_rows)                                                                       \
    X(rmsnorm_backward_columns)                                                                    \
    X(channelnorm)                                                                                 \
    X(residual)                                                                                    \
    X(residual_backward_columns)                                                                   \
    X(column_sums_finish)                                                                          \
    X(activation)                                                                                  \
    X(activation_backward)                                                                         \
    X(multiply)                                                                                    \
    X(add_table)                                                                                   \
    X(combine)                                                                                     \
    X(guidance)                                                                                    \
    X(step_samples)                                                                                \
    X(timestep_embed)                                                                              \
    X(cast)                                                                                        \
    X(dequantise)                                                                                  \
    X(fill)                                                                                        \
    X(gather_rows)                                                                                 \
    X(strided_copy)                                                                                \
    X(sum_rows_columns)                                                                            \
    X(squares_chunks)                                                                              \
    X(squares_finish)                                                                              \
    X(mse_chunks)                                                                                  \
    X(mse_finish)                                                                                  \
    X(clip_factor)                                                                                 \
    X(adamw_scalars)                                                                               \
    X(adamw_packed)                                                                                \
    X(moments)                                                                                     \
    X(masters)                                                                                     \
    X(adamw)                                                                                       \
    X(ema)                                                                                         \
    X(attention)                                                                                   \
    X(attention_backward_queries)                                                                  \
    X(attention_backward_keys)                                                                     \
    X(matmul)                                                                                      \
    X(conv)

typedef enum wd_cuda_kernel {
#define X(name) WD_CUDA_##name,
    WD_CUDA_KERNEL_MAP(X)
#undef X
        WD_CUDA_KERNEL_COUNT
} wd_cuda_kernel;

#endif
