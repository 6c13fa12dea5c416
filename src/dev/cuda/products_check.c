/* What cuBLASLt on this GPU does with numbers, found out when the device is opened: whether
 * products are right, and fp32 operands multiplied as they are; whether a row's bits depend on how
 * many rows are multiplied with it; and which form of GELU its epilogues have. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/log.h"
#include "dev/cuda/products_impl.h"

enum { ROWS = 320, N = 512, K = 1536, GELU_SIDE = 64 };

/* Launches of so many rows, from a first one; all overlap the first launch. */
typedef struct launches {
    int64_t begin[4], rows[4];
    int count;
} launches;

static const launches free_rows = {{0, 0, 100, 192}, {ROWS, 1, 77, 128}, 4};
static const launches cut_rows = {
    {0, ROWS - WD_PRODUCT_CHUNK_ROWS}, {WD_PRODUCT_CHUNK_ROWS, WD_PRODUCT_CHUNK_ROWS}, 2};

/* Of sums of K products of numbers from -1 to 1, about 13 large: adding them up in fp32 costs some
 * 1e-5, in tensor cores, which truncate, up to 1.1e-4 of the largest sums, of 54; operands that are
 * rounded to TF32 some 5e-3. A bf16 result is rounded by itself. */
static const float product_tolerance = 2e-4f;

/* The erf form differs from the tanh form by up to 4.7e-4. An fp32 result should be as good as our
 * kernel's, which is within 1e-6; the sums here have one product, so that no rounding of sums is in
 * it. Before it is rounded, a bf16 result may come from the GPU's own tanh, whose relative error is
 * up to 2^-11: at 4 that is 1e-3 of the result, and half a step of bf16 is 8e-3. */
static const float gelu_tolerance = 1e-5f, gelu_tolerance_bf16 = 1e-3f;

typedef struct check {
    wd_cuda_products *products;
    const wd_cuda_driver *driver;
    wd_cuda_work work;
    wd_cu_address block; /* device memory: operands and results, then workspace */
    char *host;          /* pinned: operands, as on the device, and results */
} check;

/* Where what lies, in bytes, on both sides. */
enum {
    AT_A = 0,
    AT_B = AT_A + ROWS * K * 4,
    AT_WHOLE = AT_B + N * K * 4,
    AT_SLICES = AT_WHOLE + ROWS * N * 4,
    AT_END = AT_SLICES + ROWS * N * 4
};

static wd_status done(const check *c, wd_cu_result result, const char *what, wd_err *err)
{
    const char *name = NULL;
    if (result == WD_CU_SUCCESS) return WD_OK;
    c->driver->get_error_name(result, &name);
    return wd_fail(err, result == WD_CU_OUT_OF_MEMORY ? WD_OUT_OF_MEMORY : WD_DEVICE_FAULT,
                   "the check of cuBLASLt could not %s: %s", what, name ? name : "unknown error");
}

static wd_status copy(const check *c, bool up, size_t at, size_t bytes, wd_err *err)
{
    wd_cu_address host = (wd_cu_address)(uintptr_t)(c->host + at), device = c->block + at;
    WD_TRY(done(
        c, c->driver->memcpy_async(up ? device : host, up ? host : device, bytes, c->work.stream),
        "copy", err));
    if (up) return WD_OK;
    return done(c, c->driver->stream_synchronize(c->work.stream), "wait", err);
}

/* A number between -1 and 1 that depends on the index alone (splitmix64). */
static float number(uint64_t i)
{
    i = (i + 1) * 0x9e3779b97f4a7c15u;
    i = (i ^ i >> 30) * 0xbf58476d1ce4e5b9u;
    return (float)(int32_t)(i >> 32) * 0x1p-31f;
}

static void store(char *to, wd_dtype type, int64_t i, float value)
{
    if (type == WD_BF16)
        ((uint16_t *)(void *)to)[i] = wd_f32_to_bf16(value);
    else
        ((float *)(void *)to)[i] = value;
}

/* c[begin.., :] = a[begin.., :] bT of `rows` rows. */
static wd_matmul_args product_of(const check *c, wd_dtype type, size_t result, int64_t begin,
                                 int64_t rows)
{
    int64_t size = (int64_t)wd_dtype_bytes(type);
    char *block = (char *)(uintptr_t)c->block;
    return (wd_matmul_args){.c = block + result + begin * N * size,
                            .a = block + AT_A + begin * K * size,
                            .b = block + AT_B,
                            .c_type = type,
                            .a_type = type,
                            .b_type = type,
                            .transpose_b = true,
                            .m = rows,
                            .n = N,
                            .k = K,
                            .lda = K,
                            .ldb = K,
                            .ldc = N,
                            .batch = 1};
}

