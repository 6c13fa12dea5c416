/* Products by cuBLASLt, on the stand-in: what is asked of the library and when, what becomes of
 * products that it does not know, and of a library whose rows depend on one another. The numbers of
 * all forms of products are tested by dev/cuda/device/matmul. */
#include "testing.h"

#include <math.h>
#include <stdlib.h>

#include "core/log.h"
#include "dev/cuda/products_impl.h"
#include "kernels/matrix_check.h"
#include "standin/immediate_gpu.h"

static wd_cuda_products *open_products(void)
{
    wd_cuda_products *p;
    wd_err err;
    wd_test_ok(wd__cuda_products_open(&p, wd_standin_gpu(), NULL, &err), &err);
    return p;
}

static void close_products(wd_cuda_products *p)
{
    wd__cuda_products_close(p);
    assert_int_equal(wd_the_standin_asked.descriptors, 0);
}

typedef struct form {
    int64_t m, n, k;
    wd_dtype type, c_type, bias_type;
    bool transpose_a, bias;
    float beta;
    wd_act act;
    int64_t gap; /* elements between two rows of a, and of c; these and the bias then begin an
                  * element later */
} form;

/* Operands and two results, one of them to compare with. */
typedef struct operands {
    wd_matmul_args args;
    float *a, *b, *bias, *c, *expected;
    void *other_c; /* as args.c lies in c, in `expected` */
} operands;

static void *filled(int64_t count, wd_dtype type, uint64_t seed)
{
    void *data = aligned_alloc(64, (size_t)(count * 4 + 63) / 64 * 64);
    assert_non_null(data);
    for (int64_t i = 0; i < count; i++) wd__store(data, type, i, normal_value((uint64_t)i + seed));
    return data;
}

static operands make(form f)
{
    const int64_t a_line = f.k + f.gap, c_line = f.n + f.gap;
    operands o = {.a = filled(f.m * a_line, f.type, 1),
                  .b = filled(f.n * f.k, f.type, 1 << 20),
                  .bias = filled(f.n + 1, f.bias_type, 2 << 20),
                  .c = filled(f.m * c_line, f.c_type, 3 << 20),
                  .expected = filled(f.m * c_line, f.c_type, 3 << 20)};
    const size_t a_skip = f.gap ? wd_dtype_bytes(f.type) : 0;
    const size_t c_skip = f.gap ? wd_dtype_bytes(f.c_type) : 0;
    const size_t bias_skip = f.gap ? wd_dtype_bytes(f.bias_type) : 0;
    o.other_c = (char *)o.expected + c_skip;
    o.args = (wd_matmul_args){.c = (char *)o.c + c_skip,
                              .a = (char *)o.a + a_skip,
                              .b = o.b,
                              .bias = f.bias ? (char *)o.bias + bias_skip : NULL,
                              .c_type = f.c_type,
                              .a_type = f.type,
                              .b_type = f.type,
                              .bias_type = f.bias_type,
                              .transpose_a = f.transpose_a,
                              .transpose_b = !f.transpose_a,
                              .m = f.m,
                              .n = f.n,
                              .k = f.k,
                              .lda = f.transpose_a ? f.m : a_line,
                              .ldb = f.transpose_a ? f.n : f.k,
                              .ldc = c_line,
                              .batch = 1,
                              .beta = f.beta,
                              .act = f.act};
    return o;
}

static void release(operands *o)
{
    free(o->a), free(o->b), free(o->bias), free(o->c), free(o->expected);
}

static wd_status launch(wd_cuda_products *p, const wd_matmul_args *args, wd_err *err)
{
    size_t bytes = wd__cuda_products_workspace(p, args);
    void *space = aligned_alloc(256, (bytes + 255) / 256 * 256);
    assert_non_null(space);
    wd_status status = wd__cuda_products_launch(
        p, &(wd_cuda_work){.gpu = p->gpu, .workspace = space, .workspace_bytes = bytes}, args, err);
    free(space);
    return status;
}

/* Launches it, beside plain C. */
static operands make_both(wd_cuda_products *p, form f)
{
    wd_err err;
    operands o = make(f);
    wd_matmul_args plain = o.args;
    plain.c = o.other_c;
    wd_ref_matmul(&plain, NULL);
    assert_true(wd__cuda_products_can(p, &o.args));
    wd_test_ok(launch(p, &o.args, &err), &err);
    return o;
}

static void compare(const operands *o, form f, tolerance t)
{
    const int64_t line = o->args.ldc;
    compare_array(&(array){o->c, f.c_type, f.m * line, line, true, false},
                  &(array){o->expected, f.c_type, f.m * line, line, true, false}, "product", 0, t);
}

/* Launches it and compares with plain C. */
static void check(wd_cuda_products *p, form f)
{
    operands o = make_both(p, f);
    compare(&o, f, product_tolerance(f.type, f.c_type, f.act, f.k, EXECUTOR_IS_GPU));
    release(&o);
}

/* ---- keys and algorithms ---- */

