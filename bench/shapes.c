/* Products and attention in the shapes of Wan's transformers, one launch each. They show the speed
 * of a device's libraries without the rest of the program. A shape that would take longer than
 * SHAPE_S at the measured peak, or that does not fit into memory, is left out, with a line that
 * says so. */
#include <math.h>
#include <stdio.h>

#include "bench/bench.h"
#include "dev/fill_random.h"
#include "dev/ops.h"

static const double SHAPE_S = 1;

typedef struct model {
    const char *name;
    int64_t width, ffn, heads; /* heads of 128 */
} model;

static const model models[] = {{"1.3B", 1536, 8960, 12}, {"14B", 5120, 13824, 40}};
static const int64_t tokens[] = {1024, 1560, 4096, 8192, 32768};

enum { MODELS = 2, TOKENS = 5, HEAD_DIM = 128, TEXT = 512 };

/* Device memory of one shape. It has random values: see dev/fill_random.h. */
typedef struct operands {
    void *block[8];
    int count;
} operands;

static wd_status take(void **out, operands *o, int64_t elements, wd_dtype type,
                      wd_bench_context *bench, wd_err *err)
{
    void *block;
    WD_TRY(wd_device_alloc(&block, bench->device, (size_t)elements * wd_dtype_bytes(type), "bench",
                           err));
    o->block[o->count++] = *out = block;
    return wd_fill_random(bench->queue, block, type, elements, 1, err);
}

static void free_operands(operands *o, wd_bench_context *bench)
{
    wd_queue_wait(bench->queue);
    for (int i = 0; i < o->count; i++) wd_device_free(bench->device, o->block[i]);
}

typedef struct operation {
    wd_op op;
    union {
        wd_matmul_args matmul;
        wd_attention_args attention;
        wd_attention_backward_args backward;
    };
} operation;

static size_t args_bytes(const operation *o)
{
    if (o->op == WD_OP_MATMUL) return sizeof o->matmul;
    return o->op == WD_OP_ATTENTION ? sizeof o->attention : sizeof o->backward;
}

static void launch(wd_queue *queue, const void *context)
{
    const operation *o = context;
    wd_queue_launch(queue, o->op, &o->matmul, args_bytes(o));
}

static wd_status reserve(const operation *o, wd_bench_context *bench, wd_err *err)
{
    wd_queue *rehearsal;
    WD_TRY(wd_rehearsal_open(&rehearsal, bench->queue, err));
    launch(rehearsal, o);
    return wd_rehearsal_close(rehearsal, bench->queue, err);
}

/* Reports a shape. A shape that does not fit is left out; any other failure is an error. */
static wd_status report(const char *name, const operation *o, wd_status status,
                        wd_bench_context *bench, wd_err *err)
{
    if (status == WD_OK) status = reserve(o, bench, err);
    if (status == WD_OUT_OF_MEMORY) {
        wd_bench_leave_out(bench, name, "it does not fit into memory");
        return WD_OK;
    }
    WD_TRY(status);
    const double flops = wd_op_flops(o->op, &o->matmul);
    wd_bench_report(bench, name, WD_BF16, wd_bench_time(bench, launch, o), flops);
    return WD_OK;
}

static bool too_long(const char *name, double flops, wd_bench_context *bench)
{
    char why[64];
    const double seconds = flops / bench->peak[WD_BF16];
    if (seconds <= SHAPE_S) return false;
    snprintf(why, sizeof why, "%.1f s at the peak", seconds);
    wd_bench_leave_out(bench, name, why);
    return true;
}

/* Measures c[rows, n] = act(a[rows, k] w[n, k]T + bias), as in a Linear layer. */
static wd_status product(const char *name, int64_t rows, int64_t n, int64_t k, wd_act act,
                         wd_bench_context *bench, wd_err *err)
{
    operands o = {0};
    operation m = {WD_OP_MATMUL,
                   {{.c_type = WD_BF16,
                     .a_type = WD_BF16,
                     .b_type = WD_BF16,
                     .bias_type = WD_BF16,
                     .transpose_b = true,
                     .m = rows,
                     .n = n,
                     .k = k,
                     .lda = k,
                     .ldb = k,
                     .ldc = n,
                     .batch = 1,
                     .act = act}}};
    if (too_long(name, 2.0 * (double)rows * (double)n * (double)k, bench)) return WD_OK;
    wd_status status;
    WD_TRY_OUT(take((void **)&m.matmul.a, &o, rows * k, WD_BF16, bench, err));
    WD_TRY_OUT(take((void **)&m.matmul.b, &o, n * k, WD_BF16, bench, err));
    WD_TRY_OUT(take((void **)&m.matmul.bias, &o, n, WD_BF16, bench, err));
    WD_TRY_OUT(take(&m.matmul.c, &o, rows * n, WD_BF16, bench, err));
out:
    status = report(name, &m, status, bench, err);
    free_operands(&o, bench);
    return status;
}

