/* Sizes of the transformer's passes, streams and their gradients. */
#include "model/dit/dit.h"

#include <assert.h>

#include "core/error.h"
#include "model/dit/dit_impl.h"

int64_t wd_dit_tokens(const wd_dit_config *config, const wd_dit_shape *shape)
{
    WD_REQUIRE(shape->frames % config->patch[0] == 0 && shape->height % config->patch[1] == 0 &&
                   shape->width % config->patch[2] == 0,
               "latents of %lld x %lld x %lld are no whole number of patches",
               (long long)shape->frames, (long long)shape->height, (long long)shape->width);
    return shape->frames / config->patch[0] * (shape->height / config->patch[1]) *
           (shape->width / config->patch[2]);
}

wd_dit_dims wd__dit_dims_of(const wd_dit_context *context)
{
    const wd_dit_config *config = context->config;
    const wd_dit_shape *shape = &context->shape;
    assert(shape->texts == shape->samples || shape->texts == 1);
    wd_dit_dims d = {.type = context->dtype,
                     .samples = shape->samples,
                     .texts = shape->texts,
                     .tokens = wd_dit_tokens(config, shape),
                     .text_tokens = shape->text_tokens,
                     .width = wd_dit_width(config),
                     .ffn = config->ffn_dim,
                     .heads = config->heads,
                     .head_dim = config->head_dim};
    d.rows = d.samples * d.tokens;
    d.text_rows = d.texts * d.text_tokens;
    return d;
}

void *wd__dit_push(const wd_dit_context *context, int64_t count, wd_dtype type)
{
    return wd_arena_push(context->arena, (size_t)count * wd_dtype_bytes(type));
}

wd_norm_shape wd__dit_norm_shape(const wd_dit_context *context, int64_t stride)
{
    wd_dit_dims d = wd__dit_dims_of(context);
    return (wd_norm_shape){.type = d.type,
                           .rows = d.rows,
                           .width = d.width,
                           .rows_per_sample = d.tokens,
                           .modulation_stride = stride,
                           .eps = (float)context->config->eps};
}

wd_rms_shape wd__dit_rms_shape(const wd_dit_context *context, const wd_tensor *w, int64_t rows,
                               int64_t stride)
{
    wd_dit_dims d = wd__dit_dims_of(context);
    return (wd_rms_shape){.type = d.type,
                          .w_type = w->dtype,
                          .rows = rows,
                          .width = d.width,
                          .head_dim = d.head_dim,
                          .tokens = d.tokens,
                          .x_stride = stride,
                          .y_stride = stride,
                          .eps = (float)context->config->eps};
}

wd_attention_shape wd__dit_self_shape(const wd_dit_context *context)
{
    wd_dit_dims d = wd__dit_dims_of(context);
    return (wd_attention_shape){.type = d.type,
                                .samples = d.samples,
                                .kv_samples = d.samples,
                                .heads = d.heads,
                                .head_dim = d.head_dim,
                                .q_tokens = d.tokens,
                                .kv_tokens = d.tokens,
                                .q_stride = 3 * d.width,
                                .kv_stride = 3 * d.width};
}

wd_attention_shape wd__dit_cross_shape(const wd_dit_context *context)
{
    wd_dit_dims d = wd__dit_dims_of(context);
    return (wd_attention_shape){.type = d.type,
                                .samples = d.samples,
                                .kv_samples = d.texts,
                                .heads = d.heads,
                                .head_dim = d.head_dim,
                                .q_tokens = d.tokens,
                                .kv_tokens = d.text_tokens,
                                .last_key_repeat = context->shape.text_repeat,
                                .q_stride = d.width,
                                .kv_stride = 2 * d.width};
}

void wd__dit_add(float *y, const void *x, wd_dtype type, int64_t count, wd_queue *queue)
{
    wd_op_strided_copy(queue, &(wd_strided_copy_args){.to = y,
                                                      .from = x,
                                                      .to_type = WD_F32,
                                                      .from_type = type,
                                                      .ndim = 1,
                                                      .dim = {count},
                                                      .to_stride = {1},
                                                      .from_stride = {1},
                                                      .alpha = 1,
                                                      .beta = 1});
}

void wd__dit_cast(void *to, const void *from, wd_dtype to_type, wd_dtype from_type, int64_t count,
                  wd_queue *queue)
{
    wd_op_cast(
        queue,
        &(wd_cast_args){
            .to = to, .from = from, .to_type = to_type, .from_type = from_type, .count = count});
}

wd_dit_stream_bytes wd_dit_stream_sizes(const wd_dit_context *context)
{
    wd_dit_dims d = wd__dit_dims_of(context);
    const size_t row = (size_t)d.width * wd_dtype_bytes(d.type);
    return (wd_dit_stream_bytes){.x = (size_t)d.rows * row,
                                 .temb = (size_t)d.samples * row,
                                 .tp = (size_t)d.samples * 6 * row,
                                 .ctx = (size_t)d.text_rows * row};
}

void wd_dit_stream_push(wd_dit_stream *out, const wd_dit_context *context)
{
    const wd_dit_stream_bytes bytes = wd_dit_stream_sizes(context);
    *out = (wd_dit_stream){.x = wd_arena_push(context->arena, bytes.x),
                           .temb = wd_arena_push(context->arena, bytes.temb),
                           .tp = wd_arena_push(context->arena, bytes.tp),
                           .ctx = wd_arena_push(context->arena, bytes.ctx)};
}

static float *push_zeros(const wd_dit_context *context, int64_t count)
{
    float *out = wd__dit_push(context, count, WD_F32);
    wd_op_fill(context->queue, &(wd_fill_args){.to = out, .type = WD_F32, .count = count});
    return out;
}

void wd_dit_stream_grad_push(wd_dit_stream_grad *out, const wd_dit_context *context)
{
    wd_dit_dims d = wd__dit_dims_of(context);
    *out = (wd_dit_stream_grad){.dx = wd__dit_push(context, d.rows * d.width, d.type),
                                .dtemb = push_zeros(context, d.samples * d.width),
                                .dtp = push_zeros(context, d.samples * 6 * d.width),
                                .dctx = push_zeros(context, d.text_rows * d.width),
                                .dm = wd__dit_push(context, d.samples * 6 * d.width, WD_F32)};
}
