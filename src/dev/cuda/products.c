/* Matrix products by cuBLASLt: what library.h declares of them.
 *
 * A launch is staged if cuBLASLt does not know its dtypes, and cut into pieces of rows if the check
 * at open found that a row's bits depend on the number of rows, or if its algorithm does not take
 * its number of rows; what remains is one call of cublasLtMatmul with the algorithm of its key. See
 * product_key.h. Here are also the texts of products, for errors, warnings and reports.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "core/log.h"
#include "core/memory.h"
#include "dev/cuda/products_impl.h"

/* ---- open and close ---- */

wd_status wd__cuda_products_open(wd_cuda_products **out, const wd_cuda_gpu *gpu, wd_device *device,
                                 wd_err *err)
{
    wd_cuda_products *p;
    *out = NULL;
    if (!gpu->api->has[WD_CUDA_LT])
        return wd_fail(err, WD_UNSUPPORTED, "matrix products on a GPU need cuBLASLt");
    WD_TRY(wd_alloc((void **)&p, 1, sizeof *p, "the products of a GPU", err));
    p->gpu = gpu;
    p->lt = &gpu->api->lt;
    pthread_mutex_init(&p->lock, NULL);
    wd_lt_status refused = p->lt->create(&p->handle);
    wd_status status = WD_OK;
    if (refused) {
        p->handle = NULL;
        status =
            wd_fail(err, refused == WD_LT_STATUS_ALLOC_FAILED ? WD_OUT_OF_MEMORY : WD_UNSUPPORTED,
                    "cuBLASLt %zu does not work on this GPU: %s", p->lt->get_version(),
                    p->lt->status_name(refused));
    }
    if (status == WD_OK) status = wd__products_check(p, device, err);
    if (status == WD_INTERNAL) { /* it refused a product */
        status = WD_UNSUPPORTED;
        if (err) err->status = status;
    }
    if (status == WD_OK)
        *out = p;
    else
        wd__cuda_products_close(p);
    return status;
}

void wd__cuda_products_close(wd_cuda_products *p)
{
    if (!p) return;
    wd__product_plans_close(p);
    if (p->handle) p->lt->destroy(p->handle);
    pthread_mutex_destroy(&p->lock);
    wd_free(p);
}

void wd__cuda_products_version(const wd_cuda_products *p, char *out, size_t bytes)
{
    size_t at = strlen(out), version = p->lt->get_version();
    WD_REQUIRE(at < bytes, "the text of versions is full");
    snprintf(out + at, bytes - at, "cuBLASLt %zu.%zu.%zu", version / 10000, version / 100 % 100,
             version % 100);
}

/* ---- what they can, and take ---- */

bool wd__cuda_products_can(wd_cuda_products *p, const wd_matmul_args *args)
{
    (void)p;
    return wd__product_can(args);
}

size_t wd__cuda_products_workspace(wd_cuda_products *p, const wd_matmul_args *args)
{
    return wd__product_workspace(&p->rule, args);
}

/* ---- launches ---- */

/* Our own kernels with no workspace. */
static wd_status own(const wd_cuda_work *work, wd_op op, const void *args, wd_err *err)
{
    wd_cuda_work without = *work;
    without.workspace = NULL;
    without.workspace_bytes = 0;
    return wd__cuda_kernels_launch(&without, op, args, err);
}

/* One call of cublasLtMatmul; the workspace begins with the library's, of `room` bytes. */
static wd_lt_status call(const wd_cuda_products *p, const wd_product_plan_lt *plan,
                         const wd_cuda_work *work, const wd_matmul_args *args, size_t room)
{
    const float one = 1, beta = args->beta;
    wd_lt_status status = WD_LT_STATUS_SUCCESS;
    if (args->bias)
        status = p->lt->product_set(plan->product, WD_LT_PRODUCT_BIAS_POINTER, &args->bias,
                                    sizeof args->bias);
    if (status) return status;
    return p->lt->matmul(p->handle, plan->product, &one, args->b, plan->our_b, args->a, plan->our_a,
                         &beta, args->c, plan->our_c, args->c, plan->our_c, &plan->algorithm,
                         work->workspace, room, work->stream);
}

/* One call of cublasLtMatmul, or of our own kernel where that has no algorithm or refuses to launch
 * it; `room` as above. WD_UNSUPPORTED: the algorithm does not take this number of rows, and nothing
 * was launched. */