static void number_of_rows_is_no_part_of_the_key(void **state)
{
    (void)state;
    wd_cuda_products *p = open_products();
    int64_t before = wd_the_standin_asked.heuristics;
    for (int64_t m = 1; m < 600; m += 97)
        check(p, (form){m, 40, 64, WD_BF16, WD_BF16, WD_BF16, .bias = true});
    assert_int_equal(wd_the_standin_asked.heuristics, before + 1);
    /* slices that begin anywhere have the key of the whole */
    operands o = make((form){64, 40, 63, WD_BF16, WD_BF16, WD_BF16, .beta = 0});
    wd_product_key whole = wd__product_key_of(&o.args);
    for (int64_t row = 1; row < 64; row++) {
        wd_matmul_args slice = o.args;
        slice.a = (char *)o.a + row * 63 * 2;
        slice.c = (char *)o.c + row * 40 * 2;
        slice.m = 64 - row;
        wd_product_key key = wd__product_key_of(&slice);
        assert_true(wd__product_key_equal(&key, &whole));
    }
    release(&o);
    close_products(p);
}

static void everything_else_is_part_of_the_key(void **state)
{
    (void)state;
    static const wd_matmul_args base = {.m = 8,
                                        .n = 16,
                                        .k = 32,
                                        .lda = 32,
                                        .ldb = 32,
                                        .ldc = 16,
                                        .batch = 2,
                                        .stride_a = 256,
                                        .stride_b = 512,
                                        .stride_c = 128};
    wd_matmul_args other[] = {base, base, base, base, base, base, base, base,
                              base, base, base, base, base, base, base, base};
    other[0].n = 8;
    other[1].k = 16;
    other[2].lda = 64;
    other[3].ldb = 64;
    other[4].ldc = 32;
    other[5].batch = 3;
    other[6].stride_a = 512;
    other[7].stride_b = 1024;
    other[8].stride_c = 256;
    other[9].c_type = WD_BF16;
    other[10].a_type = other[10].b_type = WD_BF16;
    other[11].transpose_a = true;
    other[12].transpose_b = true;
    other[13].beta = 1;
    other[14].act = WD_ACT_GELU_TANH;
    other[15].a = (const void *)4;
    wd_product_key key = wd__product_key_of(&base);
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        wd_product_key next = wd__product_key_of(&other[i]);
        assert_false(wd__product_key_equal(&key, &next));
    }
    wd_matmul_args gradient = other[11];
    gradient.m = 24;
    key = wd__product_key_of(&gradient);
    wd_product_key next = wd__product_key_of(&other[11]);
    assert_false(wd__product_key_equal(&key, &next));
}

/* Plans of a steady step are those of the first. */
static void plans_are_made_once(void **state)
{
    (void)state;
    static const form forms[] = {
        {33, 16, 24, WD_BF16, WD_BF16, WD_BF16, .bias = true},
        {33, 16, 24, WD_F32, WD_F32, WD_F32, .act = WD_ACT_GELU_TANH},
        {16, 24, 33, WD_BF16, WD_F32, WD_F32, .transpose_a = true, .beta = 1}};
    wd_cuda_products *p = open_products();
    for (int step = 0; step < 3; step++) {
        int64_t before = wd_the_standin_asked.heuristics, allocs = wd__alloc_count();
        for (int i = 0; i < 3; i++) check(p, forms[i]);
        assert_int_equal(wd_the_standin_asked.heuristics - before, step ? 0 : 3);
        if (step) assert_int_equal(wd__alloc_count(), allocs);
    }
    close_products(p);
}

/* Algorithms that share a row's sums are passed over, but for gradients of weights, where they
 * are added up in a fixed order. */
static void sums_of_a_row_are_not_shared(void **state)
{
    (void)state;
    for (int gradient = 0; gradient < 2; gradient++) {
        wd_cuda_products *p = open_products();
        int64_t opened = p->plans;
        wd_the_standin_faults.lt_splits = true;
        check(p, (form){64, 48, 64, WD_BF16, WD_F32, WD_F32, .transpose_a = gradient,
                        .beta = (float)gradient});
        int32_t parts = 0;
        size_t written;
        assert_int_equal(p->plans, opened + 1);
        assert_int_equal(p->lt->algorithm_get(&p->plan[opened]->algorithm,
                                              WD_LT_ALGORITHM_SPLITK_NUM, &parts, sizeof parts,
                                              &written),
                         WD_LT_STATUS_SUCCESS);
        assert_int_equal(parts, gradient ? 4 : 1);
        close_products(p);
    }
}

/* The sums of cuBLASLt 13.1.1 that lack their last products. */
static void sums_with_a_rest_are_not_shared(void **state)
{
    (void)state;
    static const int64_t k[] = {64, 1560, 11528};
    for (int i = 0; i < 3; i++) {
        wd_cuda_products *p = open_products();
        const int64_t opened = p->plans;
        char text[512];
        wd_the_standin_faults.lt_splits = wd_the_standin_faults.lt_drops = true;
        check(p, (form){64, 48, k[i], WD_BF16, WD_F32, WD_F32, .transpose_a = true, .beta = 1});
        assert_true(wd__cuda_products_describe(p, opened, text, sizeof text));
        assert_non_null(strstr(text, k[i] % 64 ? "split 1" : "split 4"));
        close_products(p);
    }
}

