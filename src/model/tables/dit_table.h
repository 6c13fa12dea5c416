/* The tensor table of the Wan transformer, and its stages.
 *
 * A stage is a group of tensors that are acquired and released together: stage 0 is the embedding
 * (patches, time, text), stage 1 + i is block i, the last one is the head. Every tensor of a stage
 * has a slot number. The table is ordered by stage, then by slot, so the line of a tensor is the
 * first line of its stage plus its slot. */
#ifndef WD_MODEL_TABLES_DIT_TABLE_H
#define WD_MODEL_TABLES_DIT_TABLE_H

#include "model/tables/config.h"

/* X(slot, name) in table order. */
#define WD_DIT_EMBED_MAP(X)                                                                        \
    X(PATCH_W, "patch_embedding.weight")                           /* [D, C, pf, ph, pw] */        \
    X(PATCH_B, "patch_embedding.bias")                             /* [D] */                       \
    X(TIME1_W, "condition_embedder.time_embedder.linear_1.weight") /* [D, freq_dim], fp32 */       \
    X(TIME1_B, "condition_embedder.time_embedder.linear_1.bias")   /* [D], fp32 */                 \
    X(TIME2_W, "condition_embedder.time_embedder.linear_2.weight") /* [D, D], fp32 */              \
    X(TIME2_B, "condition_embedder.time_embedder.linear_2.bias")   /* [D], fp32 */                 \
    X(TIME_PROJ_W, "condition_embedder.time_proj.weight")          /* [6 D, D] */                  \
    X(TIME_PROJ_B, "condition_embedder.time_proj.bias")            /* [6 D] */                     \
    X(TEXT1_W, "condition_embedder.text_embedder.linear_1.weight") /* [D, text_dim] */             \
    X(TEXT1_B, "condition_embedder.text_embedder.linear_1.bias")   /* [D] */                       \
    X(TEXT2_W, "condition_embedder.text_embedder.linear_2.weight") /* [D, D] */                    \
    X(TEXT2_B, "condition_embedder.text_embedder.linear_2.bias")   /* [D] */

/* Names after "blocks.<i>.". Without cross_attn_norm the lines of NORM2_* have may_miss and zero
 * elements. */
#define WD_DIT_BLOCK_MAP(X)                                                                        \
    X(TABLE, "scale_shift_table")    /* [1, 6, D], fp32 */                                         \
    X(SELF_Q_W, "attn1.to_q.weight") /* [D, D] */                                                  \
    X(SELF_K_W, "attn1.to_k.weight")                                                               \
    X(SELF_V_W, "attn1.to_v.weight")                                                               \
    X(SELF_Q_B, "attn1.to_q.bias") /* [D] */                                                       \
    X(SELF_K_B, "attn1.to_k.bias")                                                                 \
    X(SELF_V_B, "attn1.to_v.bias")                                                                 \
    X(SELF_NORM_Q, "attn1.norm_q.weight") /* [D] */                                                \
    X(SELF_NORM_K, "attn1.norm_k.weight")                                                          \
    X(SELF_OUT_W, "attn1.to_out.0.weight") /* [D, D] */                                            \
    X(SELF_OUT_B, "attn1.to_out.0.bias")                                                           \
    X(NORM2_W, "norm2.weight") /* [D], fp32 */                                                     \
    X(NORM2_B, "norm2.bias")                                                                       \
    X(CROSS_Q_W, "attn2.to_q.weight")                                                              \
    X(CROSS_Q_B, "attn2.to_q.bias")                                                                \
    X(CROSS_K_W, "attn2.to_k.weight")                                                              \
    X(CROSS_V_W, "attn2.to_v.weight")                                                              \
    X(CROSS_K_B, "attn2.to_k.bias")                                                                \
    X(CROSS_V_B, "attn2.to_v.bias")                                                                \
    X(CROSS_NORM_Q, "attn2.norm_q.weight")                                                         \
    X(CROSS_NORM_K, "attn2.norm_k.weight")                                                         \
    X(CROSS_OUT_W, "attn2.to_out.0.weight")                                                        \
    X(CROSS_OUT_B, "attn2.to_out.0.bias")                                                          \
    X(FFN1_W, "ffn.net.0.proj.weight") /* [E, D] */                                                \
    X(FFN1_B, "ffn.net.0.proj.bias")   /* [E] */                                                   \
    X(FFN2_W, "ffn.net.2.weight")      /* [D, E] */                                                \
    X(FFN2_B, "ffn.net.2.bias")        /* [D] */

#define WD_DIT_HEAD_MAP(X)                                                                         \
    X(TABLE, "scale_shift_table") /* [1, 2, D], fp32 */                                            \
    X(PROJ_W, "proj_out.weight")  /* [patch volume * out_channels, D] */                           \
    X(PROJ_B, "proj_out.bias")

typedef enum wd_dit_embed_slot {
#define X(slot, name) WD_DIT_EMBED_##slot,
    WD_DIT_EMBED_MAP(X)
#undef X
        WD_DIT_EMBED_SLOTS
} wd_dit_embed_slot;

typedef enum wd_dit_block_slot {
#define X(slot, name) WD_DIT_BLOCK_##slot,
    WD_DIT_BLOCK_MAP(X)
#undef X
        WD_DIT_BLOCK_SLOTS
} wd_dit_block_slot;

typedef enum wd_dit_head_slot {
#define X(slot, name) WD_DIT_HEAD_##slot,
    WD_DIT_HEAD_MAP(X)
#undef X
        WD_DIT_HEAD_SLOTS
} wd_dit_head_slot;

/* Views of the tensors of one stage, by slot: weights, or their gradients (F32). */
typedef struct wd_dit_stage {
    wd_tensor t[WD_DIT_BLOCK_SLOTS]; /* the largest of the three */
} wd_dit_stage;

static inline int wd_dit_stages(const wd_dit_config *c)
{
    return (int)c->layers + 2;
}
/* The first line of a stage in the table, and the number of its lines. */
int64_t wd_dit_stage_first(const wd_dit_config *config, int stage);
int wd_dit_stage_slots(const wd_dit_config *config, int stage);

/* Makes the table, which the caller closes. */
wd_status wd_dit_table_open(wd_tensor_table *out, const wd_dit_config *config, wd_err *err);
void wd_dit_table_close(wd_tensor_table *table);

/* The dtype of a tensor of the table when the model computes in `dtype`. */
wd_dtype wd_spec_dtype(const wd_tensor_spec *spec, wd_dtype dtype);

/* Whether a tensor of the table is a matrix of a block: what quantised files quantise. */
bool wd_dit_is_matrix(const wd_tensor_spec *spec);

/* The number of weights of a transformer; 0: no memory for its table. */
int64_t wd_dit_parameters(const wd_dit_config *config);

#endif
