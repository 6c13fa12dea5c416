/* Matrix products and convolutions: see cpu/matmul.h.
 *
 * Convolutions compute in fp32 for every storage type: only the VAE uses them, and it is fp32. */
#include "dev/cpu/matmul.h"

#include <assert.h>

#include "core/checked.h"
#include "core/parallel.h"
#include "dev/cpu/isa/isa.h"
#include "dev/cpu/onednn.h"
#include "dev/cpu/winograd_plan.h"
#include "dev/ops.h"

enum { ALIGN = 64, DEPTH_MAX = 1024 };

static wd_onednn_product key_of(const wd_matmul_args *a)
{
    const wd_onednn_product p = {
        .m = a->m,
        .n = a->n,
        .k = a->k,
        .lda = a->lda,
        .ldb = a->ldb,
        .ldc = a->ldc,
        .type = a->a_type,
        .c_type = a->c_type,
        .bias_type = a->bias ? (int64_t)a->bias_type : -1,
        .transpose_a = a->transpose_a,
        .transpose_b = a->transpose_b,
        .add = a->beta != 0,
        .gelu = a->act == WD_ACT_GELU_TANH,
        .threads = wd_parallel_threads(),
    };
    assert(a->a_type == a->b_type && (a->beta == 0 || (a->beta == 1 && a->act == WD_ACT_NONE)));
    return p;
}

/* Whether a sum has too many terms for oneDNN. Weight gradients sum over rows. oneDNN divides a sum
 * of 2048 and more terms among its threads if the result is narrow (seen in 2.6: up to 160
 * columns), so its bits would depend on their number. Such sums are computed in pieces, which are
 * added in order. */
static bool is_deep(const wd_matmul_args *a)
{
    return a->transpose_a && a->k > DEPTH_MAX && a->c_type == WD_F32 && !a->act;
}

/* Product `i` of the batch, terms [first, first + DEPTH_MAX) of a deep one. */
static wd_matmul_args piece_of(const wd_matmul_args *a, int64_t i, int64_t first)
{
    wd_matmul_args piece = *a;
    int64_t element = (int64_t)wd_dtype_bytes(a->a_type), b_step = a->transpose_b ? 1 : a->ldb;
    piece.a = (const char *)a->a + (i * a->stride_a + first * a->lda) * element;
    piece.b = (const char *)a->b + (i * a->stride_b + first * b_step) * element;
    piece.c = (char *)a->c + i * a->stride_c * (int64_t)wd_dtype_bytes(a->c_type);
    if (!is_deep(a)) return piece;
    piece.k = a->k - first < DEPTH_MAX ? a->k - first : DEPTH_MAX;
    if (first) piece.beta = 1, piece.bias = NULL;
    return piece;
}

/* Whether the result has gaps between its rows. For such results oneDNN (2.6) uses a kernel whose
 * sums depend on the number of rows, and differ from those of its other kernel, so that queries,
 * keys and values in three products would differ from those in one. They are computed without gaps
 * in the workspace, and then copied. */
static bool is_strided(const wd_matmul_args *a)
{
    return a->ldc != a->n && a->beta == 0;
}

static size_t dense_bytes(const wd_matmul_args *a)
{
    return wd_round_up((size_t)(a->m * a->n) * wd_dtype_bytes(a->c_type), ALIGN);
}

static void place_rows(const wd_matmul_args *to, const void *dense, wd_cpu_context *context)
{
    const wd_strided_copy_args args = {.to = to->c,
                                       .from = dense,
                                       .to_type = to->c_type,
                                       .from_type = to->c_type,
                                       .ndim = 2,
                                       .dim = {to->m, to->n},
                                       .to_stride = {to->ldc, 1},
                                       .from_stride = {to->n, 1},
                                       .alpha = 1};
    context->table->entry[WD_OP_STRIDED_COPY].kernel(&args, context);
}

