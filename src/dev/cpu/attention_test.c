/* Attention is compared with plain C, its gradients with finite differences, and its bits with one
 * another: see kernels/matrix_check.h. */
#include "kernels/matrix_check.h"

/* Measured up to 5e-7 (forward) and 2e-6 (gradients) of the row's largest. In bf16 both algorithms
 * round the output once, but the large one rounds probabilities to bf16, too. */
static const tolerance forward_tolerance = {5e-6, 1e-6};
static const tolerance forward_tolerance_bf16 = {6e-3, 1e-4};
static const tolerance backward_tolerance = {2e-5, 2e-6};
static const tolerance backward_tolerance_bf16 = {1.5e-2, 2e-3};

typedef struct params {
    int64_t samples, kv_samples, heads, head_dim, q_tokens, kv_tokens, gap;
    wd_dtype type;
    bool bias, mask, lse;
    float gain;     /* of the scores: large ones make a sharp softmax */
    int64_t repeat; /* how many keys the last one represents; 0 means 1 */
    bool spread;    /* all these keys exist explicitly */
} params;

/* Makes keys or values. If spread, the last one of each sample is repeated. */
static void *make_keys(world *w, const params *p, int64_t stride)
{
    int64_t all = p->kv_tokens + p->repeat - 1;
    size_t row = (size_t)stride * wd_dtype_bytes(p->type);
    char *from = make_array(w, p->type, p->kv_samples * p->kv_tokens * stride, ORDINARY), *to;
    if (!p->spread) return from;
    to = executor_memory((size_t)(p->kv_samples * all) * row);
    for (int64_t i = 0; i < p->kv_samples * all; i++) {
        int64_t s = i % all < p->kv_tokens ? i % all : p->kv_tokens - 1;
        memcpy(to + (size_t)i * row, from + (size_t)(i / all * p->kv_tokens + s) * row, row);
    }
    executor_memory_free(from);
    w->array[w->arrays - 1].data = to;
    w->array[w->arrays - 1].count = p->kv_samples * all * stride;
    return to;
}

static void make_attention(world *w, void *out, const void *context)
{
    const params *p = context;
    int64_t width = p->heads * p->head_dim;
    wd_attention_args *a = out;
    *a = (wd_attention_args){.type = p->type,
                             .samples = p->samples,
                             .kv_samples = p->kv_samples,
                             .heads = p->heads,
                             .head_dim = p->head_dim,
                             .q_tokens = p->q_tokens,
                             .kv_tokens = p->kv_tokens,
                             .last_key_repeat = p->repeat,
                             .q_stride = width + p->gap,
                             .kv_stride = width + 2 * p->gap,
                             .o_stride = width + 3 * p->gap,
                             .scale = p->gain / sqrtf((float)p->head_dim)};
    if (p->spread) a->kv_tokens += p->repeat - 1, a->last_key_repeat = 0;
    int64_t rows = p->samples * p->q_tokens;
    a->o = out_array(w, p->type, rows * a->o_stride, a->o_stride, ORDINARY);
    if (p->lse)
        a->lse = out_array(w, WD_F32, p->samples * p->heads * p->q_tokens, p->q_tokens, ORDINARY);
    a->q = make_array(w, p->type, rows * a->q_stride, ORDINARY);
    a->k = make_keys(w, p, a->kv_stride);
    a->v = make_keys(w, p, a->kv_stride);
    if (p->bias) a->bias = make_array(w, WD_F32, p->heads * p->q_tokens * p->kv_tokens, ORDINARY);
    if (p->mask) {
        float *mask = make_array(w, WD_F32, p->samples * p->kv_tokens, ORDINARY);
        for (int64_t i = 0; i < p->samples * p->kv_tokens; i++) /* the first key is never masked */
            mask[i] = i % p->kv_tokens > 2 && i % 3 == 0 ? -3.4028235e38f : 0;
        a->mask = mask;
    }
}

