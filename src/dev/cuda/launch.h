/* Which of our kernels (cuda/kernels) do an operation, with which grids. Pure: no CUDA, no GPU;
 * whoever launches gives a function that does it, the device one around cuLaunchKernel, tests the
 * stand-in (standin/blocks.h).
 *
 * Grids, blocks and shared memory depend on the arguments alone, so a result has the same bits on
 * every GPU. All kernels of an operation are launched in order on one stream, with nothing in
 * between.
 */
#ifndef WD_DEV_CUDA_LAUNCH_H
#define WD_DEV_CUDA_LAUNCH_H

#include "dev/cuda/kernels/list.h"
#include "dev/ops.h"

/* Launches one kernel with its argument struct of `bytes` bytes, to be copied. No extent of `grid`
 * or `block` is 0; shared_bytes of dynamic shared memory, at most 48 KiB. */
typedef void wd_cuda_run_fn(void *context, wd_cuda_kernel kernel, const unsigned grid[3],
                            const unsigned block[3], size_t shared_bytes, const void *args,
                            size_t bytes);

/* "wd_kernel_layernorm": the kernel's function in the image. */
const char *wd__cuda_kernel_symbol(wd_cuda_kernel kernel);

/* Whether our kernels do this operation with these arguments; pointers are looked at for NULL only.
 */
bool wd__cuda_kernels_take(wd_op op, const void *args);

/* Bytes of device memory, 16-byte aligned, that it needs while it runs. Of one that is taken. */
size_t wd__cuda_kernels_workspace(wd_op op, const void *args);

/* Calls `run` for its kernels in order; of one that is taken. */
void wd__cuda_kernels_run(wd_op op, const void *args, void *workspace, wd_cuda_run_fn *run,
                          void *context);

#endif
