/* Rows: who works on which, a row kept in shared memory, and its sums in the order of
 * dev/sum_order.h.
 *
 * A block has blockDim.y rows; threads (.., y) share row y, eight elements at a time each. The
 * first warp of a row's threads takes its sums: lane i adds elements i, i + 32, ... in turn, one
 * after the other, from shared memory, and lanes are added in pairs. Rows that shared memory cannot
 * hold are read again from where they are.
 */
#ifndef WD_DEV_CUDA_KERNELS_ROWS_CUH
#define WD_DEV_CUDA_KERNELS_ROWS_CUH

#include "dev/cuda/kernels/elements.cuh"
#include "dev/cuda/kernels/row_shape.h"
#include "dev/sum_order.h"

static_assert((int)LANES == (int)WD_WARP, "a lane of a sum is a thread of a warp");

/* Each thread's elements of a row: for (at = first; at < width; at += step) eight elements. */
WD_DEVICE int row_first(void)
{
    return (int)threadIdx.x * EIGHT;
}
WD_DEVICE int row_step(void)
{
    return (int)blockDim.x * EIGHT;
}
WD_DEVICE int64_t row_index(void)
{
    return (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
}

/* Rows are fewer than 2^31 (cuda/launch.h), and a division of 32 bits is much shorter. */
WD_DEVICE int64_t sample_of(int64_t row, int64_t rows_per_sample)
{
    return (uint32_t)row / (uint32_t)rows_per_sample;
}
WD_DEVICE int64_t token_of(int64_t row, int64_t tokens)
{
    return (uint32_t)row % (uint32_t)tokens;
}

/* One row of an array, and its copy in shared memory. */
struct row {
    const void *data;
    int64_t at;
    wd_dtype type;
    float *copy; /* NULL: there is none */
};

/* The `number`-th row that the block's threads .y keep, of `kept` ones. */
WD_DEVICE row row_of(const void *data, wd_dtype type, int64_t at, int64_t width, int kept,
                     int number)
{
    float *memory = (float *)wd_shared() + row_shared_head(blockDim.y);
    bool fits = row_fits(width, (int)blockDim.y, kept);
    int64_t place = (int64_t)((int)threadIdx.y * kept + number) * row_shared_width(width);
    return row{data, at, type, fits ? memory + place : NULL};
}

/* Fills the copy. The block's barrier must follow. */
WD_DEVICE void row_keep(const row &r, int width)
{
    if (!r.copy) return;
    for (int at = row_first(); at < width; at += row_step()) {
        float v[EIGHT];
        load_eight(v, r.data, r.type, r.at + at, eight_below(at, width));
        store_eight(r.copy, WD_F32, at, v, EIGHT); /* the copy is padded to whole eights */
    }
}

WD_DEVICE float row_one(const row &r, int i)
{
    return r.copy ? r.copy[i] : load_one(r.data, r.type, r.at + i);
}

WD_DEVICE void row_eight(float v[EIGHT], const row &r, int at, int n)
{
    if (r.copy)
        load_eight(v, r.copy, WD_F32, at, EIGHT);
    else
        load_eight(v, r.data, r.type, r.at + at, n);
}

/* What a warp's lanes have together, in every lane. */
WD_DEVICE float sum_of_lanes(float lane)
{
    WD_UNROLL for (int lane_distance = WD_WARP / 2; lane_distance > 0; lane_distance /= 2) lane +=
        __shfl_xor_sync(WD_WARP_ALL, lane, lane_distance);
    return lane;
}

/* The sum over i < n of term(i), by the threads of a warp together. */
template <class Term> WD_DEVICE float sum_of(int n, Term term)
{
    float lane = 0;
    for (int i = (int)threadIdx.x % WD_WARP; i < n; i += WD_WARP) lane += term(i);
    return sum_of_lanes(lane);
}

/* Values that a row's first warp tells all threads of the row: ROW_RESULTS floats of shared memory,
 * to be read after a barrier. */
WD_DEVICE float *row_results(void)
{
    return (float *)wd_shared() + threadIdx.y * ROW_RESULTS;
}

WD_DEVICE void row_tell(int number, float value)
{
    if (threadIdx.x == 0) row_results()[number] = value;
}

#endif
