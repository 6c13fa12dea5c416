/* All of CUDA that our kernels use, and how the same source becomes a function of the host.
 *
 * nvcc makes each WD_KERNEL a __global__ function, to be launched by the driver's cuLaunchKernel
 * with one argument: its struct, by value. A C++ compiler makes it an ordinary function, which the
 * stand-in (standin/blocks.h) calls once per thread, each thread of a block on a stack of its
 * own. What is not declared here does not exist there, so a kernel that uses more of CUDA fails to
 * compile on the host:
 *   threadIdx, blockIdx, blockDim     x, y, z
 *   __syncthreads()                   reached by all threads of the block
 *   __shfl_xor_sync, __shfl_sync      with WD_WARP_ALL: reached by all 32 threads of the warp
 *   wd_shared()                       the block's shared memory, whose bytes the launch says; it is
 *                                     16-byte aligned, and its contents are undefined at first
 *   wd_sixteen, wd_eight_bytes        16 and 8 bytes that one instruction reads or writes
 * A block's first dimension is a multiple of 32 threads or divides 32, and all its threads together
 * are a multiple of 32, at most WD_BLOCK_MAX.
 *
 * Neither atomics nor PTX; fmaf only where it is written, for contraction is off; sums in an order
 * that depends on the arguments alone.
 */
#ifndef WD_DEV_CUDA_KERNELS_THREAD_CUH
#define WD_DEV_CUDA_KERNELS_THREAD_CUH

#include <math.h>
#include <stddef.h>
#include <stdint.h>

enum { WD_WARP = 32, WD_BLOCK_MAX = 256 };
#define WD_WARP_ALL 0xffffffffu

#ifdef __CUDACC__

#define WD_KERNEL_OF(threads, blocks, name, args_type)                                             \
    extern "C" __global__ void __launch_bounds__(threads, blocks)                                  \
        wd_kernel_##name(const __grid_constant__ args_type a)
#define WD_DEVICE static __device__ __forceinline__
#define WD_UNROLL _Pragma("unroll")
#define WD_LOOP _Pragma("unroll 1") /* a loop as it is written: more at once takes registers */

typedef uint4 wd_sixteen;
typedef uint2 wd_eight_bytes;

static __device__ __forceinline__ void *wd_shared(void)
{
    extern __shared__ wd_sixteen wd_shared_memory[];
    return wd_shared_memory;
}

#else

#include "standin/inside.h"

/* The stand-in's kernels by name: see standin/blocks.h. */
#define WD_KERNEL_OF(threads, blocks, name, args_type)                                             \
    static void name##_thread(const args_type &a);                                                 \
    extern "C" void wd_kernel_##name(const void *args)                                             \
    {                                                                                              \
        name##_thread(*(const args_type *)args);                                                   \
    }                                                                                              \
    static void name##_thread(const args_type &a)
#define WD_DEVICE static inline
#define WD_UNROLL
#define WD_LOOP

#define threadIdx wd_standin_thread_index
#define blockIdx wd_standin_block_index
#define blockDim wd_standin_block_size

struct alignas(16) wd_sixteen {
    uint32_t x, y, z, w;
};
struct alignas(8) wd_eight_bytes {
    uint32_t x, y;
};

static inline void *wd_shared(void)
{
    return wd_standin_shared();
}
static inline void __syncthreads(void)
{
    wd_standin_barrier();
}

static inline unsigned wd_standin_lane(void)
{
    return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % WD_WARP;
}

static inline float __shfl_sync(uint32_t mask, float value, unsigned lane)
{
    uint32_t bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    bits = wd_standin_shuffle(mask, bits, lane % WD_WARP);
    __builtin_memcpy(&value, &bits, sizeof bits);
    return value;
}

static inline float __shfl_xor_sync(uint32_t mask, float value, unsigned lane_mask)
{
    return __shfl_sync(mask, value, wd_standin_lane() ^ lane_mask);
}

#endif

/* A kernel whose blocks have any number of threads. WD_KERNEL_OF: at most `threads`, and registers
 * for `blocks` of them on a multiprocessor. */
#define WD_KERNEL(name, args_type) WD_KERNEL_OF(WD_BLOCK_MAX, 2, name, args_type)

#endif
