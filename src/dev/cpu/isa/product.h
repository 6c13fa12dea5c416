/* Matrix products: sum over k of a(i, k) b(j, k), in tiles of the result.
 *
 * One thread makes one tile: for every block of DEPTH units of k it packs the columns' operand b
 * into panels of WIDE columns, then the rows' operand a, ROWS rows at a time, and multiplies the
 * two in registers. Packing takes care of everything that operands differ in: storage order,
 * strides, dtype, edges (zeros). So there is one inner loop, and an element of the result is always
 * the same chain of fused multiply-adds, over k in order, block by block: its bits depend neither
 * on the tile it falls in, nor on the number of threads, nor on what else is in the launch.
 *
 * A unit is what one lane multiplies: a float, or where the processor has bf16 products and both
 * operands are bf16, a pair of bf16 neighbours in k. Elsewhere bf16 is widened when it is packed.
 */
#ifndef WD_DEV_CPU_ISA_PRODUCT_H
#define WD_DEV_CPU_ISA_PRODUCT_H

#include <stdbool.h>

#include "dev/cpu/isa/rows.h"
#include "dev/cpu/isa/vec.h"
#include "dev/cpu/product_plan.h"

#if defined(__AVX512F__)
enum { ROWS = 14 }; /* 28 sums, two columns' vectors and a row's value: 31 of 32 registers */
#elif defined(__AVX2__) && defined(__FMA__)
enum { ROWS = 6 }; /* 12 of 16 */
#else
enum { ROWS = 4 };
#endif

enum { WIDE = 2 * VL, DEPTH = WD_PRODUCT_DEPTH, LINE = WD_PRODUCT_LINE };
_Static_assert((int)WIDE <= (int)WD_PRODUCT_WIDE_MAX && (int)ROWS <= (int)VL &&
                   (int)ROWS <= (int)WD_PRODUCT_ROWS_MAX,
               "the plan's limits");

/* How an operand's elements become units. */
typedef enum packing { PACK_FLOAT, PACK_PAIR, PACK_WIDEN } packing;

/* An operand as it lies in memory: element (i, k) is k_dense ? i stride + k : k stride + i. */
typedef struct operand {
    const void *data;
    wd_dtype type; /* F32 or BF16 */
    int64_t stride;
    bool k_dense;
} operand;

static inline packing packing_of(wd_dtype type)
{
    return type == WD_F32 ? PACK_FLOAT : BF16_PAIRS ? PACK_PAIR : PACK_WIDEN;
}

/* Units that `k` elements make, and elements that make DEPTH units. */
static inline int64_t units_of(packing pack, int64_t k)
{
    return pack == PACK_PAIR ? (k + 1) / 2 : k;
}
static inline int64_t block_k(packing pack)
{
    return pack == PACK_PAIR ? 2 * DEPTH : DEPTH;
}

/* ---- packing ---- */

/* Brings what will be packed next into the second-level cache; an address beyond the end is
 * harmless. */
ALWAYS_INLINE void prefetch(operand x, int64_t at)
{
    __builtin_prefetch(
        (const char *)((uintptr_t)x.data + (uintptr_t)at * (x.type == WD_F32 ? 4 : 2)), 0, 2);
}

/* The units of line i from element k on; beyond k_end they are zero. */
ALWAYS_INLINE vec load_along_k(operand x, packing pack, int64_t i, int64_t k, int64_t k_end)
{
    int64_t at = i * x.stride + k, left = k_end - k;
    unit buffer[VL] = {0};
    if (pack == PACK_FLOAT) {
        const float *from = (const float *)x.data + at;
        if (left >= VL) return vec_load(from);
        for (int64_t d = 0; d < left; d++) buffer[d] = from[d];
        return vec_load(buffer);
    }
    const uint16_t *from = (const uint16_t *)x.data + at;
    if (pack == PACK_PAIR) {
        if (left >= 2 * VL) return vec_load((const unit *)(const void *)from);
        if (left > 0) memcpy(buffer, from, (size_t)left * sizeof *from);
        return vec_load(buffer);
    }
    uint32_t wide[VL] = {0};
    if (left >= VL)
        for (int d = 0; d < VL; d++) wide[d] = (uint32_t)from[d] << 16;
    else
        for (int64_t d = 0; d < left; d++) wide[d] = (uint32_t)from[d] << 16;
    return vec_load((const unit *)wide);
}

