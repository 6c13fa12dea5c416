/* Attention of a cuda device as its library computes it, beside the program's own kernel on the
 * same device, which has a fixed order of sums and nothing to plan: shapes of the Wan models that
 * plain C on a processor would take minutes for. On the stand-ins of driver and cuDNN, with fewer
 * tokens, and, built once more, on a GPU (kernels/tested_gpu.h).
 *
 * A case that fails does not end the others, and a device that has failed is opened anew. */
#include "testing.h"

#include "core/clock.h"
#include "dev/cpu/reference.h"
#include "dev/cuda/attention_way.h"
#include "dev/cuda/impl.h"
#include "kernels/tested_gpu.h"
#ifdef WD_ON_STANDIN
#include "standin/libraries.h"
#endif

/* The library rounds the probabilities and the gradients of scores to bf16 before it multiplies
 * with them, by up to 2^-9 each: less than 1% of a row's norm, however many keys there are. */
static const double row_tolerance = 1.5e-2;
/* One rounding of the result more, in another direction. */
static const double bf16_step = 0x1p-7;
/* The gradients of queries and of keys where there is but one key are zero: the difference of two
 * sums of 128 products, each some 11 large, in fp32. Beside 4,096 keys the largest of a row is some
 * 0.04. */
static const double gradient_zero = 1e-4;
/* The log of a sum of exponentials, in fp32. One key of 4,096 too few would change it by 2.4e-4. */
static const double lse_tolerance = 1e-4;

typedef struct form {
    int64_t samples, heads, head_dim, q_tokens, kv_tokens;
    int64_t repeat;     /* of the last key; 0: there is no bias */
    bool fused;         /* q, k and v are columns of one array */
    int64_t piece_most; /* (sample, head) pairs of a launch of the backward pass; 0: any number */
} form;

typedef struct rig {
    wd_device *device;
    wd_queue *queue;
} rig;

static void open_device(rig *r)
{
    wd_err err = {0};
    tested_gpu_require(wd_device_open_cuda(&r->device, tested_gpu_number(), &err), "a GPU", &err);
    wd_test_ok(wd_queue_open(&r->queue, r->device, &err), &err);
}

static void close_device(rig *r)
{
    wd_queue_close(r->queue);
    wd_device_close(r->device);
}

/* ---- arrays in the device's memory ---- */

enum { LIBRARY, OWN, SIDES };

typedef struct arrays {
    char *q, *k, *v, *d_o;                              /* bf16, given */
    char *o[SIDES], *dq[SIDES], *dk[SIDES], *dv[SIDES]; /* bf16 */
    float *lse[SIDES];
    int64_t width, q_stride, kv_stride, q_rows, kv_rows;
} arrays;

static void *block(rig *r, size_t bytes)
{
    wd_err err;
    void *memory;
    wd_test_ok(wd_device_alloc(&memory, r->device, bytes, "an array of attention", &err), &err);
    return memory;
}

/* About standard normal: the sum of four uniform numbers, from a hash of the index (splitmix64). */
static float normal(uint64_t i)
{
    i *= 0x9e3779b97f4a7c15u;
    i = (i ^ i >> 30) * 0xbf58476d1ce4e5b9u;
    i = (i ^ i >> 27) * 0x94d049bb133111ebu;
    i ^= i >> 31;
    uint64_t sum = (i & 0xffff) + (i >> 16 & 0xffff) + (i >> 32 & 0xffff) + (i >> 48);
    return ((float)sum - 131070.0f) * (1 / 37837.0f);
}

/* bf16 numbers; `seed` 0: all are NaN. */
static char *filled(rig *r, int64_t count, uint64_t seed)
{
    const size_t bytes = (size_t)count * sizeof(uint16_t);
    uint16_t *host = malloc(bytes);
    char *memory = block(r, bytes);
    assert_non_null(host);
    for (int64_t i = 0; i < count; i++)
        host[i] = seed ? wd_f32_to_bf16(normal((uint64_t)i + (seed << 40))) : 0xffff;
    wd_queue_copy_and_wait(r->queue, memory, host, bytes);
    free(host);
    return memory;
}

/* q, k and v, or what is laid out as they are. */
static void make_three(rig *r, const form *f, const arrays *a, char **q, char **k, char **v,
                       uint64_t seed)
{
    *q = filled(r, a->q_rows * a->q_stride, seed ? seed + 1 : 0);
    *k = f->fused ? *q + a->width * 2 : filled(r, a->kv_rows * a->kv_stride, seed ? seed + 2 : 0);
    *v = f->fused ? *k + a->width * 2 : filled(r, a->kv_rows * a->kv_stride, seed ? seed + 3 : 0);
}

