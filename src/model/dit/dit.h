/* Folder model/dit. The diffusion transformer: forward and backward.
 *
 * The Wan transformer: forward and backward, stage by stage.
 *
 * Data flow: latents, timesteps and text enter through the embedding; a stream (x, temb, tp, ctx)
 * goes from block to block; the head turns x into the velocity. The caller provides the weights of
 * each stage, so they may be kept anywhere and be on the device for that stage only. Teacher and
 * student run the same functions. The caller owns all memory: activations come from the context's
 * arena, in stack order, and everything is launched on the context's queue.
 *
 * Letters: B samples, T texts (B, or 1 shared by all samples), C channels, F H W latent frames,
 * height, width, L image tokens, S text tokens, D width, E feed-forward width, N heads, K
 * head dimension.
 * "dtype" is the compute dtype: F32, or BF16 with those modules in fp32 that diffusers keeps in
 * fp32 (`_keep_in_fp32_modules` of transformer_wan.py). */
#ifndef WD_MODEL_DIT_DIT_H
#define WD_MODEL_DIT_DIT_H

#include "core/memory.h"
#include "dev/device.h"
#include "model/tables/dit_table.h"

/* Text is padded with zeros, and attention includes the padding. All rows of padding are equal, and
 * so are all rows computed from them, so the last row may represent text_repeat rows. */
typedef struct wd_dit_shape {
    int64_t samples;               /* B */
    int64_t texts;                 /* T: samples or 1 */
    int64_t frames, height, width; /* of the latents; multiples of the patch */
    int64_t text_tokens;           /* S: rows that are computed */
    int64_t text_repeat;           /* how many rows the last one represents; 0 means 1 */
} wd_dit_shape;

/* Image tokens L of one sample. */
int64_t wd_dit_tokens(const wd_dit_config *config, const wd_dit_shape *shape);

/* Passes of up to `most` samples take multiples of this. Few sizes mean few shapes: kernels are
 * made once per shape, and a dry run can try all of them, since workspace may be larger for fewer
 * samples. */
static inline int64_t wd_dit_samples_step(int64_t most)
{
    return (most + 15) / 16;
}

/* RoPE tables of a shape: cos, sin [L, head_dim / 2] fp32 on the device. They depend on the size of
 * the latents only. The caller of open closes them. */
typedef struct wd_dit_rope {
    float *cos, *sin;
    wd_device *device;
} wd_dit_rope;

wd_status wd_dit_rope_open(wd_dit_rope *out, const wd_dit_config *config, const wd_dit_shape *shape,
                           wd_queue *queue, wd_err *err);
void wd_dit_rope_close(wd_dit_rope *rope); /* a zeroed struct is allowed */

/* The arguments that all stages of a pass share. Every call borrows them. */
typedef struct wd_dit_context {
    const wd_dit_config *config;
    wd_dit_shape shape;
    wd_dtype dtype;
    wd_dit_rope rope;
    bool checkpoint; /* saves only the input of each block; the backward pass runs the block's
                        forward pass again: less memory, the same bits */
    wd_queue *queue;
    wd_arena *arena; /* device memory */
} wd_dit_context;

/* The activations that one stage passes to the next. */
typedef struct wd_dit_stream {
    void *x;    /* [B, L, D] dtype */
    void *temb; /* [B, D] dtype */
    void *tp;   /* [B, 6, D] dtype */
    void *ctx;  /* [T, S, D] dtype */
} wd_dit_stream;

/* Bytes of each part of a stream. */
typedef struct wd_dit_stream_bytes {
    size_t x, temb, tp, ctx;
} wd_dit_stream_bytes;

wd_dit_stream_bytes wd_dit_stream_sizes(const wd_dit_context *context);

/* Pushes a stream's memory on the arena. */
void wd_dit_stream_push(wd_dit_stream *out, const wd_dit_context *context);

/* The gradients that a stage passes back to the previous one. */
typedef struct wd_dit_stream_grad {
    void *dx;     /* [B, L, D] dtype */
    float *dtemb; /* [B, D] */
    float *dtp;   /* [B, 6, D] */
    float *dctx;  /* [T, S, D] */
    float *dm;    /* [B, 6, D] of the current block's modulation */
} wd_dit_stream_grad;

/* Pushes the memory of *out and zeroes dtemb, dtp, dctx. Call it before the forward pass, since the
 * backward pass gives back all memory that was pushed after the saved activations. */
void wd_dit_stream_grad_push(wd_dit_stream_grad *out, const wd_dit_context *context);

/* The activations that a forward pass saves for its backward pass, in memory of the arena. Callers
 * only store these structs. Results of products are saved, and sums that need two products;
 * elementwise results (norms, rotations, activations, gated sums) are computed again. A block saves
 * 10 [B, L, D], one [B, L, E] and two [T, S, D]. They are in memory in the order in which the
 * forward pass fills them; the backward pass reads them in reverse, and gives each part back after
 * its last use. */
