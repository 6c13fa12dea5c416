/* Matrix products: sum over k of a(i, k) b(j, k), in tiles of the result.
 *
 * One thread computes one tile: for every block of DEPTH units of k it packs the columns' operand b
 * into panels of WIDE columns, then the rows' operand a, ROWS rows at a time (isa/packing.h), and
 * multiplies the two in registers. So there is one inner loop, and an element of the result is
 * always the same chain of fused multiply-adds, over k in order, block by block: its bits do not
 * depend on its tile, on the number of threads, or on other rows and columns of the launch. With
 * AMX bf16 products have an inner loop of their own (isa/product_amx.h). It adds in another order,
 * which does not depend on these, either. */
#ifndef WD_DEV_CPU_ISA_PRODUCT_H
#define WD_DEV_CPU_ISA_PRODUCT_H

#include "dev/cpu/isa/packing.h"
#include "dev/cpu/isa/product_amx.h"

/* c [rows, wide VL] (+)= a [rows, LINE], or turned [depth, VL], times a panel b [depth, WIDE]. */
ALWAYS_INLINE void multiply(unit *c, int64_t c_stride, const unit *a, const unit *b, int64_t depth,
                            bool add, int rows, int wide, bool turned, bool pairs)
{
    vec sum[ROWS][2];
    TIMES(r, rows)
    TIMES(j, wide) sum[r][j] = vec_all(0);
    for (int64_t d = 0; d < depth; d++) {
        vec column[2];
        TIMES(j, wide) column[j] = vec_load(b + d * WIDE + j * VL);
        TIMES(r, rows)
        {
            vec row = vec_all(turned ? a[d * VL + r] : a[r * LINE + d]);
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

#define INNER(rows, wide, turned, pairs)                                                           \
    static void multiply_##rows##_##wide##_##turned##_##pairs(                                     \
        unit *c, int64_t c_stride, const unit *a, const unit *b, int64_t depth, bool add)          \
    {                                                                                              \
        if (rows <= ROWS && pairs <= BF16_PAIRS)                                                   \
            multiply(c, c_stride, a, b, depth, add, rows <= ROWS ? rows : 0, wide, turned, pairs); \
    }
#define INNER_ROWS(X, ...)                                                                         \
    X(1, __VA_ARGS__)                                                                              \
    X(2, __VA_ARGS__)                                                                              \
    X(3, __VA_ARGS__)                                                                              \
    X(4, __VA_ARGS__)                                                                              \
    X(5, __VA_ARGS__)                                                                              \
    X(6, __VA_ARGS__)                                                                              \
    X(7, __VA_ARGS__)                                                                              \
    X(8, __VA_ARGS__)                                                                              \
    X(9, __VA_ARGS__)                                                                              \
    X(10, __VA_ARGS__)                                                                             \
    X(11, __VA_ARGS__)                                                                             \
    X(12, __VA_ARGS__)                                                                             \
    X(13, __VA_ARGS__)                                                                             \
    X(14, __VA_ARGS__)
INNER_ROWS(INNER, 1, 0, 0)
INNER_ROWS(INNER, 2, 0, 0)
INNER_ROWS(INNER, 1, 1, 0)
INNER_ROWS(INNER, 2, 1, 0)
INNER_ROWS(INNER, 1, 0, 1)
INNER_ROWS(INNER, 2, 0, 1)
INNER_ROWS(INNER, 1, 1, 1)
INNER_ROWS(INNER, 2, 1, 1)

/* The inner loop for `rows` (1 .. ROWS) rows and `columns` (1 .. WIDE) columns. */
static inline multiply_fn *multiply_for(int64_t rows, int64_t columns, bool turned, packing pack)
{
#define X(rows, wide, turned, pairs) multiply_##rows##_##wide##_##turned##_##pairs,
    static multiply_fn *const table[2][2][2][WD_PRODUCT_ROWS_MAX] = {
        {{{INNER_ROWS(X, 1, 0, 0)}, {INNER_ROWS(X, 2, 0, 0)}},
         {{INNER_ROWS(X, 1, 1, 0)}, {INNER_ROWS(X, 2, 1, 0)}}},
        {{{INNER_ROWS(X, 1, 0, 1)}, {INNER_ROWS(X, 2, 0, 1)}},
         {{INNER_ROWS(X, 1, 1, 1)}, {INNER_ROWS(X, 2, 1, 1)}}}};
#undef X
    return table[pack == PACK_PAIR][turned][columns > VL][rows - 1];
}

/* The same for any number of rows: c [rows, c_stride] (+)= a [rows, LINE] times a panel. */
static inline void multiply_rows(unit *c, int64_t c_stride, const unit *a, const unit *b,
                                 int64_t rows, int64_t columns, int64_t depth, bool add,
                                 packing pack)
{
    for (int64_t r = 0; on_amx(pack) && r < rows; r += PAIR_ROWS)
        multiply_tiles(c + r * c_stride, c_stride, a + r * LINE, LINE * (int64_t)sizeof *a, b,
                       least(PAIR_ROWS, rows - r), columns, depth, add);
    if (on_amx(pack)) return;
    int64_t groups = (rows + ROWS - 1) / ROWS;
    for (int64_t g = 0; g < groups; g++) {
        int64_t r = rows * g / groups, r_end = rows * (g + 1) / groups;
        multiply_for(r_end - r, columns, false, pack)(c + r * c_stride, c_stride, a + r * LINE, b,
                                                      depth, add);
    }
}

#endif
