/* cuBLASLt's descriptors, layouts and algorithms, made once per key: see product_key.h. */
#include <stdint.h>

#include "core/memory.h"
#include "dev/cuda/products_impl.h"

enum { CANDIDATES = 16, SPLIT_K = 64 };

static wd_lt_type type_of(wd_dtype dtype)
{
    return dtype == WD_F32 ? WD_LT_TYPE_F32 : WD_LT_TYPE_BF16;
}

/* The layout of a matrix that is stored in `rows` rows of `columns` elements. */
static wd_lt_status make_layout(wd_lt_layout *out, const wd_cuda_lt *lt, wd_dtype type,
                                int64_t rows, int64_t columns, int64_t ld, int64_t batch,
                                int64_t stride)
{
    int32_t count = (int32_t)batch;
    wd_lt_status status =
        lt->layout_create(out, type_of(type), (uint64_t)columns, (uint64_t)rows, ld);
    if (status || batch == 1) return status;
    status = lt->layout_set(*out, WD_LT_LAYOUT_BATCH_COUNT, &count, sizeof count);
    if (!status) status = lt->layout_set(*out, WD_LT_LAYOUT_BATCH_STRIDE, &stride, sizeof stride);
    return status;
}

/* Layouts with WD_PRODUCT_ROWS rows, or with as many as the key says. */
static wd_lt_status make_layouts(wd_product_plan_lt *plan, const wd_cuda_lt *lt)
{
    const wd_product_key *k = &plan->key;
    wd_dtype type = (wd_dtype)k->type, c_type = (wd_dtype)k->c_type;
    plan->rows = k->rows ? k->rows : WD_PRODUCT_ROWS;
    bool ta = k->transpose_a, tb = k->transpose_b;
    wd_lt_status status = make_layout(&plan->our_b, lt, type, tb ? k->n : k->k, tb ? k->k : k->n,
                                      k->ldb, k->batch, k->stride_b);
    if (!status)
        status = make_layout(&plan->our_a, lt, type, ta ? k->k : plan->rows, ta ? plan->rows : k->k,
                             k->lda, k->batch, k->stride_a);
    if (!status)
        status =
            make_layout(&plan->our_c, lt, c_type, plan->rows, k->n, k->ldc, k->batch, k->stride_c);
    return status;
}

static unsigned epilogue_of(const wd_product_key *k)
{
    if (k->act != WD_ACT_NONE) return k->bias ? WD_LT_EPILOGUE_GELU_BIAS : WD_LT_EPILOGUE_GELU;
    return k->bias ? WD_LT_EPILOGUE_BIAS : WD_LT_EPILOGUE_DEFAULT;
}

static wd_lt_status make_product(wd_product_plan_lt *plan, const wd_cuda_lt *lt)
{
    const wd_product_key *k = &plan->key;
    int32_t op_b = k->transpose_b ? WD_LT_OP_T : WD_LT_OP_N;
    int32_t op_a = k->transpose_a ? WD_LT_OP_T : WD_LT_OP_N;
    int32_t bias_type = (int32_t)type_of((wd_dtype)k->c_type);
    uint32_t epilogue = epilogue_of(k);
    /* some versions look at the pointer's alignment, or whether there is one */
    const void *bias = (const void *)(uintptr_t)k->align_bias;
    wd_lt_status s = lt->product_create(&plan->product, WD_LT_COMPUTE_F32, WD_LT_TYPE_F32);
    if (!s) s = lt->product_set(plan->product, WD_LT_PRODUCT_TRANSA, &op_b, sizeof op_b);
    if (!s) s = lt->product_set(plan->product, WD_LT_PRODUCT_TRANSB, &op_a, sizeof op_a);
    if (!s) s = lt->product_set(plan->product, WD_LT_PRODUCT_EPILOGUE, &epilogue, sizeof epilogue);
    if (s || !k->bias) return s;
    s = lt->product_set(plan->product, WD_LT_PRODUCT_BIAS_POINTER, &bias, sizeof bias);
    if (!s)
        s = lt->product_set(plan->product, WD_LT_PRODUCT_BIAS_TYPE, &bias_type, sizeof bias_type);
    return s;
}

/* No sums that are shared among blocks where a row must not depend on others; in the gradient of
 * weights, whose shape never changes, they may be shared if they are added up in a fixed order. No
 * TF32: fp32 operands are multiplied as they are. */