static wd_status multiply(const check *c, wd_dtype type, size_t result, int64_t begin, int64_t rows,
                          wd_err *err)
{
    const wd_matmul_args args = product_of(c, type, result, begin, rows);
    return wd__cuda_products_launch(c->products, &c->work, &args, err);
}

static float load(const char *from, wd_dtype type, int64_t i)
{
    return type == WD_BF16 ? wd_bf16_to_f32(((const uint16_t *)(const void *)from)[i])
                           : ((const float *)(const void *)from)[i];
}

/* Whether some elements of the first launch are what they should be. */
static wd_status check_values(const check *c, wd_dtype type, int64_t rows, wd_err *err)
{
    for (int64_t i = 0; i < rows * N; i += 997) {
        double sum = 0, got = load(c->host + AT_WHOLE, type, i);
        for (int64_t k = 0; k < K; k++)
            sum += (double)load(c->host + AT_A, type, i / N * K + k) *
                   load(c->host + AT_B, type, i % N * K + k);
        double rounding = type == WD_BF16 ? 0x1p-8 * fabs(sum) : 0;
        if (!(fabs(got - sum) <= product_tolerance + rounding))
            return wd_fail(err, WD_UNSUPPORTED,
                           "cuBLASLt %zu makes %.9g of a product of %s that is %.9g: if "
                           "NVIDIA_TF32_OVERRIDE is set, unset it; else install another version",
                           c->products->lt->get_version(), got, wd_dtype_file_name(type), sum);
    }
    return WD_OK;
}

/* The first element that has other bits in a later launch than in the first one. */
typedef struct difference {
    int64_t elements; /* that differ in that launch; 0: none does in any */
    int64_t compared;
    wd_dtype type;
    int64_t first_rows, begin, rows; /* of the first launch; of the other one */
    int64_t row, column;             /* of the first launch */
    double first, other;
} difference;

/* Looks for elements that launch `i` gave other bits than the first one. */
static void find_difference(difference *out, const check *c, wd_dtype type, const launches *l,
                            int i)
{
    int64_t end = l->begin[i] + l->rows[i], size = (int64_t)wd_dtype_bytes(type);
    if (end > l->begin[0] + l->rows[0]) end = l->begin[0] + l->rows[0];
    difference d = {.compared = (end - l->begin[i]) * N,
                    .type = type,
                    .first_rows = l->rows[0],
                    .begin = l->begin[i],
                    .rows = l->rows[i]};
    const char *whole = c->host + AT_WHOLE, *slices = c->host + AT_SLICES;
    for (int64_t at = l->begin[i] * N; at < end * N; at++) {
        if (!memcmp(whole + at * size, slices + at * size, (size_t)size)) continue;
        if (d.elements++) continue;
        d.row = at / N, d.column = at % N;
        d.first = load(whole, type, at), d.other = load(slices, type, at);
    }
    if (d.elements && !out->elements) *out = d;
}

/* Whether rows have the same bits in all launches: then *out has no element. */
static wd_status compare(difference *out, const check *c, wd_dtype type, const launches *l,
                         wd_err *err)
{
    for (int64_t i = 0; i < ROWS * K; i++) store(c->host + AT_A, type, i, number((uint64_t)i));
    for (int64_t i = 0; i < N * K; i++)
        store(c->host + AT_B, type, i, number((uint64_t)i + (1u << 24)));
    WD_TRY(copy(c, true, 0, AT_WHOLE, err));
    WD_TRY(multiply(c, type, AT_WHOLE, l->begin[0], l->rows[0], err));
    WD_TRY(copy(c, false, AT_WHOLE, ROWS * N * 4, err));
    WD_TRY(check_values(c, type, l->rows[0], err));
    for (int i = 1; i < l->count; i++) {
        WD_TRY(multiply(c, type, AT_SLICES, l->begin[i], l->rows[i], err));
        WD_TRY(copy(c, false, AT_SLICES, ROWS * N * 4, err));
        find_difference(out, c, type, l, i);
    }
    return WD_OK;
}

enum { DIFFERENCE_TEXT = 1024 };

/* The index of the plan that a launch of the product has made, in the list of plans. */
static int64_t plan_of(const wd_cuda_products *p, const wd_matmul_args *args)
{
    const wd_product_key key = wd__product_key_of(args);
    int64_t i = 0;
    while (i < p->plans && !wd__product_key_equal(&p->plan[i]->key, &key)) i++;
    WD_REQUIRE(i < p->plans, "the check of cuBLASLt has not made a product");
    return i;
}

/* "BF16 x BF16 -> BF16, n 512, ...: algorithm 66, ...; row 3, column 0 is 1.5 in a launch of 320
 * rows and 1.25 in one of 77 rows from row 100 on; 12 of 39424 elements differ" */