/* Not to say how many parts a sum has means that it has one; how parts are added up must be said.
 */
static void algorithms_that_say_little(void **state)
{
    (void)state;
    wd_cuda_products *p = open_products();
    const int64_t own = wd_standin_own_launches();
    wd_the_standin_faults.lt_says_little = true;
    check(p, (form){64, 48, 64, WD_BF16, WD_F32, WD_F32, .beta = 1});
    assert_int_equal(wd_standin_own_launches(), own);
    wd_the_standin_faults.lt_no_reduction = true;
    wd_log_to(NULL, NULL, WD_LOG_ERROR);
    check(p, (form){64, 56, 64, WD_BF16, WD_F32, WD_F32, .beta = 1});
    assert_int_equal(wd_standin_own_launches(), own + 1);
    close_products(p);
}

static void plans_are_described(void **state)
{
    (void)state;
    char text[512];
    wd_cuda_products *p = open_products();
    const int64_t opened = p->plans;
    check(p, (form){19, 24, 40, WD_BF16, WD_BF16, WD_BF16, .bias = true, .act = WD_ACT_GELU_TANH});
    assert_true(wd__cuda_products_describe(p, opened, text, sizeof text));
    assert_string_equal(text, "BF16 x BF16 -> BF16, n 24, k 40, b transposed, lines of 40 40 24, "
                              "bias, GELU: algorithm 66, tile 24, stages unknown, split 1, "
                              "workspace 1048576");
    check(p, (form){19, 25, 40, WD_F32, WD_F32, WD_F32, .transpose_a = true, .beta = 1});
    assert_true(wd__cuda_products_describe(p, opened + 1, text, sizeof text));
    assert_string_equal(text, "F32 x F32 -> F32, m 19, n 25, k 40, a transposed, lines of 19 25 25 "
                              "aligned to 4 4 4 bytes, added to the result: algorithm 66, tile 24, "
                              "stages unknown, split 1, workspace 1048576");
    check(p, (form){19, 24, 40, WD_BF16, WD_F32, WD_F32, .bias = true, .gap = 8});
    assert_true(wd__cuda_products_describe(p, opened + 2, text, sizeof text));
    assert_non_null(strstr(text, "lines of 48 40 32 aligned to 2 16 4 bytes, bias: "));
    assert_false(wd__cuda_products_describe(p, opened + 3, text, sizeof text));
    assert_false(wd__cuda_products_describe(p, -1, text, sizeof text));
    close_products(p);
}

static bool is_within(const operands *o, form f, tolerance t)
{
    const float *got = o->args.c, *expected = o->other_c;
    double largest = 0, error = 0;
    for (int64_t i = 0; i < f.m * f.n; i++) {
        largest = fmax(largest, fabs((double)expected[i]));
        error = fmax(error, fabs((double)got[i] - expected[i]));
    }
    return error <= t.relative * largest + t.absolute;
}

/* The tolerance of products on a GPU is needed, and is enough, for sums that are cut off as tensor
 * cores do. */
static void truncated_sums(void **state)
{
    (void)state;
    static const int64_t k[] = {16, 48, 257, 1025, 1560, 4096, 11528, 16384};
    wd_cuda_products *p = open_products();
    wd_the_standin_faults.lt_truncates = true;
    for (size_t i = 0; i < sizeof k / sizeof *k; i++)
        for (int gradient = 0; gradient < 2; gradient++) {
            const form f = {24, 32, k[i], WD_BF16, WD_F32, WD_F32, .transpose_a = gradient};
            operands o = make_both(p, f);
            compare(&o, f, product_tolerance(f.type, f.c_type, f.act, f.k, true));
            const tolerance processor = product_tolerance(f.type, f.c_type, f.act, f.k, false);
            if (f.k >= 4096) assert_false(is_within(&o, f, processor));
            release(&o);
        }
    /* GELU, a bias and bf16 results are those of the same sums */
    check(p, (form){19, 24, 40, WD_BF16, WD_BF16, WD_BF16, .bias = true, .act = WD_ACT_GELU_TANH});
    close_products(p);
}

/* ---- what cuBLASLt does not do ---- */

static void dtypes_that_it_does_not_know_are_staged(void **state)
{
    (void)state;
    static const struct {
        wd_dtype type, c_type, bias_type;
        bool bias, staged;
    } cases[] = {{WD_BF16, WD_BF16, WD_BF16, true, false}, {WD_BF16, WD_F32, WD_F32, true, false},
                 {WD_F32, WD_F32, WD_F32, true, false},    {WD_BF16, WD_BF16, WD_F32, true, true},
                 {WD_BF16, WD_F32, WD_BF16, true, true},   {WD_F32, WD_BF16, WD_F32, false, true},
                 {WD_F32, WD_BF16, WD_BF16, true, true},   {WD_F32, WD_F32, WD_BF16, true, true}};
    wd_cuda_products *p = open_products();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int act = 0; act < 2; act++) {
            int64_t own = wd_standin_own_launches();
            form f = {19,
                      24,
                      40,
                      cases[i].type,
                      cases[i].c_type,
                      cases[i].bias_type,
                      .bias = cases[i].bias,
                      .act = act ? WD_ACT_GELU_TANH : WD_ACT_NONE};
            check(p, f);
            assert_int_equal(wd_standin_own_launches() > own, cases[i].staged);
            f.act = WD_ACT_NONE;
            f.beta = 1;
            check(p, f);
        }
    close_products(p);
}

