/* Sums over rows in the order of dev/sum_order.h: a thread has eight columns of a group of
 * CHUNK_ROWS rows, which it adds row by row; column_sums_finish adds the groups' sums in order.
 * Grid: x = groups of all samples, y = blocks of columns.
 */
#ifndef WD_DEV_CUDA_KERNELS_COLUMNS_CUH
#define WD_DEV_CUDA_KERNELS_COLUMNS_CUH

#include "dev/cuda/kernels/elements.cuh"
#include "dev/sum_order.h"

/* The rows [row, end) and columns [at, at + n) of a thread; n <= 0: none. */
struct columns {
    int64_t row, end, at;
    int n;
};

/* Groups do not span samples of `sample_rows` rows. */
WD_DEVICE columns columns_of(int64_t sample_rows, int64_t width)
{
    int64_t per_sample = column_sums_chunks(sample_rows), group = blockIdx.x;
    int64_t sample = group / per_sample * sample_rows;
    int64_t first = group % per_sample * CHUNK_ROWS, last = first + CHUNK_ROWS;
    int64_t at = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * EIGHT;
    return columns{sample + first, sample + (last < sample_rows ? last : sample_rows), at,
                   at < width ? eight_below(at, width) : 0};
}

/* Where the thread's sums of output `output` of `outputs` go: [groups, outputs, width]. */
WD_DEVICE void columns_store(float *sums, const columns &c, int64_t outputs, int64_t output,
                             int64_t width, const float v[EIGHT])
{
    store_eight(sums, WD_F32, ((int64_t)blockIdx.x * outputs + output) * width + c.at, v, c.n);
}

#endif