static wd_status attend(const char *name, const model *m, int64_t queries, int64_t keys,
                        bool backward, wd_bench_context *bench, wd_err *err)
{
    operands o = {0};
    const int64_t stride = m->heads * HEAD_DIM, q = queries * stride, k = keys * stride;
    wd_attention_args f = {.type = WD_BF16,
                           .samples = 1,
                           .kv_samples = 1,
                           .heads = m->heads,
                           .head_dim = HEAD_DIM,
                           .q_tokens = queries,
                           .kv_tokens = keys,
                           .q_stride = stride,
                           .kv_stride = stride,
                           .o_stride = stride,
                           .scale = 1.0f / sqrtf(HEAD_DIM)};
    wd_attention_backward_args b = {.type = WD_BF16,
                                    .samples = 1,
                                    .heads = m->heads,
                                    .head_dim = HEAD_DIM,
                                    .q_tokens = queries,
                                    .kv_tokens = keys,
                                    .q_stride = stride,
                                    .kv_stride = stride,
                                    .o_stride = stride,
                                    .scale = f.scale};
    operation run = {.op = backward ? WD_OP_ATTENTION_BACKWARD : WD_OP_ATTENTION};
    if (too_long(name, (backward ? 10.0 : 4.0) * (double)(q * keys), bench)) return WD_OK;
    wd_status status;
    WD_TRY_OUT(take((void **)&f.q, &o, q, WD_BF16, bench, err));
    WD_TRY_OUT(take((void **)&f.k, &o, k, WD_BF16, bench, err));
    WD_TRY_OUT(take((void **)&f.v, &o, k, WD_BF16, bench, err));
    WD_TRY_OUT(take(&f.o, &o, q, WD_BF16, bench, err));
    if (backward) {
        WD_TRY_OUT(take((void **)&f.lse, &o, m->heads * queries, WD_F32, bench, err));
        wd_op_fill(bench->queue, &(wd_fill_args){f.lse, WD_F32, m->heads * queries,
                                                 logf((float)keys) + 0.5f}); /* of such scores */
        WD_TRY_OUT(take(&b.dq, &o, q, WD_BF16, bench, err));
        WD_TRY_OUT(take(&b.dk, &o, k, WD_BF16, bench, err));
        WD_TRY_OUT(take(&b.dv, &o, k, WD_BF16, bench, err));
        b.q = f.q, b.k = f.k, b.v = f.v, b.o = b.d_o = f.o, b.lse = f.lse;
    }
out:
    if (backward)
        run.backward = b;
    else
        run.attention = f;
    status = report(name, &run, status, bench, err);
    free_operands(&o, bench);
    return status;
}

wd_status wd_bench_shapes(wd_bench_context *bench, wd_err *err)
{
    char name[64];
    for (int i = 0; i < MODELS * TOKENS; i++) {
        const model *m = &models[i / TOKENS];
        const int64_t rows = tokens[i % TOKENS];
#define NAME(what)                                                                                 \
    (snprintf(name, sizeof name, "%s %s, %lld", m->name, what, (long long)rows), name)
        WD_TRY(product(NAME("product"), rows, m->width, m->width, WD_ACT_NONE, bench, err));
        WD_TRY(product(NAME("feed-forward, GELU"), rows, m->ffn, m->width, WD_ACT_GELU_TANH, bench,
                       err));
        WD_TRY(product(NAME("feed-forward, out"), rows, m->width, m->ffn, WD_ACT_NONE, bench, err));
        WD_TRY(attend(NAME("attention"), m, rows, rows, false, bench, err));
        WD_TRY(attend(NAME("attention, backward"), m, rows, rows, true, bench, err));
        WD_TRY(attend(NAME("attention to text"), m, rows, TEXT, false, bench, err));
#undef NAME
    }
    return WD_OK;
}
