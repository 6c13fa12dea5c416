/* The embedding of patches, time and text.
 *
 *     latents -> patches -> x
 *     timestep -> sinusoid -> linear, SiLU, linear (fp32) -> temb -> SiLU, linear -> tp
 *     text -> linear, GELU, linear -> ctx
 *
 * As WanTimeTextImageEmbedding of diffusers: the time embedder computes in fp32 for every compute
 * dtype; temb is rounded to the compute dtype before it is used. */
#include <assert.h>

#include "model/dit/dit_impl.h"
#include "model/dit/layers.h"

static wd_linear layer(const wd_dit_stage *stage, wd_dit_embed_slot weight)
{
    return wd_linear_of(&stage->t[weight], &stage->t[weight + 1]); /* the bias is the next slot */
}

static wd_linear_grad grad_of(const wd_dit_stage *stage, wd_dit_embed_slot weight)
{
    return wd__linear_grad_of(&stage->t[weight], &stage->t[weight + 1]);
}

static wd_dit_patch_layout patch_layout(const wd_dit_context *c, wd_dtype patch_type)
{
    return (wd_dit_patch_layout){.patch_type = patch_type,
                                 .latent_type = WD_F32,
                                 .channels = c->config->in_channels,
                                 .order = WD_DIT_CHANNEL_SLOWEST};
}

static void activate(void *y, const void *x, wd_dtype type, wd_act act, int64_t count,
                     wd_queue *queue)
{
    wd_op_activation(
        queue, &(wd_activation_args){.y = y, .x = x, .type = type, .count = count, .act = act});
}

/* dx = dy act'(x), in place. */
static void activate_backward(void *dy, const void *x, wd_dtype type, wd_act act, int64_t count,
                              wd_queue *queue)
{
    wd_op_activation_backward(
        queue, &(wd_activation_backward_args){
                   .dx = dy, .dy = dy, .x = x, .type = type, .count = count, .act = act});
}

/* ---- forward ---- */

/* Each part of the embedding pushes the activations of its backward pass, whether they are saved or
 * not. */

static void embed_image(wd_dit_stream *stream, wd_dit_embed_saved *s, const float *latents,
                        const wd_dit_stage *weights, const wd_dit_context *c)
{
    const wd_dit_dims d = wd__dit_dims_of(c);
    const int64_t *patch = c->config->patch;
    const wd_dit_patch_layout layout = patch_layout(c, d.type);
    s->patches =
        wd__dit_push(c, d.rows * c->config->in_channels * patch[0] * patch[1] * patch[2], d.type);
    wd__dit_patchify(s->patches, latents, &layout, c);
    wd_linear_forward(stream->x, d.width, s->patches, layer(weights, WD_DIT_EMBED_PATCH_W), d.rows,
                      WD_ACT_NONE, c->queue);
}

static void embed_time(wd_dit_stream *stream, wd_dit_embed_saved *s, const float *timestep,
                       const wd_dit_stage *weights, const wd_dit_context *c)
{
    const wd_dit_dims d = wd__dit_dims_of(c);
    const int64_t count = d.samples * d.width;
    wd_queue *queue = c->queue;
    s->sinusoid = wd__dit_push(c, d.samples * c->config->freq_dim, WD_F32);
    s->time1 = wd__dit_push(c, count, WD_F32);
    s->temb_act = wd__dit_push(c, count, d.type);
    const size_t mark = wd_arena_mark(c->arena);
    float *act = wd__dit_push(c, count, WD_F32);
    float *time2 = d.type == WD_F32 ? stream->temb : wd__dit_push(c, count, WD_F32);
    wd_op_timestep_embed(queue, &(wd_timestep_embed_args){.y = s->sinusoid,
                                                          .t = timestep,
                                                          .samples = d.samples,
                                                          .width = c->config->freq_dim});
    wd_linear_forward(s->time1, d.width, s->sinusoid, layer(weights, WD_DIT_EMBED_TIME1_W),
                      d.samples, WD_ACT_NONE, queue);
    activate(act, s->time1, WD_F32, WD_ACT_SILU, count, queue);
    wd_linear_forward(time2, d.width, act, layer(weights, WD_DIT_EMBED_TIME2_W), d.samples,
                      WD_ACT_NONE, queue);
    if (d.type != WD_F32) wd__dit_cast(stream->temb, time2, d.type, WD_F32, count, queue);
    activate(s->temb_act, stream->temb, d.type, WD_ACT_SILU, count, queue);
    wd_linear_forward(stream->tp, 6 * d.width, s->temb_act,
                      layer(weights, WD_DIT_EMBED_TIME_PROJ_W), d.samples, WD_ACT_NONE, queue);
    wd_arena_reset(c->arena, mark);
}

