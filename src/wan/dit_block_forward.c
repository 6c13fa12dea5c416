/* One block, forward.
 *
 *     m = table + tp: shift, scale, gate of self-attention; the same three of the feed-forward part
 *     x += gate SELF(LN(x) (1 + scale) + shift)
 *     x += CROSS(LN(x) w + b, ctx)          (without cross_attn_norm: of x itself)
 *     x += gate FFN(LN(x) (1 + scale) + shift)
 *
 * as WanTransformerBlock of diffusers. One pass serves all uses; what differs is where its parts
 * lie. A pass that keeps writes what backward wants to its own memory; any other reuses scratch,
 * works in place, and never has more than max(4 D, D + E) of it per token. Both compute the same
 * bits, but for one thing: a pass for no gradient at all lets the product activate its result
 * (GELU), before that was rounded. */
#include <assert.h>

#include "nn/attention.h"
#include "nn/linear.h"
#include "wan/dit_impl.h"

void wd_dit_block_rms(void *y, const void *x, const wd_tensor *w, const wd_dit_rope *rope,
                      int64_t rows, int64_t stride, const wd_dit_context *c)
{
    wd_rms_shape shape = wd_dit_rms_shape(c, w, rows, stride);
    wd_rms_rope_forward(y, x, w->data, rope ? rope->cos : NULL, rope ? rope->sin : NULL, &shape,
                        c->queue);
}

void wd_dit_block_modulate(void *n, const void *x, const float *m, int first,
                           const wd_dit_context *c)
{
    int64_t width = wd_dit_width(c->config);
    wd_norm_shape shape = wd_dit_norm_shape(c, 6 * width);
    const float *shift = m + first * width;
    wd_modulate_forward(n, x, shift, shift + width, &shape, c->queue);
}

typedef struct pass {
    const wd_dit_context *c;
    wd_dit_dims d;
    const wd_tensor *w;             /* weights by slot */
    const void *ctx;                /* [T, S, D] */
    const wd_dit_block_saved *keep; /* NULL: nothing is kept */
    const float *m;                 /* [B, 6, D] */
    bool fused;                     /* GELU within the product */
    bool no_result;                 /* only what is kept is wanted */
} pass;

static wd_linear layer(const pass *p, wd_dit_block_slot weight, wd_dit_block_slot bias)
{
    return wd_linear_of(&p->w[weight], &p->w[bias]);
}

static void *push(const pass *p, int64_t count)
{
    return wd_dit_push(p->c, count, p->d.type);
}

/* A column of rows: `base` shifted by `width` elements. */
static void *column(const pass *p, const void *base, int64_t width)
{
    return wd_dit_at(base, p->d.type, width);
}

/* y = x + branch gate; `gate`: row of the modulation, or -1 for none. */
static void residual(const pass *p, void *y, const void *x, const void *branch, int gate)
{
    wd_norm_shape shape = wd_dit_norm_shape(p->c, 6 * p->d.width);
    wd_residual_forward(y, x, branch, gate < 0 ? NULL : p->m + gate * p->d.width, &shape,
                        p->c->queue);
}

static void self_attention(const pass *p, void *y, const void *x)
{
    const wd_dit_block_saved *keep = p->keep;
    const wd_dit_rope *rope = &p->c->rope;
    int64_t rows = p->d.rows, width = p->d.width;
    size_t mark = wd_arena_mark(p->c->arena);
    wd_linear_group group = wd_linear_group_of(&p->w[WD_DIT_BLOCK_SELF_Q_W],
                                               &p->w[WD_DIT_BLOCK_SELF_Q_B], NULL, NULL, 3);
    void *n = push(p, rows * width);
    void *qkv = keep ? keep->qkv : push(p, rows * 3 * width);
    void *turned = keep ? push(p, rows * 3 * width) : qkv; /* its third of v stays unused */
    wd_dit_block_modulate(n, x, p->m, 0, p->c);
    wd_linear_group_forward(qkv, n, &group, rows, p->c->queue);
    wd_dit_block_rms(turned, qkv, &p->w[WD_DIT_BLOCK_SELF_NORM_Q], rope, rows, 3 * width, p->c);
    wd_dit_block_rms(column(p, turned, width), column(p, qkv, width),
                     &p->w[WD_DIT_BLOCK_SELF_NORM_K], rope, rows, 3 * width, p->c);

    wd_attention_shape shape = wd_dit_self_shape(p->c);
    void *o = keep ? keep->o : n; /* n is done with */
    wd_attention_forward(o, keep ? keep->lse : NULL, turned, column(p, turned, width),
                         column(p, qkv, 2 * width), &shape, p->c->queue);
    void *out = keep ? keep->y1 : qkv; /* qkv is done with */
    wd_linear_forward(out, width, o, layer(p, WD_DIT_BLOCK_SELF_OUT_W, WD_DIT_BLOCK_SELF_OUT_B),
                      rows, WD_ACT_NONE, p->c->queue);
    residual(p, y, x, out, 2);
    wd_arena_reset(p->c->arena, mark);
}

