/* Rows: who works on which, a row kept in shared memory, and its sums in the order of
 * dev/sum_order.h.
 *
 * A block has blockDim.y rows; threads (.., y) share row y, eight elements at a time each. The
 * first warp of a row's threads takes its sums: lane i adds elements i, i + 32, ... in turn, one
 * after the other, from shared memory, and lanes are added in pairs. The row's other warps wait for
 * it, so they are few (kernels/row_shape.h). Rows that shared memory cannot hold are read again
 * from where they are.
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

/* Eight elements of the copy, which is padded to whole eights. */
WD_DEVICE void row_keep_eight(const row &r, int at, const eight &e)
{
    float v[EIGHT];
    widen_eight(v, e, r.type);
    store_eight(r.copy, WD_F32, at, v, EIGHT);
}

enum { EIGHTS_AT_ONCE = 5 };

/* Fills the copy. The block's barrier must follow. Of a row of 16 bits that can be read 16 bytes at
 * a time a thread fetches several eights before it widens the first of them. */
WD_DEVICE void row_keep(const row &r, int width)
{
    if (!r.copy) return;
    const int step = row_step();
    int at = row_first();
    if (r.type != WD_F32 && width % EIGHT == 0 && is_aligned(element(r.data, r.type, r.at))) {
        const wd_sixteen *from = (const wd_sixteen *)element(r.data, r.type, r.at);
        WD_LOOP for (; at < width; at += EIGHTS_AT_ONCE * step)
        {
            wd_sixteen e[EIGHTS_AT_ONCE];
            WD_UNROLL for (int i = 0; i < EIGHTS_AT_ONCE; i++) if (at + i * step < width) e[i] =
                from[(at + i * step) / EIGHT];
            WD_UNROLL for (int i = 0; i < EIGHTS_AT_ONCE; i++) if (at + i * step < width)
                row_keep_eight(r, at + i * step, eight{{e[i].x, e[i].y, e[i].z, e[i].w}});
        }
    }
    WD_LOOP for (; at < width; at += step)
        row_keep_eight(r, at, fetch_eight(r.data, r.type, r.at + at, eight_below(at, width)));
}

/* Replaces each eight v of the copy, n elements of which are in the row, by what change(v, at, n)
 * makes of it. A thread changes what it kept itself. */
template <class Change> WD_DEVICE void row_change(const row &r, int width, Change change)
{
    if (!r.copy) return;
    WD_LOOP for (int at = row_first(); at < width; at += row_step())
    {
        float v[EIGHT];
        load_eight(v, r.copy, WD_F32, at, EIGHT);
        change(v, at, eight_below(at, width));
        store_eight(r.copy, WD_F32, at, v, EIGHT);
    }
}

/* Functions of i that give element i of the copy, and of the row itself. */
WD_DEVICE auto ones_of_copy(const row &r)
{
    return [&r](int i) { return r.copy[i]; };
}
WD_DEVICE auto ones_of_data(const row &r)
{
    return [&r](int i) { return load_one(r.data, r.type, r.at + i); };
}

/* Calls with(one) with one of them: so the branch is outside of loops over elements. */
template <class With> WD_DEVICE auto with_ones(const row &r, With with)
{
    return r.copy ? with(ones_of_copy(r)) : with(ones_of_data(r));
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

enum { TERMS_AT_ONCE = 8 };

/* The sum over i < n of term(i), by the threads of a warp together. Several terms are read before
 * the first of them is added. */
template <class Term> WD_DEVICE float sum_of(int n, Term term)
{
    float lane = 0, terms[TERMS_AT_ONCE];
    int i = (int)threadIdx.x % WD_WARP;
    WD_LOOP for (; i + (TERMS_AT_ONCE - 1) * WD_WARP < n; i += TERMS_AT_ONCE * WD_WARP)
    {
        WD_UNROLL for (int k = 0; k < TERMS_AT_ONCE; k++) terms[k] = term(i + k * WD_WARP);
        WD_UNROLL for (int k = 0; k < TERMS_AT_ONCE; k++) lane += terms[k];
    }
    WD_LOOP for (; i < n; i += WD_WARP) lane += term(i);
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