static wd_status multiply(wd_cuda_products *p, const wd_cuda_work *work, const wd_matmul_args *args,
                          size_t room, wd_err *err)
{
    wd_product_plan_lt *plan;
    pthread_mutex_lock(&p->lock);
    wd_status status = wd__product_plan_find(&plan, p, args, room, err);
    if (status == WD_OK && !plan->refused) {
        const wd_lt_status refusal = call(p, plan, work, args, room);
        if (!refusal)
            plan->launched = true;
        else if (!wd__product_plan_give_up(plan, p, refusal, args))
            status = wd__products_refused(p, WD_INTERNAL, refusal, "the launch", args, plan, err);
    }
    const bool ours = status == WD_OK && plan->refused;
    pthread_mutex_unlock(&p->lock);
    return ours ? own(work, WD_OP_MATMUL, args, err) : status;
}

/* to = from, both in rows of `width` elements. */
static wd_status copy_rows(const wd_cuda_work *work, void *to, wd_dtype to_type, int64_t to_line,
                           const void *from, wd_dtype from_type, int64_t from_line, int64_t rows,
                           int64_t width, wd_err *err)
{
    return own(work, WD_OP_STRIDED_COPY,
               &(wd_strided_copy_args){.to = to,
                                       .from = from,
                                       .to_type = to_type,
                                       .from_type = from_type,
                                       .ndim = 2,
                                       .dim = {rows, width},
                                       .to_stride = {to_line, 1},
                                       .from_stride = {from_line, 1},
                                       .alpha = 1},
               err);
}

/* The address in `space`, 256-byte aligned, that is aligned as `address` is: keys have alignment.
 */
static char *aligned_as(char *space, const void *address)
{
    return space + (uintptr_t)address % WD_PRODUCT_ALIGN;
}

/* The rows that are too few for a piece, in workspace at `space`: the rows behind them are zero.
 * The piece has the lines and the alignment of the product, so that it has the same key and
 * algorithm. `space` NULL: the plan has no memory for the piece, and it takes the end of the
 * library's. */
static wd_status multiply_rest(wd_cuda_products *p, const wd_cuda_work *work,
                               const wd_matmul_args *args, char *space, wd_err *err)
{
    const int64_t missing = WD_PRODUCT_CHUNK_ROWS - args->m;
    const size_t a_bytes = wd__product_piece_a_bytes(args);
    size_t room = WD_PRODUCT_WORKSPACE;
    wd_matmul_args piece = *args;
    if (!space) {
        const size_t bytes = a_bytes + wd__product_piece_c_bytes(args);
        if (bytes > room)
            return wd__products_refused(p, WD_UNSUPPORTED, WD_LT_STATUS_NOT_SUPPORTED,
                                        "the number of rows", args, NULL, err);
        room -= bytes;
        space = (char *)work->workspace + room;
    }
    char *a = aligned_as(space, args->a);
    piece.a = a;
    piece.c = aligned_as(space + a_bytes, args->c);
    piece.m = WD_PRODUCT_CHUNK_ROWS;
    WD_TRY(copy_rows(work, a, args->a_type, args->lda, args->a, args->a_type, args->lda, args->m,
                     args->k, err));
    WD_TRY(
        own(work, WD_OP_FILL,
            &(wd_fill_args){.to = a + (size_t)(args->m * args->lda) * wd_dtype_bytes(args->a_type),
                            .type = args->a_type,
                            .count = missing * args->lda},
            err));
    WD_TRY(own(work, WD_OP_FILL,
               &(wd_fill_args){
                   .to = piece.c, .type = args->c_type, .count = WD_PRODUCT_CHUNK_ROWS * args->ldc},
               err));
    if (args->beta != 0)
        WD_TRY(copy_rows(work, piece.c, args->c_type, args->ldc, args->c, args->c_type, args->ldc,
                         args->m, args->n, err));
    WD_TRY(multiply(p, work, &piece, room, err));
    return copy_rows(work, args->c, args->c_type, args->ldc, piece.c, args->c_type, args->ldc,
                     args->m, args->n, err);
}

/* In pieces of WD_PRODUCT_CHUNK_ROWS rows, matrix by matrix; `space` as for multiply_rest. */
static wd_status multiply_cut(wd_cuda_products *p, const wd_cuda_work *work,
                              const wd_matmul_args *args, char *space, wd_err *err)
{
    int64_t size = (int64_t)wd_dtype_bytes(args->a_type);
    int64_t c_size = (int64_t)wd_dtype_bytes(args->c_type);
    for (int64_t i = 0; i < args->batch; i++)
        for (int64_t row = 0; row < args->m; row += WD_PRODUCT_CHUNK_ROWS) {
            int64_t left = args->m - row;
            wd_matmul_args piece = *args;
            piece.batch = 1;
            piece.a = (const char *)args->a + (i * args->stride_a + row * args->lda) * size;
            piece.b = (const char *)args->b + i * args->stride_b * size;
            piece.c = (char *)args->c + (i * args->stride_c + row * args->ldc) * c_size;
            piece.m = left < WD_PRODUCT_CHUNK_ROWS ? left : WD_PRODUCT_CHUNK_ROWS;
            if (piece.m == WD_PRODUCT_CHUNK_ROWS)
                WD_TRY(multiply(p, work, &piece, WD_PRODUCT_WORKSPACE, err));
            else
                WD_TRY(multiply_rest(p, work, &piece, space, err));
        }
    return WD_OK;
}

