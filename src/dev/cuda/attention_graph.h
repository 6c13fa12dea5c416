/* Fused attention as graphs of cuDNN operations: which tensors there are, how they are tied
 * together, and what may be planned. Everything is a pure function of the shape; nothing here runs.
 */
#ifndef WD_DEV_CUDA_ATTENTION_GRAPH_H
#define WD_DEV_CUDA_ATTENTION_GRAPH_H

#include "dev/cuda/cudnn_shapes.h"

/* What is added to the scaled scores. */
typedef enum wd_attention_bias {
    WD_ATTENTION_NO_BIAS,
    WD_ATTENTION_ROW_BIAS,  /* [T] fp32: the same for all queries, heads and samples */
    WD_ATTENTION_ROWS_BIAS, /* [S, T] fp32: the same for all heads and samples */
    WD_ATTENTION_FULL_BIAS  /* [H, S, T] fp32: the same for all samples */
} wd_attention_bias;

/* B samples, H heads of K dimensions, S queries, T keys; bf16. Strides in elements from token to
 * token; samples follow each other. Everything that a plan depends on is here. */
typedef struct wd_attention_key {
    int64_t samples, heads, head_dim, q_tokens, kv_tokens;
    int64_t kv_samples; /* samples, or 1: one k and v for all */
    int64_t q_stride, kv_stride, o_stride;
    int32_t bias;       /* wd_attention_bias */
    int32_t statistics; /* forward: whether the log of the sum of exponentials is wanted */
    int32_t backward, zero;
} wd_attention_key;

_Static_assert(sizeof(wd_attention_key) == 9 * 8 + 4 * 4, "keys are compared as bytes");

/* The numbers of tensors in both graphs. */
enum {
    WD_ATTENTION_Q = 1,
    WD_ATTENTION_K,
    WD_ATTENTION_V,
    WD_ATTENTION_O,
    WD_ATTENTION_LSE,   /* [B, H, S] fp32 */
    WD_ATTENTION_SCALE, /* one fp32 number in host memory */
    WD_ATTENTION_BIAS,
    WD_ATTENTION_DO,
    WD_ATTENTION_DQ,
    WD_ATTENTION_DK,
    WD_ATTENTION_DV,
    WD_ATTENTION_DOT, /* [B, H, S] fp32 scratch: sum of do o */
    WD_ATTENTION_ONE  /* the number 1 in host memory */
};

/* What cudnn_shapes.h asks of a wd_attention_key. */
extern const wd_cudnn_kind wd_attention_kind;

#endif
