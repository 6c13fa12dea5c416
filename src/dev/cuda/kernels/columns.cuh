/* Sums over rows in the order of dev/sum_order.h: a thread has eight columns of a group of
 * CHUNK_ROWS rows, which it adds row by row; column_sums_finish adds the groups' sums in order.
 * Grid: x = groups of all samples, y = blocks of columns.
 *
 * There are few threads, a handful of warps on each multiprocessor, so each has to wait for several
 * rows at once: it fetches several rows before it works on the first of them.
 */
#ifndef WD_DEV_CUDA_KERNELS_COLUMNS_CUH
#define WD_DEV_CUDA_KERNELS_COLUMNS_CUH

#include "dev/cuda/kernels/elements.cuh"
#include "dev/cuda/kernels/row_shape.h"
#include "dev/sum_order.h"

#define WD_COLUMNS_KERNEL(name, args_type) WD_KERNEL_OF(COLUMN_THREADS, 4, name, args_type)

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

/* Rows of `type`, `stride` elements apart, that a thread goes down. */
struct column_of {
    const void *data;
    wd_dtype type;
    int64_t stride;
};

/* Whether they have 16 bits, and one instruction can fetch eight of any row. */
WD_DEVICE bool column_is_whole(const column_of &a, const columns &c)
{
    return a.type != WD_F32 && c.n == EIGHT && a.stride % EIGHT == 0 &&
           is_aligned(element(a.data, a.type, c.at));
}

WD_DEVICE eight column_fetch(const column_of &a, int64_t row, const columns &c)
{
    const wd_sixteen e = *(const wd_sixteen *)element(a.data, a.type, row * a.stride + c.at);
    return eight{{e.x, e.y, e.z, e.w}};
}

/* Calls step(row, v, of_row(row)) for each row of the thread in order, where v[k] are its eight
 * elements of the k-th array, and of_row what else is to be fetched of a row. `step` may write what
 * it was given, but no other row. */
template <int ARRAYS, class OfRow, class Step>
WD_DEVICE void each_row(const columns &c, const column_of (&arrays)[ARRAYS], OfRow of_row,
                        Step step)
{
    enum { AT_ONCE = ARRAYS == 1 ? 8 : 4 }; /* as registers allow */
    float v[ARRAYS][EIGHT];
    int64_t r = c.row;
    bool whole = true;
    WD_UNROLL for (int k = 0; k < ARRAYS; k++) whole = whole && column_is_whole(arrays[k], c);
    for (; whole && r + AT_ONCE <= c.end; r += AT_ONCE) {
        eight fetched[AT_ONCE][ARRAYS];
        decltype(of_row(r)) beside[AT_ONCE];
        WD_UNROLL for (int i = 0; i < AT_ONCE; i++)
        {
            WD_UNROLL for (int k = 0; k < ARRAYS; k++) fetched[i][k] =
                column_fetch(arrays[k], r + i, c);
            beside[i] = of_row(r + i);
        }
        WD_UNROLL for (int i = 0; i < AT_ONCE; i++)
        {
            WD_UNROLL for (int k = 0; k < ARRAYS; k++)
                widen_eight(v[k], fetched[i][k], arrays[k].type == WD_BF16 ? WD_BF16 : WD_F16);
            step(r + i, v, beside[i]);
        }
    }
    for (; r < c.end; r++) {
        WD_UNROLL for (int k = 0; k < ARRAYS; k++)
            load_eight(v[k], arrays[k].data, arrays[k].type, r * arrays[k].stride + c.at, c.n);
        step(r, v, of_row(r));
    }
}

/* Where nothing else is. */
struct nothing {
};
WD_DEVICE nothing nothing_of_row(int64_t)
{
    return nothing{};
}

/* Where the thread's sums of output `output` of `outputs` go: [groups, outputs, width]. */
WD_DEVICE void columns_store(float *sums, const columns &c, int64_t outputs, int64_t output,
                             int64_t width, const float v[EIGHT])
{
    store_eight(sums, WD_F32, ((int64_t)blockIdx.x * outputs + output) * width + c.at, v, c.n);
}

#endif
