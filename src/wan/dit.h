/* The Wan transformer: forward and backward, stage by stage.
 *
 * Data flow: latents, timesteps and text enter through the embedding; a stream (x, temb, tp, ctx)
 * goes from block to block; the head turns x into the velocity. The caller brings each stage's
 * weights, so that they may live anywhere and be there for just that stage; teacher and student run
 * the same functions. All memory is the caller's: activations come from the context's arena, in
 * stack order, and everything is launched on its queue.
 *
 * Letters: B samples, T texts (B, or 1 shared by all samples), C channels, F H W latent frames,
 * height, width, L image tokens, S text tokens, D width, E feed-forward width, N heads.
 * "dtype" is the compute dtype: F32, or BF16 with fp32 islands as diffusers has them (see
 * `_keep_in_fp32_modules` of transformer_wan.py). */
#ifndef WD_WAN_DIT_H
#define WD_WAN_DIT_H

#include "core/arena.h"
#include "dev/device.h"
#include "wan/dit_table.h"

/* Text is padded with zeros, which are attended to like any token. Rows of padding are all alike,
 * and so is all that is made of them, so that one of them, the last, may stand for text_repeat. */
typedef struct wd_dit_shape {
    int64_t samples;               /* B */
    int64_t texts;                 /* T: samples or 1 */
    int64_t frames, height, width; /* of the latents; multiples of the patch */
    int64_t text_tokens;           /* S: rows that are computed */
    int64_t text_repeat;           /* how many the last one stands for; 0: one, too */
} wd_dit_shape;

/* Image tokens L of one sample. */
int64_t wd_dit_tokens(const wd_dit_config *config, const wd_dit_shape *shape);

/* RoPE tables of a shape: cos, sin [L, head_dim / 2] on the device. They depend on the latents'
 * size only. Owned by the caller of open. */
typedef struct wd_dit_rope {
    float *cos, *sin;
    wd_device *device;
} wd_dit_rope;

wd_status wd_dit_rope_open(wd_dit_rope *out, const wd_dit_config *config, const wd_dit_shape *shape,
                           wd_queue *queue, wd_err *err);
void wd_dit_rope_close(wd_dit_rope *rope); /* a zeroed one is fine */

/* What all stages of one pass share. Borrowed by every call. */
typedef struct wd_dit_context {
    const wd_dit_config *config;
    wd_dit_shape shape;
    wd_dtype dtype;
    wd_dit_rope rope;
    bool checkpoint; /* a block pass that keeps, keeps the block's input alone, and runs again when
                      * its gradients are wanted: less memory, the same bits */
    wd_queue *queue;
    wd_arena *arena; /* device memory */
} wd_dit_context;

/* What goes from stage to stage. */
typedef struct wd_dit_stream {
    void *x;    /* [B, L, D] dtype */
    void *temb; /* [B, D] dtype */
    void *tp;   /* [B, 6, D] dtype */
    void *ctx;  /* [T, S, D] dtype */
} wd_dit_stream;

/* Bytes of each part. */
typedef struct wd_dit_stream_bytes {
    size_t x, temb, tp, ctx;
} wd_dit_stream_bytes;

wd_dit_stream_bytes wd_dit_stream_sizes(const wd_dit_context *context);

/* Pushes a stream's memory on the arena. */
void wd_dit_stream_push(wd_dit_stream *out, const wd_dit_context *context);

/* Gradients that go back from stage to stage. */
typedef struct wd_dit_stream_grad {
    void *dx;     /* [B, L, D] dtype */
    float *dtemb; /* [B, D] */
    float *dtp;   /* [B, 6, D] */
    float *dctx;  /* [T, S, D] */
    float *dm;    /* [B, 6, D] of the block at work: its modulation's */
} wd_dit_stream_grad;

/* Pushes it and zeroes dtemb, dtp, dctx. To be done ahead of the forward pass: the backward pass
 * gives back what was pushed behind what it was kept. */
void wd_dit_stream_grad_push(wd_dit_stream_grad *out, const wd_dit_context *context);

/* What a forward pass keeps for its backward pass; filled by forward, memory from the arena. Opaque
 * but for its size. Kept are what products gave, and sums that would need two of them; what is
 * elementwise (norms, rotations, activations, gated sums) is computed again: per block
 * 10 [B, L, D], one [B, L, E], two [T, S, D]. A block's lie in the order in which forward fills
 * them: backward reads them in reverse, and gives each part back once it is done with it. */
typedef struct wd_dit_embed_saved {
    const void *text; /* [T, S, text_dim] dtype: the caller's */
    void *patches;    /* [B L, C pf ph pw] dtype */
    float *sinusoid;  /* [B, freq_dim] */
    float *time1;     /* [B, D] before its activation */
    void *temb_act;   /* [B, D] dtype */
    void *text1;      /* [T, S, D] dtype, before its activation */
} wd_dit_embed_saved;

