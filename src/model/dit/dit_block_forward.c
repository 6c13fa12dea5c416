/* One block, forward, as WanTransformerBlock of diffusers (transformer_wan.py).
 *
 * From the stream x0 to x3 [B, L, D], with the text ctx [T, S, D]. The rows of the modulation m
 * [B, 6, D] are shift, scale and gate of self-attention, then shift', scale' and gate' of the
 * feed-forward part; a row holds for all tokens of its sample.
 *
 *   m    = table + tp
 *
 *   n    = LN(x0) (1 + scale) + shift                 self-attention
 *   q, k, v = n Wq^T + bq, n Wk^T + bk, n Wv^T + bv
 *   q, k = rope(rms(q)), rope(rms(k))
 *   o    = softmax(q k^T / sqrt(K)) v                 in each of N heads of K
 *   y1   = o Wo^T + bo
 *   x1   = x0 + y1 gate
 *
 *   k, v = ctx Wk^T + bk, ctx Wv^T + bv               cross-attention, with weights of its own
 *   n    = LN(x1) w + b                               without cross_attn_norm: n = x1
 *   q    = n Wq^T + bq
 *   q, k = rms(q), rms(k)
 *   o    = softmax(q k^T / sqrt(K)) v
 *   x2   = x1 + o Wo^T + bo
 *
 *   n    = LN(x2) (1 + scale') + shift'               feed-forward
 *   h    = n W1^T + b1                                [B, L, E]
 *   y3   = GELU(h) W2^T + b2                          GELU by tanh
 *   x3   = x2 + y3 gate'
 *
 * LN and rms are over D, rms with a weight [D] and before q and k are divided into heads; rope
 * rotates the pairs of each head by the token's position.
 *
 * There is one code for passes with and without gradients, which differ in where they put their
 * results. A pass that saves activations pushes memory for them part by part; the scratch of one
 * part is where the next one saves. A pass without saving reuses scratch, works in place, and needs
 * at most max(4 D, D + E) of it per token. Both compute the same bits, with one exception: in a
 * pass without gradients the product applies GELU to its result before rounding it. */

#include "model/dit/dit_impl.h"
#include "model/dit/layers.h"

void wd__dit_block_rms(void *y, const void *x, const wd_tensor *w, const wd_dit_rope *rope,
                       int64_t rows, int64_t stride, const wd_dit_context *c)
{
    wd_rms_shape shape = wd__dit_rms_shape(c, w, rows, stride);
    wd__rms_rope_forward(y, x, w->data, rope ? rope->cos : NULL, rope ? rope->sin : NULL, &shape,
                         c->queue);
}

void wd__dit_block_modulate(void *n, const void *x, const float *m, int first,
                            const wd_dit_context *c)
{
    int64_t width = wd_dit_width(c->config);
    wd_norm_shape shape = wd__dit_norm_shape(c, 6 * width);
    const float *shift = m + first * width;
    wd__modulate_forward(n, x, shift, shift + width, &shape, c->queue);
}

typedef struct pass {
    const wd_dit_context *c;
    wd_dit_dims d;
    const wd_tensor *w;       /* weights by slot */
    const void *ctx;          /* [T, S, D] */
    wd_dit_block_saved *keep; /* NULL: nothing is saved */
    float *m;                 /* [B, 6, D] */
    bool fused;               /* GELU within the product */
} pass;

static wd_linear layer(const pass *p, wd_dit_block_slot weight, wd_dit_block_slot bias)
{
    return wd_linear_of(&p->w[weight], &p->w[bias]);
}

static void *push(const pass *p, int64_t count)
{
    return wd__dit_push(p->c, count, p->d.type);
}

/* The address `width` elements after `base`: another column of the same rows. */
static void *column(const pass *p, const void *base, int64_t width)
{
    return wd__dit_at(base, p->d.type, width);
}

enum { NO_GATE = -1 };

