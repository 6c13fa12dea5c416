/* All kernels of this folder by name. X(name): the function wd_cuda_<name> of the compiled image,
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
    X(column_sums_finish)

typedef enum wd_cuda_kernel {
#define X(name) WD_CUDA_##name,
    WD_CUDA_KERNEL_MAP(X)
#undef X
        WD_CUDA_KERNEL_COUNT
} wd_cuda_kernel;

#endif
