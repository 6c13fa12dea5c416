/* One block, backward: the parts of dit_block_forward.c, whose letters and names these are, in
 * reverse. dx [B, L, D] is the gradient of the stream and is updated in place, from that of x3 to
 * that of x0: each part adds what its branch contributes.
 *
 *   dy3  = dx gate',  dgate' = sum(dx y3)                       feed-forward
 *   da   = dy3 W2                                               of a = GELU(h)
 *   dh   = da GELU'(h)
 *   dn   = dh W1
 *   dshift' = sum(dn),  dscale' = sum(dn LN(x2))
 *   dx  += LN_backward(dn (1 + scale'))
 *
 *   do   = dx Wo                                                cross-attention
 *   dq, dk, dv = attention_backward(do)
 *   dq, dk = rms_backward(dq), rms_backward(dk)
 *   dn   = dq Wq                                                without cross_attn_norm: dx += dn
 *   dx  += LN_backward(dn w),  dw += sum(dn LN(x1)),  db += sum(dn)
 *   dctx += dk Wk + dv Wv
 *
 *   dy1  = dx gate,  dgate = sum(dx y1)                         self-attention
 *   do   = dy1 Wo
 *   dq, dk, dv = attention_backward(do)
 *   dq, dk = rms_backward(rope^T(dq)), rms_backward(rope^T(dk))
 *   dn   = dq Wq + dk Wk + dv Wv
 *   dshift = sum(dn),  dscale = sum(dn LN(x0))
 *   dx  += LN_backward(dn (1 + scale))
 *
 *   dtable += dm summed over B,  dtp += dm                      modulation
 *
 * Sums of the modulation are over the tokens of a sample, others over all tokens. For each layer
 * y = x W^T + b, dW += dy^T x and db += sum(dy), in fp32, come before dx = dy W. attention_backward
 * has p = exp(q k^T / sqrt(K) - lse) and ds = p (do v^T - sum(do o) over K); then dv = p^T do,
 * dq = ds k / sqrt(K), dk = ds^T q / sqrt(K). Norms, rotations and activations of the forward pass,
 * and x1, are computed again from the saved activations.
 *
 * The saved activations are on top of the arena, part by part. The gradients of a part overwrite
 * activations after their last use, and the memory of a finished part is scratch of the next one.
 * So a block needs the most memory in its feed-forward part: E per token beside the saved
 * activations, unless E is small. */
#include <assert.h>

#include "model/dit/dit_impl.h"
#include "model/dit/layers.h"

typedef struct pass {
    const wd_dit_context *c;
    wd_dit_dims d;
    const wd_tensor *w, *dw; /* weights and their gradients by slot */
    const wd_dit_block_saved *s;
    const wd_dit_stream *stream;
    wd_dit_stream_grad *grad;
} pass;

static wd_linear layer(const pass *p, wd_dit_block_slot weight, wd_dit_block_slot bias)
{
    return wd_linear_of(&p->w[weight], &p->w[bias]);
}

static void *push(const pass *p, int64_t count)
{
    return wd__dit_push(p->c, count, p->d.type);
}

static void *column(const pass *p, const void *base, int64_t width)
{
    return wd__dit_at(base, p->d.type, width);
}

/* Adds to the gradients of a layer's weights, then computes dx = dy W; dx may be x. */
static void linear_backward(const pass *p, void *dx, const void *dy, const void *x,
                            wd_dit_block_slot weight, wd_dit_block_slot bias)
{
    wd_linear l = layer(p, weight, bias);
    wd_linear_grad grad = wd__linear_grad_of(&p->dw[weight], &p->dw[bias]);
    wd__linear_backward_weights(grad, dy, l.out, x, l, p->d.rows, p->c->queue);
    wd__linear_backward_input(dx, dy, l.out, l, p->d.type, 0, p->d.rows, p->c->queue);
}

static wd_linear_group group_of(const pass *p, wd_dit_block_slot weight, wd_dit_block_slot bias,
                                int layers)
{
    return wd__linear_group_of(&p->w[weight], &p->w[bias], &p->dw[weight], &p->dw[bias], layers);
}

