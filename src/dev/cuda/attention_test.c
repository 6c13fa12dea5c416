/* Attention by cuDNN, on the stand-in: which way it goes, what plans are made and when, pieces of
 * the backward pass, engines that are refused. The numbers of all forms are tested by
 * dev/cuda/device/attention. */
#include "testing.h"

#include <stdlib.h>

#include "core/log.h"
#include "dev/cuda/attention_way.h"
#include "kernels/kernels_check.h"
#include "standin/immediate_gpu.h"

/* P and ds are rounded to bf16 on the way, as the CPU's large way does. */
static const tolerance forward_tolerance = {6e-3, 1e-4};
static const tolerance backward_tolerance = {1.5e-2, 2e-3};

static wd_cuda_attention *open_attention(void)
{
    wd_cuda_attention *a;
    wd_err err;
    wd_test_ok(wd__cuda_attention_open(&a, wd_standin_gpu(), &err), &err);
    return a;
}

static void close_attention(wd_cuda_attention *a)
{
    wd__cuda_attention_close(a);
    assert_int_equal(wd_the_standin_asked.descriptors, 0);
}

typedef struct form {
    int64_t samples, kv_samples, heads, head_dim, q_tokens, kv_tokens, repeat;
    bool bias, no_lse;
    int64_t gap; /* of q's lines, in eights; those of k and o are twice and thrice as far apart */
} form;

enum { Q, K, V, O, O_EXPECTED, LSE, LSE_EXPECTED, BIAS, DO, DQ, DK, DV, DQ_E, DK_E, DV_E, BUFFERS };

typedef struct world_of {
    void *buffer[BUFFERS];
    wd_attention_args forward;
    wd_attention_backward_args backward;
    int64_t q_count, k_count, o_count;
} world_of;

static void *filled(int64_t count, wd_dtype type, uint64_t seed)
{
    void *data = aligned_alloc(64, ((size_t)count * wd_dtype_bytes(type) + 63) / 64 * 64);
    assert_non_null(data);
    for (int64_t i = 0; i < count; i++) wd__store(data, type, i, normal_value((uint64_t)i + seed));
    return data;
}

static world_of make(form f)
{
    int64_t width = f.heads * f.head_dim, kv = f.kv_samples ? f.kv_samples : f.samples;
    int64_t q_stride = width + 8 * f.gap, kv_stride = width + 16 * f.gap;
    int64_t o_stride = width + 24 * f.gap;
    world_of w = {.q_count = f.samples * f.q_tokens * q_stride,
                  .k_count = kv * f.kv_tokens * kv_stride,
                  .o_count = f.samples * f.q_tokens * o_stride};
    for (int i = 0; i < BUFFERS; i++) {
        bool keys = i == K || i == V || i == DK || i == DV || i == DK_E || i == DV_E;
        bool floats = i == LSE || i == LSE_EXPECTED || i == BIAS;
        bool outs = i == O || i == O_EXPECTED || i == DO;
        int64_t count = i == BIAS ? f.heads * f.q_tokens * f.kv_tokens
                        : floats  ? f.samples * f.heads * f.q_tokens
                        : keys    ? w.k_count
                        : outs    ? w.o_count
                                  : w.q_count;
        /* what is written begins as what it is compared with: between lines nothing may change */
        int fill = i == O_EXPECTED ? O : i == DQ_E ? DQ : i == DK_E ? DK : i == DV_E ? DV : i;
        w.buffer[i] = filled(count, floats ? WD_F32 : WD_BF16, (uint64_t)fill << 32);
    }
    w.forward = (wd_attention_args){.o = w.buffer[O],
                                    .lse = f.no_lse ? NULL : w.buffer[LSE],
                                    .q = w.buffer[Q],
                                    .k = w.buffer[K],
                                    .v = w.buffer[V],
                                    .bias = f.bias ? w.buffer[BIAS] : NULL,
                                    .type = WD_BF16,
                                    .samples = f.samples,
                                    .kv_samples = kv,
                                    .heads = f.heads,
                                    .head_dim = f.head_dim,
                                    .q_tokens = f.q_tokens,
                                    .kv_tokens = f.kv_tokens,
                                    .last_key_repeat = f.repeat,
                                    .q_stride = q_stride,
                                    .kv_stride = kv_stride,
                                    .o_stride = o_stride,
                                    .scale = 1 / sqrtf((float)f.head_dim)};
    w.backward = (wd_attention_backward_args){.dq = w.buffer[DQ],
                                              .dk = w.buffer[DK],
                                              .dv = w.buffer[DV],
                                              .d_o = w.buffer[DO],
                                              .q = w.buffer[Q],
                                              .k = w.buffer[K],
                                              .v = w.buffer[V],
                                              .o = w.buffer[O_EXPECTED],
                                              .lse = w.buffer[LSE_EXPECTED],
                                              .type = WD_BF16,
                                              .samples = f.samples,
                                              .heads = f.heads,
                                              .head_dim = f.head_dim,
                                              .q_tokens = f.q_tokens,
                                              .kv_tokens = f.kv_tokens,
                                              .last_key_repeat = f.repeat,
                                              .q_stride = q_stride,
                                              .kv_stride = kv_stride,
                                              .o_stride = o_stride,
                                              .scale = 1 / sqrtf((float)f.head_dim)};
    return w;
}