static void what_it_cannot_do(void **state)
{
    (void)state;
    wd_cuda_products *p = open_products();
    operands o = make((form){8, 8, 8, WD_F32, WD_F32, WD_F32, .beta = 0});
    assert_true(wd__cuda_products_can(p, &o.args));
    wd_matmul_args none = o.args;
    none.k = 0;
    assert_false(wd__cuda_products_can(p, &none));
    none = o.args;
    none.m = (int64_t)1 << 31;
    assert_false(wd__cuda_products_can(p, &none));
    none = o.args;
    none.a_type = none.b_type = WD_F16;
    assert_false(wd__cuda_products_can(p, &none));
    none = o.args;
    none.act = WD_ACT_SILU;
    assert_false(wd__cuda_products_can(p, &none));
    release(&o);
    close_products(p);
}

static void refusals_are_errors(void **state)
{
    (void)state;
    wd_err err;
    wd_cuda_products *p = open_products();
    operands o = make((form){8, 24, 16, WD_BF16, WD_F32, WD_F32, .beta = 0});
    wd_the_standin_faults.lt_fail_matmul = 1;
    wd_test_refused(launch(p, &o.args, &err), &err, WD_INTERNAL,
                    "refused the launch of a product (BF16 x BF16 -> F32, m 8, n 24, k 16, b "
                    "transposed, lines of 16 16 24; algorithm 66, tile 24, stages unknown, split "
                    "1, workspace 1048576): CUBLAS_STATUS_EXECUTION_FAILED");
    assert_non_null(strstr(err.message, "install another version of cuBLASLt"));
    wd_cuda_products *none;
    wd_the_standin_faults.lt_fail_matmul = 1;
    wd_test_refused(wd__cuda_products_open(&none, p->gpu, NULL, &err), &err, WD_UNSUPPORTED,
                    "refused the launch");
    wd_test_ok(launch(p, &o.args, &err), &err);
    release(&o);
    close_products(p);
}

static int warnings;
static char warning[1024];

static void keep_warning(void *context, wd_log_level level, const char *message)
{
    (void)context, (void)level;
    warnings++;
    snprintf(warning, sizeof warning, "%s", message);
}

static void check_slices_of(wd_cuda_products *p, form f);

/* Our own kernel makes them, for all numbers of rows, and whatever is refused later. */
static void products_without_algorithm_are_made_by_our_kernel(void **state)
{
    (void)state;
    static const form forms[] = {
        {130, 24, 16, WD_BF16, WD_F32, WD_F32, .beta = 1},
        {130, 24, 16, WD_BF16, WD_BF16, WD_BF16, .bias = true, .act = WD_ACT_GELU_TANH},
        {130, 24, 16, WD_F32, WD_BF16, WD_F32, .bias = true}};
    wd_cuda_products *p = open_products();
    wd_log_to(keep_warning, NULL, WD_LOG_WARNING);
    for (int i = 0; i < 3; i++) {
        warnings = 0;
        wd_the_standin_faults.lt_none = true;
        const int64_t products = wd_the_standin_asked.products, own = wd_standin_own_launches();
        check(p, forms[i]);
        wd_the_standin_faults.lt_none = false;
        if (forms[i].beta == 0) check_slices_of(p, forms[i]);
        assert_int_equal(wd_the_standin_asked.products, products);
        assert_true(wd_standin_own_launches() > own);
        assert_int_equal(warnings, 1);
        assert_non_null(strstr(warning, "has no algorithm for a product ("));
        assert_non_null(strstr(warning, ", m 130, n 24, k 16, "));
        assert_non_null(strstr(warning, "CUBLAS_STATUS_NOT_SUPPORTED"));
    }
    /* a library is not used if our kernel has computed what would have checked it */
    wd_err err;
    wd_cuda_products *none;
    wd_the_standin_faults.lt_none = true;
    wd_test_refused(wd__cuda_products_open(&none, p->gpu, NULL, &err), &err, WD_UNSUPPORTED,
                    "has no algorithm for the products by which it is checked");
    assert_int_equal(wd__cuda_products_open(&none, p->gpu, NULL, NULL), WD_UNSUPPORTED);
    wd_the_standin_faults.lt_none = false;
    wd_the_standin_faults.lt_fail_matmul = 1;
    assert_int_equal(wd__cuda_products_open(&none, p->gpu, NULL, NULL), WD_UNSUPPORTED);
    wd_the_standin_faults.lt_fail_matmul = 0;
    wd_log_to(NULL, NULL, WD_LOG_ERROR);
    close_products(p);
}

