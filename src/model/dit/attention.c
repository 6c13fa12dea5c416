/* Attention: launches of the operations of model/dit/attention.h. */
#include "model/dit/attention.h"

#include <assert.h>
#include <math.h>

static float scale_of(const wd_attention_shape *s)
{
    return 1.0f / sqrtf((float)s->head_dim);
}

void wd__attention_forward(void *o, float *lse, const void *q, const void *k, const void *v,
                           const wd_attention_shape *s, wd_queue *queue)
{
    int64_t width = s->heads * s->head_dim;
    assert(s->kv_samples == s->samples || s->kv_samples == 1);
    assert(s->q_stride >= width && s->kv_stride >= width);
    wd_op_attention(queue, &(wd_attention_args){.o = o,
                                                .lse = lse,
                                                .q = q,
                                                .k = k,
                                                .v = v,
                                                .type = s->type,
                                                .samples = s->samples,
                                                .kv_samples = s->kv_samples,
                                                .heads = s->heads,
                                                .head_dim = s->head_dim,
                                                .q_tokens = s->q_tokens,
                                                .kv_tokens = s->kv_tokens,
                                                .last_key_repeat = s->last_key_repeat,
                                                .q_stride = s->q_stride,
                                                .kv_stride = s->kv_stride,
                                                .o_stride = width,
                                                .scale = scale_of(s)});
}

void wd__attention_backward(void *dq, void *dk, void *dv, const void *d_o, const void *q,
                            const void *k, const void *v, const void *o, const float *lse,
                            const wd_attention_shape *s, wd_queue *queue)
{
    int64_t width = s->heads * s->head_dim;
    assert(s->kv_samples == s->samples);
    assert(s->q_stride >= width && s->kv_stride >= width);
    wd_op_attention_backward(queue,
                             &(wd_attention_backward_args){.dq = dq,
                                                           .dk = dk,
                                                           .dv = dv,
                                                           .d_o = d_o,
                                                           .q = q,
                                                           .k = k,
                                                           .v = v,
                                                           .o = o,
                                                           .lse = lse,
                                                           .type = s->type,
                                                           .samples = s->samples,
                                                           .heads = s->heads,
                                                           .head_dim = s->head_dim,
                                                           .q_tokens = s->q_tokens,
                                                           .kv_tokens = s->kv_tokens,
                                                           .last_key_repeat = s->last_key_repeat,
                                                           .q_stride = s->q_stride,
                                                           .kv_stride = s->kv_stride,
                                                           .o_stride = width,
                                                           .scale = scale_of(s)});
}
