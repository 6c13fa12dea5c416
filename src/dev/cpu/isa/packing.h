/* Packing of operands for the inner loop of matrix products (isa/product.h). Packing hides the
 * differences between operands: storage order, strides, dtype, edges (filled with zeros).
 *
 * A unit is the operand of one lane: a float, or, if the processor has bf16 products and both
 * operands are bf16, a pair of bf16 neighbours in k. Otherwise bf16 is converted to fp32 when it is
 * packed. */
#ifndef WD_DEV_CPU_ISA_PACKING_H
#define WD_DEV_CPU_ISA_PACKING_H

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

/* Rows of bf16 pairs that one call of the inner loop takes. */
#if defined(__AMX_BF16__)
enum { USES_AMX = 1, PAIR_ROWS = 32 };
#else
enum { USES_AMX = 0, PAIR_ROWS = ROWS };
#endif

enum { WIDE = 2 * VL, DEPTH = WD_PRODUCT_DEPTH, LINE = WD_PRODUCT_LINE };

/* Packed rows: [PAIR_ROWS, LINE], or turned [DEPTH, VL]. */
enum { ROWS_UNITS = PAIR_ROWS * LINE > DEPTH *VL ? PAIR_ROWS *LINE : DEPTH *VL };
_Static_assert((int)WIDE <= (int)WD_PRODUCT_WIDE_MAX && (int)ROWS <= (int)VL &&
                   (int)ROWS <= (int)WD_PRODUCT_ROWS_MAX,
               "the plan's limits");

/* The conversion of an operand's elements to units. */
typedef enum packing { PACK_FLOAT, PACK_PAIR, PACK_WIDEN } packing;

/* An operand in memory: element (i, k) is at k_dense ? i stride + k : k stride + i. */
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

/* Whether the inner loop runs on the tile registers of AMX. */
static inline bool on_amx(packing pack)
{
    return USES_AMX && pack == PACK_PAIR;
}

/* Rows that one call of the inner loop takes. */
static inline int64_t rows_at_once(packing pack)
{
    return pack == PACK_PAIR ? PAIR_ROWS : ROWS;
}

/* The packed units of `k` elements, and the elements of DEPTH units. On AMX the units beyond k are
 * zero. */
static inline int64_t units_of(packing pack, int64_t k)
{
    if (on_amx(pack)) return (k + 31) / 32 * 16;
    return pack == PACK_PAIR ? (k + 1) / 2 : k;
}
static inline int64_t block_k(packing pack)
{
    return pack == PACK_PAIR ? 2 * DEPTH : DEPTH;
}

/* Prefetches the elements that will be packed next into the second-level cache; an address beyond
 * the end is harmless. */
ALWAYS_INLINE void prefetch(operand x, int64_t at)
{
    __builtin_prefetch(
        (const char *)((uintptr_t)x.data + (uintptr_t)at * (x.type == WD_F32 ? 4 : 2)), 0, 2);
}

/* The unit at element k of line i; zero beyond either end. */
static inline unit unit_at(operand x, packing pack, int64_t i, int64_t i_end, int64_t k,
                           int64_t k_end)
{
    if (i >= i_end || k >= k_end) return 0;
    int64_t at = x.k_dense ? i * x.stride + k : k * x.stride + i;
    if (pack == PACK_FLOAT) return ((const float *)x.data)[at];
    const uint16_t *from = (const uint16_t *)x.data + at;
    if (pack == PACK_WIDEN) return float_of((uint32_t)*from << 16);
    uint32_t next = k + 1 < k_end ? from[x.k_dense ? 1 : x.stride] : 0;
    return float_of(*from | next << 16);
}

/* Loads VL units of which not all exist: at element k of the lines from i on, or along line i. */
OUT_OF_LINE vec load_edge(operand x, packing pack, bool along_k, int64_t i, int64_t i_end,
                          int64_t k, int64_t k_end)
{
    unit buffer[VL];
    int64_t step = pack == PACK_PAIR ? 2 : 1;
    for (int64_t j = 0; j < VL; j++)
        buffer[j] = along_k ? unit_at(x, pack, i, i_end, k + j * step, k_end)
                            : unit_at(x, pack, i + j, i_end, k, k_end);
    return vec_load(buffer);
}