typedef struct wd_dit_block_saved {
    void *x0;   /* [B, L, D] block input; with checkpointing all there is */
    float *m;   /* [B, 6, D] modulation */
    void *qkv;  /* [B, L, 3 D] self-attention: q, k before their norms, v */
    void *o;    /* [B, L, D] and its result, before the output layer */
    float *lse; /* [B, N, L] */
    void *y1;   /* [B, L, D] behind it */
    void *x2;   /* [B, L, D] the stream behind cross-attention */
    void *q2;   /* [B, L, D] cross-attention, in the same way */
    void *kv2;  /* [T, S, 2 D] */
    void *o2;
    float *lse2;
    void *h;  /* [B, L, E] feed-forward, before the activation */
    void *y3; /* [B, L, D] */
    void *x3; /* [B, L, D] the block's result: not read by its backward pass */
} wd_dit_block_saved;

typedef struct wd_dit_head_saved {
    float *m; /* [2, B, D] modulation */
} wd_dit_head_saved;

/* ---- forward; `saved` NULL: nothing is kept, scratch is given back to the arena ---- */

/* stream = embed(latents, timestep, text). */
void wd_dit_embed_forward(wd_dit_stream *stream, wd_dit_embed_saved *saved,
                          const float *latents,  /* [B, C, F, H, W] */
                          const float *timestep, /* [B] */
                          const void *text,      /* [T, S, text_dim] dtype */
                          const wd_dit_stage *weights, const wd_dit_context *context);

/* The parts of it, which need not have the same samples: image to x, time to temb and tp, text to
 * ctx, layer by layer: what is between them lies in ctx, so that the text may go. Nothing is kept.
 */
void wd_dit_embed_image(wd_dit_stream *stream, const float *latents, /* [B, C, F, H, W] */
                        const wd_dit_stage *weights, const wd_dit_context *context);
void wd_dit_embed_time(wd_dit_stream *stream, const float *timestep, /* [B] */
                       const wd_dit_stage *weights, const wd_dit_context *context);
void wd_dit_embed_text_first(wd_dit_stream *stream, const void *text, /* [T, S, text_dim] dtype */
                             const wd_dit_stage *weights, const wd_dit_context *context);
void wd_dit_embed_text_second(wd_dit_stream *stream, const wd_dit_stage *weights,
                              const wd_dit_context *context);

/* stream.x = block(stream), in place; with `saved` x moves to new memory, which is x3, and x0 stays
 * in saved (with context.checkpoint it is all that does). */
void wd_dit_block_forward(wd_dit_stream *stream, wd_dit_block_saved *saved,
                          const wd_dit_stage *weights, const wd_dit_context *context);

void wd_dit_head_forward(void *velocity, /* [B, C, F, H, W] dtype, = */
                         wd_dit_head_saved *saved, const wd_dit_stream *stream,
                         const wd_dit_stage *weights, const wd_dit_context *context);

/* The same in two steps, between which velocities can be combined as patches; nothing is kept. */
void wd_dit_head_patches(void *patches, /* [B, N, C * patch] dtype, =; may be where stream.x is */
                         void *normed,  /* [B, N, D] dtype, scratch: overwritten */
                         const wd_dit_stream *stream, const wd_dit_stage *weights,
                         const wd_dit_context *context);
void wd_dit_head_unpatchify(float *velocity,      /* [B, C, F, H, W], = */
                            const float *patches, /* [B, N, C * patch] */
                            const wd_dit_context *context);

/* ---- backward; parameter gradients (F32, slot by slot) are added to ---- */

/* stream: as it was for the forward pass. */
void wd_dit_head_backward(wd_dit_stream_grad *grad, /* dx =, dtemb += */
                          const wd_dit_stage *dweights,
                          const void *dvelocity, /* [B, C, F, H, W] dtype */
                          const wd_dit_head_saved *saved, const wd_dit_stream *stream,
                          const wd_dit_stage *weights, const wd_dit_context *context);

/* Once for what was kept: gives back to the arena all from m on (with context.checkpoint from x3
 * on), what was pushed behind it included. With context.checkpoint the forward pass runs first, in
 * the arena. stream: temb, tp, ctx of the forward pass; its x is not read. Texts must not be
 * shared: shape.texts == shape.samples. */
void wd_dit_block_backward(wd_dit_stream_grad *grad, /* dx in place, dtp +=, dctx += */
                           const wd_dit_stage *dweights, const wd_dit_block_saved *saved,
                           const wd_dit_stream *stream, const wd_dit_stage *weights,
                           const wd_dit_context *context);

void wd_dit_embed_backward(float *dlatents, /* [B, C, F, H, W], = ; NULL: not wanted */
                           float *dtext,    /* [T, S, text_dim], = ; NULL: not wanted; its last row
                                             * is the sum over those that it stands for */
                           const wd_dit_stage *dweights, const wd_dit_stream_grad *grad,
                           const wd_dit_embed_saved *saved, const wd_dit_stream *stream,
                           const wd_dit_stage *weights, const wd_dit_context *context);

#endif
