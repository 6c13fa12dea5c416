/* cuBLASLt for tests: see libraries.h. Column by column, as cuBLASLt counts, a matrix of r rows and
 * c columns with leading dimension ld is, row by row, its transpose: c rows of r elements. So
 * d = op(a) op(b) there is dT = op(b)T op(a)T here, with a and b exchanged. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dev/cpu/cpu.h"
#include "dev/cpu/reference.h"
#include "standin/libraries.h"

static wd_standin_put_fn *put_on_stream;

/* First word of every object, to know it by. */
enum { HANDLE = 0x4c54, LAYOUT, PRODUCT, PREFERENCE, ALGORITHM };

typedef struct layout {
    uint64_t kind;
    wd_lt_type type;
    uint64_t rows, columns;
    int64_t ld, batch_stride;
    int32_t batch;
} layout;

typedef struct product {
    uint64_t kind;
    wd_lt_compute compute;
    wd_lt_type scale;
    int32_t op_a, op_b, bias_type;
    uint32_t epilogue;
    const void *bias;
} product;

typedef struct preference {
    uint64_t kind, workspace, implementations;
    uint32_t reduction, align[4];
} preference;

/* What is in a wd_lt_algorithm. */
typedef struct algorithm {
    uint64_t kind;
    int32_t parts;
    uint32_t reduction;
    uint64_t workspace;
    uint32_t align[4], align_bias; /* bytes, of A, B, C, D and the bias, that it may rely on */
} algorithm;

_Static_assert(sizeof(algorithm) <= sizeof(wd_lt_algorithm), "an algorithm has room");

static bool is(const void *object, uint64_t kind)
{
    return object && *(const uint64_t *)object == kind;
}

static void *make(size_t bytes, uint64_t kind)
{
    uint64_t *object = calloc(1, bytes);
    if (!object) return NULL;
    *object = kind;
    wd_the_standin_asked.descriptors++;
    return object;
}

static wd_lt_status destroy(void *object, uint64_t kind)
{
    if (!is(object, kind)) return WD_LT_STATUS_INVALID_VALUE;
    wd_the_standin_asked.descriptors--;
    free(object);
    return WD_LT_STATUS_SUCCESS;
}

/* Stores an attribute whose value has `want` bytes. */
static wd_lt_status take(void *to, size_t want, const void *value, size_t bytes)
{
    if (!value || bytes != want) return WD_LT_STATUS_INVALID_VALUE;
    memcpy(to, value, bytes);
    return WD_LT_STATUS_SUCCESS;
}

static size_t get_version(void)
{
    return 130100;
}