/* Runs the forward pass in plain C first, so that o and lse belong to the inputs. */
static void make_backward(world *w, void *out, const void *context)
{
    params p = *(const params *)context;
    wd_attention_args f;
    p.kv_samples = p.samples;
    p.lse = true;
    make_attention(w, &f, &p);
    void *scratch = malloc(wd_ref_attention_workspace(&f));
    wd_ref_attention(&f, &(wd_cpu_context){.workspace = scratch});
    free(scratch);
    w->array[0].out = w->array[1].out = false;
    int64_t rows = p.samples * p.q_tokens, kv_rows = p.samples * f.kv_tokens;
    wd_attention_backward_args *a = out;
    *a = (wd_attention_backward_args){
        .dq = out_array(w, p.type, rows * f.q_stride, f.q_stride, ORDINARY),
        .dk = out_array(w, p.type, kv_rows * f.kv_stride, kv_rows * f.kv_stride, ORDINARY),
        .dv = out_array(w, p.type, kv_rows * f.kv_stride, kv_rows * f.kv_stride, ORDINARY),
        .d_o = make_array(w, p.type, rows * f.o_stride, ORDINARY),
        .q = f.q,
        .k = f.k,
        .v = f.v,
        .o = f.o,
        .lse = f.lse,
        .type = p.type,
        .samples = p.samples,
        .heads = p.heads,
        .head_dim = p.head_dim,
        .q_tokens = p.q_tokens,
        .kv_tokens = f.kv_tokens,
        .last_key_repeat = f.last_key_repeat,
        .q_stride = f.q_stride,
        .kv_stride = f.kv_stride,
        .o_stride = f.o_stride,
        .scale = f.scale};
}

static void check_forward(params p)
{
    p.gain = p.gain == 0 ? 1 : p.gain;
    p.type = WD_F32;
    check_matrix(WD_OP_ATTENTION, make_attention, &p, forward_tolerance);
    p.type = WD_BF16;
    check_matrix(WD_OP_ATTENTION, make_attention, &p, forward_tolerance_bf16);
}

/* In bf16 plain C computes do o from a rounded o: if nearly all probability is on one key, dq is a
 * difference that rounding destroys. So the last key represents at most as many keys as there are
 * others. */
static int64_t repeat_bf16(params p)
{
    return p.repeat < p.kv_tokens ? p.repeat : p.kv_tokens;
}

static void check_backward(params p)
{
    p.gain = p.gain == 0 ? 1 : p.gain;
    p.type = WD_F32;
    check_matrix(WD_OP_ATTENTION_BACKWARD, make_backward, &p, backward_tolerance);
    p.type = WD_BF16;
    p.repeat = repeat_bf16(p);
    check_matrix(WD_OP_ATTENTION_BACKWARD, make_backward, &p, backward_tolerance_bf16);
}

static const int64_t repeats[] = {0, 1, 300};

/* samples, heads, head_dim, q_tokens, kv_tokens */
static const int64_t small[][5] = {
    {3, 5, 32, 16, 16}, {3, 5, 32, 16, 24}, {2, 3, 24, 16, 16}, {1, 2, 2, 1, 1},
    {2, 1, 64, 17, 7},  {1, 2, 128, 33, 5}, {5, 1, 6, 3, 31},   {1, 1, 32, 64, 64},
};

static void small_forward(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        const int64_t *s = small[i];
        check_forward((params){.samples = s[0],
                               .kv_samples = i % 2 ? 1 : s[0],
                               .heads = s[1],
                               .head_dim = s[2],
                               .q_tokens = s[3],
                               .kv_tokens = s[4],
                               .gap = i % 3 ? 0 : 7,
                               .lse = i % 4 != 1,
                               .bias = i % 4 == 2,
                               .mask = i % 4 == 3,
                               .repeat = repeats[i % 3]});
    }
}

static void small_backward(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        const int64_t *s = small[i];
        check_backward((params){.samples = s[0],
                                .heads = s[1],
                                .head_dim = s[2],
                                .q_tokens = s[3],
                                .kv_tokens = s[4],
                                .gap = i % 3 ? 0 : 7,
                                .repeat = repeats[i % 3]});
    }
}

static const int64_t large[][5] = {
    {1, 2, 128, 40, 130}, {2, 2, 32, 16, 300},  {1, 1, 300, 70, 129}, {1, 2, 24, 129, 257},
    {1, 1, 640, 3, 140},  {1, 2, 64, 290, 100}, {1, 1, 2, 200, 200},
};

static void large_forward(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        const int64_t *s = large[i];
        check_forward((params){.samples = s[0],
                               .kv_samples = i % 2 ? 1 : s[0],
                               .heads = s[1],
                               .head_dim = s[2],
                               .q_tokens = s[3],
                               .kv_tokens = s[4],
                               .gap = i % 3 ? 0 : 7,
                               .lse = i % 4 != 1,
                               .bias = i % 4 == 2,
                               .mask = i % 4 == 3,
                               .repeat = repeats[i % 3]});
    }
}

static void large_backward(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        const int64_t *s = large[i];
        check_backward((params){.samples = s[0],
                                .heads = s[1],
                                .head_dim = s[2],
                                .q_tokens = s[3],
                                .kv_tokens = s[4],
                                .gap = i % 3 ? 0 : 7,
                                .repeat = repeats[i % 3]});
    }
}