static void release(world_of *w)
{
    for (int i = 0; i < BUFFERS; i++) free(w->buffer[i]);
}

static wd_cuda_work work_of(size_t bytes)
{
    wd_cuda_work work = {.workspace = aligned_alloc(256, (bytes + 255) / 256 * 256),
                         .workspace_bytes = bytes};
    assert_non_null(work.workspace);
    return work;
}

static wd_status launch(wd_cuda_attention *a, const wd_attention_args *args, wd_err *err)
{
    assert_true(wd__cuda_attention_can(a, args));
    wd_cuda_work work = work_of(wd__cuda_attention_workspace(a, args));
    wd_status status = wd__cuda_attention_launch(a, &work, args, err);
    free(work.workspace);
    return status;
}

static wd_status launch_backward(wd_cuda_attention *a, const wd_attention_backward_args *args,
                                 wd_err *err)
{
    assert_true(wd__cuda_attention_backward_can(a, args));
    wd_cuda_work work = work_of(wd__cuda_attention_backward_workspace(a, args));
    wd_status status = wd__cuda_attention_backward_launch(a, &work, args, err);
    free(work.workspace);
    return status;
}

static void same(const world_of *w, int got, int expected, int64_t count, wd_dtype type,
                 int64_t width, tolerance t)
{
    compare_array(&(array){w->buffer[got], type, count, width, true, false},
                  &(array){w->buffer[expected], type, count, width, true, false}, "attention", got,
                  t);
}

/* Both passes against plain C. */
static void check(wd_cuda_attention *a, form f)
{
    wd_err err;
    world_of w = make(f);
    wd_attention_args plain = w.forward;
    void *scratch = malloc(wd_ref_attention_workspace(&plain));
    plain.o = w.buffer[O_EXPECTED];
    plain.lse = w.buffer[LSE_EXPECTED];
    wd_ref_attention(&plain, &(wd_cpu_context){.workspace = scratch});
    free(scratch);
    wd_test_ok(launch(a, &w.forward, &err), &err);
    same(&w, O, O_EXPECTED, w.o_count, WD_BF16, w.forward.o_stride, forward_tolerance);
    if (!f.no_lse)
        same(&w, LSE, LSE_EXPECTED, f.samples * f.heads * f.q_tokens, WD_F32, f.q_tokens,
             (tolerance){1e-5, 1e-5});
    if (!f.bias && !f.kv_samples && (f.q_tokens > 1 || f.kv_tokens > 1)) {
        wd_attention_backward_args back = w.backward;
        scratch = malloc(wd_ref_attention_backward_workspace(&back));
        back.dq = w.buffer[DQ_E], back.dk = w.buffer[DK_E], back.dv = w.buffer[DV_E];
        wd_ref_attention_backward(&back, &(wd_cpu_context){.workspace = scratch});
        free(scratch);
        wd_test_ok(launch_backward(a, &w.backward, &err), &err);
        same(&w, DQ, DQ_E, w.q_count, WD_BF16, w.q_count, backward_tolerance);
        same(&w, DK, DK_E, w.k_count, WD_BF16, w.k_count, backward_tolerance);
        same(&w, DV, DV_E, w.k_count, WD_BF16, w.k_count, backward_tolerance);
    }
    release(&w);
}

