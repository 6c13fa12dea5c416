/* Matrix products against plain C, and their bits: see kernels/matrix_check.h. */
#include "kernels/matrix_check.h"

typedef struct params {
    int64_t m, n, k, batch, gap; /* gap: elements between rows, beyond their width */
    int64_t result_gap;          /* elements between rows of the result alone */
    wd_dtype type, c_type, bias_type;
    bool transpose_a, transpose_b, bias;
    float beta;
    wd_act act;
    filling how;
    bool ones; /* all operands are 1 */
} params;

static void fill_with_ones(array *a)
{
    for (int64_t i = 0; i < a->count; i++) wd__store(a->data, a->type, i, 1);
}

static void make_matmul(world *w, void *out, const void *context)
{
    const params *p = context;
    wd_matmul_args *a = out;
    *a = (wd_matmul_args){.c_type = p->c_type,
                          .a_type = p->type,
                          .b_type = p->type,
                          .bias_type = p->bias_type,
                          .transpose_a = p->transpose_a,
                          .transpose_b = p->transpose_b,
                          .m = p->m,
                          .n = p->n,
                          .k = p->k,
                          .lda = (p->transpose_a ? p->m : p->k) + p->gap,
                          .ldb = (p->transpose_b ? p->k : p->n) + 2 * p->gap,
                          .ldc = p->n + 3 * p->gap + p->result_gap,
                          .batch = p->batch,
                          .beta = p->beta,
                          .act = p->act};
    a->stride_a = (p->transpose_a ? p->k : p->m) * a->lda;
    a->stride_b = (p->transpose_b ? p->n : p->k) * a->ldb;
    a->stride_c = p->m * a->ldc;
    a->c = out_array(w, p->c_type, p->batch * a->stride_c, a->ldc, ORDINARY);
    a->a = make_array(w, p->type, p->batch * a->stride_a, p->how);
    a->b = make_array(w, p->type, p->batch * a->stride_b, ORDINARY);
    if (p->bias) a->bias = make_array(w, p->bias_type, p->n, ORDINARY);
    for (int i = 1; i < w->arrays && p->ones; i++) fill_with_ones(&w->array[i]);
}

static void check_product(params p)
{
    check_matrix(WD_OP_MATMUL, make_matmul, &p,
                 product_tolerance(p.type, p.c_type, p.act, p.k, EXECUTOR_IS_GPU));
}

/* The dtypes of inputs, output and bias that layers use. */
static const wd_dtype types[][3] = {{WD_F32, WD_F32, WD_F32},
                                    {WD_BF16, WD_BF16, WD_BF16},
                                    {WD_BF16, WD_F32, WD_F32},
                                    {WD_BF16, WD_BF16, WD_F32},
                                    {WD_F32, WD_BF16, WD_BF16}};
enum { TYPES = sizeof types / sizeof *types };

static void check_forms(params p)
{
    for (int form = 0; form < 4; form++)
        for (int t = 0; t < TYPES; t++) {
            p.transpose_a = form & 1;
            p.transpose_b = form >> 1;
            p.type = types[t][0], p.c_type = types[t][1], p.bias_type = types[t][2];
            check_product(p);
        }
}

/* Around the sizes of vectors, panels, groups of rows and blocks of k. */
static void shapes(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {
        {1, 1, 1},    {1, 64, 7},   {2, 31, 33},   {13, 32, 255}, {14, 33, 256}, {15, 16, 257},
        {28, 65, 31}, {29, 8, 511}, {16, 96, 512}, {5, 7, 513},   {3, 48, 1025}, {33, 160, 160},
        {6, 9, 16},   {7, 100, 2},  {400, 3, 5},   {3, 800, 4},   {337, 385, 3}, {31, 17, 64},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        check_forms((params){.m = sizes[i][0],
                             .n = sizes[i][1],
                             .k = sizes[i][2],
                             .batch = 1,
                             .gap = i % 3 ? 0 : 5});
}

static void epilogues(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++)
        check_forms((params){.m = 19,
                             .n = 45,
                             .k = i & 4 ? 600 : 37,
                             .batch = 1,
                             .gap = i % 2,
                             .bias = i & 1,
                             .act = i & 2 ? WD_ACT_GELU_TANH : WD_ACT_NONE,
                             .beta = i & 2 ? 0 : 1});
}

static void batches(void **state)
{
    (void)state;
    check_forms((params){.m = 17, .n = 20, .k = 24, .batch = 7, .bias = true, .gap = 1});
}