/* Scores up to 250: their last bit, 1.5e-5, is a relative error of the probabilities. */
static void sharp_softmax(void **state)
{
    (void)state;
    static const tolerance sharp_tolerance = {1e-4, 1e-5};
    params p = {.samples = 2, .kv_samples = 2, .heads = 2, .head_dim = 32, .lse = true, .gain = 60};
    p.q_tokens = 16, p.kv_tokens = 24;
    check_matrix(WD_OP_ATTENTION, make_attention, &p, sharp_tolerance);
    p.q_tokens = 50, p.kv_tokens = 400;
    check_matrix(WD_OP_ATTENTION, make_attention, &p, sharp_tolerance);
}

/* ---- a last key that represents many ---- */

/* Replaces the rows of the repeated key by their sum. */
static void fold(array *x, const params *p, int64_t stride)
{
    int64_t all = p->kv_tokens + p->repeat - 1;
    for (int64_t b = 0; b < p->kv_samples; b++)
        for (int64_t i = 0; i < p->kv_tokens * stride; i++) {
            double sum = wd__load(x->data, x->type, b * all * stride + i);
            for (int64_t s = p->kv_tokens; i / stride + 1 == p->kv_tokens && s < all; s++)
                sum += wd__load(x->data, x->type, (b * all + s) * stride + i % stride);
            wd__store(x->data, x->type, b * p->kv_tokens * stride + i, (float)sum);
        }
    x->count = p->kv_samples * p->kv_tokens * stride;
}

/* Every executor gives the result of plain C with explicit keys. */
static void check_repeated(wd_op op, make_fn *make, params p, tolerance t)
{
    wd_cpu_table table;
    world expected, got;
    int64_t kv_stride = p.heads * p.head_dim;
    p.spread = true;
    wd__cpu_table_reference(&table);
    run_case(&expected, &table, op, make, &p);
    p.spread = false;
    for (int i = 0; i < expected.arrays; i++) /* dk and dv */
        if (expected.array[i].out && expected.array[i].width == expected.array[i].count)
            fold(&expected.array[i], &p, kv_stride);
    for (int executor = 0; executor < executors(); executor++) {
        char name[64];
        executor_use(&table, name, executor, 0);
        run_case(&got, &table, op, make, &p);
        for (int i = 0; i < got.arrays; i++)
            if (got.array[i].out) compare_array(&got.array[i], &expected.array[i], name, i, t);
        free_world(&got);
    }
    free_world(&expected);
}

static void last_key_stands_for_many(void **state)
{
    (void)state;
    for (int way = 0; way < 2; way++)
        for (int64_t repeat = 2; repeat < 300; repeat += 31) {
            params p = {.samples = 2, .kv_samples = 2, .lse = true, .gain = 1, .repeat = repeat};
            p.heads = way ? 2 : 3;
            p.head_dim = way ? 40 : 24;
            p.q_tokens = way ? 50 : 18;
            p.kv_tokens = way ? 99 + repeat : 11; /* one tile, and more */
            p.type = WD_F32;
            check_repeated(WD_OP_ATTENTION, make_attention, p, forward_tolerance);
            check_repeated(WD_OP_ATTENTION_BACKWARD, make_backward, p, backward_tolerance);
            p.type = WD_BF16;
            check_repeated(WD_OP_ATTENTION, make_attention, p, forward_tolerance_bf16);
            p.repeat = repeat_bf16(p);
            check_repeated(WD_OP_ATTENTION_BACKWARD, make_backward, p, backward_tolerance_bf16);
        }
}

/* ---- bits ---- */

static void slice_samples(void *args, const void *context, int64_t begin, int64_t end)
{
    wd_attention_args *a = args;
    const params *p = context;
    size_t size = wd_dtype_bytes(a->type);
    a->o = (char *)a->o + (size_t)(begin * p->q_tokens * a->o_stride) * size;
    a->q = (const char *)a->q + (size_t)(begin * p->q_tokens * a->q_stride) * size;
    a->k = (const char *)a->k + (size_t)(begin * p->kv_tokens * a->kv_stride) * size;
    a->v = (const char *)a->v + (size_t)(begin * p->kv_tokens * a->kv_stride) * size;
    if (a->lse) a->lse += begin * p->heads * p->q_tokens;
    a->samples = a->kv_samples = end - begin;
}