static void forms(void **state)
{
    (void)state;
    wd_cuda_attention *a = open_attention();
    check(a, (form){2, 0, 3, 64, 20, 33, 0, false, false, 0});
    check(a, (form){1, 0, 2, 128, 17, 5, 300, false, false, 0});
    check(a, (form){3, 1, 2, 128, 9, 12, 7, false, true, 0});
    check(a, (form){2, 0, 4, 64, 13, 13, 0, true, false, 0});
    check(a, (form){2, 0, 1, 64, 1, 1, 0, false, false, 0});
    check(a, (form){2, 0, 3, 64, 20, 33, 0, false, false, 1});
    check(a, (form){1, 0, 2, 128, 17, 5, 300, false, false, 3});
    check(a, (form){2, 0, 4, 64, 13, 13, 0, true, false, 2});
    close_attention(a);
}

/* Pieces of samples, and of heads. */
static void pieces_of_the_backward_pass(void **state)
{
    (void)state;
    wd_attention_backward_args args = {.q_tokens = 4096, .kv_tokens = 4096};
    static const int64_t cases[][4] = {/* samples and heads, of a launch */
                                       {1, 12, 1, 12}, {1, 40, 1, 10}, {4, 12, 1, 12},
                                       {2, 8, 2, 8},   {8, 4, 4, 4},   {3, 17, 1, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        args.samples = cases[i][0], args.heads = cases[i][1];
        wd_attention_piece piece = wd__attention_piece_of(&args, WD_ATTENTION_PIECE_BYTES);
        assert_int_equal(piece.samples, cases[i][2]);
        assert_int_equal(piece.heads, cases[i][3]);
    }
    /* small pieces of many heads: our own kernel needs more than cuDNN */
    args.samples = 1, args.heads = 4099;
    assert_int_equal(wd__attention_backward_workspace(&args, WD_ATTENTION_PIECE_BYTES),
                     wd__cuda_kernels_workspace(WD_OP_ATTENTION_BACKWARD, &args));
    wd_cuda_attention *a = open_attention();
    int64_t before = wd_the_standin_asked.runs;
    check(a, (form){1000, 0, 48, 64, 2, 1, 0, false, false, 0});
    assert_int_equal(wd_the_standin_asked.runs - before, 1 + 2);
    before = wd_the_standin_asked.runs;
    check(a, (form){1, 0, 40000, 64, 2, 1, 5, false, false, 0});
    assert_int_equal(wd_the_standin_asked.runs - before, 1 + 2);
    close_attention(a);
}

/* Every shape is planned once, and plans of a steady step are those of the first. */
static void plans_are_made_once(void **state)
{
    (void)state;
    wd_cuda_attention *a = open_attention();
    for (int step = 0; step < 3; step++) {
        int64_t plans = wd_the_standin_asked.plans, allocs = wd__alloc_count();
        check(a, (form){2, 0, 1, 64, 5, 7, 0, false, false, 0});
        check(a, (form){3, 0, 1, 64, 5, 7, 0, false, false, 0});
        assert_int_equal(wd_the_standin_asked.plans - plans, step ? 0 : 4); /* of both passes */
        if (step) assert_int_equal(wd__alloc_count(), allocs);
    }
    close_attention(a);
}

/* An engine whose sums have no fixed order is passed over. */
static void engines_that_do_not_repeat_themselves(void **state)
{
    (void)state;
    wd_cuda_attention *a = open_attention();
    wd_the_standin_faults.cudnn_random = true; /* the first engine; plans of it are not counted */
    int64_t plans = wd_the_standin_asked.plans;
    check(a, (form){1, 0, 1, 64, 5, 7, 0, false, false, 0});
    assert_int_equal(wd_the_standin_asked.plans - plans, 2);
    close_attention(a);
}

static void what_goes_the_plain_way(void **state)
{
    (void)state;
    wd_cuda_attention *a = open_attention();
    world_of w = make((form){1, 0, 2, 64, 6, 6, 0, true, false, 0});
    wd_attention_args no = w.forward;
    assert_true(wd__cuda_attention_can(a, &no));
    no.type = WD_F32;
    assert_false(wd__cuda_attention_can(a, &no));
    no = w.forward;
    no.head_dim = 96;
    assert_false(wd__cuda_attention_can(a, &no));
    no = w.forward;
    no.q_stride += 4;
    assert_false(wd__cuda_attention_can(a, &no));
    no = w.forward;
    no.mask = w.buffer[BIAS];
    assert_false(wd__cuda_attention_can(a, &no));
    no = w.forward;
    no.last_key_repeat = 2; /* beside a bias */
    assert_false(wd__cuda_attention_can(a, &no));
    no = w.forward;
    no.k = (const char *)no.k + 2;
    assert_false(wd__cuda_attention_can(a, &no));
    wd_attention_backward_args back = w.backward;
    assert_true(wd__cuda_attention_backward_can(a, &back));
    back.q_tokens = back.kv_tokens = 1;
    assert_false(wd__cuda_attention_backward_can(a, &back));
    release(&w);
    close_attention(a);
}

/* ---- what cuDNN refuses ---- */

static char warning[2048];
static int warnings;

static void keep_warning(void *context, wd_log_level level, const char *message)
{
    (void)context, (void)level;
    warnings++;
    snprintf(warning, sizeof warning, "%s", message);
}

static void described(wd_cuda_attention *a, int64_t i, const char *text)
{
    char found[512] = "";
    const bool there = wd__cuda_attention_describe(a, i, found, sizeof found);
    if (there != (text != NULL) || (text && strncmp(found, text, strlen(text))))
        fail_msg("shape %lld is \"%s\"", (long long)i, found);
}

/* A version that refuses a row gets it once per query. */
static void row_bias_once_per_query(void **state)
{
    (void)state;
    wd_cuda_attention *a = open_attention();
    wd_log_to(keep_warning, NULL, WD_LOG_WARNING);
    warnings = 0;
    wd_the_standin_faults.cudnn_no_row = true;
    const int64_t runs = wd_the_standin_asked.runs;
    check(a, (form){2, 0, 3, 64, 20, 33, 9, false, false, 0});
    check(a, (form){3, 1, 2, 128, 9, 12, 7, false, true, 0});
    assert_int_equal(wd_the_standin_asked.runs - runs, 3);
    assert_int_equal(warnings, 0);
    described(a, 0,
              "attention, 2 x 3 heads of 64, 20 x 33, row bias: engine 6, knobs 24=7, 256 bytes of "
              "workspace, planned in ");
    described(a, 1, "attention backward, 2 x 3 heads of 64, 20 x 33, row bias: engine 6");
    described(a, 2, "attention, 3 x 2 heads of 128, 9 x 12, row bias, one k and v for all samples");
    described(a, 3, NULL);
    described(a, -1, NULL);
    char text[512];
    assert_true(wd__cuda_attention_describe(a, 1, text, sizeof text));
    assert_non_null(strstr(
        text, ", as attention backward, 2 x 3 heads of 64, 20 x 33, row bias once per query"));
    wd_log_to(NULL, NULL, WD_LOG_ERROR);
    close_attention(a);
}

/* The bias of a last key that stands for many is written once, when its shape is prepared, and for
 * each number of keys and of what the last one stands for. No launch has a kernel of ours. */
static void rows_of_the_bias_are_kept(void **state)
{
    (void)state;
    wd_err err;
    wd_cuda_attention *a = open_attention();
    const int64_t own = wd_standin_own_launches();
    const form f = {2, 0, 2, 64, 20, 33, 9, false, false, 0};
    world_of w = make(f);
    wd_test_ok(wd__cuda_attention_prepare(a, &w.forward, &err), &err);
    wd_test_ok(wd__cuda_attention_backward_prepare(a, &w.backward, &err), &err);
    wd_standin_driver_fail_after(0); /* nothing more is asked of the driver */
    check(a, f);
    check(a, f);
    wd_standin_driver_fail_after(-1);
    check(a, (form){2, 0, 2, 64, 20, 33, 8, false, false, 0});
    check(a, (form){2, 0, 2, 64, 20, 34, 9, false, false, 0});
    check(a, f);
    assert_int_equal(wd_standin_own_launches(), own);
    release(&w);
    close_attention(a);
}

/* Whatever call of the driver fails while the bias is written: an error, and it is written later.
 */
static void rows_that_cannot_be_written(void **state)
{
    (void)state;
    static const wd_status expected[] = {WD_OUT_OF_MEMORY, WD_DEVICE_FAULT, WD_DEVICE_FAULT};
    wd_err err;
    wd_cuda_attention *a = open_attention();
    const form f = {2, 0, 2, 64, 20, 33, 9, false, false, 0};
    world_of w = make(f);
    for (int calls = 0; calls < 3; calls++) {
        wd_standin_driver_fail_after(calls);
        wd_test_refused(launch(a, &w.forward, &err), &err, expected[calls],
                        "bias of attention for 33 keys");
    }
    wd_standin_driver_fail_after(-1);
    check(a, f);
    release(&w);
    close_attention(a);
}

/* What cannot be planned our own kernel does, for all numbers of samples and from then on. */
static void own_kernel_takes_over(void **state)
{
    (void)state;
    wd_cuda_attention *a = open_attention();
    wd_log_to(keep_warning, NULL, WD_LOG_WARNING);
    warnings = 0;
    wd_the_standin_faults.cudnn_plan_status =
        WD_CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING;
    check(a, (form){2, 0, 3, 64, 20, 33, 9, false, false, 0});
    assert_int_equal(warnings, 2); /* of both passes */
    assert_non_null(strstr(warning, "cannot plan attention backward, 1 x 3 heads of 64, 20 x 33"));
    assert_non_null(strstr(warning, "CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING: the "
                                    "run-time compiler is missing; so a kernel of this program"));
    wd_the_standin_faults.cudnn_plan_status = 0;
    const int64_t plans = wd_the_standin_asked.plans, own = wd_standin_own_launches();
    check(a, (form){2, 0, 3, 64, 20, 33, 9, false, false, 0});
    check(a, (form){4, 0, 3, 64, 20, 33, 9, false, false, 0});
    assert_int_equal(wd_the_standin_asked.plans, plans);
    assert_int_equal(wd_standin_own_launches() - own, 4);
    assert_int_equal(wd_the_standin_asked.runs, 0);
    assert_int_equal(warnings, 2);
    described(a, 0, "attention, 2 x 3 heads of 64, 20 x 33, row bias: a kernel of this program");
    check(a, (form){2, 0, 3, 64, 21, 33, 9, false, false, 0}); /* another shape */
    assert_int_equal(wd_the_standin_asked.runs, 2);
    wd_the_standin_faults.cudnn_none = true;
    check(a, (form){2, 0, 3, 64, 22, 33, 0, false, false, 0});
    assert_non_null(strstr(warning, "none of its engines repeats its results bit for bit"));
    assert_non_null(strstr(warning, "install a newer cuDNN 9"));
    wd_log_to(NULL, NULL, WD_LOG_ERROR);
    close_attention(a);
}

/* Preparing warns before the first launch. */
static void preparing_warns(void **state)
{
    (void)state;
    wd_err err;
    wd_cuda_attention *a = open_attention();
    world_of w = make((form){2, 0, 2, 64, 6, 6, 0, false, false, 0});
    wd_log_to(keep_warning, NULL, WD_LOG_WARNING);
    warnings = 0;
    wd_the_standin_faults.cudnn_plan_status = WD_CUDNN_STATUS_NOT_SUPPORTED;
    wd_test_ok(wd__cuda_attention_prepare(a, &w.forward, &err), &err);
    wd_test_ok(wd__cuda_attention_backward_prepare(a, &w.backward, &err), &err);
    assert_int_equal(warnings, 2);
    wd_test_ok(launch(a, &w.forward, &err), &err);
    wd_test_ok(launch_backward(a, &w.backward, &err), &err);
    assert_int_equal(warnings, 2);
    wd_log_to(NULL, NULL, WD_LOG_ERROR);
    release(&w);
    close_attention(a);
}

/* Where the plan of many is refused, samples go one by one, with the engine of one. */
static void samples_one_by_one(void **state)
{
    (void)state;
    wd_cuda_attention *a = open_attention();
    wd_the_standin_faults.cudnn_no_many = true;
    const int64_t runs = wd_the_standin_asked.runs;
    check(a, (form){3, 0, 2, 64, 20, 33, 9, false, false, 1});
    check(a, (form){4, 1, 2, 128, 9, 12, 0, false, false, 0});
    check(a, (form){2, 0, 4, 64, 13, 13, 0, true, false, 2});
    assert_int_equal(wd_the_standin_asked.runs - runs, 3 + 3 + 4 + 2);
    close_attention(a);
}

/* A launch that cuDNN refuses, the first of its shape, is no reason to end. Others are. */
static void refused_launches(void **state)
{
    (void)state;
    wd_err err;
    wd_cuda_attention *a = open_attention();
    world_of w = make((form){1, 0, 2, 64, 6, 6, 0, false, false, 0});
    wd_log_to(keep_warning, NULL, WD_LOG_WARNING);
    warnings = 0;
    wd_the_standin_faults.cudnn_run_status = WD_CUDNN_STATUS_NOT_SUPPORTED;
    wd_the_standin_faults.cudnn_fail_run = 1;
    check(a, (form){2, 0, 2, 64, 20, 33, 9, false, false, 0});
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(warning, "failed to run it: CUDNN_STATUS_NOT_SUPPORTED: the launch is "
                                    "refused; so a kernel of this program computes attention, 1 x "
                                    "2 heads of 64, 20 x 33, row bias"));
    const int64_t runs = wd_the_standin_asked.runs;
    check(a, (form){2, 0, 2, 64, 20, 33, 9, false, false, 0});
    assert_int_equal(wd_the_standin_asked.runs - runs, 1); /* the backward pass */
    wd_test_ok(launch(a, &w.forward, &err), &err);
    wd_the_standin_faults.cudnn_fail_run = 1;
    wd_test_refused(launch(a, &w.forward, &err), &err, WD_INTERNAL,
                    "attention, 1 x 2 heads of 64, 6 x 6: engine 6, knobs 24=7: cuDNN 91900 failed "
                    "to run it: CUDNN_STATUS_NOT_SUPPORTED: the launch is refused");
    wd_the_standin_faults.cudnn_run_status = 0;
    wd_the_standin_faults.cudnn_fail_run = 1; /* the context may have failed: nothing takes over */
    wd_test_refused(launch_backward(a, &w.backward, &err), &err, WD_INTERNAL,
                    "attention backward, 1 x 2 heads of 64, 6 x 6: engine 6, knobs 24=7: cuDNN "
                    "91900 failed to run it: CUDNN_STATUS_EXECUTION_FAILED");
    assert_int_equal(warnings, 1);
    wd_log_to(NULL, NULL, WD_LOG_ERROR);
    release(&w);
    close_attention(a);
}

