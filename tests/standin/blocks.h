/* Runs our kernels on the host, compiled as C++ (cuda/kernels/thread.cuh): each thread of a block
 * on a stack of its own, one after the other, from barrier to barrier. Tests only; needs no CUDA.
 *
 * Shared memory has exactly the bytes of the launch, and is filled with NaN before each block. The
 * order in which threads run between two barriers, and blocks one after the other, can be chosen: a
 * kernel that lacks a barrier, or in which blocks depend on one another, has other results in
 * another order. A barrier that not all threads of a block reach, or a shuffle that not all 32
 * threads of a warp reach, ends the process. What this cannot show: see docs/design.md.
 */
#ifndef WD_TESTS_STANDIN_BLOCKS_H
#define WD_TESTS_STANDIN_BLOCKS_H

#include "dev/cuda/launch.h"

typedef enum wd_standin_order {
    WD_STANDIN_ASCENDING,
    WD_STANDIN_DESCENDING,
    WD_STANDIN_SHUFFLED,
    WD_STANDIN_ORDERS
} wd_standin_order;

/* Stacks for the threads of a block. Used by one thread at a time. */
typedef struct wd_standin wd_standin;

/* Ends the process where there is no memory. `seed` counts for SHUFFLED. */
wd_standin *wd_standin_open(wd_standin_order order, uint64_t seed);
void wd_standin_close(wd_standin *standin);

/* A wd_cuda_run_fn; context: a wd_standin. */
void wd_standin_run(void *context, wd_cuda_kernel kernel, const unsigned grid[3],
                    const unsigned block[3], size_t shared_bytes, const void *args, size_t bytes);

/* The same of any function that takes `args`, for tests of the stand-in itself. */
typedef void wd_standin_kernel(const void *args);
void wd_standin_run_function(wd_standin *standin, wd_standin_kernel *kernel, const unsigned grid[3],
                             const unsigned block[3], size_t shared_bytes, const void *args);

#endif