static void text_layer(void *to, const void *from, int slot, wd_act activation,
                       const wd_dit_stage *weights, const wd_dit_context *c)
{
    const wd_dit_dims d = wd__dit_dims_of(c);
    wd_linear_forward(to, d.width, from, layer(weights, slot), d.text_rows, activation, c->queue);
}

static void embed_text(wd_dit_stream *stream, wd_dit_embed_saved *s, const void *text,
                       const wd_dit_stage *weights, const wd_dit_context *c)
{
    const wd_dit_dims d = wd__dit_dims_of(c);
    const int64_t count = d.text_rows * d.width;
    s->text = text;
    s->text1 = wd__dit_push(c, count, d.type);
    const size_t mark = wd_arena_mark(c->arena);
    text_layer(s->text1, text, WD_DIT_EMBED_TEXT1_W, WD_ACT_NONE, weights, c);
    void *act = wd__dit_push(c, count, d.type);
    activate(act, s->text1, d.type, WD_ACT_GELU_TANH, count, c->queue);
    text_layer(stream->ctx, act, WD_DIT_EMBED_TEXT2_W, WD_ACT_NONE, weights, c);
    wd_arena_reset(c->arena, mark);
}

void wd_dit_embed_image(wd_dit_stream *stream, const float *latents, const wd_dit_stage *weights,
                        const wd_dit_context *c)
{
    wd_dit_embed_saved s;
    const size_t mark = wd_arena_mark(c->arena);
    embed_image(stream, &s, latents, weights, c);
    wd_arena_reset(c->arena, mark);
}

void wd_dit_embed_time(wd_dit_stream *stream, const float *timestep, const wd_dit_stage *weights,
                       const wd_dit_context *c)
{
    wd_dit_embed_saved s;
    const size_t mark = wd_arena_mark(c->arena);
    embed_time(stream, &s, timestep, weights, c);
    wd_arena_reset(c->arena, mark);
}

/* Nothing is saved, so the activation is computed with the first product. */
void wd_dit_embed_text(wd_dit_stream *stream, const void *text, const wd_dit_stage *weights,
                       const wd_dit_context *c)
{
    const wd_dit_dims d = wd__dit_dims_of(c);
    const size_t mark = wd_arena_mark(c->arena);
    void *act = wd__dit_push(c, d.text_rows * d.width, d.type);
    text_layer(act, text, WD_DIT_EMBED_TEXT1_W, WD_ACT_GELU_TANH, weights, c);
    text_layer(stream->ctx, act, WD_DIT_EMBED_TEXT2_W, WD_ACT_NONE, weights, c);
    wd_arena_reset(c->arena, mark);
}

void wd_dit_embed_forward(wd_dit_stream *stream, wd_dit_embed_saved *saved, const float *latents,
                          const float *timestep, const void *text, const wd_dit_stage *weights,
                          const wd_dit_context *c)
{
    if (!saved) {
        wd_dit_embed_image(stream, latents, weights, c);
        wd_dit_embed_time(stream, timestep, weights, c);
        wd_dit_embed_text(stream, text, weights, c);
        return;
    }
    embed_image(stream, saved, latents, weights, c);
    embed_time(stream, saved, timestep, weights, c);
    embed_text(stream, saved, text, weights, c);
}

/* ---- backward ---- */

static void patch_backward(float *dlatents, const wd_dit_stage *dweights, const void *dx,
                           const wd_dit_embed_saved *s, const wd_dit_stage *weights,
                           const wd_dit_context *c)
{
    wd_dit_dims d = wd__dit_dims_of(c);
    wd_linear patch = layer(weights, WD_DIT_EMBED_PATCH_W);
    wd__linear_backward_weights(grad_of(dweights, WD_DIT_EMBED_PATCH_W), dx, d.width, s->patches,
                                patch, d.rows, c->queue);
    if (!dlatents) return;
    size_t mark = wd_arena_mark(c->arena);
    float *dpatches = wd__dit_push(c, d.rows * patch.in, WD_F32);
    wd__linear_backward_input(dpatches, dx, d.width, patch, WD_F32, 0, d.rows, c->queue);
    wd_dit_patch_layout layout = patch_layout(c, WD_F32);
    wd__dit_unpatchify(dlatents, dpatches, &layout, c);
    wd_arena_reset(c->arena, mark);
}