static wd_lt_status make_preference(wd_lt_preference *out, const wd_cuda_lt *lt,
                                    const wd_product_key *k, bool all)
{
    uint64_t workspace = WD_PRODUCT_WORKSPACE;
    uint64_t f32_only = WD_LT_IMPL_FMA | WD_LT_IMPL_ACCUMULATOR_F32 | WD_LT_IMPL_INPUT_F32;
    uint32_t reduction = k->rows ? WD_LT_REDUCTION_COMPUTE_TYPE : WD_LT_REDUCTION_NONE;
    const struct {
        unsigned attribute;
        uint32_t bytes;
    } align[] = {{WD_LT_PREF_MIN_ALIGNMENT_A, (uint32_t)k->align_b},
                 {WD_LT_PREF_MIN_ALIGNMENT_B, (uint32_t)k->align_a},
                 {WD_LT_PREF_MIN_ALIGNMENT_C, (uint32_t)k->align_c},
                 {WD_LT_PREF_MIN_ALIGNMENT_D, (uint32_t)k->align_c}};
    wd_lt_status s = lt->preference_create(out);
    if (!s)
        s = lt->preference_set(*out, WD_LT_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
    if (!s)
        s = lt->preference_set(*out, WD_LT_PREF_REDUCTION_SCHEME_MASK, &reduction,
                               sizeof reduction);
    for (int i = 0; i < 4 && !s; i++)
        s = lt->preference_set(*out, align[i].attribute, &align[i].bytes, sizeof align[i].bytes);
    if (!s && k->type == WD_F32 && !all)
        s = lt->preference_set(*out, WD_LT_PREF_IMPL_MASK, &f32_only, sizeof f32_only);
    return s;
}

/* Whether the algorithm does what the preference asked for: sums in one sequence, unless they may
 * be shared. An algorithm that does not say how many parts its sums have cannot divide them.
 *
 * cuBLASLt 13.1.1 has algorithms that leave out the last k % 64 products of shared sums (seen on an
 * H100), so that no sum is shared that would have such a rest. */
static bool is_as_asked(const wd_cuda_lt *lt, const wd_product_key *k, const wd_lt_candidate *c)
{
    int32_t parts = 1;
    uint32_t reduction = 0;
    size_t written;
    if (c->state || c->workspace_bytes > WD_PRODUCT_WORKSPACE) return false;
    if (lt->algorithm_get(&c->algorithm, WD_LT_ALGORITHM_SPLITK_NUM, &parts, sizeof parts,
                          &written))
        parts = 1;
    if (lt->algorithm_get(&c->algorithm, WD_LT_ALGORITHM_REDUCTION, &reduction, sizeof reduction,
                          &written))
        return false;
    if (parts == 0 || parts == 1) return reduction == WD_LT_REDUCTION_NONE || k->rows;
    return k->rows && parts > 1 && k->k % SPLIT_K == 0 && reduction == WD_LT_REDUCTION_COMPUTE_TYPE;
}

/* Among all implementations, or those alone that say that they multiply fp32 as it is. */
static wd_lt_status choose_among(wd_product_plan_lt *plan, const wd_cuda_products *p, bool all)
{
    wd_lt_candidate candidate[CANDIDATES] = {0};
    wd_lt_preference preference = NULL;
    int found = 0;
    wd_lt_status status = make_preference(&preference, p->lt, &plan->key, all);
    if (!status)
        status = p->lt->heuristic(p->handle, plan->product, plan->our_b, plan->our_a, plan->our_c,
                                  plan->our_c, preference, CANDIDATES, candidate, &found);
    if (preference) p->lt->preference_destroy(preference);
    if (status) return status;
    for (int i = 0; i < found && i < CANDIDATES; i++)
        if (is_as_asked(p->lt, &plan->key, &candidate[i])) {
            plan->algorithm = candidate[i].algorithm;
            plan->workspace_bytes = candidate[i].workspace_bytes;
            plan->chosen = true;
            return WD_LT_STATUS_SUCCESS;
        }
    return WD_LT_STATUS_NOT_SUPPORTED;
}

/* Where no implementation says so of itself, all may be asked: the type that it computes in forbids
 * TF32, too, and the check at open sees what comes of it. */
static wd_lt_status choose_algorithm(wd_product_plan_lt *plan, const wd_cuda_products *p)
{
    wd_lt_status status = choose_among(plan, p, false);
    return status && plan->key.type == WD_F32 ? choose_among(plan, p, true) : status;
}

static void close_objects(wd_product_plan_lt *plan, const wd_cuda_lt *lt)
{
    if (plan->product) lt->product_destroy(plan->product);
    if (plan->our_b) lt->layout_destroy(plan->our_b);
    if (plan->our_a) lt->layout_destroy(plan->our_a);
    if (plan->our_c) lt->layout_destroy(plan->our_c);
    plan->product = NULL;
    plan->our_b = plan->our_a = plan->our_c = NULL;
}

static void close_plan(wd_product_plan_lt *plan, const wd_cuda_lt *lt)
{
    close_objects(plan, lt);
    wd_free(plan);
}

/* Our own kernel makes all products of the plan. */
static void give_up(wd_product_plan_lt *plan, const wd_cuda_products *p, wd_lt_status refusal,
                    const wd_matmul_args *a)
{
    wd__products_warn(p, refusal, a, plan);
    close_objects(plan, p->lt);
    plan->refused = true;
}

/* Whether cuBLASLt says that it does not make such products on this GPU, now or later. */
static bool is_refusal(wd_lt_status status)
{
    return status == WD_LT_STATUS_NOT_SUPPORTED || status == WD_LT_STATUS_INVALID_VALUE ||
           status == WD_LT_STATUS_ARCH_MISMATCH;
}

bool wd__product_plan_give_up(wd_product_plan_lt *plan, const wd_cuda_products *p,
                              wd_lt_status refusal, const wd_matmul_args *a)
{
    /* cublasLtMatmul allocates what its algorithm needs beside the workspace, before it launches;
     * other failures may be those of an earlier kernel, after which no launch works */
    if (!is_refusal(refusal) && refusal != WD_LT_STATUS_ALLOC_FAILED) return false;
    give_up(plan, p, refusal, a);
    return true;
}

/* A new plan at the end of the list. */
static wd_status add_plan(wd_cuda_products *p, const wd_product_key *key,
                          const wd_matmul_args *args, wd_err *err)
{
    wd_product_plan_lt *plan;
    WD_TRY(wd_resize((void **)&p->plan, (size_t)p->plans + 1, sizeof *p->plan,
                     "the list of planned products", err));
    WD_TRY(wd_alloc((void **)&plan, 1, sizeof *plan, "a planned product", err));
    plan->key = *key;
    const char *what = "the layouts";
    wd_lt_status status = make_layouts(plan, p->lt);
    if (!status) {
        what = "the description";
        status = make_product(plan, p->lt);
    }
    if (!status) {
        what = "every algorithm";
        status = choose_algorithm(plan, p);
    }
    /* what failed for another reason may work later, with other bits than our kernel's */
    if (status && !is_refusal(status)) {
        close_plan(plan, p->lt);
        return wd__products_refused(p, WD_INTERNAL, status, what, args, NULL, err);
    }
    if (status) give_up(plan, p, status, args);
    p->plan[p->plans++] = plan;
    return WD_OK;
}

/* Gives the layouts `rows` rows, and asks whether the algorithm can do so many. */
static wd_lt_status set_rows(wd_product_plan_lt *plan, const wd_cuda_products *p, int64_t rows)
{
    uint64_t columns = (uint64_t)rows;
    wd_lt_candidate result = {0};
    if (plan->rows == rows) return WD_LT_STATUS_SUCCESS;
    plan->rows = 0; /* until both have them */
    wd_lt_status status =
        p->lt->layout_set(plan->our_a, WD_LT_LAYOUT_COLS, &columns, sizeof columns);
    if (!status)
        status = p->lt->layout_set(plan->our_c, WD_LT_LAYOUT_COLS, &columns, sizeof columns);
    if (!status)
        status = p->lt->algorithm_check(p->handle, plan->product, plan->our_b, plan->our_a,
                                        plan->our_c, plan->our_c, &plan->algorithm, &result);
    if (status) return status;
    plan->rows = rows;
    plan->workspace_bytes = result.workspace_bytes;
    return WD_LT_STATUS_SUCCESS;
}

wd_status wd__product_plan_find(wd_product_plan_lt **out, wd_cuda_products *p,
                                const wd_matmul_args *args, size_t room, wd_err *err)
{
    wd_product_key key = wd__product_key_of(args);
    int64_t at = 0;
    while (at < p->plans && !wd__product_key_equal(&p->plan[at]->key, &key)) at++;
    if (at == p->plans) WD_TRY(add_plan(p, &key, args, err));
    *out = p->plan[at];
    if ((*out)->refused) return WD_OK;
    wd_lt_status refusal = set_rows(*out, p, args->m);
    if (!refusal && (*out)->workspace_bytes > room) refusal = WD_LT_STATUS_NOT_SUPPORTED;
    if (!refusal) return WD_OK;
    return wd__products_refused(p, WD_UNSUPPORTED, refusal, "the number of rows", args, *out, err);
}

void wd__product_plans_close(wd_cuda_products *p)
{
    while (p->plans > 0) close_plan(p->plan[--p->plans], p->lt);
    wd_free(p->plan);
    p->plan = NULL;
}
