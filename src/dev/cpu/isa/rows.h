/* Functions of the kernels of this folder: rows of any dtype as fp32, and sums in lanes.
 *
 * All loops of a kernel are in fp32. An F32 array is used in place; others are converted to a
 * buffer on the stack, which stays in the first-level cache, and results are converted from such a
 * buffer. */
#ifndef WD_DEV_CPU_ISA_ROWS_H
#define WD_DEV_CPU_ISA_ROWS_H

#include "core/dtype.h"
#include "core/parallel.h"
#include "dev/convert.h"
#include "dev/sum_order.h"

enum {
    CHUNK = 1024,      /* elements that elementwise kernels process at a time */
    BLOCK_ROWS = 16,   /* maximal number of rows of a block, */
    BLOCK = 2048,      /* and of its elements: several blocks fit into the first-level cache */
    GRAIN = 16384,     /* minimal elements of light work per thread */
    GRAIN_HEAVY = 8192 /* minimal elements with an exponential each per thread */
};

/* for (i = 0; i < n; i++) without dependencies: arrays are the same or do not overlap. */
#ifdef __clang__
#define EACH(i, n) _Pragma("clang loop vectorize(assume_safety)") for (int64_t i = 0; i < (n); i++)
#else
#define EACH(i, n) _Pragma("GCC ivdep") for (int64_t i = 0; i < (n); i++)
#endif

static inline int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The number of rows of `width` elements with `grain` elements. */
static inline int64_t grain_rows(int64_t grain, int64_t width)
{
    return width >= grain ? 1 : grain / (width > 0 ? width : 1);
}

/* ---- arrays of any dtype ---- */

/* `n` elements from element `at` on as fp32: in place, or in `buffer`. */
static inline const float *widen(float *restrict buffer, const void *data, wd_dtype type,
                                 int64_t at, int64_t n)
{
    if (type == WD_F32) return (const float *)data + at;
    const uint16_t *restrict from = (const uint16_t *)data + at;
    if (type == WD_BF16)
        EACH(i, n) buffer[i] = float_of((uint32_t)from[i] << 16);
    else
        EACH(i, n) buffer[i] = f16_to_f32(from[i]);
    return buffer;
}

/* The address for fp32 values that narrow() then stores at element `at`. */
static inline float *target(float *buffer, void *data, wd_dtype type, int64_t at)
{
    return type == WD_F32 ? (float *)data + at : buffer;
}

static inline void narrow(void *data, wd_dtype type, int64_t at, const float *restrict from,
                          int64_t n)
{
    if (type == WD_F32) return;
    uint16_t *restrict to = (uint16_t *)data + at;
    if (type == WD_BF16)
        EACH(i, n) to[i] = (uint16_t)(bf16_bits(from[i]) >> 16);
    else
        EACH(i, n) to[i] = f32_to_f16(from[i]);
}

/* ---- rows ---- */

/* The number of rows that a kernel processes together, so that it does not wait for the sum and the
 * root of each row. */
static inline int64_t block_rows(int64_t width)
{
    int64_t fit = BLOCK / (width > 0 ? width : 1);
    return fit > 1 ? least(fit, BLOCK_ROWS) : 1;
}

/* Rows of fp32, from row to row `stride` elements. */
typedef struct row_block {
    const float *at;
    int64_t stride;
} row_block;

/* `count` rows of `width` elements, the first at element `at`: in place, or one after the other in
 * `buffer`. */
static inline row_block widen_rows(float *buffer, const void *data, wd_dtype type, int64_t at,
                                   int64_t stride, int64_t count, int64_t width)
{
    if (type == WD_F32) return (row_block){(const float *)data + at, stride};
    for (int64_t r = 0; r < count; r++)
        widen(buffer + r * width, data, type, at + r * stride, width);
    return (row_block){buffer, width};
}

/* Prefetches rows into the second-level cache, unless they follow one another, since the processor
 * prefetches these itself. */
static inline void fetch_rows(const void *data, wd_dtype type, int64_t at, int64_t stride,
                              int64_t count, int64_t width)
{
    int64_t size = (int64_t)wd_dtype_bytes(type);
    const char *row = (const char *)data + at * size;
    if (stride == width) return;
    for (; count > 0; count--, row += stride * size)
        for (int64_t i = 0; i < width * size; i += 64) __builtin_prefetch(row + i, 0, 2);
}

/* ---- sums ---- */

/* SUM_OF(total, n, i, term): total = sum over i < n of term, in LANES partial sums, which are then
 * added in pairs: the order depends on n only. */
#define SUM_OF(total, n, i, term)                                                                  \
    do {                                                                                           \
        float lanes_[LANES] = {0};                                                                 \
        int64_t done_ = 0;                                                                         \
        for (; done_ + LANES <= (n); done_ += LANES)                                               \
            for (int lane_ = 0; lane_ < LANES; lane_++) {                                          \
                int64_t i = done_ + lane_;                                                         \
                lanes_[lane_] += (term);                                                           \
            }                                                                                      \
        for (int64_t i = done_; i < (n); i++) lanes_[i - done_] += (term);                         \
        total = sum_lanes(lanes_);                                                                 \
    } while (0)

/* Explicit vectors, since gcc makes scalar code of the plain loops. */
static inline float sum_lanes(const float lanes[LANES])
{
    typedef float four __attribute__((vector_size(16)));
    typedef float eight __attribute__((vector_size(32)));
    typedef float sixteen __attribute__((vector_size(64)));
    sixteen a[2];
    eight b[2];
    four c[2];
    memcpy(a, lanes, sizeof a);
    a[0] += a[1];
    memcpy(b, a, sizeof b);
    b[0] += b[1];
    memcpy(c, b, sizeof c);
    c[0] += c[1];
    return (c[0][0] + c[0][2]) + (c[0][1] + c[0][3]);
}

#endif