static void free_three(rig *r, const form *f, char *q, char *k, char *v)
{
    wd_device_free(r->device, q);
    if (f->fused) return;
    wd_device_free(r->device, k);
    wd_device_free(r->device, v);
}

static arrays make_arrays(rig *r, const form *f)
{
    const int64_t width = f->heads * f->head_dim, stride = f->fused ? 3 * width : width;
    arrays a = {.width = width,
                .q_stride = stride,
                .kv_stride = stride,
                .q_rows = f->samples * f->q_tokens,
                .kv_rows = f->samples * f->kv_tokens};
    make_three(r, f, &a, &a.q, &a.k, &a.v, 1);
    a.d_o = filled(r, a.q_rows * width, 5);
    for (int side = 0; side < SIDES; side++) {
        a.o[side] = filled(r, a.q_rows * width, 0);
        a.lse[side] = block(r, (size_t)(a.q_rows * f->heads) * sizeof(float));
        make_three(r, f, &a, &a.dq[side], &a.dk[side], &a.dv[side], 0);
    }
    return a;
}

static void free_arrays(rig *r, const form *f, arrays *a)
{
    for (int side = 0; side < SIDES; side++) {
        free_three(r, f, a->dq[side], a->dk[side], a->dv[side]);
        wd_device_free(r->device, a->lse[side]);
        wd_device_free(r->device, a->o[side]);
    }
    wd_device_free(r->device, a->d_o);
    free_three(r, f, a->q, a->k, a->v);
}

/* ---- launches ---- */

static wd_attention_args forward_of(const form *f, const arrays *a, int side)
{
    return (wd_attention_args){.o = a->o[side],
                               .lse = a->lse[side],
                               .q = a->q,
                               .k = a->k,
                               .v = a->v,
                               .type = WD_BF16,
                               .samples = f->samples,
                               .kv_samples = f->samples,
                               .heads = f->heads,
                               .head_dim = f->head_dim,
                               .q_tokens = f->q_tokens,
                               .kv_tokens = f->kv_tokens,
                               .last_key_repeat = f->repeat,
                               .q_stride = a->q_stride,
                               .kv_stride = a->kv_stride,
                               .o_stride = a->width,
                               .scale = 1 / sqrtf((float)f->head_dim)};
}

/* Both sides are given what our own kernel made of the forward pass. */
static wd_attention_backward_args backward_of(const form *f, const arrays *a, int side)
{
    return (wd_attention_backward_args){.dq = a->dq[side],
                                        .dk = a->dk[side],
                                        .dv = a->dv[side],
                                        .d_o = a->d_o,
                                        .q = a->q,
                                        .k = a->k,
                                        .v = a->v,
                                        .o = a->o[OWN],
                                        .lse = a->lse[OWN],
                                        .type = WD_BF16,
                                        .samples = f->samples,
                                        .heads = f->heads,
                                        .head_dim = f->head_dim,
                                        .q_tokens = f->q_tokens,
                                        .kv_tokens = f->kv_tokens,
                                        .last_key_repeat = f->repeat,
                                        .q_stride = a->q_stride,
                                        .kv_stride = a->kv_stride,
                                        .o_stride = a->width,
                                        .scale = 1 / sqrtf((float)f->head_dim)};
}

/* By our own kernel, whatever the library can do. */
static wd_status launch_own(rig *r, wd_op op, const void *args, wd_err *err)
{
    wd_cuda_device *d = wd__cuda_of(r->device);
    const size_t bytes = wd__cuda_kernels_workspace(op, args);
    void *space = bytes ? block(r, bytes) : NULL;
    const wd_cuda_work work = {.gpu = &d->gpu,
                               .stream = ((wd_cuda_queue *)r->queue)->stream,
                               .workspace = space,
                               .workspace_bytes = bytes,
                               .device = r->device};
    wd_status status = WD_OK;
    if (wd__cuda_enter(d)) status = wd__cuda_kernels_launch(&work, op, args, err);
    wd_queue_wait(r->queue);
    wd_device_free(r->device, space);
    return status == WD_OK ? wd_device_fault(r->device, err) : status;
}

