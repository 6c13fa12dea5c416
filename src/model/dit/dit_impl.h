/* Functions that the files of the transformer share. Private to src/model/dit/dit*.c.
 *
 * dit.c               sizes, streams and their gradients, latents <-> patches, rotation tables
 * layers.c            linear layers, norms, residuals, attention
 * dit_embed.c         stage 0, forward and backward
 * dit_block_forward.c, dit_block_backward.c: the formulas of a block, and of its gradients
 * dit_head.c          the last stage, forward and backward
 *
 * Temporaries are pushed on the context's arena and given back by a reset to a mark. Where a
 * comment says so, two temporaries share memory because they are never used at the same time: at
 * real sizes every [B, L, D] counts. */
#ifndef WD_MODEL_DIT_DIT_IMPL_H
#define WD_MODEL_DIT_DIT_IMPL_H

#include "dev/ops.h"
#include "model/dit/dit.h"
#include "model/dit/layers.h"

typedef struct wd_dit_dims {
    wd_dtype type;
    int64_t samples, texts, tokens, text_tokens; /* B, T, L, S */
    int64_t rows, text_rows;                     /* B L, T S */
    int64_t width, ffn, heads, head_dim;         /* D, E, N, K */
} wd_dit_dims;

wd_dit_dims wd__dit_dims_of(const wd_dit_context *context);

/* Pushes `count` elements. */
void *wd__dit_push(const wd_dit_context *context, int64_t count, wd_dtype type);

/* The address of element `i`. */
static inline void *wd__dit_at(const void *base, wd_dtype type, int64_t i)
{
    return (char *)base + i * (int64_t)wd_dtype_bytes(type);
}

/* The shape of norms over the stream's rows, with modulation vectors `stride` elements apart. */
wd_norm_shape wd__dit_norm_shape(const wd_dit_context *context, int64_t stride);

/* The shape of the RMS norm with weight `w` over `rows` rows of queries or keys, `stride` elements
 * apart. */
wd_rms_shape wd__dit_rms_shape(const wd_dit_context *context, const wd_tensor *w, int64_t rows,
                               int64_t stride);
wd_attention_shape wd__dit_self_shape(const wd_dit_context *context);  /* q, k, v in rows of 3 D */
wd_attention_shape wd__dit_cross_shape(const wd_dit_context *context); /* k, v in rows of 2 D */

/* y += x, [count] F32 += type. */
void wd__dit_add(float *y, const void *x, wd_dtype type, int64_t count, wd_queue *queue);

void wd__dit_cast(void *to, const void *from, wd_dtype to_type, wd_dtype from_type, int64_t count,
                  wd_queue *queue);

/* ---- patches: [B, L, C pf ph pw] ---- */

/* The order of a patch's features: in the embedding the channel is slowest (as PyTorch flattens a
 * convolution's weight), in the head's output it is fastest. */
typedef enum wd_dit_patch_order {
    WD_DIT_CHANNEL_SLOWEST,
    WD_DIT_CHANNEL_FASTEST
} wd_dit_patch_order;

typedef struct wd_dit_patch_layout {
    wd_dtype patch_type, latent_type;
    int64_t channels;
    wd_dit_patch_order order;
} wd_dit_patch_layout;

void wd__dit_patchify(void *patches,       /* =, patch_type */
                      const void *latents, /* [B, C, F, H, W] latent_type */
                      const wd_dit_patch_layout *layout, const wd_dit_context *context);
void wd__dit_unpatchify(void *latents, /* = */
                        const void *patches, const wd_dit_patch_layout *layout,
                        const wd_dit_context *context);

/* ---- blocks ---- */

/* Rows of a block's modulation m [B, 6, D]: of self-attention, and of the feed-forward part. */
enum {
    WD_DIT_SHIFT,
    WD_DIT_SCALE,
    WD_DIT_GATE,
    WD_DIT_FFN_SHIFT,
    WD_DIT_FFN_SCALE,
    WD_DIT_FFN_GATE
};

/* y = RMS norm of x with weight `w`, rotated by `rope` unless it is NULL; rows of x and y are
 * `stride` elements apart. y may be x. */
void wd__dit_block_rms(void *y, const void *x, const wd_tensor *w, const wd_dit_rope *rope,
                       int64_t rows, int64_t stride, const wd_dit_context *context);

/* n = LN(x) (1 + scale) + shift; shift and scale are rows `first` (WD_DIT_SHIFT, WD_DIT_FFN_SHIFT)
 * and first + 1 of the modulation m. */
void wd__dit_block_modulate(void *n, const void *x, const float *m, int first,
                            const wd_dit_context *context);

/* Runs the forward pass from saved->x0 again, to fill all of `saved` but x3. */
void wd__dit_block_again(wd_dit_block_saved *saved, const wd_dit_stream *stream,
                         const wd_dit_stage *weights, const wd_dit_context *context);

#endif