/* Where the algorithm does not take the number of rows, it is asked for pieces. The bits are the
 * same: the check at open has found that a row's bits do not depend on the number of rows. Pieces
 * of many matrices would have another key, so that these remain refused. */
static wd_status multiply_any(wd_cuda_products *p, const wd_cuda_work *work,
                              const wd_matmul_args *args, char *space, wd_err *err)
{
    if (wd__product_is_cut(&p->rule, args)) return multiply_cut(p, work, args, space, err);
    const wd_status status = multiply(p, work, args, WD_PRODUCT_WORKSPACE, err);
    if (status != WD_UNSUPPORTED || args->batch > 1) return status;
    return multiply_cut(p, work, args, NULL, err);
}

/* By way of an fp32 result in workspace at `stage`. */
static wd_status multiply_staged(wd_cuda_products *p, const wd_cuda_work *work,
                                 const wd_matmul_args *args, char *stage, wd_err *err)
{
    wd_matmul_args inner = wd__product_staged(args, stage);
    int64_t rows = args->batch * args->m;
    if (args->bias)
        WD_TRY(copy_rows(work, stage, WD_F32, args->n, args->bias, args->bias_type, 0, rows,
                         args->n, err));
    WD_TRY(multiply_any(p, work, &inner, stage + wd__product_stage_bytes(args), err));
    if (args->act != WD_ACT_NONE)
        WD_TRY(own(
            work, WD_OP_ACTIVATION,
            &(wd_activation_args){
                .y = stage, .x = stage, .type = WD_F32, .count = rows * args->n, .act = args->act},
            err));
    return own(work, WD_OP_STRIDED_COPY,
               &(wd_strided_copy_args){.to = args->c,
                                       .from = stage,
                                       .to_type = args->c_type,
                                       .from_type = WD_F32,
                                       .ndim = 3,
                                       .dim = {args->batch, args->m, args->n},
                                       .to_stride = {args->stride_c, args->ldc, 1},
                                       .from_stride = {inner.stride_c, args->n, 1},
                                       .alpha = 1,
                                       .beta = args->beta},
               err);
}

wd_status wd__cuda_products_launch(wd_cuda_products *p, const wd_cuda_work *work,
                                   const wd_matmul_args *args, wd_err *err)
{
    char *space = (char *)work->workspace + WD_PRODUCT_WORKSPACE;
    WD_REQUIRE(wd__product_can(args), "a product that cuBLASLt cannot make was launched");
    WD_REQUIRE(work->workspace_bytes >= wd__product_workspace(&p->rule, args),
               "a product has %zu bytes of workspace, not %zu", work->workspace_bytes,
               wd__product_workspace(&p->rule, args));
    wd_status status = wd__product_is_staged(&p->rule, args)
                           ? multiply_staged(p, work, args, space, err)
                           : multiply_any(p, work, args, space, err);
    if (status == WD_UNSUPPORTED) status = err->status = WD_INTERNAL;
    return status;
}

/* ---- products as text ---- */

enum { TEXT = 640 }; /* bytes, for every text here: numbers have at most 20 digits */

/* Appends to `text`, which has TEXT bytes. */
__attribute__((format(printf, 2, 3))) static void add(char *text, const char *format, ...)
{
    const size_t at = strlen(text);
    va_list args;
    va_start(args, format);
    const int length = vsnprintf(text + at, TEXT - at, format, args);
    va_end(args);
    WD_REQUIRE(length >= 0 && (size_t)length < TEXT - at, "the text of a product is too long");
}