/* y = x + branch gate; `gate`: a row of the modulation, or NO_GATE. */
static void residual(const pass *p, void *y, const void *x, const void *branch, int gate)
{
    wd_norm_shape shape = wd__dit_norm_shape(p->c, 6 * p->d.width);
    wd__residual_forward(y, x, branch, gate == NO_GATE ? NULL : p->m + gate * p->d.width, &shape,
                         p->c->queue);
}

/* m = table + tp. */
static void modulation(const pass *p, const void *tp)
{
    wd_op_add_table(p->c->queue, &(wd_add_table_args){.y = p->m,
                                                      .table = p->w[WD_DIT_BLOCK_TABLE].data,
                                                      .x = tp,
                                                      .type = p->d.type,
                                                      .rows = p->d.samples,
                                                      .width = 6 * p->d.width,
                                                      .x_stride = 6 * p->d.width});
}

/* ---- self-attention ---- */

static void keep_self_attention(const pass *p)
{
    const int64_t x = p->d.rows * p->d.width;
    p->keep->qkv = push(p, 3 * x);
    p->keep->o = push(p, x);
    p->keep->lse = wd__dit_push(p->c, p->d.rows * p->d.heads, WD_F32);
    p->keep->y1 = push(p, x);
}

/* x1 = x0 + SELF(x0); x1 may be x0. */
static void self_attention(const pass *p, void *x1, const void *x0)
{
    const wd_dit_block_saved *keep = p->keep;
    const wd_dit_rope *rope = &p->c->rope;
    int64_t rows = p->d.rows, width = p->d.width;
    size_t mark = wd_arena_mark(p->c->arena);
    wd_linear_group group = wd__linear_group_of(&p->w[WD_DIT_BLOCK_SELF_Q_W],
                                                &p->w[WD_DIT_BLOCK_SELF_Q_B], NULL, NULL, 3);
    void *n = keep ? keep->o : push(p, rows * width);
    void *qkv = keep ? keep->qkv : push(p, rows * 3 * width);
    void *turned = keep ? push(p, rows * 3 * width) : qkv; /* its third of v stays unused */

    /* n = LN(x0) (1 + scale) + shift */
    wd__dit_block_modulate(n, x0, p->m, WD_DIT_SHIFT, p->c);

    /* q, k, v = n Wq^T + bq, n Wk^T + bk, n Wv^T + bv */
    wd__linear_group_forward(qkv, n, &group, rows, p->c->queue);

    /* q, k = rope(rms(q)), rope(rms(k)) */
    wd__dit_block_rms(turned, qkv, &p->w[WD_DIT_BLOCK_SELF_NORM_Q], rope, rows, 3 * width, p->c);
    wd__dit_block_rms(column(p, turned, width), column(p, qkv, width),
                      &p->w[WD_DIT_BLOCK_SELF_NORM_K], rope, rows, 3 * width, p->c);

    /* o = softmax(q k^T / sqrt(K)) v */
    wd_attention_shape shape = wd__dit_self_shape(p->c);
    void *o = n; /* n is done with */
    wd__attention_forward(o, keep ? keep->lse : NULL, turned, column(p, turned, width),
                          column(p, qkv, 2 * width), &shape, p->c->queue);

    /* y1 = o Wo^T + bo */
    void *y1 = keep ? keep->y1 : qkv; /* qkv is done with */
    wd_linear_forward(y1, width, o, layer(p, WD_DIT_BLOCK_SELF_OUT_W, WD_DIT_BLOCK_SELF_OUT_B),
                      rows, WD_ACT_NONE, p->c->queue);

    /* x1 = x0 + y1 gate */
    residual(p, x1, x0, y1, WD_DIT_GATE);
    wd_arena_reset(p->c->arena, mark);
}

/* ---- cross-attention ---- */

static void keep_cross_attention(const pass *p)
{
    const int64_t x = p->d.rows * p->d.width;
    p->keep->q2 = push(p, x);
    p->keep->kv2 = push(p, p->d.text_rows * 2 * p->d.width);
    p->keep->o2 = push(p, x);
    p->keep->lse2 = wd__dit_push(p->c, p->d.rows * p->d.heads, WD_F32);
}

