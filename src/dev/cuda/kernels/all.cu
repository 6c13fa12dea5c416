/* All kernels as one file, which nvcc makes one image of. */
#ifdef __CUDACC__
#include "dev/cuda/kernels/attention.cu"
#include "dev/cuda/kernels/dequantise.cu"
#include "dev/cuda/kernels/layout.cu"
#include "dev/cuda/kernels/norm.cu"
#include "dev/cuda/kernels/norm_backward.cu"
#include "dev/cuda/kernels/pointwise.cu"
#include "dev/cuda/kernels/product.cu"
#include "dev/cuda/kernels/residual.cu"
#include "dev/cuda/kernels/train.cu"
#endif
