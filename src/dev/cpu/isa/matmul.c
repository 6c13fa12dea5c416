/* Matrix products in tiles (isa/product.h), and the last steps for a finished tile: bias,
 * activation, sum, rounding. See cpu/matmul.h for the products that oneDNN computes instead. */
#include <assert.h>

#include "dev/cpu/isa/isa.h"

#include "core/error.h"
#include "dev/cpu/isa/product.h"
#include "dev/math.h"

typedef struct job {
    const wd_matmul_args *args;
    wd_product_plan plan;
    char *workspace;
} job;

static const void *offset(const void *data, wd_dtype type, int64_t elements)
{
    return (const char *)data + elements * (int64_t)wd_dtype_bytes(type);
}

/* Copies the first `bytes` of each row of WIDE elements to rows that are `stride` bytes apart. */
static void put_rows(char *to, int64_t stride, const void *from, size_t row_bytes, int64_t rows,
                     size_t bytes)
{
    const char *row = from;
    for (int64_t r = 0; r < rows; r++, to += stride, row += row_bytes)
        if (bytes == row_bytes && row_bytes == WIDE * sizeof(float))
            memcpy(to, row, WIDE * sizeof(float));
        else if (bytes == row_bytes)
            memcpy(to, row, WIDE * sizeof(uint16_t));
        else
            memcpy(to, row, bytes);
}

/* Stores a finished panel, rows of WIDE sums of which `columns` exist, into the result from element
 * `at` on. */
static void finish(const wd_matmul_args *a, int64_t at, const unit *sums, int64_t sums_stride,
                   const float *bias, int64_t rows, int64_t columns)
{
    float y[PAIR_ROWS * WIDE];
    uint16_t narrowed[PAIR_ROWS * WIDE];
    for (int64_t r = 0; r < rows; r++)
        for (int j = 0; j < WIDE; j++) y[r * WIDE + j] = sums[r * sums_stride + j] + bias[j];
    if (a->act == WD_ACT_GELU_TANH) EACH(j, rows * WIDE) y[j] = gelu_f32(y[j]);
    for (int64_t r = 0; a->beta != 0 && r < rows; r++) {
        float old[WIDE];
        const float *was = widen(old, a->c, a->c_type, at + r * a->ldc, columns);
        EACH(j, columns) y[r * WIDE + j] += was[j];
    }
    size_t size = wd_dtype_bytes(a->c_type);
    narrow(narrowed, a->c_type, 0, y, rows * WIDE);
    put_rows((char *)a->c + at * (int64_t)size, a->ldc * (int64_t)size,
             a->c_type == WD_F32 ? (void *)y : narrowed, WIDE * size, rows, (size_t)columns * size);
}

/* The rows of a group as the inner loop reads them. */
typedef struct packed_rows {
    const void *data;
    int64_t row_bytes; /* from row to row; turned rows have none */
} packed_rows;

/* Packs elements [k, k_end) of the rows [r0, r1), of which m1 exist, into `to`. AMX reads rows
 * where they are if nothing must be filled up with zeros. */
static packed_rows make_rows(unit *to, operand row, packing pack, int64_t r0, int64_t r1,
                             int64_t m1, int64_t k, int64_t k_end)
{
    packed_rows packed = {to, LINE * (int64_t)sizeof *to};
    if (on_amx(pack) && row.k_dense && units_of(pack, k_end - k) * 2 == k_end - k) {
        int64_t element = (int64_t)wd_dtype_bytes(row.type);
        return (packed_rows){offset(row.data, row.type, r0 * row.stride + k), row.stride * element};
    }
    if (row.k_dense)
        pack_rows(to, row, pack, r0, r1 - r0, r1, k, k_end);
    else if (!on_amx(pack))
        pack_turned(to, row, pack, r0, m1, k, k_end);
    else
        for (int64_t r = r0; r < r1; r += VL)
            pack_rows(to + (r - r0) * LINE, row, pack, r, least(VL, r1 - r), m1, k, k_end);
    return packed;
}