/* NaN and infinity stay in their row. */
static void nasty_inputs(void **state)
{
    (void)state;
    check_forms((params){.m = 37, .n = 40, .k = 6, .batch = 1, .how = NASTY});
}

static void slice_rows(void *args, const void *context, int64_t begin, int64_t end)
{
    wd_matmul_args *a = args;
    (void)context;
    a->a = (const char *)a->a + (size_t)(begin * a->lda) * wd_dtype_bytes(a->a_type);
    a->c = (char *)a->c + (size_t)(begin * a->ldc) * wd_dtype_bytes(a->c_type);
    a->m = end - begin;
}

/* A row's bits do not depend on which other rows are in the launch: layers of the tiny, of the
 * large and of odd models, with few and with many rows, also with gaps between rows, as in queries,
 * keys and values. */
static void rows_do_not_depend_on_rows(void **state)
{
    (void)state;
    static const int64_t layers[][2] = {{160, 160}, {640, 160}, {160, 640},  {96, 384}, {64, 160},
                                        {1536, 96}, {96, 1536}, {200, 2047}, {72, 72},  {24, 24}};
    static const int64_t cuts[] = {16, 17, 49, 97, 161, 177, 433, 435, 442, 1040};
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i += SLOW_STEP)
        for (int t = 0; t < 2; t++) {
            params p = {.m = 1040,
                        .n = layers[i][0],
                        .k = layers[i][1],
                        .batch = 1,
                        .bias = true,
                        .transpose_b = true,
                        .type = types[t][0],
                        .c_type = types[t][1],
                        .bias_type = types[t][2]};
            check_slices(WD_OP_MATMUL, make_matmul, slice_rows, cuts, sizeof cuts / sizeof *cuts,
                         &p);
            p.result_gap = 2 * p.n;
            check_slices(WD_OP_MATMUL, make_matmul, slice_rows, cuts, sizeof cuts / sizeof *cuts,
                         &p);
            p.result_gap = 0;
            p.transpose_b = false;
            p.bias = false;
            check_slices(WD_OP_MATMUL, make_matmul, slice_rows, cuts, sizeof cuts / sizeof *cuts,
                         &p);
        }
}

/* A weight's gradient sums over the rows: the same bits for any number of threads, also with gaps
 * between rows, as in the gradients of queries, keys and values. */
static void weight_gradients(void **state)
{
    (void)state;
    static const int64_t sizes[][4] = {{160, 64, 1024, 0}, {16, 64, 4096, 0},  {32, 32, 16384, 0},
                                       {24, 24, 1500, 48}, {72, 72, 384, 144}, {16, 64, 1024, 8}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int t = 0; t < 2; t++)
            check_product((params){.m = sizes[i][0],
                                   .n = sizes[i][1],
                                   .k = sizes[i][2],
                                   .gap = sizes[i][3],
                                   .batch = 1,
                                   .transpose_a = true,
                                   .beta = 1,
                                   .type = types[t][0],
                                   .c_type = WD_F32});
}

/* Numbers of tokens that are no multiple of 64: no product may be left out. Sums of ones are exact
 * in any order, also where the sum is cut off after each step. */
static void weight_gradients_of_odd_lengths(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++) {
        params p = {.m = 64,
                    .n = 96,
                    .k = 1560,
                    .batch = 1,
                    .transpose_a = true,
                    .type = types[t][0],
                    .c_type = WD_F32};
        check_product(p);
        p.k = 11528;
        p.ones = true;
        check_matrix(WD_OP_MATMUL, make_matmul, &p, (tolerance){0, 0});
    }
}

/* The gradient of a layer's input sums over its width, with gaps between rows. */
static void input_gradients(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = {{72, 384}, {24, 1536}, {1000, 1000}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int t = 0; t < 2; t++)
            check_product((params){.m = 16,
                                   .n = sizes[i][0],
                                   .k = sizes[i][1],
                                   .gap = 2 * sizes[i][1],
                                   .batch = 1,
                                   .type = types[t][0],
                                   .c_type = WD_F32});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kernel_test(shapes),
        kernel_test(epilogues),
        kernel_test(batches),
        kernel_test(nasty_inputs),
        kernel_test(rows_do_not_depend_on_rows),
        kernel_test(weight_gradients),
        kernel_test(weight_gradients_of_odd_lengths),
        kernel_test(input_gradients),
    };
    return kernel_tests_run(tests);
}