static void run_piece(const wd_matmul_args *piece, wd_cpu_context *context)
{
    wd_matmul_args dense = *piece;
    char *workspace = context->workspace;
    if (is_strided(piece)) {
        dense.c = workspace;
        dense.ldc = dense.n;
        workspace += dense_bytes(piece);
    }
    const wd_onednn_product p = key_of(&dense);
    wd__onednn_product_run(dense.c, dense.a, dense.b, dense.bias, &p, workspace);
    if (is_strided(piece)) place_rows(piece, dense.c, context);
}

static size_t piece_workspace(const wd_matmul_args *piece)
{
    wd_matmul_args dense = *piece;
    if (is_strided(piece)) dense.ldc = dense.n;
    const wd_onednn_product p = key_of(&dense);
    return wd__onednn_product_scratch(&p) + (is_strided(piece) ? dense_bytes(piece) : 0);
}

/* Computes the products of a batch one by one, since the bits of oneDNN's own batches depend on the
 * number of threads. */
static void product(const void *args, wd_cpu_context *context)
{
    const wd_matmul_args *a = args;
    int64_t step = is_deep(a) ? DEPTH_MAX : a->k;
    for (int64_t i = 0; i < a->batch; i++)
        for (int64_t first = 0; first < a->k; first += step) {
            const wd_matmul_args piece = piece_of(a, i, first);
            run_piece(&piece, context);
        }
}

/* All pieces between the first and the last one have the same shape, so one of them is asked. */
static size_t product_workspace(const void *args)
{
    const wd_matmul_args *a = args;
    const int64_t step = is_deep(a) ? DEPTH_MAX : a->k;
    const int64_t last = a->k > step ? (a->k - 1) / step * step : 0;
    size_t bytes = 0;
    for (int64_t first = 0; first < a->k;) {
        const wd_matmul_args piece = piece_of(a, 0, first);
        const size_t needs = piece_workspace(&piece);
        if (needs > bytes) bytes = needs;
        if (!first)
            first = step;
        else
            first = first < last ? last : a->k;
    }
    return bytes;
}

static bool has_product(const wd_matmul_args *a)
{
    return a->a_type == WD_BF16 || (a->c_type == WD_F32 && (!a->bias || a->bias_type == WD_F32));
}

/* Whether oneDNN's kernel gives the same bits for any number of threads. */
static bool is_exact(const wd_matmul_args *a)
{
    wd_matmul_args piece = piece_of(a, 0, 0);
    if (is_strided(&piece)) piece.ldc = piece.n;
    const wd_onednn_product p = key_of(&piece);
    return wd__onednn_product_is_exact(&p);
}

static void matmul(const void *args, wd_cpu_context *context)
{
    if (has_product(args) && is_exact(args))
        product(args, context);
    else
        context->table->tiles.kernel(args, context);
}

static size_t matmul_workspace(const void *args)
{
    return has_product(args) && is_exact(args) ? product_workspace(args)
                                               : wd_isa_matmul_workspace(args);
}

/* The product where isa/matmul.c computes those of bf16. */
static void matmul_f32(const void *args, wd_cpu_context *context)
{
    const wd_matmul_args *a = args;
    if (a->a_type == WD_F32)
        matmul(args, context);
    else
        context->table->tiles.kernel(args, context);
}

static size_t matmul_f32_workspace(const void *args)
{
    const wd_matmul_args *a = args;
    return a->a_type == WD_F32 ? matmul_workspace(args) : wd_isa_matmul_workspace(args);
}

/* ---- convolution ---- */

static void convert(void *to, wd_dtype to_type, const void *from, wd_dtype from_type, int64_t count,
                    wd_cpu_context *context)
{
    if (!count) return;
    const wd_cast_args args = {
        .to = to, .from = from, .to_type = to_type, .from_type = from_type, .count = count};
    context->table->entry[WD_OP_CAST].kernel(&args, context);
}

static wd_onednn_conv conv_key(const wd_conv_args *a)
{
    wd_onednn_conv c = {.samples = a->samples,
                        .ci = a->ci,
                        .co = a->co,
                        .taps = a->tap1 - a->tap0,
                        .has_bias = a->bias != NULL,
                        .threads = wd_parallel_threads()};
    for (int i = 0; i < 3; i++) {
        c.in[i] = a->in[i];
        c.out[i] = a->out[i];
        c.kernel[i] = a->kernel[i];
        c.stride[i] = a->stride[i];
        c.pad_before[i] = a->pad_before[i];
        c.pad_after[i] = a->pad_after[i];
    }
    return c;
}