/* What may be temporary is an error, for a later launch by cuDNN would have other bits. */
static void failures_that_may_go_away(void **state)
{
    (void)state;
    wd_err err;
    wd_cuda_attention *a = open_attention();
    world_of w = make((form){2, 0, 2, 64, 6, 6, 0, false, false, 0});
    wd_the_standin_faults.cudnn_plan_status = WD_CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    wd_test_refused(launch(a, &w.forward, &err), &err, WD_OUT_OF_MEMORY,
                    "cannot plan attention, 2 x 2 heads of 64, 6 x 6: engine 6");
    wd_the_standin_faults.cudnn_plan_status = WD_CUDNN_STATUS_EXECUTION_FAILED;
    wd_test_refused(launch(a, &w.forward, &err), &err, WD_INTERNAL, "cannot plan attention");
    wd_the_standin_faults.cudnn_plan_status = 0;
    const int64_t runs = wd_the_standin_asked.runs;
    wd_test_ok(launch(a, &w.forward, &err), &err);
    assert_int_equal(wd_the_standin_asked.runs - runs, 1);
    release(&w);
    close_attention(a);
}

/* Versions with known faults in attention's backward pass. */
static void old_versions_are_refused(void **state)
{
    (void)state;
    wd_err err;
    wd_cuda_attention *a;
    static const struct {
        size_t number;
        const char *said;
    } versions[] = {{91002, "cuDNN 9.10.2 has known faults: expected 9.18 or later"},
                    {91799, "cuDNN 9.17.99 has known faults"},
                    {8906, "expected cuDNN 9, found version number 8906"}};
    const wd_cuda_gpu *gpu = wd_standin_gpu();
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        wd_the_standin_faults.cudnn_version = versions[i].number;
        wd_test_refused(wd__cuda_attention_open(&a, gpu, &err), &err, WD_UNSUPPORTED,
                        versions[i].said);
    }
    wd_the_standin_faults.cudnn_version = 91800;
    wd_test_ok(wd__cuda_attention_open(&a, gpu, &err), &err);
    wd_the_standin_faults.cudnn_version = 0;
    close_attention(a);
}