static void write_difference(char out[DIFFERENCE_TEXT], const check *c, const difference *d)
{
    char plan[DIFFERENCE_TEXT / 2] = "";
    wd_cuda_products *p = c->products;
    const wd_matmul_args args = product_of(c, d->type, AT_WHOLE, 0, d->first_rows);
    wd__cuda_products_describe(p, plan_of(p, &args), plan, sizeof plan);
    snprintf(out, DIFFERENCE_TEXT,
             "%s; row %lld, column %lld is %.9g in a launch of %lld rows and %.9g in one of %lld "
             "rows from row %lld on; %lld of %lld elements differ",
             plan, (long long)d->row, (long long)d->column, d->first, (long long)d->first_rows,
             d->other, (long long)d->rows, (long long)d->begin, (long long)d->elements,
             (long long)d->compared);
}

static wd_status check_rows(const check *c, wd_err *err)
{
    static const wd_dtype types[] = {WD_BF16, WD_F32};
    const size_t version = c->products->lt->get_version();
    char text[2][DIFFERENCE_TEXT];
    for (int cut = 0; cut < 2; cut++) {
        difference found = {0};
        for (int t = 0; t < 2; t++)
            WD_TRY(compare(&found, c, types[t], cut ? &cut_rows : &free_rows, err));
        c->products->rule.cut = cut;
        if (!found.elements && cut)
            wd_log_once(WD_LOG_WARNING,
                        "cuBLASLt %zu gives a row of a product other bits beside other rows (%s): "
                        "products are made in pieces of %d rows, which takes longer; another "
                        "version of cuBLASLt may not need that",
                        version, text[0], WD_PRODUCT_CHUNK_ROWS);
        if (!found.elements) return WD_OK;
        write_difference(text[cut], c, &found);
    }
    return wd_fail(err, WD_UNSUPPORTED,
                   "cuBLASLt %zu gives a row of a product other bits beside other rows (%s), even "
                   "in pieces of %d rows (%s), so that no training on this GPU could be repeated: "
                   "install another version of cuBLASLt",
                   version, text[0], WD_PRODUCT_CHUNK_ROWS, text[1]);
}