/* By the library, twice; milliseconds of the second launch, the first of which plans. */
static wd_status launch_library(rig *r, wd_op op, const void *args, size_t bytes, double *ms,
                                wd_err *err)
{
    for (int launch = 0; launch < 2; launch++) {
        const double begun = wd_clock_s();
        wd_queue_launch(r->queue, op, args, bytes);
        wd_queue_wait(r->queue);
        *ms = 1e3 * (wd_clock_s() - begun);
    }
    return wd_device_fault(r->device, err);
}

/* ---- comparing ---- */

static void *fetched(rig *r, const void *from, size_t bytes)
{
    void *host = malloc(bytes);
    assert_non_null(host);
    wd_queue_copy_and_wait(r->queue, host, from, bytes);
    return host;
}

/* A result: rows of `groups` groups of `width` numbers. Errors are relative to the largest number
 * of the group, plus `absolute`. */
typedef struct result {
    const char *name;
    const void *of[SIDES];
    wd_dtype type;
    int64_t rows, stride, groups, width;
    double relative, absolute;
} result;

/* Prints how far both are apart; false: some elements are too far. */
static bool compare(rig *r, const result *x)
{
    const int64_t count = (x->rows - 1) * x->stride + x->groups * x->width;
    const size_t bytes = (size_t)count * wd_dtype_bytes(x->type);
    void *got = fetched(r, x->of[LIBRARY], bytes), *expected = fetched(r, x->of[OWN], bytes);
    const double step = x->type == WD_BF16 ? bf16_step : 0;
    int64_t wrong = 0, first = -1;
    double most = 0;
    for (int64_t i = 0; i < x->rows * x->groups; i++) {
        const int64_t at = i / x->groups * x->stride + i % x->groups * x->width;
        double scale = 0;
        for (int64_t c = at; c < at + x->width; c++)
            scale = fmax(scale, fabs(wd__load(expected, x->type, c)));
        for (int64_t c = at; c < at + x->width; c++) {
            const double g = wd__load(got, x->type, c), e = wd__load(expected, x->type, c);
            const double allowed =
                x->relative * scale + x->absolute + step * fmax(fabs(g), fabs(e));
            const double error = fabs(g - e) / allowed;
            if (!(error <= most)) most = isnan(error) ? INFINITY : error;
            if (error <= 1) continue; /* not so if it is no number */
            wrong++;
            if (first < 0) first = c;
        }
    }
    printf("    %-3s: %lld of %lld wrong, largest error %.3f of what is allowed", x->name,
           (long long)wrong, (long long)(x->rows * x->groups * x->width), most);
    if (wrong)
        printf("; first element %lld (row %lld, column %lld): %.9g, expected %.9g",
               (long long)first, (long long)(first / x->stride), (long long)(first % x->stride),
               wd__load(got, x->type, first), wd__load(expected, x->type, first));
    printf("\n");
    fflush(stdout);
    free(got);
    free(expected);
    return wrong == 0;
}

static result tokens_of(const char *name, void *const of[SIDES], int64_t rows, int64_t stride,
                        const form *f)
{
    return (result){.name = name,
                    .of = {of[LIBRARY], of[OWN]},
                    .type = WD_BF16,
                    .rows = rows,
                    .stride = stride,
                    .groups = f->heads,
                    .width = f->head_dim,
                    .relative = row_tolerance,
                    .absolute = gradient_zero};
}

/* Whether sample 0 alone has the bits that it has among all. `whole`: its part of the result of
 * all; `alone`: where it is written now. */
static bool compare_bits(rig *r, const char *name, const void *whole, const void *alone,
                         size_t bytes)
{
    void *x = fetched(r, whole, bytes), *y = fetched(r, alone, bytes);
    const bool same = !memcmp(x, y, bytes);
    free(x);
    free(y);
    if (!same) printf("    %s of the first sample has other bits alone\n", name);
    return same;
}

/* The library again, with the first sample alone, into the arrays of our own kernel, which are no
 * longer needed: after the comparison. */