/* The unit at element k of the lines from i on; zeros beyond i_end, and if k is beyond k_end. */
ALWAYS_INLINE vec load_along_i(operand x, packing pack, int64_t i, int64_t i_end, int64_t k,
                               int64_t k_end)
{
    int64_t at = k * x.stride + i, left = k < k_end ? i_end - i : 0;
    if (pack == PACK_FLOAT) {
        const float *from = (const float *)x.data + at;
        unit buffer[VL] = {0};
        if (left >= VL) return vec_load(from);
        for (int64_t j = 0; j < left; j++) buffer[j] = from[j];
        return vec_load(buffer);
    }
    static const uint16_t none[VL];
    const uint16_t *from = (const uint16_t *)x.data + at;
    const uint16_t *next = k + 1 < k_end ? from + x.stride : none;
    uint32_t wide[VL] = {0};
    if (pack == PACK_PAIR) {
        if (left >= VL)
            for (int j = 0; j < VL; j++) wide[j] = from[j] | (uint32_t)next[j] << 16;
        else
            for (int64_t j = 0; j < left; j++) wide[j] = from[j] | (uint32_t)next[j] << 16;
    } else {
        if (left >= VL)
            for (int j = 0; j < VL; j++) wide[j] = (uint32_t)from[j] << 16;
        else
            for (int64_t j = 0; j < left; j++) wide[j] = (uint32_t)from[j] << 16;
    }
    return vec_load((const unit *)wide);
}

/* Rows [i, i + rows), at most ROWS, elements [k, k_end) -> out [rows, LINE]. i_end: of the operand.
 */
ALWAYS_INLINE void pack_rows_as(unit *out, operand x, packing pack, int64_t i, int64_t rows,
                                int64_t i_end, int64_t k, int64_t k_end)
{
    int64_t depth = units_of(pack, k_end - k), step = pack == PACK_PAIR ? 2 : 1;
    if (x.k_dense) {
        for (int64_t r = 0; r < rows; r++)
            for (int64_t d = 0; d < depth; d += VL) {
                prefetch(x, (i + ROWS + r) * x.stride + k + d * step);
                vec_store(out + r * LINE + d, load_along_k(x, pack, i + r, k + d * step, k_end));
            }
        return;
    }
    for (int64_t d = 0; d < depth; d += VL) {
        vec v[VL];
        TIMES(j, VL) v[j] = load_along_i(x, pack, i, i_end, k + (d + j) * step, k_end);
        vec_transpose(v);
        TIMES(r, ROWS)
        if (r < rows) vec_store(out + r * LINE + d, v[r]);
    }
}

static void pack_rows(unit *out, operand x, packing pack, int64_t i, int64_t rows, int64_t i_end,
                      int64_t k, int64_t k_end)
{
    if (pack == PACK_FLOAT)
        pack_rows_as(out, x, PACK_FLOAT, i, rows, i_end, k, k_end);
    else if (pack == PACK_PAIR)
        pack_rows_as(out, x, PACK_PAIR, i, rows, i_end, k, k_end);
    else
        pack_rows_as(out, x, PACK_WIDEN, i, rows, i_end, k, k_end);
}

/* Columns [i, i_end), elements [k, k_end) -> out: panels [units, WIDE] of WIDE columns each, the
 * last one filled up with zeros. */
ALWAYS_INLINE void pack_columns_as(unit *out, operand x, packing pack, int64_t i, int64_t i_end,
                                   int64_t k, int64_t k_end)
{
    int64_t depth = units_of(pack, k_end - k), step = pack == PACK_PAIR ? 2 : 1;
    for (; i < i_end; i += WIDE, out += depth * WIDE)
        for (int half = 0; half < WIDE; half += VL) {
            int64_t begin = i + half;
            if (!x.k_dense) {
                for (int64_t d = 0; d < depth; d++)
                    vec_store(out + d * WIDE + half,
                              load_along_i(x, pack, begin, i_end, k + d * step, k_end));
                continue;
            }
            for (int64_t d = 0; d < depth; d += VL) {
                vec v[VL];
                TIMES(j, VL) prefetch(x, (begin + WIDE + j) * x.stride + k + d * step);
                TIMES(j, VL)
                v[j] = begin + j < i_end ? load_along_k(x, pack, begin + j, k + d * step, k_end)
                                         : vec_all(0);
                vec_transpose(v);
                TIMES(j, VL)
                if (d + j < depth) vec_store(out + (d + j) * WIDE + half, v[j]);
            }
        }
}

