/* Scaled dot-product attention over heads, forward and backward: softmax(q kT / sqrt(K)) v.
 *
 * Letters: B samples, L queries, S keys, N heads, K head dimension. Rows of q, k, v may be parts of
 * wider rows: q is [B, L, N K] with rows q_stride elements apart, k and v [B, S, N K] with
 * kv_stride. There is no mask: Wan also attends to the padding of text. The keys of padding are all
 * equal, so the last key may represent all of them. */
#ifndef WD_MODEL_DIT_ATTENTION_H
#define WD_MODEL_DIT_ATTENTION_H

#include "dev/ops.h"

typedef struct wd_attention_shape {
    wd_dtype type;
    int64_t samples, kv_samples; /* kv_samples: samples, or 1 shared by all */
    int64_t heads, head_dim, q_tokens, kv_tokens;
    int64_t last_key_repeat; /* how many equal keys the last one represents; 0 means 1 */
    int64_t q_stride, kv_stride;
} wd_attention_shape;

void wd__attention_forward(
    void *o,    /* [B, L, N K], =, contiguous */
    float *lse, /* [B, N, L], =: log-sum-exp for the backward pass; NULL: not computed */
    const void *q, const void *k, const void *v, const wd_attention_shape *shape, wd_queue *queue);

void wd__attention_backward(void *dq, void *dk, void *dv, /* =, laid out as q, k, v */
                            const void *d_o, const void *q, const void *k, const void *v,
                            const void *o, const float *lse, const wd_attention_shape *shape,
                            wd_queue *queue);

#endif