typedef struct wd_dit_embed_saved {
    const void *text; /* [T, S, text_dim] dtype: memory of the caller */
    void *patches;    /* [B L, C pf ph pw] dtype */
    float *sinusoid;  /* [B, freq_dim] */
    float *time1;     /* [B, D] before the activation */
    void *temb_act;   /* [B, D] dtype */
    void *text1;      /* [T, S, D] dtype, before the activation */
} wd_dit_embed_saved;

typedef struct wd_dit_block_saved {
    void *x0;   /* [B, L, D] block input; with checkpointing the only saved part */
    float *m;   /* [B, 6, D] modulation */
    void *qkv;  /* [B, L, 3 D] self-attention: q, k before their norms, v */
    void *o;    /* [B, L, D] result of self-attention, before the output layer */
    float *lse; /* [B, N, L] */
    void *y1;   /* [B, L, D] after the output layer */
    void *x2;   /* [B, L, D] the stream after cross-attention */
    void *q2;   /* [B, L, D] cross-attention: q before its norm; kv2, o2, lse2 as above */
    void *kv2;  /* [T, S, 2 D] */
    void *o2;
    float *lse2;
    void *h;  /* [B, L, E] feed-forward, before the activation */
    void *y3; /* [B, L, D] */
    void *x3; /* [B, L, D] the block's result; its backward pass does not read it */
} wd_dit_block_saved;

typedef struct wd_dit_head_saved {
    float *m; /* [2, B, D] modulation */
} wd_dit_head_saved;

/* ---- forward; `saved` NULL: nothing is saved, scratch is given back to the arena ---- */

/* stream = embed(latents, timestep, text). */
void wd_dit_embed_forward(wd_dit_stream *stream, wd_dit_embed_saved *saved,
                          const float *latents,  /* [B, C, F, H, W] */
                          const float *timestep, /* [B] */
                          const void *text,      /* [T, S, text_dim] dtype */
                          const wd_dit_stage *weights, const wd_dit_context *context);

/* The parts of the embedding, which need not have the same samples: image to x, time to temb and
 * tp, text to ctx. Nothing is saved. */
void wd_dit_embed_image(wd_dit_stream *stream, const float *latents, /* [B, C, F, H, W] */
                        const wd_dit_stage *weights, const wd_dit_context *context);
void wd_dit_embed_time(wd_dit_stream *stream, const float *timestep, /* [B] */
                       const wd_dit_stage *weights, const wd_dit_context *context);
void wd_dit_embed_text(wd_dit_stream *stream, const void *text, /* [T, S, text_dim] dtype */
                       const wd_dit_stage *weights, const wd_dit_context *context);

/* stream.x = block(stream), in place. With `saved` the result is in new memory, saved->x3, and the
 * input stays in saved->x0 (with context.checkpoint nothing else is saved). */
void wd_dit_block_forward(wd_dit_stream *stream, wd_dit_block_saved *saved,
                          const wd_dit_stage *weights, const wd_dit_context *context);

void wd_dit_head_forward(void *velocity, /* [B, C, F, H, W] dtype, = */
                         wd_dit_head_saved *saved, const wd_dit_stream *stream,
                         const wd_dit_stage *weights, const wd_dit_context *context);

/* ---- backward; parameter gradients (F32, by slot) are += ---- */

/* stream: as in the forward pass. */
void wd_dit_head_backward(wd_dit_stream_grad *grad, /* dx =, dtemb += */
                          const wd_dit_stage *dweights,
                          const void *dvelocity, /* [B, C, F, H, W] dtype */
                          const wd_dit_head_saved *saved, const wd_dit_stream *stream,
                          const wd_dit_stage *weights, const wd_dit_context *context);

/* Call this once per forward pass. It gives back to the arena all memory from saved->m on (with
 * context.checkpoint from x3 on), including all that was pushed later. With context.checkpoint the
 * forward pass runs again first. stream: temb, tp, ctx of the forward pass; its x is not read.
 * Texts must not be shared: shape.texts == shape.samples. */
void wd_dit_block_backward(wd_dit_stream_grad *grad, /* dx in place, dtp +=, dctx += */
                           const wd_dit_stage *dweights, const wd_dit_block_saved *saved,
                           const wd_dit_stream *stream, const wd_dit_stage *weights,
                           const wd_dit_context *context);

void wd_dit_embed_backward(float *dlatents, /* [B, C, F, H, W], = ; NULL: not computed */
                           float *dtext, /* [T, S, text_dim], = ; NULL: not computed; its last row
                                            is the sum over the rows that it represents */
                           const wd_dit_stage *dweights, const wd_dit_stream_grad *grad,
                           const wd_dit_embed_saved *saved, const wd_dit_stream *stream,
                           const wd_dit_stage *weights, const wd_dit_context *context);

#endif