static void samples_do_not_depend_on_samples(void **state)
{
    (void)state;
    static const int64_t cuts[] = {1, 4, 5, 13};
    params p = {.samples = 13, .kv_samples = 13, .lse = true, .gain = 1};
    for (int way = 0; way < 2; way++)
        for (int t = 0; t < 2; t++) {
            p.heads = way ? 2 : 5;
            p.head_dim = way ? 64 : 32;
            p.q_tokens = way ? 70 : 16;
            p.kv_tokens = way ? 150 : 24;
            p.type = t ? WD_BF16 : WD_F32;
            check_slices(WD_OP_ATTENTION, make_attention, slice_samples, cuts, 4, &p);
        }
}

/* ---- gradients ---- */

/* The loss, whose gradients are tested: the sum of do o, in plain C. */
static double loss_of(const wd_attention_args *a, const float *d_o, void *scratch)
{
    double sum = 0;
    wd_ref_attention(a, &(wd_cpu_context){.workspace = scratch});
    for (int64_t i = 0; i < a->samples * a->q_tokens * a->o_stride; i++)
        sum += (double)d_o[i] * ((const float *)a->o)[i];
    return sum;
}

/* Moves `x` along a direction and compares the slope of the loss with the gradient. */
static void check_slope(float *x, const float *dx, int64_t count, const wd_attention_args *a,
                        const float *d_o, void *scratch)
{
    float *kept = malloc((size_t)count * sizeof *kept);
    double loss[2], expected = 0, step = 1e-2;
    memcpy(kept, x, (size_t)count * sizeof *kept);
    for (int side = 0; side < 2; side++) {
        for (int64_t i = 0; i < count; i++)
            x[i] = kept[i] + (float)(side ? -step : step) * normal_value((uint64_t)i + 99);
        loss[side] = loss_of(a, d_o, scratch);
    }
    for (int64_t i = 0; i < count; i++) expected += (double)dx[i] * normal_value((uint64_t)i + 99);
    double slope = (loss[0] - loss[1]) / (2 * step);
    if (fabs(slope - expected) > 2e-3 * fabs(slope) + 1e-3)
        fail_msg("slope %.9g, the gradient says %.9g", slope, expected);
    memcpy(x, kept, (size_t)count * sizeof *kept);
    free(kept);
}

static void check_gradients(params p)
{
    world w = {0};
    wd_attention_backward_args a;
    wd_cpu_table table;
    p.gain = 1;
    make_backward(&w, &a, &p);
    use_last(&table);
    run_kernel(&table, WD_OP_ATTENTION_BACKWARD, &a);
    wd_attention_args f = {.o = w.array[0].data,
                           .q = a.q,
                           .k = a.k,
                           .v = a.v,
                           .type = a.type,
                           .samples = a.samples,
                           .kv_samples = a.samples,
                           .heads = a.heads,
                           .head_dim = a.head_dim,
                           .q_tokens = a.q_tokens,
                           .kv_tokens = a.kv_tokens,
                           .last_key_repeat = a.last_key_repeat,
                           .q_stride = a.q_stride,
                           .kv_stride = a.kv_stride,
                           .o_stride = a.o_stride,
                           .scale = a.scale};
    void *scratch = malloc(wd_ref_attention_workspace(&f));
    int64_t queries = a.samples * a.q_tokens * a.q_stride;
    int64_t keys = a.samples * a.kv_tokens * a.kv_stride;
    check_slope(w.array[2].data, a.dq, queries, &f, a.d_o, scratch);
    check_slope(w.array[3].data, a.dk, keys, &f, a.d_o, scratch);
    check_slope(w.array[4].data, a.dv, keys, &f, a.d_o, scratch);
    free(scratch);
    free_world(&w);
}

static void finite_differences(void **state)
{
    (void)state;
    check_gradients(
        (params){.samples = 2, .heads = 2, .head_dim = 32, .q_tokens = 16, .kv_tokens = 24});
    check_gradients(
        (params){.samples = 1, .heads = 1, .head_dim = 24, .q_tokens = 19, .kv_tokens = 5});
    check_gradients(
        (params){.samples = 1, .heads = 2, .head_dim = 40, .q_tokens = 60, .kv_tokens = 170});
    check_gradients((params){
        .samples = 2, .heads = 2, .head_dim = 32, .q_tokens = 16, .kv_tokens = 9, .repeat = 24});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kernel_test(small_forward),      kernel_test(small_backward),
        kernel_test(large_forward),      kernel_test(large_backward),
        kernel_test(sharp_softmax),      kernel_test(last_key_stands_for_many),
        kernel_test(finite_differences), kernel_test(samples_do_not_depend_on_samples),
    };
    return kernel_tests_run(tests);
}