static bool check_alone(rig *r, const form *f, const arrays *a, wd_err *err)
{
    form alone = *f;
    double ms;
    alone.samples = 1;
    const size_t q_bytes = (size_t)(f->q_tokens * a->q_stride) * 2;
    const size_t kv_bytes = (size_t)(f->kv_tokens * a->kv_stride) * 2;
    const wd_attention_backward_args back = backward_of(&alone, a, OWN);
    wd_status status = launch_library(r, WD_OP_ATTENTION_BACKWARD, &back, sizeof back, &ms, err);
    if (status != WD_OK) return false;
    bool same = compare_bits(r, "dq", a->dq[LIBRARY], a->dq[OWN], q_bytes);
    if (!f->fused) {
        same &= compare_bits(r, "dk", a->dk[LIBRARY], a->dk[OWN], kv_bytes);
        same &= compare_bits(r, "dv", a->dv[LIBRARY], a->dv[OWN], kv_bytes);
    }
    const wd_attention_args forth = forward_of(&alone, a, OWN);
    status = launch_library(r, WD_OP_ATTENTION, &forth, sizeof forth, &ms, err);
    const size_t o_bytes = (size_t)(f->q_tokens * a->width) * 2;
    return status == WD_OK && (compare_bits(r, "o", a->o[LIBRARY], a->o[OWN], o_bytes) & same);
}

/* ---- cases ---- */

static bool check_forward(rig *r, const form *f, const arrays *a, wd_err *err)
{
    double ms;
    const wd_attention_args library = forward_of(f, a, LIBRARY), own = forward_of(f, a, OWN);
    if (launch_own(r, WD_OP_ATTENTION, &own, err) != WD_OK ||
        launch_library(r, WD_OP_ATTENTION, &library, sizeof library, &ms, err) != WD_OK)
        return false;
    printf("  forward, %.2f ms\n", ms);
    const result o = tokens_of("o", (void *const *)a->o, a->q_rows, a->width, f);
    const result lse = {.name = "lse",
                        .of = {a->lse[LIBRARY], a->lse[OWN]},
                        .type = WD_F32,
                        .rows = f->samples * f->heads,
                        .stride = f->q_tokens,
                        .groups = 1,
                        .width = f->q_tokens,
                        .absolute = lse_tolerance};
    const bool same = compare(r, &o);
    return compare(r, &lse) && same;
}

static bool check_backward(rig *r, const form *f, const arrays *a, wd_err *err)
{
    double ms;
    const wd_attention_backward_args library = backward_of(f, a, LIBRARY);
    const wd_attention_backward_args own = backward_of(f, a, OWN);
    if (launch_own(r, WD_OP_ATTENTION_BACKWARD, &own, err) != WD_OK ||
        launch_library(r, WD_OP_ATTENTION_BACKWARD, &library, sizeof library, &ms, err) != WD_OK)
        return false;
    printf("  backward, %.2f ms\n", ms);
    const result dq = tokens_of("dq", (void *const *)a->dq, a->q_rows, a->q_stride, f);
    const result dk = tokens_of("dk", (void *const *)a->dk, a->kv_rows, a->kv_stride, f);
    const result dv = tokens_of("dv", (void *const *)a->dv, a->kv_rows, a->kv_stride, f);
    const bool same_q = compare(r, &dq), same_k = compare(r, &dk);
    return compare(r, &dv) && same_k && same_q;
}

static bool check_form(rig *r, const form *f)
{
    wd_err err = {0};
    arrays a = make_arrays(r, f);
    wd_cuda_attention *attention = wd__cuda_of(r->device)->attention;
    const size_t pair = wd__attention_scores_bytes(1, f->q_tokens, f->kv_tokens);
    printf("attention: %lld x %lld heads of %lld, %lld x %lld, last key stands for %lld%s%s\n",
           (long long)f->samples, (long long)f->heads, (long long)f->head_dim,
           (long long)f->q_tokens, (long long)f->kv_tokens, (long long)(f->repeat ? f->repeat : 1),
           f->fused ? ", q, k and v in one array" : "", f->piece_most ? ", in pieces" : "");
    wd__cuda_attention_cut(attention, f->piece_most ? (size_t)f->piece_most * pair
                                                    : (size_t)WD_ATTENTION_PIECE_BYTES);
    bool good = check_forward(r, f, &a, &err);
    if (err.status == WD_OK) good &= check_backward(r, f, &a, &err);
    if (err.status == WD_OK && f->samples > 1) good &= check_alone(r, f, &a, &err);
    if (err.status != WD_OK) printf("  %s: %s\n", wd_status_text(err.status), err.message);
    free_arrays(r, f, &a);
    if (err.status != WD_OK) { /* it has failed for good */
        close_device(r);
        open_device(r);
    }
    return good && err.status == WD_OK;
}

/* A processor that stands in for a GPU, or a GPU under compute-sanitizer, takes minutes for
 * millions of scores. */