/* In place. */
static void cross_attention(const pass *p, void *x)
{
    const wd_dit_block_saved *keep = p->keep;
    int64_t rows = p->d.rows, text_rows = p->d.text_rows, width = p->d.width;
    size_t mark = wd_arena_mark(p->c->arena);
    wd_linear_group group = wd_linear_group_of(&p->w[WD_DIT_BLOCK_CROSS_K_W],
                                               &p->w[WD_DIT_BLOCK_CROSS_K_B], NULL, NULL, 2);
    void *n = push(p, rows * width), *in = x;
    void *q = keep ? keep->q2 : push(p, rows * width);
    void *kv = keep ? keep->kv2 : push(p, text_rows * 2 * width);
    void *q_norm = keep ? push(p, rows * width) : q;
    void *k_norm = keep ? push(p, text_rows * 2 * width) : kv; /* its half of v stays unused */
    if (p->c->config->cross_attn_norm) {
        wd_norm_shape shape = wd_dit_norm_shape(p->c, 0);
        wd_layernorm_forward(n, x, p->w[WD_DIT_BLOCK_NORM2_W].data, p->w[WD_DIT_BLOCK_NORM2_B].data,
                             &shape, p->c->queue);
        in = n;
    }
    wd_linear_forward(q, width, in, layer(p, WD_DIT_BLOCK_CROSS_Q_W, WD_DIT_BLOCK_CROSS_Q_B), rows,
                      WD_ACT_NONE, p->c->queue);
    wd_linear_group_forward(kv, p->ctx, &group, text_rows, p->c->queue);
    wd_dit_block_rms(q_norm, q, &p->w[WD_DIT_BLOCK_CROSS_NORM_Q], NULL, rows, width, p->c);
    wd_dit_block_rms(k_norm, kv, &p->w[WD_DIT_BLOCK_CROSS_NORM_K], NULL, text_rows, 2 * width,
                     p->c);

    wd_attention_shape shape = wd_dit_cross_shape(p->c);
    void *o = keep ? keep->o2 : n; /* n is done with */
    wd_attention_forward(o, keep ? keep->lse2 : NULL, q_norm, k_norm, column(p, kv, width), &shape,
                         p->c->queue);
    void *out = q_norm; /* is done with */
    wd_linear_forward(out, width, o, layer(p, WD_DIT_BLOCK_CROSS_OUT_W, WD_DIT_BLOCK_CROSS_OUT_B),
                      rows, WD_ACT_NONE, p->c->queue);
    residual(p, x, x, out, -1);
    wd_arena_reset(p->c->arena, mark);
}