/* Replaces dy by dx. */
static void rms_backward(const pass *p, void *dy, const void *x, wd_dit_block_slot slot,
                         const wd_dit_rope *rope, int64_t rows, int64_t stride)
{
    wd_rms_shape shape = wd__dit_rms_shape(p->c, &p->w[slot], rows, stride);
    wd__rms_rope_backward(dy, p->dw[slot].data, dy, x, p->w[slot].data, rope ? rope->cos : NULL,
                          rope ? rope->sin : NULL, &shape, p->c->queue);
}

static void modulate_backward(const pass *p, const void *dn, const void *x, int first)
{
    wd_norm_shape shape = wd__dit_norm_shape(p->c, 6 * p->d.width);
    float *dshift = p->grad->dm + first * p->d.width;
    wd__modulate_backward(p->grad->dx, dshift, dshift + p->d.width, dn, x,
                          p->s->m + (first + 1) * p->d.width, &shape, p->c->queue);
}

/* Computes dbranch of x += branch gate, where gate is row `gate` of the modulation. dbranch may be
 * branch. */
static void gate_backward(const pass *p, void *dbranch, const void *branch, int gate)
{
    wd_norm_shape shape = wd__dit_norm_shape(p->c, 6 * p->d.width);
    int64_t row = gate * p->d.width;
    wd__residual_backward(dbranch, p->grad->dm + row, p->grad->dx, branch, p->s->m + row, &shape,
                          p->c->queue);
}

static void feed_forward(const pass *p)
{
    const wd_dit_block_saved *s = p->s;
    wd_queue *queue = p->c->queue;
    int64_t count = p->d.rows * p->d.ffn;
    void *dy = s->y3, *act = push(p, count);

    /* dy3 = dx gate', dgate' = sum(dx y3) */
    gate_backward(p, dy, s->y3, WD_DIT_FFN_GATE);

    /* da = dy3 W2, of a = GELU(h) */
    wd_op_activation(
        queue,
        &(wd_activation_args){
            .y = act, .x = s->h, .type = p->d.type, .count = count, .act = WD_ACT_GELU_TANH});
    void *dh = act; /* act is read for the weights first */
    linear_backward(p, dh, dy, act, WD_DIT_BLOCK_FFN2_W, WD_DIT_BLOCK_FFN2_B);

    /* dh = da GELU'(h) */
    wd_op_activation_backward(queue, &(wd_activation_backward_args){.dx = dh,
                                                                    .dy = dh,
                                                                    .x = s->h,
                                                                    .type = p->d.type,
                                                                    .count = count,
                                                                    .act = WD_ACT_GELU_TANH});

    /* dn = dh W1, of n = LN(x2) (1 + scale') + shift' */
    void *n = dy; /* dy is no longer needed; n becomes dn later */
    wd__dit_block_modulate(n, s->x2, s->m, WD_DIT_FFN_SHIFT, p->c);
    linear_backward(p, n, dh, n, WD_DIT_BLOCK_FFN1_W, WD_DIT_BLOCK_FFN1_B);

    /* dshift' = sum(dn), dscale' = sum(dn LN(x2)), dx += LN_backward(dn (1 + scale')) */
    modulate_backward(p, n, s->x2, WD_DIT_FFN_SHIFT);
    wd_arena_pop(p->c->arena, s->h);
}

/* dn = dq Wq; dx += LN_backward(dn w), dw += sum(dn LN(x1)), db += sum(dn). dq: of the query
 * layer's output; `x1` and `n` are scratch [B, L, D]. */