/* tp = TIME_PROJ(SiLU(temb)): adds to dtemb. */
static void projection_backward(const wd_dit_stage *dweights, const wd_dit_stream_grad *grad,
                                const wd_dit_embed_saved *s, const wd_dit_stream *stream,
                                const wd_dit_stage *weights, const wd_dit_context *c)
{
    wd_dit_dims d = wd__dit_dims_of(c);
    wd_queue *queue = c->queue;
    size_t mark = wd_arena_mark(c->arena);
    wd_linear proj = layer(weights, WD_DIT_EMBED_TIME_PROJ_W);
    int64_t count = d.samples * d.width;
    void *dtemb = wd__dit_push(c, count, d.type), *dtp = grad->dtp;
    if (d.type != WD_F32) {
        dtp = wd__dit_push(c, 6 * count, d.type);
        wd__dit_cast(dtp, grad->dtp, d.type, WD_F32, 6 * count, queue);
    }
    wd__linear_backward_weights(grad_of(dweights, WD_DIT_EMBED_TIME_PROJ_W), dtp, 6 * d.width,
                                s->temb_act, proj, d.samples, queue);
    wd__linear_backward_input(dtemb, dtp, 6 * d.width, proj, d.type, 0, d.samples, queue);
    activate_backward(dtemb, stream->temb, d.type, WD_ACT_SILU, count, queue);
    wd__dit_add(grad->dtemb, dtemb, d.type, count, queue);
    wd_arena_reset(c->arena, mark);
}

/* Computes the gradients of the time embedder from dtemb, all in fp32. */
static void time_backward(const wd_dit_stage *dweights, const float *dtemb,
                          const wd_dit_embed_saved *s, const wd_dit_stage *weights,
                          const wd_dit_context *c)
{
    wd_dit_dims d = wd__dit_dims_of(c);
    size_t mark = wd_arena_mark(c->arena);
    int64_t count = d.samples * d.width;
    wd_linear time1 = layer(weights, WD_DIT_EMBED_TIME1_W);
    wd_linear time2 = layer(weights, WD_DIT_EMBED_TIME2_W);
    float *act = wd__dit_push(c, count, WD_F32);
    activate(act, s->time1, WD_F32, WD_ACT_SILU, count, c->queue);
    wd__linear_backward_weights(grad_of(dweights, WD_DIT_EMBED_TIME2_W), dtemb, d.width, act, time2,
                                d.samples, c->queue);
    float *dact = act; /* act is done with */
    wd__linear_backward_input(dact, dtemb, d.width, time2, WD_F32, 0, d.samples, c->queue);
    activate_backward(dact, s->time1, WD_F32, WD_ACT_SILU, count, c->queue);
    wd__linear_backward_weights(grad_of(dweights, WD_DIT_EMBED_TIME1_W), dact, d.width, s->sinusoid,
                                time1, d.samples, c->queue);
    wd_arena_reset(c->arena, mark);
}

static void text_backward(float *dtext, const wd_dit_stage *dweights, const float *dctx,
                          const wd_dit_embed_saved *s, const wd_dit_stage *weights,
                          const wd_dit_context *c)
{
    wd_dit_dims d = wd__dit_dims_of(c);
    wd_queue *queue = c->queue;
    size_t mark = wd_arena_mark(c->arena);
    int64_t count = d.text_rows * d.width;
    wd_linear text1 = layer(weights, WD_DIT_EMBED_TEXT1_W);
    wd_linear text2 = layer(weights, WD_DIT_EMBED_TEXT2_W);
    const void *dy = dctx;
    if (d.type != WD_F32) {
        void *rounded = wd__dit_push(c, count, d.type);
        wd__dit_cast(rounded, dctx, d.type, WD_F32, count, queue);
        dy = rounded;
    }
    void *act = wd__dit_push(c, count, d.type);
    activate(act, s->text1, d.type, WD_ACT_GELU_TANH, count, queue);
    wd__linear_backward_weights(grad_of(dweights, WD_DIT_EMBED_TEXT2_W), dy, d.width, act, text2,
                                d.text_rows, queue);
    void *dact = act; /* act is done with */
    wd__linear_backward_input(dact, dy, d.width, text2, d.type, 0, d.text_rows, queue);
    activate_backward(dact, s->text1, d.type, WD_ACT_GELU_TANH, count, queue);
    wd__linear_backward_weights(grad_of(dweights, WD_DIT_EMBED_TEXT1_W), dact, d.width, s->text,
                                text1, d.text_rows, queue);
    if (dtext)
        wd__linear_backward_input(dtext, dact, d.width, text1, WD_F32, 0, d.text_rows, queue);
    wd_arena_reset(c->arena, mark);
}

void wd_dit_embed_backward(float *dlatents, float *dtext, const wd_dit_stage *dweights,
                           const wd_dit_stream_grad *grad, const wd_dit_embed_saved *saved,
                           const wd_dit_stream *stream, const wd_dit_stage *weights,
                           const wd_dit_context *c)
{
    patch_backward(dlatents, dweights, grad->dx, saved, weights, c);
    projection_backward(dweights, grad, saved, stream, weights, c);
    time_backward(dweights, grad->dtemb, saved, weights, c);
    text_backward(dtext, dweights, grad->dctx, saved, weights, c);
}