/* What the library accepted before it refuses to launch it: our own kernel makes it, and keeps to
 * it, whatever is refused later. */
static void refused_launches_are_made_by_our_kernel(void **state)
{
    (void)state;
    static const wd_lt_status refusals[] = {WD_LT_STATUS_NOT_SUPPORTED, WD_LT_STATUS_INVALID_VALUE,
                                            WD_LT_STATUS_ARCH_MISMATCH, WD_LT_STATUS_ALLOC_FAILED};
    static const form f = {130, 24, 16, WD_BF16, WD_BF16, WD_BF16, .bias = true};
    wd_log_to(keep_warning, NULL, WD_LOG_WARNING);
    for (int i = 0; i < 8; i++) {
        wd_cuda_products *p = open_products();
        const bool before = i % 2;
        char text[512];
        const int64_t opened = p->plans;
        if (before) check(p, f);
        warnings = 0;
        wd_the_standin_faults.lt_fail_matmul = 1;
        wd_the_standin_faults.lt_fail_with = refusals[i / 2];
        const int64_t products = wd_the_standin_asked.products, own = wd_standin_own_launches();
        check(p, f);
        check_slices_of(p, f);
        assert_int_equal(wd_the_standin_asked.products, products);
        assert_int_equal(wd_standin_own_launches(), own + 4);
        assert_int_equal(warnings, 1);
        assert_non_null(
            strstr(warning, "refused to launch a product (BF16 x BF16 -> BF16, m 130, "));
        assert_non_null(strstr(warning, p->lt->status_name(refusals[i / 2])));
        assert_int_equal(before, strstr(warning, "their last bits differ") != NULL);
        assert_true(wd__cuda_products_describe(p, opened, text, sizeof text));
        assert_non_null(strstr(text, ": a kernel of this program"));
        /* products of other keys remain the library's */
        check(p, (form){130, 32, 16, WD_BF16, WD_BF16, WD_BF16, .bias = true});
        assert_int_equal(wd_the_standin_asked.products, products + 1);
        close_products(p);
    }
    wd_log_to(NULL, NULL, WD_LOG_ERROR);
}

/* ---- the check at open ---- */

/* Slices of a launch must have the bits of the launch. */
static void check_slices_of(wd_cuda_products *p, form f)
{
    wd_err err;
    operands o = make(f);
    wd_test_ok(launch(p, &o.args, &err), &err);
    for (int64_t row = 0; row < f.m; row += 101) {
        wd_matmul_args slice = o.args;
        slice.m = f.m - row < 101 ? f.m - row : 101;
        slice.a = (const char *)o.args.a + row * slice.lda * (int64_t)wd_dtype_bytes(f.type);
        slice.c = (char *)o.other_c + row * slice.ldc * (int64_t)wd_dtype_bytes(f.c_type);
        wd_test_ok(launch(p, &slice, &err), &err);
    }
    assert_memory_equal(o.c, o.expected, (size_t)(f.m * o.args.ldc) * wd_dtype_bytes(f.c_type));
    release(&o);
}

static void rows_that_depend_on_rows_are_cut(void **state)
{
    (void)state;
    wd_err err;
    wd_cuda_products *p;
    const wd_cuda_gpu *gpu = wd_standin_gpu();
    wd_the_standin_faults.lt_rows_matter = true;
    warnings = 0;
    wd_log_to(keep_warning, NULL, WD_LOG_WARNING);
    wd_test_ok(wd__cuda_products_open(&p, gpu, NULL, &err), &err);
    wd_log_to(NULL, NULL, WD_LOG_ERROR);
    /* of fp32: the stand-in moves bits of fp32 results alone; 77 rows are an odd number */
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(warning, "F32 x F32 -> F32, n 512, k 1536, b transposed, "));
    assert_non_null(strstr(warning, ": algorithm 66, tile 24, "));
    assert_non_null(strstr(warning, "; row 0, column 0 is "));
    assert_non_null(strstr(warning, " in a launch of 320 rows and "));
    assert_non_null(strstr(warning, " in one of 1 rows from row 0 on; 512 of 512 elements differ"));
    assert_non_null(strstr(warning, "products are made in pieces of 256 rows"));
    assert_true(p->rule.cut && p->rule.gelu_tanh[WD_PRODUCT_F32]);
    check_slices_of(p, (form){515, 40, 24, WD_F32, WD_F32, WD_F32, .bias = true});
    check_slices_of(p, (form){515, 40, 24, WD_BF16, WD_F32, WD_F32, .beta = 0});
    check_slices_of(p, (form){300, 40, 24, WD_F32, WD_BF16, WD_F32, .bias = true});
    /* a piece that is filled up has the algorithm of those that are not */
    wd_the_standin_faults.lt_lines_matter = true;
    check_slices_of(p, (form){515, 40, 24, WD_F32, WD_F32, WD_F32, .gap = 8});
    check_slices_of(p, (form){515, 41, 24, WD_F32, WD_F32, WD_F32, .gap = 4});
    wd_the_standin_faults.lt_lines_matter = false;
    check(p, (form){515, 40, 24, WD_F32, WD_F32, WD_F32, .beta = 1});
    check(p, (form){40, 24, 515, WD_F32, WD_F32, WD_F32, .transpose_a = true, .beta = 1});
    close_products(p);
    /* without the fault nothing is cut */
    p = open_products();
    assert_false(p->rule.cut);
    close_products(p);
}

