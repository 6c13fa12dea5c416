/* Functions of attention over many tokens, for the forward and the backward pass.
 *
 * Both use the tiles of isa/product.h, with queries in columns: scores are [keys, WIDE] for a panel
 * of WIDE queries, so that maxima and sums over keys run lane by lane, and the panel is the second
 * operand of the next product without repacking. Outputs are transposed, [K, WIDE]. */
#ifndef WD_DEV_CPU_ISA_ATTENTION_LARGE_H
#define WD_DEV_CPU_ISA_ATTENTION_LARGE_H

#include "dev/cpu/attention_plan.h"
#include "dev/cpu/isa/attention.h"
#include "dev/cpu/isa/product.h"
#include "dev/math.h"

enum { KEYS = WD_ATTENTION_KEYS };

/* The tokens of one head, the first at element `at`. */
static inline operand head_of(const void *data, wd_dtype type, int64_t at, int64_t stride)
{
    return (operand){(const char *)data + at * (int64_t)wd_dtype_bytes(type), type, stride, true};
}

/* The same with tokens and elements exchanged. */
static inline operand turned(operand x)
{
    x.k_dense = !x.k_dense;
    return x;
}

static inline int64_t whole_panels(int64_t columns)
{
    return (columns + WIDE - 1) / WIDE * WIDE;
}

/* Rows [i, i + rows) of x, its elements [k, k_end) -> out: a block [rows, LINE] for every block_k
 * elements. */
static inline void pack_many_rows(unit *out, operand x, packing pack, int64_t i, int64_t rows,
                                  int64_t i_end, int64_t k, int64_t k_end)
{
    for (; k < k_end; k += block_k(pack), out += rows * LINE)
        for (int64_t r = 0; r < rows; r += ROWS)
            pack_rows(out + r * LINE, x, pack, i + r, least(ROWS, rows - r), i_end, k,
                      least(k_end, k + block_k(pack)));
}

/* Columns [i, i_end) of x, its elements [0, k_end) -> out: panels for every block_k elements. */
static inline void pack_many_columns(unit *out, operand x, packing pack, int64_t i, int64_t i_end,
                                     int64_t k_end)
{
    for (int64_t k = 0; k < k_end; k += block_k(pack), out += whole_panels(i_end - i) * DEPTH)
        pack_columns(out, x, pack, i, i_end, k, least(k_end, k + block_k(pack)));
}

/* c [rows, WIDE] = packed rows times the panel that begins at column j of `columns` packed ones; k
 * elements are summed. AMX also computes the columns that do not exist, which become zeros: the
 * backward pass sums over all of them. */
static inline void multiply_panel(unit *c, const unit *a, const unit *b, int64_t rows, int64_t j,
                                  int64_t columns, int64_t k, packing pack)
{
    for (int64_t done = 0; done < k; done += block_k(pack)) {
        int64_t depth = units_of(pack, least(block_k(pack), k - done));
        int64_t wanted = on_amx(pack) ? WIDE : least(WIDE, columns - j);
        multiply_rows(c, WIDE, a, b + j * depth, rows, wanted, depth, done > 0, pack);
        a += rows * LINE;
        b += whole_panels(columns) * DEPTH;
    }
}

/* Rows 2t and 2t + 1 of p [rows, WIDE] become row t of pairs, up to row units_of(rows); missing
 * rows are zero. */
static inline void pair_rows(unit *p, int64_t rows)
{
    for (int64_t t = 0; t < units_of(PACK_PAIR, rows); t++) {
        float low[WIDE] = {0}, high[WIDE] = {0};
        uint32_t pair[WIDE];
        if (2 * t < rows) memcpy(low, p + 2 * t * WIDE, sizeof low);
        if (2 * t + 1 < rows) memcpy(high, p + (2 * t + 1) * WIDE, sizeof high);
        for (int j = 0; j < WIDE; j++)
            pair[j] = bf16_bits(low[j]) >> 16 | (bf16_bits(high[j]) & 0xffff0000u);
        memcpy(p + t * WIDE, pair, sizeof pair);
    }
}

/* Column j of x [width, WIDE] -> token j of `to`, from element `at` on, j < columns. */
static inline void store_turned(void *to, wd_dtype type, int64_t at, int64_t stride, const unit *x,
                                int64_t width, int64_t columns)
{
    for (int64_t j = 0; j < columns; j += VL)
        for (int64_t d = 0; d < width; d += VL) {
            vec v[VL];
            unit row[VL];
            TIMES(r, VL) v[r] = vec_load(x + (d + r) * WIDE + j);
            vec_transpose(v);
            for (int64_t r = 0; r < VL && j + r < columns; r++) {
                int64_t count = least(VL, width - d), first = at + (j + r) * stride + d;
                vec_store(row, v[r]);
                if (type == WD_F32)
                    memcpy((float *)to + first, row, (size_t)count * sizeof *row);
                else
                    narrow(to, type, first, row, count);
            }
        }
}

#endif
