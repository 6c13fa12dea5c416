/* Matrix products through oneDNN are compared with plain C; and the bits of a row must not depend
 * on the number of rows or threads, on which the design rests. */
#include "kernels/kernels_check.h"

#include <pthread.h>
#include <sys/resource.h>

#include "dev/cpu/onednn.h"

/* fp32 sums of up to some thousand products in another order than the reference's double. */
static const tolerance product_tolerance = {2e-5, 1e-6};

typedef struct params {
    int64_t m, n, k, batch;
    wd_dtype type, c_type, bias_type;
    bool transpose_a, transpose_b, bias, strided, broadcast_b;
    float beta;
    wd_act act;
} params;

static void make_product(world *w, void *out, const void *context)
{
    const params *p = context;
    int64_t pad = p->strided ? 5 : 0;
    int64_t lda = (p->transpose_a ? p->m : p->k) + pad, ldb = (p->transpose_b ? p->k : p->n) + pad;
    int64_t rows_a = p->transpose_a ? p->k : p->m, rows_b = p->transpose_b ? p->n : p->k;
    int64_t ldc = p->n + pad, size_a = rows_a * lda, size_b = rows_b * ldb, size_c = p->m * ldc;
    *(wd_matmul_args *)out = (wd_matmul_args){
        .c = out_array(w, p->c_type, p->batch * size_c, ldc, ORDINARY),
        .a = make_array(w, p->type, p->batch * size_a, ORDINARY),
        .b = make_array(w, p->type, (p->broadcast_b ? 1 : p->batch) * size_b, ORDINARY),
        .bias = p->bias ? make_array(w, p->bias_type, p->n, ORDINARY) : NULL,
        .c_type = p->c_type,
        .a_type = p->type,
        .b_type = p->type,
        .bias_type = p->bias_type,
        .transpose_a = p->transpose_a,
        .transpose_b = p->transpose_b,
        .m = p->m,
        .n = p->n,
        .k = p->k,
        .lda = lda,
        .ldb = ldb,
        .ldc = ldc,
        .batch = p->batch,
        .stride_a = size_a,
        .stride_b = p->broadcast_b ? 0 : size_b,
        .stride_c = size_c,
        .beta = p->beta,
        .act = p->act,
    };
}

static wd_cpu_isa best(void)
{
    return wd__cpu_isa_best(WD_CPU_ISA_COUNT - 1);
}

/* With amx, bf16 products are not oneDNN's. */
static wd_cpu_isa best_of_onednn(void)
{
    return wd__cpu_isa_best(WD_CPU_ISA_avx512_bf16);
}

/* Against the reference, on every instruction set; the same bits with 1 and with 2 threads. */
static void check(wd_op op, make_fn *make, const void *p)
{
    wd_cpu_table table;
    world expected, one, two;
    wd__cpu_table_reference(&table);
    run_case(&expected, &table, op, make, p);
    for (int isa = 0; isa <= (int)best(); isa++) {
        if (!wd__cpu_isa_is_built((wd_cpu_isa)isa)) continue;
        wd__cpu_table_fill(&table, (wd_cpu_isa)isa);
        wd_parallel_set_threads(1);
        run_case(&one, &table, op, make, p);
        wd_parallel_set_threads(2);
        run_case(&two, &table, op, make, p);
        for (int i = 0; i < one.arrays; i++) {
            compare_array(&one.array[i], &expected.array[i], wd__cpu_isa_name((wd_cpu_isa)isa), i,
                          product_tolerance);
            assert_true(same_bits(&one.array[i], &two.array[i]));
        }
        free_world(&one);
        free_world(&two);
    }
    free_world(&expected);
}

static void products(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {
        {1, 1, 1}, {3, 5, 7}, {16, 160, 96}, {33, 64, 65}, {64, 17, 200}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int v = 0; v < 64; v++) {
            params p = {.m = sizes[i][0], .n = sizes[i][1], .k = sizes[i][2], .batch = 1};
            p.type = v & 1 ? WD_BF16 : WD_F32;
            p.c_type = v & 2 ? p.type : WD_F32;
            p.bias_type = v & 2 ? WD_F32 : p.type;
            p.transpose_a = v & 4;
            p.transpose_b = v & 8;
            p.strided = v & 16;
            p.bias = v & 32;
            p.beta = p.bias ? 0 : 1;
            p.act = p.bias && (v & 2) ? WD_ACT_GELU_TANH : WD_ACT_NONE;
            check(WD_OP_MATMUL, make_product, &p);
        }
}

static void batches(void **state)
{
    (void)state;
    for (int v = 0; v < 8; v++) {
        const params p = {.m = 9,
                          .n = 24,
                          .k = 32,
                          .batch = 4,
                          .type = v & 1 ? WD_BF16 : WD_F32,
                          .c_type = (v & 3) == 1 ? WD_BF16 : WD_F32,
                          .transpose_b = true,
                          .broadcast_b = v & 4};
        check(WD_OP_MATMUL, make_product, &p);
    }
}