/* A product that its algorithm does not make in one launch has the bits that it would have. */
static void numbers_of_rows_that_are_refused_are_cut(void **state)
{
    (void)state;
    static const form forms[] = {
        {515, 40, 24, WD_BF16, WD_BF16, WD_BF16, .bias = true},
        {515, 40, 24, WD_F32, WD_F32, WD_F32, .beta = 1},
        {512, 40, 24, WD_F32, WD_F32, WD_F32, .act = WD_ACT_GELU_TANH},
        {300, 40, 24, WD_F32, WD_BF16, WD_F32, .bias = true, .gap = 8}, /* staged */
        {100, 41, 24, WD_F32, WD_F32, WD_F32, .beta = 1, .gap = 8}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        wd_err err;
        const form f = forms[i];
        operands o = make(f);
        wd_cuda_products *p = open_products();
        wd_the_standin_faults.lt_lines_matter = true;
        wd_test_ok(launch(p, &o.args, &err), &err);
        check(p, (form){130, f.n, f.k, f.type, f.c_type, f.bias_type, .beta = f.beta,
                        .bias = f.bias, .act = f.act, .gap = f.gap}); /* the layouts have others */
        wd_the_standin_faults.lt_rows_least = 120;
        wd_the_standin_faults.lt_rows_most = 290;
        wd_matmul_args again = o.args;
        again.c = o.other_c;
        const int64_t before = wd_the_standin_asked.products;
        wd_test_ok(launch(p, &again, &err), &err);
        assert_int_equal(wd_the_standin_asked.products - before, (f.m + 255) / 256);
        assert_memory_equal(o.c, o.expected, (size_t)(f.m * o.args.ldc) * wd_dtype_bytes(f.c_type));
        /* gradients of weights have one number of rows, which the heuristic was asked for */
        check(p, (form){40, 24, f.m, WD_F32, WD_F32, WD_F32, .transpose_a = true, .beta = 1});
        wd_the_standin_faults.lt_rows_least = wd_the_standin_faults.lt_rows_most = 0;
        release(&o);
        close_products(p);
    }
}

/* Where pieces are refused, too, where one has no room in the workspace, and for many matrices the
 * message says what to do. */
static void refused_pieces_are_errors(void **state)
{
    (void)state;
    static const form forms[] = {{300, 40, 24, WD_F32, WD_F32, WD_F32, .beta = 1},
                                 {100, 8, 40000, WD_F32, WD_F32, WD_F32, .beta = 0},
                                 {100, 8, 24, WD_F32, WD_F32, WD_F32, .beta = 0}};
    wd_cuda_products *p = open_products();
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        wd_err err;
        operands o = make(forms[i]);
        if (i == 2) { /* two matrices of 50 rows */
            o.args.batch = 2;
            o.args.m = 50;
            o.args.stride_a = 50 * 24;
            o.args.stride_c = 50 * 8;
        }
        wd_the_standin_faults.lt_rows_least = 120;
        wd_the_standin_faults.lt_rows_most = i ? 0 : 250;
        wd_test_refused(launch(p, &o.args, &err), &err, WD_INTERNAL,
                        "refused the number of rows of a product (");
        assert_non_null(strstr(err.message, "install another version of cuBLASLt"));
        assert_non_null(strstr(err.message, "--devices cpu"));
        wd_the_standin_faults.lt_rows_least = wd_the_standin_faults.lt_rows_most = 0;
        wd_test_ok(launch(p, &o.args, &err), &err);
        release(&o);
    }
    close_products(p);
}

static void library_that_never_repeats_itself_is_refused(void **state)
{
    (void)state;
    wd_err err;
    wd_cuda_products *p;
    const wd_cuda_gpu *gpu = wd_standin_gpu();
    wd_the_standin_faults.lt_always = true;
    wd_test_refused(wd__cuda_products_open(&p, gpu, NULL, &err), &err, WD_UNSUPPORTED,
                    "install another version of cuBLASLt");
    assert_non_null(strstr(err.message, " in one of 1 rows from row 0 on; 512 of 512 elements"));
    assert_non_null(strstr(err.message, " in a launch of 256 rows and "));
    assert_non_null(strstr(err.message, " in one of 256 rows from row 64 on; "));
    assert_null(p);
    assert_int_equal(wd_the_standin_asked.descriptors, 0);
}

static void rounded_operands_are_refused(void **state)
{
    (void)state;
    wd_err err;
    wd_cuda_products *p;
    const wd_cuda_gpu *gpu = wd_standin_gpu();
    wd_the_standin_faults.lt_tf32 = true;
    wd_test_refused(wd__cuda_products_open(&p, gpu, NULL, &err), &err, WD_UNSUPPORTED,
                    "NVIDIA_TF32_OVERRIDE");
    assert_null(p);
}