ALWAYS_INLINE vec load_wide(const uint16_t *from)
{
    uint32_t wide[VL];
    for (int j = 0; j < VL; j++) wide[j] = (uint32_t)from[j] << 16;
    return vec_load((const unit *)wide);
}

/* The units of line i from element k on; beyond k_end they are zero. */
ALWAYS_INLINE vec load_along_k(operand x, packing pack, int64_t i, int64_t k, int64_t k_end)
{
    int64_t at = i * x.stride + k;
    if (k_end - k < VL * (pack == PACK_PAIR ? 2 : 1))
        return load_edge(x, pack, true, i, i + 1, k, k_end);
    if (pack == PACK_FLOAT) return vec_load((const unit *)x.data + at);
    const uint16_t *from = (const uint16_t *)x.data + at;
    return pack == PACK_PAIR ? vec_load((const unit *)(const void *)from) : load_wide(from);
}

/* The unit at element k of the lines from i on; zeros beyond i_end, and if k is beyond k_end. */
ALWAYS_INLINE vec load_along_i(operand x, packing pack, int64_t i, int64_t i_end, int64_t k,
                               int64_t k_end)
{
    int64_t at = k * x.stride + i;
    if (i_end - i < VL || k_end - k < (pack == PACK_PAIR ? 2 : 1))
        return load_edge(x, pack, false, i, i_end, k, k_end);
    if (pack == PACK_FLOAT) return vec_load((const unit *)x.data + at);
    const uint16_t *from = (const uint16_t *)x.data + at;
    if (pack == PACK_WIDEN) return load_wide(from);
    uint32_t pair[VL];
    for (int j = 0; j < VL; j++) pair[j] = from[j] | (uint32_t)from[x.stride + j] << 16;
    return vec_load((const unit *)pair);
}

/* Calls make(out, x, pack, ...) with a constant packing, so that the compiler specialises it. */
#define FOR_PACKING(make, out, x, pack, ...)                                                       \
    do {                                                                                           \
        if (pack == PACK_FLOAT)                                                                    \
            make(out, x, PACK_FLOAT, __VA_ARGS__);                                                 \
        else if (pack == PACK_PAIR)                                                                \
            make(out, x, PACK_PAIR, __VA_ARGS__);                                                  \
        else                                                                                       \
            make(out, x, PACK_WIDEN, __VA_ARGS__);                                                 \
    } while (0)

/* Rows [i, i + rows), at most VL if turned, elements [k, k_end) -> out [rows, LINE]. i_end: of the
 * operand. */
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
        TIMES(r, VL)
        if (r < rows) vec_store(out + r * LINE + d, v[r]);
    }
}

static inline void pack_rows(unit *out, operand x, packing pack, int64_t i, int64_t rows,
                             int64_t i_end, int64_t k, int64_t k_end)
{
    FOR_PACKING(pack_rows_as, out, x, pack, i, rows, i_end, k, k_end);
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

static inline void pack_columns(unit *out, operand x, packing pack, int64_t i, int64_t i_end,
                                int64_t k, int64_t k_end)
{
    FOR_PACKING(pack_columns_as, out, x, pack, i, i_end, k, k_end);
}

/* Lines [i, i + VL) of an operand with i dense, elements [k, k_end) -> out [units, VL]: rows for
 * the products whose a is turned, without a transposition. Beyond i_end they are zero. */
ALWAYS_INLINE void pack_turned_as(unit *out, operand x, packing pack, int64_t i, int64_t i_end,
                                  int64_t k, int64_t k_end)
{
    int64_t step = pack == PACK_PAIR ? 2 : 1;
    for (; k < k_end; k += step, out += VL)
        vec_store(out, load_along_i(x, pack, i, i_end, k, k_end));
}

static inline void pack_turned(unit *out, operand x, packing pack, int64_t i, int64_t i_end,
                               int64_t k, int64_t k_end)
{
    FOR_PACKING(pack_turned_as, out, x, pack, i, i_end, k, k_end);
}

#endif