static void keys_and_values(const pass *p, void *kv)
{
    wd_linear_group group = wd__linear_group_of(&p->w[WD_DIT_BLOCK_CROSS_K_W],
                                                &p->w[WD_DIT_BLOCK_CROSS_K_B], NULL, NULL, 2);
    wd__linear_group_forward(kv, p->ctx, &group, p->d.text_rows, p->c->queue);
}

/* x2 = x1 + CROSS(x1, ctx), in place. */
static void cross_attention(const pass *p, void *x)
{
    const wd_dit_block_saved *keep = p->keep;
    int64_t rows = p->d.rows, text_rows = p->d.text_rows, width = p->d.width;
    size_t mark = wd_arena_mark(p->c->arena);
    void *n = keep ? keep->o2 : push(p, rows * width), *in = x;
    void *kv = keep ? keep->kv2 : push(p, text_rows * 2 * width);
    void *q = keep ? keep->q2 : push(p, rows * width);
    void *q_norm = keep ? push(p, rows * width) : q;
    void *k_norm = keep ? push(p, text_rows * 2 * width) : kv; /* its half of v stays unused */

    /* k, v = ctx Wk^T + bk, ctx Wv^T + bv */
    keys_and_values(p, kv);

    /* n = LN(x1) w + b */
    if (p->c->config->cross_attn_norm) {
        wd_norm_shape shape = wd__dit_norm_shape(p->c, 0);
        wd__layernorm_forward(n, x, p->w[WD_DIT_BLOCK_NORM2_W].data,
                              p->w[WD_DIT_BLOCK_NORM2_B].data, &shape, p->c->queue);
        in = n;
    }

    /* q = n Wq^T + bq */
    wd_linear_forward(q, width, in, layer(p, WD_DIT_BLOCK_CROSS_Q_W, WD_DIT_BLOCK_CROSS_Q_B), rows,
                      WD_ACT_NONE, p->c->queue);

    /* q, k = rms(q), rms(k) */
    wd__dit_block_rms(q_norm, q, &p->w[WD_DIT_BLOCK_CROSS_NORM_Q], NULL, rows, width, p->c);
    wd__dit_block_rms(k_norm, kv, &p->w[WD_DIT_BLOCK_CROSS_NORM_K], NULL, text_rows, 2 * width,
                      p->c);

    /* o = softmax(q k^T / sqrt(K)) v */
    wd_attention_shape shape = wd__dit_cross_shape(p->c);
    void *o = n; /* n is done with */
    wd__attention_forward(o, keep ? keep->lse2 : NULL, q_norm, k_norm, column(p, kv, width), &shape,
                          p->c->queue);

    /* x2 = x1 + o Wo^T + bo */
    void *out = q_norm; /* q_norm is no longer needed */
    wd_linear_forward(out, width, o, layer(p, WD_DIT_BLOCK_CROSS_OUT_W, WD_DIT_BLOCK_CROSS_OUT_B),
                      rows, WD_ACT_NONE, p->c->queue);
    residual(p, x, x, out, NO_GATE);
    wd_arena_reset(p->c->arena, mark);
}

/* ---- feed-forward ---- */

static void keep_feed_forward(const pass *p)
{
    p->keep->h = push(p, p->d.rows * p->d.ffn);
    p->keep->y3 = push(p, p->d.rows * p->d.width);
}