static double gelu_tanh(double x)
{
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static double gelu_erf(double x)
{
    return 0.5 * x * erfc(-0.7071067811865476 * x);
}

/* What element [i, j] is before GELU: numbers from -4 to 4.4 that bf16 holds. */
static float gelu_row(int i)
{
    return (float)(i - GELU_SIDE / 2) / 8;
}

static float gelu_bias(int j)
{
    return (float)(j % 4) / 8;
}

/* Sums by which results are taken apart into the tanh form, a share of what the erf form has more,
 * and a relative error of tanh: least squares of both. */
typedef struct gelu_sums {
    double form_form, form_error, error_error, form_rest, error_rest;
} gelu_sums;

static void add_gelu(gelu_sums *s, double x, double got)
{
    const double form = gelu_erf(x) - gelu_tanh(x), error = gelu_tanh(x) - 0.5 * x;
    const double rest = got - gelu_tanh(x);
    s->form_form += form * form;
    s->form_error += form * error;
    s->error_error += error * error;
    s->form_rest += form * rest;
    s->error_rest += error * rest;
}

/* 0: the tanh form; 1: the erf form. */
static double share_of_erf(const gelu_sums *s)
{
    return (s->form_rest * s->error_error - s->error_rest * s->form_error) /
           (s->form_form * s->error_error - s->form_error * s->form_error);
}

/* Whether results of dtype `c_type` are those of the tanh form, and not nearer to the erf form. A
 * GPU's own tanh, whose error may have the same sign everywhere, changes a result by as much as the
 * other form does. */
static bool is_gelu_tanh(const char *y, wd_dtype c_type)
{
    gelu_sums sums = {0};
    for (int i = 0; i < GELU_SIDE; i++)
        for (int j = 0; j < GELU_SIDE; j++) {
            const double x = (double)gelu_row(i) + gelu_bias(j), expected = gelu_tanh(x);
            const double got = load(y, c_type, i * GELU_SIDE + j);
            const double limit = c_type == WD_BF16 ? gelu_tolerance_bf16 + 0x1p-8 * fabs(expected)
                                                   : (double)gelu_tolerance;
            if (!(fabs(got - expected) <= limit)) return false;
            if (x <= 0) add_gelu(&sums, x, got); /* elsewhere bf16 hides the difference */
        }
    return share_of_erf(&sums) < 0.5;
}

/* Multiplies a, whose first column are rows' numbers, with b, whose first row are ones, and adds a
 * bias, as layers do. */
static wd_status check_gelu(const check *c, wd_dtype type, wd_dtype c_type, wd_err *err)
{
    enum { COUNT = GELU_SIDE * GELU_SIDE, AT_BIAS = AT_B + COUNT * 4 };
    char *block = (char *)(uintptr_t)c->block;
    memset(c->host + AT_A, 0, COUNT * 4);
    memset(c->host + AT_B, 0, COUNT * 4);
    for (int i = 0; i < GELU_SIDE; i++) {
        store(c->host + AT_A, type, i * GELU_SIDE, gelu_row(i));
        store(c->host + AT_B, type, i, 1);
        store(c->host + AT_BIAS, c_type, i, gelu_bias(i));
    }
    const wd_matmul_args args = {.c = block + AT_WHOLE,
                                 .a = block + AT_A,
                                 .b = block + AT_B,
                                 .bias = block + AT_BIAS,
                                 .c_type = c_type,
                                 .a_type = type,
                                 .b_type = type,
                                 .bias_type = c_type,
                                 .m = GELU_SIDE,
                                 .n = GELU_SIDE,
                                 .k = GELU_SIDE,
                                 .lda = GELU_SIDE,
                                 .ldb = GELU_SIDE,
                                 .ldc = GELU_SIDE,
                                 .batch = 1,
                                 .act = WD_ACT_GELU_TANH};
    WD_TRY(copy(c, true, AT_A, COUNT * 4, err));
    WD_TRY(copy(c, true, AT_B, COUNT * 4 + GELU_SIDE * 4, err));
    WD_TRY(wd__cuda_products_launch(c->products, &c->work, &args, err));
    WD_TRY(copy(c, false, AT_WHOLE, COUNT * 4, err));
    const bool refused = c->products->plan[plan_of(c->products, &args)]->refused;
    if (refused)
        wd_log_once(WD_LOG_WARNING,
                    "cuBLASLt %zu does not make GELU in products %s x %s -> %s: a kernel of this "
                    "program applies it to what cuBLASLt multiplies, which takes longer; another "
                    "version of cuBLASLt may make it",
                    c->products->lt->get_version(), wd_dtype_file_name(type),
                    wd_dtype_file_name(type), wd_dtype_file_name(c_type));
    c->products->rule.gelu_tanh[wd__product_types_of(type, c_type)] =
        !refused && is_gelu_tanh(c->host + AT_WHOLE, c_type);
    return WD_OK;
}

/* For each of WD_PRODUCT_TYPES: they are kernels of their own, which may have other forms. */
static wd_status check_gelus(const check *c, wd_err *err)
{
    WD_TRY(check_gelu(c, WD_F32, WD_F32, err));
    WD_TRY(check_gelu(c, WD_BF16, WD_BF16, err));
    return check_gelu(c, WD_BF16, WD_F32, err);
}

/* What our own kernel has computed in the place of cuBLASLt says nothing about cuBLASLt. Without
 * GELU these are the plainest products of large matrices: a library that refuses them does not do
 * its work on this GPU, and our kernel in its place would make a run many times as long. A refused
 * GELU only costs a launch (check_gelu). */
static wd_status check_algorithms(const wd_cuda_products *p, wd_err *err)
{
    for (int64_t i = 0; i < p->plans; i++)
        if (p->plan[i]->refused && p->plan[i]->key.act == WD_ACT_NONE)
            return wd_fail(err, WD_UNSUPPORTED,
                           "cuBLASLt %zu has no algorithm for the products by which it is checked: "
                           "install another version of cuBLASLt",
                           p->lt->get_version());
    return WD_OK;
}

wd_status wd__products_check(wd_cuda_products *p, wd_device *device, wd_err *err)
{
    const wd_cuda_driver *driver = &p->gpu->api->driver;
    check c = {.products = p, .driver = driver, .work = {.gpu = p->gpu, .device = device}};
    void *host = NULL;
    p->rule = (wd_product_rule){.gelu_tanh = {true, true, true}};
    c.work.workspace_bytes = WD_PRODUCT_WORKSPACE; /* no launch here is staged or cut */
    wd_status status =
        done(&c, driver->mem_alloc(&c.block, AT_END + c.work.workspace_bytes), "allocate", err);
    if (status == WD_OK)
        status = done(&c, driver->mem_host_alloc(&host, AT_END, 0), "allocate pinned memory", err);
    if (status == WD_OK)
        status = done(&c, driver->stream_create(&c.work.stream, WD_CU_STREAM_NON_BLOCKING),
                      "open a stream", err);
    c.host = host;
    c.work.workspace = (char *)(uintptr_t)c.block + AT_END;
    if (status == WD_OK) status = check_gelus(&c, err);
    if (status == WD_OK) status = check_rows(&c, err);
    if (status == WD_OK) status = check_algorithms(p, err);
    if (c.work.stream) {
        driver->stream_synchronize(c.work.stream);
        driver->stream_destroy(c.work.stream);
    }
    if (host) driver->mem_free_host(host);
    if (c.block) driver->mem_free(c.block);
    return status;
}
