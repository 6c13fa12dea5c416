/* The compiled kernels of all architectures, as nvcc's fatbin file has them: see
 * cmake/cuda_kernels.cmake. */
#include "dev/cuda/kernels/image.h"

/* WD_CUDA_IMAGE_FILE: the file. */
__asm__(".section .rodata\n"
        ".balign 64\n"
        ".globl wd_cuda_image\n"
        ".hidden wd_cuda_image\n"
        "wd_cuda_image:\n"
        ".incbin \"" WD_CUDA_IMAGE_FILE "\"\n"
        ".Lend:\n"
        ".balign 8\n"
        ".globl wd_cuda_image_bytes\n"
        ".hidden wd_cuda_image_bytes\n"
        "wd_cuda_image_bytes:\n"
        ".quad .Lend - wd_cuda_image\n"
        ".text\n");