static void cross_query(const pass *p, const void *dq, void *x1, void *n)
{
    wd_queue *queue = p->c->queue;
    wd_norm_shape shape = wd__dit_norm_shape(p->c, 6 * p->d.width);
    wd__residual_forward(x1, p->s->x0, p->s->y1, p->s->m + WD_DIT_GATE * p->d.width, &shape, queue);
    wd_dit_block_slot w = WD_DIT_BLOCK_CROSS_Q_W, b = WD_DIT_BLOCK_CROSS_Q_B;
    if (!p->c->config->cross_attn_norm) {
        wd_linear l = layer(p, w, b);
        wd__linear_backward_weights(wd__linear_grad_of(&p->dw[w], &p->dw[b]), dq, l.out, x1, l,
                                    p->d.rows, queue);
        wd__linear_backward_input(p->grad->dx, dq, l.out, l, p->d.type, 1, p->d.rows, queue);
        return;
    }
    const float *norm = p->w[WD_DIT_BLOCK_NORM2_W].data;
    wd__layernorm_forward(n, x1, norm, p->w[WD_DIT_BLOCK_NORM2_B].data, &shape, queue);
    linear_backward(p, n, dq, n, w, b);
    wd__layernorm_backward(p->grad->dx, p->dw[WD_DIT_BLOCK_NORM2_W].data,
                           p->dw[WD_DIT_BLOCK_NORM2_B].data, n, x1, norm, &shape, queue);
}

static void cross_attention(const pass *p)
{
    const wd_dit_block_saved *s = p->s;
    int64_t rows = p->d.rows, text_rows = p->d.text_rows, width = p->d.width;
    void *d_o = s->x2; /* x2 is no longer needed */
    void *q_norm = push(p, rows * width), *dq = push(p, rows * width);
    void *k_norm = push(p, text_rows * 2 * width); /* its half of v stays unused */
    void *dkv = push(p, text_rows * 2 * width);

    /* do = dx Wo */
    linear_backward(p, d_o, p->grad->dx, s->o2, WD_DIT_BLOCK_CROSS_OUT_W, WD_DIT_BLOCK_CROSS_OUT_B);

    /* dq, dk, dv = attention_backward(do), of q, k = rms(q), rms(k) */
    wd__dit_block_rms(q_norm, s->q2, &p->w[WD_DIT_BLOCK_CROSS_NORM_Q], NULL, rows, width, p->c);
    wd__dit_block_rms(k_norm, s->kv2, &p->w[WD_DIT_BLOCK_CROSS_NORM_K], NULL, text_rows, 2 * width,
                      p->c);
    wd_attention_shape shape = wd__dit_cross_shape(p->c);
    wd__attention_backward(dq, dkv, column(p, dkv, width), d_o, q_norm, k_norm,
                           column(p, s->kv2, width), s->o2, s->lse2, &shape, p->c->queue);

    /* dq, dk = rms_backward(dq), rms_backward(dk) */
    rms_backward(p, dq, s->q2, WD_DIT_BLOCK_CROSS_NORM_Q, NULL, rows, width);
    rms_backward(p, dkv, s->kv2, WD_DIT_BLOCK_CROSS_NORM_K, NULL, text_rows, 2 * width);

    cross_query(p, dq, d_o, q_norm); /* d_o and q_norm serve as scratch */

    /* dctx += dk Wk + dv Wv */
    wd_linear_group group = group_of(p, WD_DIT_BLOCK_CROSS_K_W, WD_DIT_BLOCK_CROSS_K_B, 2);
    wd__linear_group_backward_weights(dkv, p->stream->ctx, &group, text_rows, p->c->queue);
    wd__linear_group_backward_input(p->grad->dctx, dkv, &group, WD_F32, 1, text_rows, p->c->queue);
    wd_arena_pop(p->c->arena, s->x2);
}

