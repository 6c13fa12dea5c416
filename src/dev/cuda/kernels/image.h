/* The compiled kernels, for cuModuleLoadData: machine code for every architecture that
 * cmake/cuda_kernels.cmake names, and PTX for all others from compute capability 8.0 up. Only where
 * the program is built with nvcc. */
#ifndef WD_DEV_CUDA_KERNELS_IMAGE_H
#define WD_DEV_CUDA_KERNELS_IMAGE_H

#include <stdint.h>

extern const unsigned char wd_cuda_image[]; /* 64-byte aligned */
extern const uint64_t wd_cuda_image_bytes;

#endif