static void feed_forward(const pass *p, void *y, const void *x)
{
    const wd_dit_block_saved *keep = p->keep;
    int64_t rows = p->d.rows, width = p->d.width, ffn = p->d.ffn;
    size_t mark = wd_arena_mark(p->c->arena);
    void *n = push(p, rows * width);
    void *h = keep ? keep->h : push(p, rows * ffn);
    void *act = keep ? push(p, rows * ffn) : h;
    wd_dit_block_modulate(n, x, p->m, 3, p->c);
    wd_linear_forward(h, ffn, n, layer(p, WD_DIT_BLOCK_FFN1_W, WD_DIT_BLOCK_FFN1_B), rows,
                      p->fused ? WD_ACT_GELU_TANH : WD_ACT_NONE, p->c->queue);
    if (!p->fused)
        wd_op_activation(
            p->c->queue,
            &(wd_activation_args){
                .y = act, .x = h, .type = p->d.type, .count = rows * ffn, .act = WD_ACT_GELU_TANH});
    void *out = keep ? keep->y3 : n; /* n is done with */
    wd_linear_forward(out, width, act, layer(p, WD_DIT_BLOCK_FFN2_W, WD_DIT_BLOCK_FFN2_B), rows,
                      WD_ACT_NONE, p->c->queue);
    if (!p->no_result) residual(p, y, x, out, 5);
    wd_arena_reset(p->c->arena, mark);
}

/* x1 [B, L, D] gets the stream behind self-attention, then behind cross-attention; it may be x0,
 * and x_out may be x1. */
static void run(const pass *p, float *m, void *x_out, void *x1, const void *x0, const void *tp)
{
    wd_op_add_table(p->c->queue, &(wd_add_table_args){.y = m,
                                                      .table = p->w[WD_DIT_BLOCK_TABLE].data,
                                                      .x = tp,
                                                      .type = p->d.type,
                                                      .rows = p->d.samples,
                                                      .width = 6 * p->d.width,
                                                      .x_stride = 6 * p->d.width});
    self_attention(p, x1, x0);
    cross_attention(p, x1);
    feed_forward(p, x_out, x1);
}

void wd_dit_block_saved_push(wd_dit_block_saved *out, const wd_dit_context *context)
{
    wd_dit_dims d = wd_dit_dims_of(context);
    int64_t x = d.rows * d.width;
    *out = (wd_dit_block_saved){.m = wd_dit_push(context, d.samples * 6 * d.width, WD_F32),
                                .qkv = wd_dit_push(context, 3 * x, d.type),
                                .o = wd_dit_push(context, x, d.type),
                                .lse = wd_dit_push(context, d.rows * d.heads, WD_F32),
                                .y1 = wd_dit_push(context, x, d.type),
                                .q2 = wd_dit_push(context, x, d.type),
                                .kv2 = wd_dit_push(context, d.text_rows * 2 * d.width, d.type),
                                .o2 = wd_dit_push(context, x, d.type),
                                .lse2 = wd_dit_push(context, d.rows * d.heads, WD_F32),
                                .x2 = wd_dit_push(context, x, d.type),
                                .h = wd_dit_push(context, d.rows * d.ffn, d.type),
                                .y3 = wd_dit_push(context, x, d.type)};
}

void wd_dit_block_again(const wd_dit_block_saved *saved, const wd_dit_stream *stream,
                        const wd_dit_stage *weights, const wd_dit_context *context)
{
    pass p = {.c = context,
              .d = wd_dit_dims_of(context),
              .w = weights->t,
              .ctx = stream->ctx,
              .keep = saved,
              .m = saved->m,
              .no_result = true};
    run(&p, saved->m, NULL, saved->x2, saved->x0, stream->tp);
}

void wd_dit_block_forward(wd_dit_stream *stream, wd_dit_block_saved *saved,
                          const wd_dit_stage *weights, const wd_dit_context *context)
{
    wd_dit_dims d = wd_dit_dims_of(context);
    void *x0 = stream->x;
    bool keep = saved && !context->checkpoint;
    if (saved) {
        stream->x = wd_dit_push(context, d.rows * d.width, d.type);
        if (keep) wd_dit_block_saved_push(saved, context);
        saved->x0 = x0;
    }
    size_t mark = wd_arena_mark(context->arena);
    float *m = keep ? saved->m : wd_dit_push(context, d.samples * 6 * d.width, WD_F32);
    pass p = {.c = context,
              .d = d,
              .w = weights->t,
              .ctx = stream->ctx,
              .keep = keep ? saved : NULL,
              .m = m,
              .fused = !saved};
    run(&p, m, stream->x, keep ? saved->x2 : stream->x, x0, stream->tp);
    wd_arena_reset(context->arena, mark);
}