/* "BF16 x BF16 -> BF16, m 8, n 24, k 16, b transposed, bias, GELU"; `rows` 0: without m. */
static void add_product(char *text, const wd_product_key *k, int64_t rows)
{
    const char *type = wd_dtype_file_name((wd_dtype)k->type);
    add(text, "%s x %s -> %s", type, type, wd_dtype_file_name((wd_dtype)k->c_type));
    if (rows) add(text, ", m %lld", (long long)rows);
    add(text, ", n %lld, k %lld", (long long)k->n, (long long)k->k);
    if (k->batch > 1) add(text, ", batch %lld", (long long)k->batch);
    if (k->transpose_a) add(text, ", a transposed");
    if (k->transpose_b) add(text, ", b transposed");
    add(text, ", lines of %lld %lld %lld", (long long)k->lda, (long long)k->ldb, (long long)k->ldc);
    if (k->align_a < WD_PRODUCT_ALIGN || k->align_b < WD_PRODUCT_ALIGN ||
        k->align_c < WD_PRODUCT_ALIGN || k->align_bias < WD_PRODUCT_ALIGN)
        add(text, " aligned to %d %d %d bytes", k->align_a, k->align_b, k->align_c);
    if (k->bias) add(text, ", bias");
    if (k->act != WD_ACT_NONE) add(text, ", GELU");
    if (k->beta) add(text, ", added to the result");
}

/* ", tile 24", or ", tile unknown" if the library does not say. */
static void add_attribute(char *text, const wd_cuda_lt *lt, const wd_lt_algorithm *algorithm,
                          const char *name, wd_lt_algorithm_attr attribute)
{
    uint32_t value = 0;
    size_t written;
    if (lt->algorithm_get(algorithm, attribute, &value, sizeof value, &written))
        add(text, "%s unknown", name);
    else
        add(text, "%s %u", name, value);
}

static void add_algorithm(char *text, const wd_cuda_lt *lt, const wd_product_plan_lt *plan)
{
    add_attribute(text, lt, &plan->algorithm, "algorithm", WD_LT_ALGORITHM_ID);
    add_attribute(text, lt, &plan->algorithm, ", tile", WD_LT_ALGORITHM_TILE);
    add_attribute(text, lt, &plan->algorithm, ", stages", WD_LT_ALGORITHM_STAGES);
    add_attribute(text, lt, &plan->algorithm, ", split", WD_LT_ALGORITHM_SPLITK_NUM);
    add(text, ", workspace %zu", plan->workspace_bytes);
}

wd_status wd__products_refused(const wd_cuda_products *p, wd_status status, wd_lt_status refusal,
                               const char *what, const wd_matmul_args *a,
                               const wd_product_plan_lt *plan, wd_err *err)
{
    char text[TEXT] = "";
    const wd_product_key key = wd__product_key_of(a);
    add_product(text, &key, a->m);
    if (plan && plan->chosen) {
        add(text, "; ");
        add_algorithm(text, p->lt, plan);
    }
    return wd_fail(err, status,
                   "cuBLASLt %zu refused %s of a product (%s): %s; install another version of "
                   "cuBLASLt, or say --devices cpu (--device cpu) to compute on the processor",
                   p->lt->get_version(), what, text, p->lt->status_name(refusal));
}

void wd__products_warn(const wd_cuda_products *p, wd_lt_status refusal, const wd_matmul_args *a,
                       const wd_product_plan_lt *plan)
{
    char text[TEXT] = "";
    const char *name = p->lt->status_name(refusal);
    add_product(text, &plan->key, a->m);
    if (!plan->chosen) {
        wd_log(WD_LOG_WARNING,
               "cuBLASLt %zu has no algorithm for a product (%s; %s): a kernel of this program "
               "computes it, correctly but slowly; install another version of cuBLASLt",
               p->lt->get_version(), text, name);
        return;
    }
    add(text, "; ");
    add_algorithm(text, p->lt, plan);
    wd_log(WD_LOG_WARNING,
           "cuBLASLt %zu refused to launch a product (%s; %s): a kernel of this program computes "
           "it, correctly but slowly%s; install another version of cuBLASLt",
           p->lt->get_version(), text, name,
           plan->launched ? "; cuBLASLt has computed such products since this program began, and "
                            "their last bits differ"
                          : "");
}

bool wd__cuda_products_describe(wd_cuda_products *p, int64_t i, char *out, size_t bytes)
{
    char text[TEXT] = "";
    pthread_mutex_lock(&p->lock);
    const bool known = i >= 0 && i < p->plans;
    if (known) {
        const wd_product_plan_lt *plan = p->plan[i];
        add_product(text, &plan->key, plan->key.rows);
        add(text, ": ");
        if (plan->refused)
            add(text, "a kernel of this program");
        else
            add_algorithm(text, p->lt, plan);
    }
    pthread_mutex_unlock(&p->lock);
    if (known) snprintf(out, bytes, "%s", text);
    return known;
}
