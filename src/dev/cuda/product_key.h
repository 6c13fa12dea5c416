/* What decides how cuBLASLt computes a product, and the workspace that this takes. Pure: asked in
 * dry runs, too.
 *
 * A row of a product must have the same bits whatever other rows are in the launch. So the
 * algorithm follows from a key which has everything but the number of rows; whether pointers are
 * aligned is part of it, taken as the worst of any row, so that all slices of rows agree. In the
 * gradient of weights, where `a` is transposed, rows are sums over the tokens: their number is a
 * property of the layer and is part of the key.
 *
 * cuBLASLt knows fewer combinations of dtypes than dev/ops.h. What it does not know is staged: the
 * bias is spread over an fp32 result in workspace, the product is added to it, and our own kernels
 * apply the activation and convert.
 */
#ifndef WD_DEV_CUDA_PRODUCT_KEY_H
#define WD_DEV_CUDA_PRODUCT_KEY_H

#include <string.h>

#include "core/checked.h"
#include "dev/ops.h"

enum {
    WD_PRODUCT_WORKSPACE = 32 << 20, /* bytes that cuBLASLt may use: what NVIDIA advises, sm_90 */
    WD_PRODUCT_ROWS = 4096,          /* that algorithms are chosen for */
    WD_PRODUCT_CHUNK_ROWS = 256,     /* of the pieces that cut products are made of */
    WD_PRODUCT_ALIGN = 16            /* bytes beyond which alignment makes no difference */
};

/* The dtypes of operands and result for which the GELU of cuBLASLt is a kernel of its own. */
typedef enum wd_product_types {
    WD_PRODUCT_F32,
    WD_PRODUCT_BF16,
    WD_PRODUCT_BF16_TO_F32,
    WD_PRODUCT_TYPES
} wd_product_types;

/* What is known of the library on a GPU once its device is open: see products_check.c. */
typedef struct wd_product_rule {
    bool cut; /* a row's bits depend on the number of rows: products are made in pieces of
               * WD_PRODUCT_CHUNK_ROWS rows, the last one filled up */
    bool gelu_tanh[WD_PRODUCT_TYPES]; /* the epilogue GELU is the tanh form, which ours is */
} wd_product_rule;

/* All members are set, and there is no padding: keys are compared as bytes. */
typedef struct wd_product_key {
    int64_t rows; /* 0, or (transpose_a) how many rows the result has */
    int64_t n, k, lda, ldb, ldc, batch, stride_a, stride_b, stride_c;
    int32_t type, c_type;                          /* wd_dtype */
    int32_t align_a, align_b, align_c, align_bias; /* bytes, at most WD_PRODUCT_ALIGN */
    int32_t transpose_a, transpose_b, bias, act, beta;
    int32_t zero;
} wd_product_key;

_Static_assert(sizeof(wd_product_key) == 10 * 8 + 12 * 4, "a key has no padding");

/* The largest power of two, at most WD_PRODUCT_ALIGN, that divides all three. */
static inline int32_t wd__product_align(uint64_t address, uint64_t line_bytes, uint64_t batch_bytes)
{
    uint64_t bits = address | line_bytes | batch_bytes | WD_PRODUCT_ALIGN;
    return (int32_t)(bits & (~bits + 1));
}

/* The key of a product that cuBLASLt makes by itself. */
static inline wd_product_key wd__product_key_of(const wd_matmul_args *a)
{
    uint64_t size = wd_dtype_bytes(a->a_type), c_size = wd_dtype_bytes(a->c_type);
    bool many = a->batch > 1;
    return (wd_product_key){.rows = a->transpose_a ? a->m : 0,
                            .n = a->n,
                            .k = a->k,
                            .lda = a->lda,
                            .ldb = a->ldb,
                            .ldc = a->ldc,
                            .batch = a->batch,
                            .stride_a = many ? a->stride_a : 0,
                            .stride_b = many ? a->stride_b : 0,
                            .stride_c = many ? a->stride_c : 0,
                            .type = (int32_t)a->a_type,
                            .c_type = (int32_t)a->c_type,
                            .align_a = wd__product_align((uintptr_t)a->a, (uint64_t)a->lda * size,
                                                         many ? (uint64_t)a->stride_a * size : 0),
                            .align_b = wd__product_align((uintptr_t)a->b, (uint64_t)a->ldb * size,
                                                         many ? (uint64_t)a->stride_b * size : 0),
                            .align_c = wd__product_align((uintptr_t)a->c, (uint64_t)a->ldc * c_size,
                                                         many ? (uint64_t)a->stride_c * c_size : 0),
                            .align_bias = a->bias ? wd__product_align((uintptr_t)a->bias, 0, 0)
                                                  : WD_PRODUCT_ALIGN,
                            .transpose_a = a->transpose_a,
                            .transpose_b = a->transpose_b,
                            .bias = a->bias != NULL,
                            .act = (int32_t)a->act,
                            .beta = a->beta != 0};
}