/* Rows [m0, m1), columns [n0, n1) of product `i` of the batch. */
static void make_tile(const wd_matmul_args *a, int64_t i, int64_t m0, int64_t m1, int64_t n0,
                      int64_t n1, unit *workspace)
{
    packing pack = packing_of(a->a_type);
    operand row = {offset(a->a, a->a_type, i * a->stride_a), a->a_type, a->lda, !a->transpose_a};
    operand column = {offset(a->b, a->b_type, i * a->stride_b), a->b_type, a->ldb, a->transpose_b};
    int64_t width = (n1 - n0 + WIDE - 1) / WIDE * WIDE, most = rows_at_once(pack);
    int64_t groups = (m1 - m0 + most - 1) / most;
    float bias[(int)WD_PRODUCT_TILE_COLUMNS + (int)WIDE] = {0};
    unit rows[ROWS_UNITS], panel_sums[PAIR_ROWS * WIDE];
    if (a->bias) {
        const float *b = widen(bias, a->bias, a->bias_type, n0, n1 - n0);
        if (b != bias) memcpy(bias, b, (size_t)(n1 - n0) * sizeof *b);
    }
    int64_t k = 0, block = block_k(pack), k_end;
    unit *columns = workspace, *sums = workspace + width * wd__product_depth(a->k);
    do {
        k_end = least(k + block, a->k);
        int64_t depth = units_of(pack, k_end - k);
        bool only = k == 0 && k_end == a->k, last = k_end == a->k;
        pack_columns(columns, column, pack, n0, n1, k, k_end);
        for (int64_t g = 0; g < groups; g++) {
            int64_t r0 = m0 + (m1 - m0) * g / groups, r1 = m0 + (m1 - m0) * (g + 1) / groups;
            if (on_amx(pack)) r0 = m0 + g * most, r1 = least(m1, r0 + most);
            packed_rows packed = make_rows(rows, row, pack, r0, r1, m1, k, k_end);
            for (int64_t j = 0; j < n1 - n0; j += WIDE) {
                int64_t count = least(WIDE, n1 - n0 - j), stride = only ? WIDE : width;
                unit *to = only ? panel_sums : sums + (r0 - m0) * width + j;
                if (on_amx(pack))
                    multiply_tiles(to, stride, packed.data, packed.row_bytes, columns + j * depth,
                                   r1 - r0, count, depth, k > 0);
                else
                    multiply_for(r1 - r0, count, !row.k_dense,
                                 pack)(to, stride, rows, columns + j * depth, depth, k > 0);
                if (last)
                    finish(a, i * a->stride_c + r0 * a->ldc + n0 + j, to, stride, bias + j, r1 - r0,
                           count);
            }
        }
        k = k_end;
    } while (k < a->k);
}

static void make_part(int64_t begin, int64_t end, void *context)
{
    const job *w = context;
    const wd_matmul_args *a = w->args;
    const wd_product_plan *p = &w->plan;
    bool amx = on_amx(packing_of(a->a_type));
    if (amx) amx_configure(PAIR_ROWS);
    for (int64_t part = begin; part < end; part++) {
        unit *workspace = (unit *)(w->workspace + (size_t)part * p->part_bytes);
        int64_t tile = p->tiles * part / p->parts, tile_end = p->tiles * (part + 1) / p->parts;
        for (; tile < tile_end; tile++) {
            int64_t i = tile / (p->tiles_m * p->tiles_n), at = tile % (p->tiles_m * p->tiles_n);
            int64_t m0 = at / p->tiles_n * p->tile_m, n0 = at % p->tiles_n * p->tile_n;
            if (m0 < a->m && n0 < a->n)
                make_tile(a, i, m0, least(m0 + p->tile_m, a->m), n0, least(n0 + p->tile_n, a->n),
                          workspace);
        }
    }
    if (amx) amx_release();
}

void KERNEL(matmul)(const void *args, wd_cpu_context *context)
{
    const wd_matmul_args *a = args;
    assert(a->a_type == a->b_type && (a->a_type == WD_F32 || a->a_type == WD_BF16));
    assert(a->beta == 0 || a->act == WD_ACT_NONE);
    job w = {a, wd__product_plan_make(a->batch, a->m, a->n, a->k, wd_parallel_threads()),
             context->workspace};
    WD_REQUIRE((size_t)w.plan.parts * w.plan.part_bytes <= context->workspace_bytes,
               "a product in a workspace of %zu bytes", context->workspace_bytes);
    wd_parallel_for(w.plan.parts, 1, make_part, &w);
}