static void pack_columns(unit *out, operand x, packing pack, int64_t i, int64_t i_end, int64_t k,
                         int64_t k_end)
{
    if (pack == PACK_FLOAT)
        pack_columns_as(out, x, PACK_FLOAT, i, i_end, k, k_end);
    else if (pack == PACK_PAIR)
        pack_columns_as(out, x, PACK_PAIR, i, i_end, k, k_end);
    else
        pack_columns_as(out, x, PACK_WIDEN, i, i_end, k, k_end);
}

/* ---- the inner loop ---- */

/* c [rows, wide VL] (+)= a [rows, LINE] times a panel b [depth, WIDE]. */
ALWAYS_INLINE void multiply(unit *c, int64_t c_stride, const unit *a, const unit *b, int64_t depth,
                            bool add, int rows, int wide, bool pairs)
{
    vec sum[ROWS][2];
    TIMES(r, rows)
    TIMES(j, wide) sum[r][j] = vec_all(0);
    for (int64_t d = 0; d < depth; d++) {
        vec column[2];
        TIMES(j, wide) column[j] = vec_load(b + d * WIDE + j * VL);
        TIMES(r, rows)
        {
            vec row = vec_all(a[r * LINE + d]);
            TIMES(j, wide)
            sum[r][j] = pairs ? vec_fma_bf16(row, column[j], sum[r][j])
                              : vec_fma(row, column[j], sum[r][j]);
        }
    }
    TIMES(r, rows)
    TIMES(j, wide)
    {
        unit *to = c + r * c_stride + j * VL;
        if (add) sum[r][j] += vec_load(to);
        vec_store(to, sum[r][j]);
    }
}

typedef void multiply_fn(unit *c, int64_t c_stride, const unit *a, const unit *b, int64_t depth,
                         bool add);

#define INNER(rows, wide, pairs)                                                                   \
    static void multiply_##rows##_##wide##_##pairs(unit *c, int64_t c_stride, const unit *a,       \
                                                   const unit *b, int64_t depth, bool add)         \
    {                                                                                              \
        if (rows <= ROWS && pairs <= BF16_PAIRS)                                                   \
            multiply(c, c_stride, a, b, depth, add, rows <= ROWS ? rows : 0, wide, pairs);         \
    }
#define INNER_ROWS(X, wide, pairs)                                                                 \
    X(1, wide, pairs)                                                                              \
    X(2, wide, pairs)                                                                              \
    X(3, wide, pairs)                                                                              \
    X(4, wide, pairs) X(5, wide, pairs) X(6, wide, pairs) X(7, wide, pairs) X(8, wide, pairs)      \
        X(9, wide, pairs) X(10, wide, pairs) X(11, wide, pairs) X(12, wide, pairs)                 \
            X(13, wide, pairs) X(14, wide, pairs)
INNER_ROWS(INNER, 1, 0)
INNER_ROWS(INNER, 2, 0)
INNER_ROWS(INNER, 1, 1)
INNER_ROWS(INNER, 2, 1)

/* The inner loop for `rows` (1 .. ROWS) rows and `columns` (1 .. WIDE) columns. */
static inline multiply_fn *multiply_for(int64_t rows, int64_t columns, packing pack)
{
#define X(rows, wide, pairs) multiply_##rows##_##wide##_##pairs,
    static multiply_fn *const table[2][2][WD_PRODUCT_ROWS_MAX] = {
        {{INNER_ROWS(X, 1, 0)}, {INNER_ROWS(X, 2, 0)}},
        {{INNER_ROWS(X, 1, 1)}, {INNER_ROWS(X, 2, 1)}}};
#undef X
    return table[pack == PACK_PAIR][columns > VL][rows - 1];
}

/* The same for any number of rows: c [rows, c_stride] (+)= a [rows, LINE] times a panel. */
static inline void multiply_rows(unit *c, int64_t c_stride, const unit *a, const unit *b,
                                 int64_t rows, int64_t columns, int64_t depth, bool add,
                                 packing pack)
{
    int64_t groups = (rows + ROWS - 1) / ROWS;
    for (int64_t g = 0; g < groups; g++) {
        int64_t r = rows * g / groups, r_end = rows * (g + 1) / groups;
        multiply_for(r_end - r, columns, pack)(c + r * c_stride, c_stride, a + r * LINE, b, depth,
                                               add);
    }
}

#endif