static inline bool wd__product_key_equal(const wd_product_key *a, const wd_product_key *b)
{
    return !memcmp(a, b, sizeof *a);
}

static inline bool wd__product_extent_fits(int64_t extent)
{
    return extent > 0 && extent <= INT32_MAX;
}

/* Whether cuBLASLt, with the help of our kernels, makes the product. */
static inline bool wd__product_can(const wd_matmul_args *a)
{
    bool types = (a->a_type == WD_F32 || a->a_type == WD_BF16) && a->b_type == a->a_type &&
                 (a->c_type == WD_F32 || a->c_type == WD_BF16) &&
                 (!a->bias || a->bias_type == WD_F32 || a->bias_type == WD_BF16);
    return types && (a->beta == 0 || (a->beta == 1 && a->act == WD_ACT_NONE)) &&
           (a->act == WD_ACT_NONE || a->act == WD_ACT_GELU_TANH) && wd__product_extent_fits(a->m) &&
           wd__product_extent_fits(a->n) && wd__product_extent_fits(a->k) &&
           wd__product_extent_fits(a->batch);
}

/* Of a product that cuBLASLt knows: fp32 operands have an fp32 result. */
static inline wd_product_types wd__product_types_of(wd_dtype type, wd_dtype c_type)
{
    if (type == WD_F32) return WD_PRODUCT_F32;
    return c_type == WD_F32 ? WD_PRODUCT_BF16_TO_F32 : WD_PRODUCT_BF16;
}

/* Whether the product is staged. cuBLASLt has no bf16 result of fp32 operands, and a bias is of the
 * result's dtype. */
static inline bool wd__product_is_staged(const wd_product_rule *rule, const wd_matmul_args *a)
{
    return (a->a_type == WD_F32 && a->c_type != WD_F32) || (a->bias && a->bias_type != a->c_type) ||
           (a->act != WD_ACT_NONE && !rule->gelu_tanh[wd__product_types_of(a->a_type, a->c_type)]);
}

/* Whether it is made in pieces of rows. */
static inline bool wd__product_is_cut(const wd_product_rule *rule, const wd_matmul_args *a)
{
    return rule->cut && !a->transpose_a;
}

/* The product that a staged one is made of: c is fp32 and dense, the bias is in it already. */
static inline wd_matmul_args wd__product_staged(const wd_matmul_args *a, void *stage)
{
    wd_matmul_args inner = *a;
    inner.c = stage;
    inner.c_type = WD_F32;
    inner.ldc = a->n;
    inner.stride_c = a->m * a->n;
    inner.bias = NULL;
    inner.beta = a->bias ? 1 : 0;
    inner.act = WD_ACT_NONE;
    return inner;
}

static inline size_t wd__product_stage_bytes(const wd_matmul_args *a)
{
    return wd_round_up((size_t)(a->batch * a->m * a->n) * sizeof(float), 256);
}

/* Of the piece that is filled up: its rows, and what shifts it to the product's alignment. */
static inline size_t wd__product_piece_bytes(int64_t line, wd_dtype type)
{
    return wd_round_up(
        (size_t)(WD_PRODUCT_CHUNK_ROWS * line) * wd_dtype_bytes(type) + WD_PRODUCT_ALIGN, 256);
}

/* Rows of `a`, and of the result. */
static inline size_t wd__product_piece_a_bytes(const wd_matmul_args *a)
{
    return wd__product_piece_bytes(a->lda, a->a_type);
}

static inline size_t wd__product_piece_c_bytes(const wd_matmul_args *a)
{
    return wd__product_piece_bytes(a->ldc, a->c_type);
}

/* Bytes of workspace: cuBLASLt's, then the stage, then the piece. */
static inline size_t wd__product_workspace(const wd_product_rule *rule, const wd_matmul_args *a)
{
    size_t bytes = WD_PRODUCT_WORKSPACE;
    wd_matmul_args inner = *a;
    if (wd__product_is_staged(rule, a)) {
        bytes += wd__product_stage_bytes(a);
        inner = wd__product_staged(a, NULL);
    }
    if (wd__product_is_cut(rule, a))
        bytes += wd__product_piece_a_bytes(&inner) + wd__product_piece_c_bytes(&inner);
    return bytes;
}

#endif