/* A heuristic that knows of no implementation what it multiplies is asked for all. */
static void implementations_that_say_nothing(void **state)
{
    (void)state;
    wd_err err;
    wd_cuda_products *p;
    const wd_cuda_gpu *gpu = wd_standin_gpu();
    wd_the_standin_faults.lt_no_mask = true;
    wd_test_ok(wd__cuda_products_open(&p, gpu, NULL, &err), &err);
    check(p, (form){19, 24, 40, WD_F32, WD_F32, WD_F32, .bias = true});
    close_products(p);
}

/* Each pair of dtypes has an epilogue of its own. */
static const wd_dtype types_of_gelu[WD_PRODUCT_TYPES][2] = {
    [WD_PRODUCT_F32] = {WD_F32, WD_F32},
    [WD_PRODUCT_BF16] = {WD_BF16, WD_BF16},
    [WD_PRODUCT_BF16_TO_F32] = {WD_BF16, WD_F32}};

static void other_form_of_gelu_is_done_by_our_kernel(void **state)
{
    (void)state;
    for (int erf = 0; erf < WD_PRODUCT_TYPES; erf++) {
        wd_err err;
        wd_cuda_products *p;
        const wd_cuda_gpu *gpu = wd_standin_gpu();
        wd_the_standin_faults.lt_gelu_erf[erf] = true;
        wd_test_ok(wd__cuda_products_open(&p, gpu, NULL, &err), &err);
        for (int t = 0; t < WD_PRODUCT_TYPES; t++) {
            const int64_t own = wd_standin_own_launches();
            assert_int_equal(p->rule.gelu_tanh[t], t != erf);
            check(p, (form){19, 24, 40, types_of_gelu[t][0], types_of_gelu[t][1],
                            types_of_gelu[t][1], .bias = true, .act = WD_ACT_GELU_TANH});
            assert_int_equal(wd_standin_own_launches() > own, t == erf);
        }
        close_products(p);
    }
}

/* A GELU that cuBLASLt refuses, as it finds no algorithm or at the launch, costs a launch of our
 * kernel, and not the device. */
static void refused_gelu_is_done_by_our_kernel(void **state)
{
    (void)state;
    wd_log_to(keep_warning, NULL, WD_LOG_WARNING);
    for (int refused = 0; refused <= WD_PRODUCT_TYPES; refused++) {
        wd_err err;
        wd_cuda_products *p;
        const wd_cuda_gpu *gpu = wd_standin_gpu();
        const int none = refused % WD_PRODUCT_TYPES; /* the last one: refused at its launch */
        wd_the_standin_faults.lt_gelu_none[none] = refused < WD_PRODUCT_TYPES;
        wd_the_standin_faults.lt_fail_matmul = refused == WD_PRODUCT_TYPES;
        wd_the_standin_faults.lt_fail_with = WD_LT_STATUS_NOT_SUPPORTED;
        warnings = 0;
        wd_test_ok(wd__cuda_products_open(&p, gpu, NULL, &err), &err);
        if (refused < WD_PRODUCT_TYPES)
            assert_non_null(strstr(warning, "does not make GELU in products"));
        for (int t = 0; t < WD_PRODUCT_TYPES; t++) {
            const int64_t own = wd_standin_own_launches();
            const int64_t products = wd_the_standin_asked.products;
            assert_int_equal(p->rule.gelu_tanh[t], t != none);
            check(p, (form){19, 24, 40, types_of_gelu[t][0], types_of_gelu[t][1],
                            types_of_gelu[t][1], .bias = true, .act = WD_ACT_GELU_TANH});
            assert_int_equal(wd_standin_own_launches() > own, t == none);
            assert_int_equal(wd_the_standin_asked.products, products + 1);
        }
        close_products(p);
    }
    wd_log_to(NULL, NULL, WD_LOG_ERROR);
}

/* A GPU's own tanh is good enough for a result in bf16, and not for one in fp32; it does not make
 * one form of the other. */
static void forms_of_gelu_are_told_apart_where_tanh_is_rough(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        wd_err err;
        wd_cuda_products *p;
        const wd_cuda_gpu *gpu = wd_standin_gpu();
        wd_the_standin_faults.lt_gelu_erf[WD_PRODUCT_BF16] = i & 1;
        wd_the_standin_faults.lt_gelu_rough = i & 2 ? 0x1p-11f : -0x1p-11f;
        wd_test_ok(wd__cuda_products_open(&p, gpu, NULL, &err), &err);
        assert_int_equal(p->rule.gelu_tanh[WD_PRODUCT_BF16], !(i & 1));
        assert_false(p->rule.gelu_tanh[WD_PRODUCT_F32] ||
                     p->rule.gelu_tanh[WD_PRODUCT_BF16_TO_F32]);
        close_products(p);
    }
}

/* ---- the stand-in ---- */

