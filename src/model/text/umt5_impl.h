/* The tensor table and the state of the UMT5 encoder, and the loading of a layer's weights. Private
 * to umt5*.c. */
#ifndef WD_MODEL_TEXT_UMT5_IMPL_H
#define WD_MODEL_TEXT_UMT5_IMPL_H

#include "core/memory.h"
#include "model/text/umt5.h"

/* ---- the tensor table ----
 *
 * Slots are the tensors of a stage, in table order. Stage 0 is the embedding, stage 1 + i is layer
 * i, the last one is the final norm. The table is ordered by stage, then by slot, so the line of a
 * tensor is the first line of its stage plus its slot. No linear layer has a bias. */

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

/* ---- the encoder ---- */

struct wd_umt5 {
    wd_umt5_config config;
    wd_dtype dtype;
    wd_queue *queue;
    const wd_safetensors_entry **line; /* [lines] of the table */
    const wd_safetensors_entry *embedding;
    void *stage; /* device: the tensors of one layer that are not used in place */
    void *raw;   /* device: a tensor as in the file, before it is converted */
    size_t stage_bytes, raw_bytes;
};

/* The tensor in the compute dtype: in the mapped file, or copied to `stage` on e->queue. */
wd_tensor wd__umt5_bring(wd_umt5 *e, wd_arena *stage, const wd_safetensors_entry *w);

/* Does this for all tensors of a layer but its bias table, which the host reads. They replace those
 * of the previous layer. The system is told to read the next layer from disk. */
void wd__umt5_bring_layer(wd_tensor w[WD_UMT5_LAYER_SLOTS], wd_umt5 *e, int64_t layer);

#endif