/* Returns y3, which the caller adds: x3 = x2 + y3 gate'. */
static void *feed_forward(const pass *p, const void *x2)
{
    const wd_dit_block_saved *keep = p->keep;
    int64_t rows = p->d.rows, width = p->d.width, ffn = p->d.ffn;
    void *n = keep ? keep->y3 : push(p, rows * width);
    void *h = keep ? keep->h : push(p, rows * ffn);
    size_t mark = wd_arena_mark(p->c->arena);
    void *act = keep ? push(p, rows * ffn) : h;

    /* n = LN(x2) (1 + scale') + shift' */
    wd__dit_block_modulate(n, x2, p->m, WD_DIT_FFN_SHIFT, p->c);

    /* h = n W1^T + b1; where it is fused, act = GELU(h) is in its place */
    wd_linear_forward(h, ffn, n, layer(p, WD_DIT_BLOCK_FFN1_W, WD_DIT_BLOCK_FFN1_B), rows,
                      p->fused ? WD_ACT_GELU_TANH : WD_ACT_NONE, p->c->queue);
    if (!p->fused)
        wd_op_activation(
            p->c->queue,
            &(wd_activation_args){
                .y = act, .x = h, .type = p->d.type, .count = rows * ffn, .act = WD_ACT_GELU_TANH});

    /* y3 = GELU(h) W2^T + b2 */
    void *y3 = n; /* n is done with */
    wd_linear_forward(y3, width, act, layer(p, WD_DIT_BLOCK_FFN2_W, WD_DIT_BLOCK_FFN2_B), rows,
                      WD_ACT_NONE, p->c->queue);
    wd_arena_reset(p->c->arena, mark);
    return y3;
}

/* ---- the block ---- */

static pass begin(wd_dit_block_saved *keep, const wd_dit_stream *stream,
                  const wd_dit_stage *weights, const wd_dit_context *context)
{
    const wd_dit_dims d = wd__dit_dims_of(context);
    float *m = wd__dit_push(context, d.samples * 6 * d.width, WD_F32);
    if (keep) keep->m = m;
    return (pass){.c = context, .d = d, .w = weights->t, .ctx = stream->ctx, .keep = keep, .m = m};
}

/* Computes and saves all but the block's result, which is pushed after them. */
static void run_kept(const pass *p, const void *x0, const void *tp)
{
    modulation(p, tp);
    keep_self_attention(p);
    void *x = p->keep->x2 = push(p, p->d.rows * p->d.width);
    self_attention(p, x, x0);
    keep_cross_attention(p);
    cross_attention(p, x);
    keep_feed_forward(p);
    feed_forward(p, x);
}

void wd__dit_block_again(wd_dit_block_saved *saved, const wd_dit_stream *stream,
                         const wd_dit_stage *weights, const wd_dit_context *context)
{
    const pass p = begin(saved, stream, weights, context);
    run_kept(&p, saved->x0, stream->tp);
}

static void forward_kept(wd_dit_stream *stream, wd_dit_block_saved *saved,
                         const wd_dit_stage *weights, const wd_dit_context *context)
{
    const pass p = begin(saved, stream, weights, context);
    run_kept(&p, stream->x, stream->tp);
    saved->x3 = push(&p, p.d.rows * p.d.width);
    residual(&p, saved->x3, saved->x2, saved->y3, WD_DIT_FFN_GATE);
}

/* `x_out` may be stream.x. */
static void forward(void *x_out, bool fused, const wd_dit_stream *stream,
                    const wd_dit_stage *weights, const wd_dit_context *context)
{
    size_t mark = wd_arena_mark(context->arena);
    pass p = begin(NULL, stream, weights, context);
    p.fused = fused;
    modulation(&p, stream->tp);
    self_attention(&p, x_out, stream->x);
    cross_attention(&p, x_out);
    residual(&p, x_out, x_out, feed_forward(&p, x_out), WD_DIT_FFN_GATE);
    wd_arena_reset(context->arena, mark);
}

void wd_dit_block_forward(wd_dit_stream *stream, wd_dit_block_saved *saved,
                          const wd_dit_stage *weights, const wd_dit_context *context)
{
    if (!saved) {
        forward(stream->x, true, stream, weights, context);
        return;
    }
    saved->x0 = stream->x;
    if (context->checkpoint) {
        saved->x3 = wd_arena_push(context->arena, wd_dit_stream_sizes(context).x);
        forward(saved->x3, false, stream, weights, context);
    } else {
        forward_kept(stream, saved, weights, context);
    }
    stream->x = saved->x3;
}