/* Rows [0, m) of a product with `rows` rows. */
static void rows_alone(int64_t n, int64_t k, wd_dtype type, wd_cpu_isa isa)
{
    enum { ROWS = 1040 };
    static const int64_t counts[] = {1, 16, 24, 48, 64, 100, 256, 1024};
    params p = {.m = ROWS,
                .n = n,
                .k = k,
                .batch = 1,
                .type = type,
                .c_type = type,
                .bias_type = type,
                .bias = true,
                .transpose_b = true};
    wd_cpu_table table;
    world whole;
    wd_parallel_set_threads(2);
    wd__cpu_table_fill(&table, isa);
    run_case(&whole, &table, WD_OP_MATMUL, make_product, &p);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        any_args args;
        world some = {0};
        make_product(&some, &args, &p);
        ((wd_matmul_args *)&args)->m = counts[i];
        run_kernel(&table, WD_OP_MATMUL, &args);
        size_t bytes = (size_t)(counts[i] * n) * wd_dtype_bytes(type);
        assert_memory_equal(some.array[0].data, whole.array[0].data, bytes);
        free_world(&some);
    }
    free_world(&whole);
}

static void a_row_does_not_depend_on_others(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{160, 160}, {480, 160}, {640, 160},   {160, 640}, {160, 96},
                                        {64, 160},  {960, 160}, {1536, 1536}, {512, 8960}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        rows_alone(shapes[i][0], shapes[i][1], WD_F32, best());
        rows_alone(shapes[i][0], shapes[i][1], WD_BF16, best_of_onednn());
        if (best() != best_of_onednn()) rows_alone(shapes[i][0], shapes[i][1], WD_BF16, best());
    }
}

/* A weight gradient sums over many rows: the same bits with any number of threads. */
static void any_number_of_threads(const params *p, wd_cpu_isa isa)
{
    wd_cpu_table table;
    world first = {0}, next;
    for (int threads = 1; threads <= 4; threads++) {
        wd_parallel_set_threads(threads);
        wd__cpu_table_fill(&table, isa);
        run_case(threads == 1 ? &first : &next, &table, WD_OP_MATMUL, make_product, p);
        if (threads == 1) continue;
        assert_true(same_bits(&next.array[0], &first.array[0]));
        free_world(&next);
    }
    free_world(&first);
}

static void weight_gradients_do_not_depend_on_threads(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {
        {160, 160, 1024}, {640, 160, 256}, {64, 160, 4096}, {768, 512, 1024}, {16, 64, 4096}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        params p = {.m = shapes[i][0],
                    .n = shapes[i][1],
                    .k = shapes[i][2],
                    .batch = 1,
                    .type = WD_F32,
                    .c_type = WD_F32,
                    .transpose_a = true,
                    .beta = 1};
        any_number_of_threads(&p, best());
        p.type = WD_BF16;
        any_number_of_threads(&p, best_of_onednn());
        if (best() != best_of_onednn()) any_number_of_threads(&p, best());
    }
}

/* ---- memory ---- */

static void *take_none(void *context)
{
    wd_err err;
    *(bool *)context = wd__onednn_take_miss(&err) == WD_OK;
    return NULL;
}

/* Ranks that are threads plan at the same time: a failure is reported to the thread that asked. */
static void a_miss_is_the_thread_s_that_asked(void **state)
{
    (void)state;
    wd_err err;
    bool none = false;
    pthread_t other;
    struct rlimit before, now;
    const wd_onednn_product unknown = {.m = 12345,
                                       .n = 7,
                                       .k = 7,
                                       .lda = 7,
                                       .ldb = 7,
                                       .ldc = 7,
                                       .type = WD_F32,
                                       .c_type = WD_F32,
                                       .bias_type = -1,
                                       .threads = 1};
    assert_int_equal(wd__onednn_take_miss(&err), WD_OK);
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    now = (struct rlimit){32 << 20, before.rlim_max}; /* less than the process has already */
    assert_int_equal(setrlimit(RLIMIT_AS, &now), 0);
    const size_t scratch = wd__onednn_product_scratch(&unknown);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_int_equal(scratch, 0);
    assert_int_equal(pthread_create(&other, NULL, take_none, &none), 0);
    assert_int_equal(pthread_join(other, NULL), 0);
    assert_true(none);
    assert_int_equal(wd__onednn_take_miss(&err), WD_OUT_OF_MEMORY);
    assert_int_equal(wd__onednn_take_miss(&err), WD_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products),
        cmocka_unit_test(batches),
        cmocka_unit_test(a_row_does_not_depend_on_others),
        cmocka_unit_test(weight_gradients_do_not_depend_on_threads),
        cmocka_unit_test(a_miss_is_the_thread_s_that_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
