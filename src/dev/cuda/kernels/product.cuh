/* A tile of a product, c(i, j) = the sum over k of a(i, k) b(k, j), in fp32: a chain of fused
 * multiply-adds for every TILE_BLOCK units of k, and the sum of these in order, whatever the tile
 * that an element falls in.
 *
 * A block of 16 x 16 threads makes TILE x TILE elements, 4 x 4 a thread, from TILE_DEPTH units of k
 * at a time, which it brings to shared memory.
 */
#ifndef WD_DEV_CUDA_KERNELS_PRODUCT_CUH
#define WD_DEV_CUDA_KERNELS_PRODUCT_CUH

#include "dev/cuda/kernels/elements.cuh"
#include "dev/cuda/kernels/product_shape.h"

enum { SIDE = 4, TILE_SIDE = TILE / SIDE };

static_assert(TILE_SIDE * TILE_SIDE == TILE_THREADS, "a thread has 4 x 4 elements");

/* A thread's elements, without a loop: they stay in registers. */
#define EACH_OF_TILE(i, j)                                                                         \
    WD_UNROLL for (int i = 0; i < SIDE; i++) WD_UNROLL for (int j = 0; j < SIDE; j++)

/* The number of the thread in its block. */
WD_DEVICE int thread_number(void)
{
    return (int)(threadIdx.y * TILE_SIDE + threadIdx.x);
}

/* Brings element(i, k) for i < TILE and k < TILE_DEPTH to to[k TILE_PITCH + i]. k_runs: elements
 * whose k is next to each other lie side by side, else those whose i is. */
template <class Element> WD_DEVICE void bring_tile(float *to, bool k_runs, Element element)
{
    for (int e = thread_number(); e < TILE * TILE_DEPTH; e += TILE_THREADS) {
        int i = k_runs ? e / TILE_DEPTH : e % TILE, k = k_runs ? e % TILE_DEPTH : e / TILE;
        to[k * TILE_PITCH + i] = element(i, k);
    }
}

/* sum = this thread's elements of the tile: row i of them is 4 threadIdx.y + i, column j is
 * 4 threadIdx.x + j. a(i, k) and b(k, j) are asked for k < depth only; i and j are of the tile. */
template <class A, class B>
WD_DEVICE void product_tile(float sum[SIDE][SIDE], int64_t depth, bool a_k_runs, bool b_k_runs, A a,
                            B b)
{
    float *a_tile = (float *)wd_shared(), *b_tile = a_tile + TILE_DEPTH * TILE_PITCH;
    float part[SIDE][SIDE];
    EACH_OF_TILE (i, j) sum[i][j] = part[i][j] = 0;
    for (int64_t first = 0; first < depth; first += TILE_DEPTH) {
        int n = depth - first < TILE_DEPTH ? (int)(depth - first) : TILE_DEPTH;
        bring_tile(a_tile, a_k_runs, [&](int i, int k) { return k < n ? a(i, first + k) : 0; });
        bring_tile(b_tile, b_k_runs, [&](int j, int k) { return k < n ? b(first + k, j) : 0; });
        __syncthreads();
        for (int k = 0; k < n; k++) {
            const float *a_row = a_tile + k * TILE_PITCH + threadIdx.y * SIDE;
            const float *b_row = b_tile + k * TILE_PITCH + threadIdx.x * SIDE;
            EACH_OF_TILE (i, j) part[i][j] = fmaf(a_row[i], b_row[j], part[i][j]);
        }
        __syncthreads();
        if ((first + TILE_DEPTH) % TILE_BLOCK && first + TILE_DEPTH < depth) continue;
        EACH_OF_TILE (i, j) {
            sum[i][j] += part[i][j];
            part[i][j] = 0;
        }
    }
}

#endif