/* Whatever allocation of ours fails: an error, and nothing is left. */
static void without_memory(void **state)
{
    (void)state;
    wd_err err;
    world_of w = make((form){2, 0, 2, 64, 6, 6, 3, false, false, 0});
    for (int64_t n = 1;; n++) {
        wd_cuda_attention *a;
        const wd_cuda_gpu *gpu = wd_standin_gpu();
        wd__alloc_fail_at(n);
        wd_status status = wd__cuda_attention_open(&a, gpu, &err);
        if (status == WD_OK) status = launch(a, &w.forward, &err);
        wd__alloc_fail_at(0);
        wd__cuda_attention_close(a);
        assert_int_equal(wd_the_standin_asked.descriptors, 0);
        if (status == WD_OK) break;
        assert_int_equal(status, WD_OUT_OF_MEMORY);
    }
    release(&w);
}

static void version_is_named(void **state)
{
    (void)state;
    char text[64] = "";
    wd_cuda_attention *a = open_attention();
    wd__cuda_attention_version(a, text, sizeof text);
    assert_string_equal(text, "cuDNN 9.19.0");
    close_attention(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms),
        cmocka_unit_test(pieces_of_the_backward_pass),
        cmocka_unit_test(plans_are_made_once),
        cmocka_unit_test(engines_that_do_not_repeat_themselves),
        cmocka_unit_test(what_goes_the_plain_way),
        cmocka_unit_test(old_versions_are_refused),
        cmocka_unit_test(row_bias_once_per_query),
        cmocka_unit_test(rows_of_the_bias_are_kept),
        cmocka_unit_test(rows_that_cannot_be_written),
        cmocka_unit_test(own_kernel_takes_over),
        cmocka_unit_test(preparing_warns),
        cmocka_unit_test(samples_one_by_one),
        cmocka_unit_test(refused_launches),
        cmocka_unit_test(failures_that_may_go_away),
        cmocka_unit_test(without_memory),
        cmocka_unit_test(version_is_named),
    };
    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
