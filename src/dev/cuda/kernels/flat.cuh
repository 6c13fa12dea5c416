/* Arrays of any length: a thread has eight elements, the x-th block 8 times its threads. */
#ifndef WD_DEV_CUDA_KERNELS_FLAT_CUH
#define WD_DEV_CUDA_KERNELS_FLAT_CUH

#include "dev/cuda/kernels/elements.cuh"

/* The first of the thread's elements. */
WD_DEVICE int64_t flat_first(void)
{
    return ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * EIGHT;
}

#endif