/* It refuses what cuBLASLt refuses, so that the tests above show that the program keeps its rules.
 */
static void rules_of_launches(void **state)
{
    (void)state;
    wd_cuda_products *p = open_products();
    const form f = {64, 48, 64, WD_F32, WD_F32, WD_F32, .bias = true};
    const float one = 1, zero = 0;
    operands o = make(f);
    char *workspace = aligned_alloc(256, 2 << 20);
    wd_err err;
    wd_test_ok(launch(p, &o.args, &err), &err);
    const wd_product_plan_lt *plan = p->plan[p->plans - 1];
    const struct {
        int a, b, c, bias, workspace, missing; /* bytes */
        bool allowed;
    } cases[] = {{0, 0, 0, 0, 0, 0, true},   {4, 0, 0, 0, 0, 0, false}, {0, 4, 0, 0, 0, 0, false},
                 {0, 0, 4, 0, 0, 0, false},  {0, 0, 0, 4, 0, 0, false}, {0, 0, 0, 2, 0, 0, false},
                 {0, 0, 0, 0, 16, 0, false}, {0, 0, 0, 0, 0, 1, false}};
    wd_the_standin_faults.lt_only_refuses = true;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *bias = (char *)o.bias + cases[i].bias;
        char *c = (char *)o.c + cases[i].c;
        assert_int_equal(
            p->lt->product_set(plan->product, WD_LT_PRODUCT_BIAS_POINTER, &bias, sizeof bias),
            WD_LT_STATUS_SUCCESS);
        const wd_lt_status status =
            p->lt->matmul(p->handle, plan->product, &one, (char *)o.b + cases[i].b, plan->our_b,
                          (char *)o.a + cases[i].a, plan->our_a, &zero, c, plan->our_c, c,
                          plan->our_c, &plan->algorithm, workspace + cases[i].workspace,
                          plan->workspace_bytes - (size_t)cases[i].missing, NULL);
        assert_int_equal(status,
                         cases[i].allowed ? WD_LT_STATUS_SUCCESS : WD_LT_STATUS_INVALID_VALUE);
    }
    free(workspace);
    release(&o);
    close_products(p);
}

/* Whatever call of the driver fails while it is opened: an error, and nothing is left. */
static void failures_while_it_is_opened(void **state)
{
    (void)state;
    wd_err err;
    wd_cuda_products *p;
    for (int64_t calls = 0;; calls++) {
        const wd_cuda_gpu *gpu = wd_standin_gpu();
        wd_standin_driver_fail_after(calls);
        wd_status status = wd__cuda_products_open(&p, gpu, NULL, &err);
        wd_standin_driver_fail_after(-1);
        if (status == WD_OK) break;
        assert_true(status == WD_OUT_OF_MEMORY || status == WD_UNSUPPORTED ||
                    status == WD_DEVICE_FAULT);
        assert_null(p);
        assert_int_equal(wd_the_standin_asked.descriptors, 0);
        assert_true(calls < 100);
    }
    wd__cuda_products_close(p);
}

static void version_is_named(void **state)
{
    (void)state;
    char text[64] = "driver 13.0, ";
    wd_cuda_products *p = open_products();
    wd__cuda_products_version(p, text, sizeof text);
    assert_string_equal(text, "driver 13.0, cuBLASLt 13.1.0");
    close_products(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(number_of_rows_is_no_part_of_the_key),
        cmocka_unit_test(everything_else_is_part_of_the_key),
        cmocka_unit_test(plans_are_made_once),
        cmocka_unit_test(sums_of_a_row_are_not_shared),
        cmocka_unit_test(sums_with_a_rest_are_not_shared),
        cmocka_unit_test(algorithms_that_say_little),
        cmocka_unit_test(plans_are_described),
        cmocka_unit_test(truncated_sums),
        cmocka_unit_test(dtypes_that_it_does_not_know_are_staged),
        cmocka_unit_test(what_it_cannot_do),
        cmocka_unit_test(refusals_are_errors),
        cmocka_unit_test(products_without_algorithm_are_made_by_our_kernel),
        cmocka_unit_test(refused_launches_are_made_by_our_kernel),
        cmocka_unit_test(rows_that_depend_on_rows_are_cut),
        cmocka_unit_test(numbers_of_rows_that_are_refused_are_cut),
        cmocka_unit_test(refused_pieces_are_errors),
        cmocka_unit_test(library_that_never_repeats_itself_is_refused),
        cmocka_unit_test(rounded_operands_are_refused),
        cmocka_unit_test(implementations_that_say_nothing),
        cmocka_unit_test(other_form_of_gelu_is_done_by_our_kernel),
        cmocka_unit_test(refused_gelu_is_done_by_our_kernel),
        cmocka_unit_test(forms_of_gelu_are_told_apart_where_tanh_is_rough),
        cmocka_unit_test(rules_of_launches),
        cmocka_unit_test(failures_while_it_is_opened),
        cmocka_unit_test(version_is_named),
    };
    return cmocka_run_group_tests_name("products", tests, NULL, NULL);
}