static const char *status_name(wd_lt_status status)
{
#define X(name, nvidia_name, value)                                                                \
    if (status == (value) && !strncmp(#name, "STATUS_", 7)) return #nvidia_name;
    WD_LT_VALUE_MAP(X)
#undef X
    return "CUBLAS_STATUS_UNKNOWN";
}

static wd_lt_status create(wd_lt_handle *out)
{
    *out = make(sizeof(uint64_t), HANDLE);
    return *out ? WD_LT_STATUS_SUCCESS : WD_LT_STATUS_ALLOC_FAILED;
}

static wd_lt_status handle_destroy(wd_lt_handle handle)
{
    return destroy(handle, HANDLE);
}

/* ---- descriptors ---- */

static wd_lt_status layout_create(wd_lt_layout *out, wd_lt_type type, uint64_t rows,
                                  uint64_t columns, int64_t ld)
{
    layout *l = make(sizeof *l, LAYOUT);
    if (!l) return WD_LT_STATUS_ALLOC_FAILED;
    l->type = type, l->rows = rows, l->columns = columns, l->ld = ld;
    l->batch = 1;
    *out = l;
    return WD_LT_STATUS_SUCCESS;
}

static wd_lt_status layout_destroy(wd_lt_layout l)
{
    return destroy(l, LAYOUT);
}

static wd_lt_status layout_set(wd_lt_layout object, wd_lt_layout_attr attribute, const void *value,
                               size_t bytes)
{
    layout *l = object;
    if (!is(l, LAYOUT)) return WD_LT_STATUS_INVALID_VALUE;
    switch (attribute) {
    case WD_LT_LAYOUT_COLS:
        return take(&l->columns, sizeof l->columns, value, bytes);
    case WD_LT_LAYOUT_BATCH_COUNT:
        return take(&l->batch, sizeof l->batch, value, bytes);
    case WD_LT_LAYOUT_BATCH_STRIDE:
        return take(&l->batch_stride, sizeof l->batch_stride, value, bytes);
    default:
        return WD_LT_STATUS_INVALID_VALUE;
    }
}

static wd_lt_status product_create(wd_lt_product *out, wd_lt_compute compute, wd_lt_type scale)
{
    product *p = make(sizeof *p, PRODUCT);
    if (!p) return WD_LT_STATUS_ALLOC_FAILED;
    p->compute = compute, p->scale = scale;
    p->epilogue = WD_LT_EPILOGUE_DEFAULT;
    p->bias_type = -1;
    *out = p;
    return WD_LT_STATUS_SUCCESS;
}

static wd_lt_status product_destroy(wd_lt_product p)
{
    return destroy(p, PRODUCT);
}

static wd_lt_status product_set(wd_lt_product object, wd_lt_product_attr attribute,
                                const void *value, size_t bytes)
{
    product *p = object;
    if (!is(p, PRODUCT)) return WD_LT_STATUS_INVALID_VALUE;
    switch (attribute) {
    case WD_LT_PRODUCT_TRANSA:
        return take(&p->op_a, sizeof p->op_a, value, bytes);
    case WD_LT_PRODUCT_TRANSB:
        return take(&p->op_b, sizeof p->op_b, value, bytes);
    case WD_LT_PRODUCT_EPILOGUE:
        return take(&p->epilogue, sizeof p->epilogue, value, bytes);
    case WD_LT_PRODUCT_BIAS_POINTER:
        return take(&p->bias, sizeof p->bias, value, bytes);
    case WD_LT_PRODUCT_BIAS_TYPE:
        return take(&p->bias_type, sizeof p->bias_type, value, bytes);
    default:
        return WD_LT_STATUS_INVALID_VALUE;
    }
}

static wd_lt_status preference_create(wd_lt_preference *out)
{
    preference *p = make(sizeof *p, PREFERENCE);
    if (!p) return WD_LT_STATUS_ALLOC_FAILED;
    p->reduction = 7, p->implementations = UINT64_MAX;
    for (int i = 0; i < 4; i++) p->align[i] = 256;
    *out = p;
    return WD_LT_STATUS_SUCCESS;
}

static wd_lt_status preference_destroy(wd_lt_preference p)
{
    return destroy(p, PREFERENCE);
}

static wd_lt_status preference_set(wd_lt_preference object, wd_lt_preference_attr attribute,
                                   const void *value, size_t bytes)
{
    preference *p = object;
    if (!is(p, PREFERENCE)) return WD_LT_STATUS_INVALID_VALUE;
    switch (attribute) {
    case WD_LT_PREF_MAX_WORKSPACE_BYTES:
        return take(&p->workspace, sizeof p->workspace, value, bytes);
    case WD_LT_PREF_REDUCTION_SCHEME_MASK:
        return take(&p->reduction, sizeof p->reduction, value, bytes);
    case WD_LT_PREF_MIN_ALIGNMENT_A:
    case WD_LT_PREF_MIN_ALIGNMENT_B:
    case WD_LT_PREF_MIN_ALIGNMENT_C:
    case WD_LT_PREF_MIN_ALIGNMENT_D:
        return take(&p->align[attribute - WD_LT_PREF_MIN_ALIGNMENT_A], sizeof *p->align, value,
                    bytes);
    case WD_LT_PREF_IMPL_MASK:
        return take(&p->implementations, sizeof p->implementations, value, bytes);
    default:
        return WD_LT_STATUS_INVALID_VALUE;
    }
}

/* ---- decoding ---- */

static wd_dtype dtype_of(wd_lt_type type)
{
    return type == WD_LT_TYPE_F32 ? WD_F32 : WD_BF16;
}

static size_t bytes_of(wd_lt_type type)
{
    return wd_dtype_bytes(dtype_of(type));
}

/* The rows and columns of op(matrix). */
static uint64_t op_rows(const layout *l, int32_t op)
{
    return op == WD_LT_OP_T ? l->columns : l->rows;
}

static uint64_t op_columns(const layout *l, int32_t op)
{
    return op == WD_LT_OP_T ? l->rows : l->columns;
}

static bool is_layout(const layout *l)
{
    return is(l, LAYOUT) && l->rows > 0 && l->columns > 0 && l->rows <= INT32_MAX &&
           l->columns <= INT32_MAX && l->ld >= (int64_t)l->rows && l->batch > 0 &&
           (l->type == WD_LT_TYPE_F32 || l->type == WD_LT_TYPE_BF16);
}

/* What cuBLASLt's documentation and its messages say of products of these types: both operands and
 * C and D alike, fp32 operands with an fp32 result only; a bias only with an epilogue that adds it,
 * of the result's type, and aligned to it. */
static wd_lt_status check_types(const product *p, const layout *a, const layout *b, const layout *c,
                                const layout *d)
{
    bool with_bias = p->epilogue & WD_LT_EPILOGUE_BIAS;
    if (p->compute != WD_LT_COMPUTE_F32 || p->scale != WD_LT_TYPE_F32 || a->type != b->type ||
        c->type != d->type || (a->type == WD_LT_TYPE_F32 && d->type != WD_LT_TYPE_F32))
        return WD_LT_STATUS_NOT_SUPPORTED;
    if (p->epilogue != WD_LT_EPILOGUE_DEFAULT && p->epilogue != WD_LT_EPILOGUE_BIAS &&
        p->epilogue != WD_LT_EPILOGUE_GELU && p->epilogue != WD_LT_EPILOGUE_GELU_BIAS)
        return WD_LT_STATUS_NOT_SUPPORTED;
    if (with_bias && p->bias_type != -1 && (wd_lt_type)p->bias_type != d->type)
        return WD_LT_STATUS_NOT_SUPPORTED;
    return with_bias == (p->bias != NULL) && (uintptr_t)p->bias % bytes_of(d->type) == 0
               ? WD_LT_STATUS_SUCCESS
               : WD_LT_STATUS_INVALID_VALUE;
}

static wd_lt_status check_product(const product *p, const layout *a, const layout *b,
                                  const layout *c, const layout *d)
{
    if (!is(p, PRODUCT) || !is_layout(a) || !is_layout(b) || !is_layout(c) || !is_layout(d))
        return WD_LT_STATUS_INVALID_VALUE;
    if (op_rows(a, p->op_a) != d->rows || op_columns(b, p->op_b) != d->columns ||
        op_columns(a, p->op_a) != op_rows(b, p->op_b) || c->rows != d->rows ||
        c->columns != d->columns || c->ld != d->ld || a->batch != d->batch ||
        b->batch != d->batch || c->batch != d->batch || c->batch_stride != d->batch_stride)
        return WD_LT_STATUS_INVALID_VALUE;
    return check_types(p, a, b, c, d);
}

/* ---- algorithms ---- */

enum { MIB = 1 << 20, ALIGN_MOST = 16 }; /* bytes; no algorithm relies on more */

static uint32_t alignment_of(const void *address)
{
    uint32_t align = ALIGN_MOST;
    while ((uintptr_t)address % align) align /= 2;
    return align;
}

/* Whether there is no algorithm with this product's GELU. */
static bool lacks_gelu(const product *p, const layout *b, const layout *d)
{
    return (p->epilogue & WD_LT_EPILOGUE_GELU) &&
           wd_the_standin_faults
               .lt_gelu_none[wd__product_types_of(dtype_of(b->type), dtype_of(d->type))];
}

static wd_lt_status heuristic(wd_lt_handle handle, wd_lt_product what, wd_lt_layout a,
                              wd_lt_layout b, wd_lt_layout c, wd_lt_layout d,
                              wd_lt_preference object, int asked, wd_lt_candidate *out, int *found)
{
    const preference *wish = object;
    *found = 0;
    if (!is(handle, HANDLE) || !is(wish, PREFERENCE) || asked < 1)
        return WD_LT_STATUS_INVALID_VALUE;
    wd_lt_status status = check_product(what, a, b, c, d);
    if (status) return status;
    wd_the_standin_asked.heuristics++;
    if (wd_the_standin_faults.lt_none || lacks_gelu(what, b, d) ||
        (wd_the_standin_faults.lt_no_mask && wish->implementations != UINT64_MAX))
        return WD_LT_STATUS_NOT_SUPPORTED;
    algorithm all[] = {{.parts = 4, .reduction = WD_LT_REDUCTION_COMPUTE_TYPE, .workspace = MIB},
                       {.parts = 2, .reduction = WD_LT_REDUCTION_NONE},
                       {.parts = 1, .reduction = WD_LT_REDUCTION_NONE, .workspace = MIB}};
    for (int i = wd_the_standin_faults.lt_splits ? 0 : 2; i < 3 && *found < asked; i++) {
        wd_lt_candidate candidate = {.workspace_bytes = all[i].workspace, .waves = 1};
        all[i].kind = ALGORITHM;
        memcpy(all[i].align, wish->align, sizeof wish->align);
        all[i].align_bias = alignment_of(((const product *)what)->bias);
        memcpy(&candidate.algorithm, &all[i], sizeof all[i]);
        if (all[i].workspace > wish->workspace) continue;
        out[(*found)++] = candidate;
    }
    return *found ? WD_LT_STATUS_SUCCESS : WD_LT_STATUS_NOT_SUPPORTED;
}

/* Whether algorithms are not to take this product's number of rows. */
static bool refuses_rows(const product *p, const layout *d)
{
    const int64_t rows = (int64_t)d->columns, most = wd_the_standin_faults.lt_rows_most;
    return p->op_b == WD_LT_OP_N &&
           (rows < wd_the_standin_faults.lt_rows_least || (most && rows > most));
}

static wd_lt_status algorithm_check(wd_lt_handle handle, wd_lt_product what, wd_lt_layout a,
                                    wd_lt_layout b, wd_lt_layout c, wd_lt_layout d,
                                    const wd_lt_algorithm *how, wd_lt_candidate *result)
{
    if (!is(handle, HANDLE) || !is(how, ALGORITHM)) return WD_LT_STATUS_INVALID_VALUE;
    *result = (wd_lt_candidate){
        .algorithm = *how, .workspace_bytes = ((const algorithm *)(const void *)how)->workspace};
    const wd_lt_status status = check_product(what, a, b, c, d);
    return !status && refuses_rows(what, d) ? WD_LT_STATUS_NOT_SUPPORTED : status;
}

static wd_lt_status algorithm_get(const wd_lt_algorithm *how, wd_lt_algorithm_attr attribute,
                                  void *value, size_t bytes, size_t *written)
{
    const algorithm *al = (const void *)how;
    if (!is(al, ALGORITHM) || bytes != sizeof(int32_t)) return WD_LT_STATUS_INVALID_VALUE;
    *written = bytes;
    switch (attribute) {
    case WD_LT_ALGORITHM_ID:
    case WD_LT_ALGORITHM_TILE:
        memcpy(value, &(int32_t){attribute == WD_LT_ALGORITHM_ID ? 66 : 24}, bytes);
        return WD_LT_STATUS_SUCCESS;
    case WD_LT_ALGORITHM_SPLITK_NUM:
        if (wd_the_standin_faults.lt_says_little) return WD_LT_STATUS_NOT_SUPPORTED;
        memcpy(value, &al->parts, bytes);
        return WD_LT_STATUS_SUCCESS;
    case WD_LT_ALGORITHM_REDUCTION:
        if (wd_the_standin_faults.lt_no_reduction) return WD_LT_STATUS_NOT_SUPPORTED;
        memcpy(value, &al->reduction, bytes);
        return WD_LT_STATUS_SUCCESS;
    default:
        return WD_LT_STATUS_INVALID_VALUE;
    }
}

/* ---- products ---- */

typedef struct work {
    wd_matmul_args args;
    char *workspace; /* that the algorithm writes to */
    size_t workspace_bytes;
    bool shifted, gelu, erf, rounded, truncated; /* faults; gelu: it is made here */
    float rough;
} work;

enum { SCRIBBLED = 4096, WORKSPACE_ALIGN = 256 };

/* An algorithm leaves something else in its workspace: here at both ends of it. */
static void scribble(char *workspace, size_t bytes)
{
    const size_t end = bytes < SCRIBBLED ? bytes : SCRIBBLED;
    if (!bytes) return;
    memset(workspace, 0xff, end);
    memset(workspace + bytes - end, 0xff, end);
}

/* A form of GELU whose tanh, or what stands for it in the other form, is off by `error`. */
static float gelu(float x, bool erf, float error)
{
    const float t = erf ? erff(x * 0.70710678f) : tanhf(0.79788456f * (x + 0.044715f * x * x * x));
    return 0.5f * x * (1 + t * (1 + error));
}

/* Computes the product with the fastest kernels of this processor that add in fp32, as cuBLASLt
 * does. Speed matters: whenever a device is opened, large matrices are multiplied
 * (products_check.c). */
static void run(const void *argument)
{
    work w;
    wd_cpu_table table;
    const wd_cpu_isa isa = wd__cpu_isa_best(WD_CPU_ISA_avx512);
    memcpy(&w, argument, sizeof w);
    scribble(w.workspace, w.workspace_bytes);
    if (w.truncated) {
        wd_standin_tensor_core_matmul(&w.args);
        return;
    }
    wd__cpu_table_fill(&table, isa);
    size_t bytes = wd__cpu_workspace_bytes(&table, WD_OP_MATMUL, &w.args);
    wd_cpu_context context = {.workspace = bytes ? aligned_alloc(64, (bytes + 63) / 64 * 64) : NULL,
                              .workspace_bytes = bytes,
                              .isa = isa,
                              .table = &table};
    table.entry[WD_OP_MATMUL].kernel(&w.args, &context);
    free(context.workspace);
    const wd_matmul_args *a = &w.args;
    for (int64_t i = 0; i < a->m * a->ldc; i++) {
        if (i % a->ldc >= a->n || (a->c_type != WD_F32 && !w.gelu)) continue;
        float c = (float)wd__load(a->c, a->c_type, i);
        if (w.gelu) c = gelu(c, w.erf, w.rough);
        if (w.rounded) c += 1e-3f;
        if (w.shifted) c = nextafterf(c, INFINITY);
        wd__store(a->c, a->c_type, i, c);
    }
}

/* Whether this product's bits are to be others, by its rows or lines. */
static bool is_shifted(const work *w)
{
    if (wd_the_standin_faults.lt_always) return wd_the_standin_asked.products % 2;
    const wd_product_key k = wd__product_key_of(&w->args);
    if (wd_the_standin_faults.lt_lines_matter && (k.lda + k.ldc + k.align_a + k.align_c) / 4 % 2)
        return true;
    return wd_the_standin_faults.lt_rows_matter && w->args.m != WD_PRODUCT_CHUNK_ROWS &&
           w->args.m % 2;
}

/* What a launch must not do, whatever the product. Since the program makes a refused product by
 * itself, tests end here, unless this is what they test. */
static bool is_allowed(bool allowed, const char *what)
{
    if (allowed) return true;
    if (!wd_the_standin_faults.lt_only_refuses) {
        fprintf(stderr, "cuBLASLt refuses this launch: %s\n", what);
        abort();
    }
    return false;
}

/* Whether address, lines and distances of matrices are aligned as the algorithm was promised. */
static bool is_aligned(const void *address, const layout *l, uint32_t align)
{
    const uint64_t size = bytes_of(l->type), line = (uint64_t)l->ld * size;
    const uint64_t distance = l->batch > 1 ? (uint64_t)l->batch_stride * size : 0;
    if (align > ALIGN_MOST) align = ALIGN_MOST;
    return ((uintptr_t)address | line | distance) % align == 0;
}

static bool is_launch(const product *p, const algorithm *al, const void *a, const layout *la,
                      const void *b, const layout *lb, const void *c, const layout *lc,
                      const void *d, const layout *ld)
{
    return is_allowed(is_aligned(a, la, al->align[0]), "A is less aligned than promised") &&
           is_allowed(is_aligned(b, lb, al->align[1]), "B is less aligned than promised") &&
           is_allowed(is_aligned(c, lc, al->align[2]), "C is less aligned than promised") &&
           is_allowed(is_aligned(d, ld, al->align[3]), "D is less aligned than promised") &&
           is_allowed((uintptr_t)p->bias % al->align_bias == 0,
                      "the bias is less aligned than that which the heuristic saw") &&
           is_allowed(c != d || !memcmp(lc, ld, sizeof *lc),
                      "C and D are the same matrix with other layouts");
}

static bool has_workspace(const algorithm *al, const void *workspace, size_t bytes)
{
    return is_allowed(bytes >= al->workspace && (!al->workspace || workspace),
                      "the workspace is too small") &&
           is_allowed((uintptr_t)workspace % WORKSPACE_ALIGN == 0,
                      "the workspace is not aligned to 256 bytes");
}

static wd_lt_status matmul(wd_lt_handle handle, wd_lt_product object, const void *alpha,
                           const void *a, wd_lt_layout a_object, const void *b,
                           wd_lt_layout b_object, const void *beta, const void *c,
                           wd_lt_layout c_object, void *d, wd_lt_layout d_object,
                           const wd_lt_algorithm *how, void *workspace, size_t workspace_bytes,
                           wd_cu_stream stream)
{
    const product *p = object;
    const layout *la = a_object, *lb = b_object, *ld = d_object;
    const algorithm *al = (const void *)how;
    wd_lt_status status = check_product(p, la, lb, c_object, ld);
    if (status) return status;
    if (!is(handle, HANDLE) || !is(al, ALGORITHM) || *(const float *)alpha != 1 || c != d ||
        !is_launch(p, al, a, la, b, lb, c, c_object, d, ld) ||
        !has_workspace(al, workspace, workspace_bytes))
        return WD_LT_STATUS_INVALID_VALUE;
    if (refuses_rows(p, ld)) return WD_LT_STATUS_NOT_SUPPORTED;
    if (wd_the_standin_faults.lt_fail_matmul && !--wd_the_standin_faults.lt_fail_matmul)
        return wd_the_standin_faults.lt_fail_with ? wd_the_standin_faults.lt_fail_with
                                                  : WD_LT_STATUS_EXECUTION_FAILED;
    wd_the_standin_asked.products++;
    const wd_product_types types = wd__product_types_of(dtype_of(lb->type), dtype_of(ld->type));
    const bool with_gelu = p->epilogue & WD_LT_EPILOGUE_GELU;
    const bool erf = with_gelu && wd_the_standin_faults.lt_gelu_erf[types];
    const float rough = with_gelu ? wd_the_standin_faults.lt_gelu_rough : 0;
    work w = {.args = {.c = d,
                       .a = b,
                       .b = a,
                       .bias = p->epilogue & WD_LT_EPILOGUE_BIAS ? p->bias : NULL,
                       .c_type = dtype_of(ld->type),
                       .a_type = dtype_of(lb->type),
                       .b_type = dtype_of(la->type),
                       .bias_type = dtype_of(ld->type),
                       .transpose_a = p->op_b == WD_LT_OP_T,
                       .transpose_b = p->op_a == WD_LT_OP_T,
                       .m = (int64_t)ld->columns,
                       .n = (int64_t)ld->rows,
                       .k = (int64_t)op_columns(la, p->op_a),
                       .lda = lb->ld,
                       .ldb = la->ld,
                       .ldc = ld->ld,
                       .batch = ld->batch,
                       .stride_a = lb->batch_stride,
                       .stride_b = la->batch_stride,
                       .stride_c = ld->batch_stride,
                       .beta = *(const float *)beta,
                       .act = with_gelu && !erf && rough == 0 ? WD_ACT_GELU_TANH : WD_ACT_NONE},
              .workspace = workspace,
              .workspace_bytes = al->workspace,
              .gelu = erf || rough != 0,
              .erf = erf,
              .rough = rough,
              .rounded = wd_the_standin_faults.lt_tf32};
    w.shifted = is_shifted(&w);
    w.truncated = wd_the_standin_faults.lt_truncates && lb->type == WD_LT_TYPE_BF16;
    if (wd_the_standin_faults.lt_drops && al->parts > 1) w.args.k -= w.args.k % 64;
    if (put_on_stream)
        return put_on_stream(stream, run, &w, sizeof w) ? WD_LT_STATUS_EXECUTION_FAILED
                                                        : WD_LT_STATUS_SUCCESS;
    run(&w);
    return WD_LT_STATUS_SUCCESS;
}

void wd_standin_lt_fill(wd_cuda_lt *lt, wd_standin_put_fn *put)
{
    put_on_stream = put;
    *lt = (wd_cuda_lt){.get_version = get_version,
                       .status_name = status_name,
                       .create = create,
                       .destroy = handle_destroy,
                       .matmul = matmul,
                       .layout_create = layout_create,
                       .layout_destroy = layout_destroy,
                       .layout_set = layout_set,
                       .product_create = product_create,
                       .product_destroy = product_destroy,
                       .product_set = product_set,
                       .preference_create = preference_create,
                       .preference_destroy = preference_destroy,
                       .preference_set = preference_set,
                       .heuristic = heuristic,
                       .algorithm_check = algorithm_check,
                       .algorithm_get = algorithm_get};
}