static int64_t tokens(int64_t count)
{
    bool slow = getenv("WD_TEST_SANITIZER") != NULL;
#ifdef WD_ON_STANDIN
    slow = true;
#endif
    return slow && count > 40 ? count / 40 : count;
}

static void check_all(rig *r, const form *forms, size_t count)
{
    size_t bad = 0;
    for (size_t i = 0; i < count; i++) {
        form f = forms[i];
        f.q_tokens = tokens(f.q_tokens);
        f.kv_tokens = tokens(f.kv_tokens);
        bad += !check_form(r, &f);
    }
    if (bad) fail_msg("%zu of %zu cases are wrong", bad, count);
}

#define CHECK_ALL(state, forms) check_all(*(state), forms, sizeof(forms) / sizeof *(forms))

static void to_prompts(void **state)
{
    static const form forms[] = {
        {1, 2, 128, 1560, 512, 300, false, 0}, {1, 2, 128, 1560, 77, 436, false, 0},
        {1, 2, 128, 1560, 512, 0, false, 0},   {1, 12, 128, 1560, 512, 2, false, 0},
        {3, 2, 128, 1560, 130, 383, false, 0}, {1, 2, 64, 1560, 77, 436, false, 0},
        {2, 2, 128, 1560, 1, 512, false, 0},
    };
    CHECK_ALL(state, forms);
}

static void to_itself(void **state)
{
    static const form forms[] = {
        {1, 2, 128, 1560, 1560, 0, true, 0},  {1, 2, 128, 4096, 4096, 0, true, 0},
        {1, 12, 128, 1560, 1560, 0, true, 0}, {4, 2, 128, 1024, 1024, 0, true, 0},
        {1, 2, 128, 390, 390, 0, false, 0},   {2, 3, 64, 256, 256, 0, true, 0},
    };
    CHECK_ALL(state, forms);
}

static void in_pieces(void **state)
{
    static const form forms[] = {
        {1, 4, 128, 1560, 1560, 0, true, 2},   /* of heads */
        {2, 6, 128, 1560, 512, 300, false, 4}, /* of heads of each sample, with a bias */
        {4, 2, 128, 1024, 1024, 0, true, 4},   /* of samples */
        {3, 5, 64, 390, 77, 436, false, 1},    /* every head of every sample */
    };
    CHECK_ALL(state, forms);
}

#ifdef WD_ON_STANDIN
/* cuDNN refuses a row bias, plans of several samples, or everything: the same numbers, in the
 * workspace that is planned. */
static void what_the_library_refuses(void **state)
{
    static const form no_row[] = {{2, 3, 64, 1000, 300, 30, false, 0},
                                  {2, 6, 128, 1600, 480, 300, false, 4}};
    static const form no_many[] = {{3, 3, 64, 1040, 300, 30, false, 0},
                                   {3, 2, 128, 1040, 1040, 0, true, 0}};
    static const form none[] = {{2, 3, 64, 1080, 300, 30, false, 0},
                                {2, 6, 128, 1080, 1080, 0, true, 1}};
    wd_the_standin_faults.cudnn_no_row = true;
    CHECK_ALL(state, no_row);
    wd_the_standin_faults.cudnn_no_row = false;
    wd_the_standin_faults.cudnn_no_many = true;
    CHECK_ALL(state, no_many);
    wd_the_standin_faults.cudnn_no_many = false;
    const int64_t runs = wd_the_standin_asked.runs;
    wd_the_standin_faults.cudnn_plan_status = WD_CUDNN_STATUS_NOT_SUPPORTED;
    CHECK_ALL(state, none);
    wd_the_standin_faults.cudnn_plan_status = 0;
    assert_int_equal(wd_the_standin_asked.runs, runs);
}
#endif

static int open_rig(void **state)
{
    static rig r;
    tested_gpu_begin(false);
    open_device(&r);
    *state = &r;
    return 0;
}

static int close_rig(void **state)
{
    close_device(*state);
#ifdef WD_ON_STANDIN
    assert_int_equal(wd_standin_remove(), 0);
#endif
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(to_prompts),
        cmocka_unit_test(to_itself),
        cmocka_unit_test(in_pieces),
#ifdef WD_ON_STANDIN
        cmocka_unit_test(what_the_library_refuses),
#endif
    };
    return cmocka_run_group_tests_name("attention beside our own kernel", tests, open_rig,
                                       close_rig);
}
