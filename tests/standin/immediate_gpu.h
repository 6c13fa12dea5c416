/* Tests: a GPU of which only the libraries matter. Its memory is ordinary host memory, and whatever
 * is put on a stream is done at once; our own kernels are the cpu device's in plain C. Tests that
 * use it are linked with --wrap=wd__cuda_kernels_launch. */
#ifndef WD_TESTS_STANDIN_IMMEDIATE_GPU_H
#define WD_TESTS_STANDIN_IMMEDIATE_GPU_H

#include "dev/cuda/library.h"
#include "standin/libraries.h"

/* A GPU with stand-ins for cuBLASLt and cuDNN. Borrowed, the same each time; faults and counts are
 * cleared. */
const wd_cuda_gpu *wd_standin_gpu(void);

/* Launches of our own kernels since the process began. */
int64_t wd_standin_own_launches(void);

/* Calls of the driver that are to succeed before one fails; negative: none fails. */
void wd_standin_driver_fail_after(int64_t calls);

#endif
