/* The slots of the UMT5 encoder's tensor table: the tensors of a stage, in table order.
 *
 * Stage 0 is the embedding, stage 1 + i is layer i, the last one is the final norm. The table is
 * ordered by stage, then by slot, so the line of a tensor is the first line of its stage plus its
 * slot. No linear layer has a bias. */
#ifndef WD_MODEL_TEXT_UMT5_TABLE_H
#define WD_MODEL_TEXT_UMT5_TABLE_H

#include "model/text/umt5.h"

/* X(slot, name after "encoder.block.<i>.layer.", rows, columns); 0 columns: a vector. */
#define WD_UMT5_LAYER_MAP(X)                                                                       \
    X(NORM1, "0.layer_norm.weight", c->d_model, 0)                                                 \
    X(Q, "0.SelfAttention.q.weight", inner, c->d_model)                                            \
    X(K, "0.SelfAttention.k.weight", inner, c->d_model)                                            \
    X(V, "0.SelfAttention.v.weight", inner, c->d_model)                                            \
    X(BIAS, "0.SelfAttention.relative_attention_bias.weight", c->buckets, c->heads)                \
    X(O, "0.SelfAttention.o.weight", c->d_model, inner)                                            \
    X(NORM2, "1.layer_norm.weight", c->d_model, 0)                                                 \
    X(WI0, "1.DenseReluDense.wi_0.weight", c->d_ff, c->d_model)                                    \
    X(WI1, "1.DenseReluDense.wi_1.weight", c->d_ff, c->d_model)                                    \
    X(WO, "1.DenseReluDense.wo.weight", c->d_model, c->d_ff)

typedef enum wd_umt5_slot {
#define X(slot, name, rows, columns) WD_UMT5_##slot,
    WD_UMT5_LAYER_MAP(X)
#undef X
        WD_UMT5_LAYER_SLOTS
} wd_umt5_slot;

enum { WD_UMT5_EMBED_SLOTS = 2 }; /* two names of one tensor */

/* Lines of the table. */
static inline int64_t wd__umt5_layer_line(int64_t layer)
{
    return WD_UMT5_EMBED_SLOTS + layer * WD_UMT5_LAYER_SLOTS;
}
static inline int64_t wd__umt5_norm_line(const wd_umt5_config *c)
{
    return wd__umt5_layer_line(c->layers);
}

#endif