/* The numbers of elements of x, w, bias and y that are converted to fp32 in the workspace; 0: the
 * array is fp32. */
typedef struct conv_widened {
    int64_t x, w, bias, y;
    size_t bytes;
} conv_widened;

static conv_widened conv_widen(const wd_conv_args *a)
{
    conv_widened c = {0};
    int64_t in = a->samples * a->in[0] * a->in[1] * a->in[2] * a->ci;
    int64_t out = a->samples * a->out[0] * a->out[1] * a->out[2] * a->co;
    if (a->type != WD_F32) c.x = in, c.y = out;
    if (a->w_type != WD_F32) {
        c.w = a->co * a->ci * a->kernel[0] * a->kernel[1] * a->kernel[2];
        c.bias = a->bias ? a->co : 0;
    }
    const int64_t counts[] = {c.x, c.w, c.bias, c.y};
    for (int i = 0; i < 4; i++) c.bytes += wd_round_up((size_t)counts[i] * sizeof(float), ALIGN);
    return c;
}

/* The next `count` floats of the workspace, filled with `from`; `from` itself where count is 0. */
static const float *take(char **workspace, const void *from, wd_dtype type, int64_t count,
                         wd_cpu_context *context)
{
    if (!count) return from;
    float *to = (float *)*workspace;
    *workspace += wd_round_up((size_t)count * sizeof(float), ALIGN);
    if (from) convert(to, WD_F32, from, type, count, context);
    return to;
}

/* The same convolution with fp32 operands, which are converted in the workspace; *workspace is
 * moved behind them. */
static wd_conv_args widened(const wd_conv_args *a, char **workspace, wd_cpu_context *context)
{
    conv_widened wide = conv_widen(a);
    wd_conv_args f = *a;
    f.x = take(workspace, a->x, a->type, wide.x, context);
    f.w = take(workspace, a->w, a->w_type, wide.w, context);
    f.bias = take(workspace, a->bias, a->w_type, wide.bias, context);
    if (wide.y) f.y = (void *)(uintptr_t)take(workspace, NULL, WD_F32, wide.y, context);
    f.type = f.w_type = WD_F32;
    return f;
}

static void conv(const void *args, wd_cpu_context *context)
{
    const wd_conv_args *a = args;
    char *workspace = context->workspace;
    const wd_conv_args f = widened(a, &workspace, context);
    if (wd__winograd_takes(a)) {
        wd_cpu_context rest = *context;
        rest.workspace = workspace;
        rest.workspace_bytes -= (size_t)(workspace - (char *)context->workspace);
        context->table->winograd.kernel(&f, &rest);
    } else {
        const wd_onednn_conv c = conv_key(a);
        const float *w = (const float *)f.w + a->tap0 * a->kernel[1] * a->kernel[2];
        wd__onednn_conv_run(f.y, f.x, w, f.bias, &c, workspace);
    }
    convert(a->y, a->type, f.y, WD_F32, conv_widen(a).y, context);
}

static size_t conv_workspace(const void *args)
{
    size_t bytes = conv_widen(args).bytes;
    if (wd__winograd_takes(args)) return bytes + wd_isa_conv_workspace(args);
    const wd_onednn_conv c = conv_key(args);
    return bytes + wd__onednn_conv_scratch(&c);
}

void wd__cpu_use_onednn(wd_cpu_table *table, wd_cpu_isa isa)
{
    table->winograd = table->entry[WD_OP_CONV];
    table->entry[WD_OP_CONV] = (wd_cpu_entry){conv, conv_workspace};
    if (isa < WD_CPU_ISA_avx512) return;
    table->tiles = table->entry[WD_OP_MATMUL];
    table->entry[WD_OP_MATMUL] = isa == WD_CPU_ISA_avx512_bf16
                                     ? (wd_cpu_entry){matmul, matmul_workspace}
                                     : (wd_cpu_entry){matmul_f32, matmul_f32_workspace};
}