static void self_attention(const pass *p)
{
    const wd_dit_block_saved *s = p->s;
    const wd_dit_rope *rope = &p->c->rope;
    int64_t rows = p->d.rows, width = p->d.width;
    void *dy = push(p, rows * width), *d_o = s->y1;

    /* dy1 = dx gate, dgate = sum(dx y1) */
    gate_backward(p, dy, s->y1, WD_DIT_GATE); /* the last use of y1 */

    /* do = dy1 Wo */
    linear_backward(p, d_o, dy, s->o, WD_DIT_BLOCK_SELF_OUT_W, WD_DIT_BLOCK_SELF_OUT_B);
    wd_arena_pop(p->c->arena, dy);

    /* dq, dk, dv = attention_backward(do), of q, k = rope(rms(q)), rope(rms(k)) */
    void *turned = push(p, rows * 3 * width); /* its third of v stays unused */
    void *dqkv = push(p, rows * 3 * width);
    wd__dit_block_rms(turned, s->qkv, &p->w[WD_DIT_BLOCK_SELF_NORM_Q], rope, rows, 3 * width, p->c);
    wd__dit_block_rms(column(p, turned, width), column(p, s->qkv, width),
                      &p->w[WD_DIT_BLOCK_SELF_NORM_K], rope, rows, 3 * width, p->c);
    wd_attention_shape shape = wd__dit_self_shape(p->c);
    wd__attention_backward(dqkv, column(p, dqkv, width), column(p, dqkv, 2 * width), d_o, turned,
                           column(p, turned, width), column(p, s->qkv, 2 * width), s->o, s->lse,
                           &shape, p->c->queue);

    /* dq, dk = rms_backward(rope^T(dq)), rms_backward(rope^T(dk)) */
    rms_backward(p, dqkv, s->qkv, WD_DIT_BLOCK_SELF_NORM_Q, rope, rows, 3 * width);
    rms_backward(p, column(p, dqkv, width), column(p, s->qkv, width), WD_DIT_BLOCK_SELF_NORM_K,
                 rope, rows, 3 * width);

    /* dn = dq Wq + dk Wk + dv Wv, of n = LN(x0) (1 + scale) + shift */
    wd_linear_group group = group_of(p, WD_DIT_BLOCK_SELF_Q_W, WD_DIT_BLOCK_SELF_Q_B, 3);
    void *n = d_o; /* d_o is no longer needed; n becomes dn later */
    wd__dit_block_modulate(n, s->x0, s->m, WD_DIT_SHIFT, p->c);
    wd__linear_group_backward_weights(dqkv, n, &group, rows, p->c->queue);
    wd__linear_group_backward_input(n, dqkv, &group, p->d.type, 0, rows, p->c->queue);

    /* dshift = sum(dn), dscale = sum(dn LN(x0)), dx += LN_backward(dn (1 + scale)) */
    modulate_backward(p, n, s->x0, WD_DIT_SHIFT);
}

/* dtable += dm summed over B, dtp += dm. */
static void modulation(const pass *p)
{
    int64_t width = 6 * p->d.width;
    wd_op_sum_rows(p->c->queue, &(wd_sum_rows_args){.y = p->dw[WD_DIT_BLOCK_TABLE].data,
                                                    .x = p->grad->dm,
                                                    .type = WD_F32,
                                                    .rows = p->d.samples,
                                                    .width = width,
                                                    .beta = 1});
    wd__dit_add(p->grad->dtp, p->grad->dm, WD_F32, p->d.samples * width, p->c->queue);
}

void wd_dit_block_backward(wd_dit_stream_grad *grad, const wd_dit_stage *dweights,
                           const wd_dit_block_saved *saved, const wd_dit_stream *stream,
                           const wd_dit_stage *weights, const wd_dit_context *context)
{
    wd_dit_dims d = wd__dit_dims_of(context);
    assert(d.texts == d.samples);
    wd_arena_pop(context->arena, saved->x3);
    wd_dit_block_saved again = {.x0 = saved->x0};
    if (context->checkpoint) {
        wd__dit_block_again(&again, stream, weights, context);
        saved = &again;
    }
    pass p = {.c = context,
              .d = d,
              .w = weights->t,
              .dw = dweights->t,
              .s = saved,
              .stream = stream,
              .grad = grad};
    feed_forward(&p);
    cross_attention(&p);
    self_attention(&p);
    modulation(&p);
    wd_arena_pop(context->arena, saved->m);
}
