/* Sizes of the transformer's passes, streams and their gradients, patches and rotation tables. */
#include "model/dit/dit.h"

#include <assert.h>
#include <math.h>

#include "core/error.h"
#include "core/memory.h"
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

/* ---- latents to patches and back ----
 *
 * The permutation is launched once per pixel position in a patch, so that its inner loop runs over
 * channels or columns, and not over the two neighbouring pixels of a patch. */

/* The source or the target of the copy. */
typedef struct side {
    void *data;
    wd_dtype type;
    int64_t stride[5]; /* of sample, patch frame, patch row, patch column, channel */
    int64_t pixel[3];  /* of frame, row, column within a patch */
} side;

static side latent_side(void *latents, const wd_dit_patch_layout *layout, const wd_dit_context *c)
{
    const wd_dit_shape *s = &c->shape;
    const int64_t *patch = c->config->patch, plane = s->height * s->width;
    return (side){.data = latents,
                  .type = layout->latent_type,
                  .stride = {layout->channels * s->frames * plane, patch[0] * plane,
                             patch[1] * s->width, patch[2], s->frames * plane},
                  .pixel = {plane, s->width, 1}};
}

static side patch_side(void *patches, const wd_dit_patch_layout *layout, const wd_dit_context *c)
{
    const wd_dit_shape *s = &c->shape;
    const int64_t *patch = c->config->patch, pixels = patch[0] * patch[1] * patch[2];
    int64_t width = layout->channels * pixels, rows = s->height / patch[1];
    int64_t columns = s->width / patch[2], frames = s->frames / patch[0];
    bool fastest = layout->order == WD_DIT_CHANNEL_FASTEST;
    int64_t channel = fastest ? 1 : pixels, pixel = fastest ? layout->channels : 1;
    return (side){.data = patches,
                  .type = layout->patch_type,
                  .stride = {frames * rows * columns * width, rows * columns * width,
                             columns * width, width, channel},
                  .pixel = {patch[1] * patch[2] * pixel, patch[2] * pixel, pixel}};
}

/* The address of pixel (f, y, x) in the first patch. */
static void *at_pixel(const side *s, int64_t f, int64_t y, int64_t x)
{
    return wd__dit_at(s->data, s->type, f * s->pixel[0] + y * s->pixel[1] + x * s->pixel[2]);
}

static void copy(const side *to, const side *from, int64_t channels, const wd_dit_context *c)
{
    const wd_dit_shape *s = &c->shape;
    const int64_t *patch = c->config->patch;
    wd_strided_copy_args args = {.to_type = to->type,
                                 .from_type = from->type,
                                 .ndim = 5,
                                 .dim = {s->samples, s->frames / patch[0], s->height / patch[1],
                                         s->width / patch[2], channels},
                                 .alpha = 1};
    for (int i = 0; i < 5; i++) {
        args.to_stride[i] = to->stride[i];
        args.from_stride[i] = from->stride[i];
    }
    for (int64_t f = 0; f < patch[0]; f++)
        for (int64_t y = 0; y < patch[1]; y++)
            for (int64_t x = 0; x < patch[2]; x++) {
                args.to = at_pixel(to, f, y, x);
                args.from = at_pixel(from, f, y, x);
                wd_op_strided_copy(c->queue, &args);
            }
}

void wd__dit_patchify(void *patches, const void *latents, const wd_dit_patch_layout *layout,
                      const wd_dit_context *context)
{
    side to = patch_side(patches, layout, context);
    side from = latent_side((void *)latents, layout, context);
    copy(&to, &from, layout->channels, context);
}

void wd__dit_unpatchify(void *latents, const void *patches, const wd_dit_patch_layout *layout,
                        const wd_dit_context *context)
{
    side to = latent_side(latents, layout, context);
    side from = patch_side((void *)patches, layout, context);
    copy(&to, &from, layout->channels, context);
}

/* ---- rotation tables (RoPE) of one latent size ----
 *
 * As in diffusers' WanRotaryPosEmbed: angles in float64, cosines and sines rounded to fp32 once. Of
 * the K / 2 pairs of a head the last K / 6 rotate with the column, the K / 6 before them with the
 * row, and the first ones with the frame. */

/* The number of pairs for each axis: frame, row, column. */
static void axis_pairs(int64_t pairs[3], int64_t head_dim)
{
    pairs[1] = pairs[2] = head_dim / 6;
    pairs[0] = head_dim / 2 - pairs[1] - pairs[2];
}

/* Computes cos, sin [K / 2] of one token. */
static void fill_token(float *cosines, float *sines, const int64_t position[3],
                       const int64_t pairs[3])
{
    int64_t at = 0;
    for (int axis = 0; axis < 3; axis++)
        for (int64_t j = 0; j < pairs[axis]; j++, at++) {
            double frequency = 1.0 / pow(10000.0, (double)(2 * j) / (double)(2 * pairs[axis]));
            double angle = (double)position[axis] * frequency;
            cosines[at] = (float)cos(angle);
            sines[at] = (float)sin(angle);
        }
}

static void fill(float *cosines, float *sines, const wd_dit_config *config, const int64_t grid[3])
{
    int64_t pairs[3], half = config->head_dim / 2, token = 0, p[3];
    axis_pairs(pairs, config->head_dim);
    for (p[0] = 0; p[0] < grid[0]; p[0]++)
        for (p[1] = 0; p[1] < grid[1]; p[1]++)
            for (p[2] = 0; p[2] < grid[2]; p[2]++, token++)
                fill_token(cosines + token * half, sines + token * half, p, pairs);
}

wd_status wd_dit_rope_open(wd_dit_rope *out, const wd_dit_config *config, const wd_dit_shape *shape,
                           wd_queue *queue, wd_err *err)
{
    wd_dit_rope rope = {.device = wd_queue_device(queue)};
    void *host = NULL, *cosines = NULL, *sines = NULL;
    wd_status status = WD_OK;
    const int64_t size[3] = {shape->frames, shape->height, shape->width};
    const char *const names[3] = {"frames", "rows", "columns"};
    int64_t grid[3];
    for (int i = 0; i < 3; i++) {
        grid[i] = size[i] / config->patch[i];
        if (grid[i] > config->rope_max_seq_len)
            return wd_fail(err, WD_INVALID_ARGUMENT,
                           "%lld latent %s are %lld patches, but this model (rope_max_seq_len) has "
                           "positions for %lld: choose a smaller picture",
                           (long long)size[i], names[i], (long long)grid[i],
                           (long long)config->rope_max_seq_len);
    }
    size_t count = (size_t)(wd_dit_tokens(config, shape) * (config->head_dim / 2));
    WD_TRY_OUT(wd_alloc(&host, count, 2 * sizeof(float), "RoPE tables", err));
    WD_TRY_OUT(wd_device_alloc(&cosines, rope.device, count * sizeof(float), "RoPE cosines", err));
    rope.cos = cosines;
    WD_TRY_OUT(wd_device_alloc(&sines, rope.device, count * sizeof(float), "RoPE sines", err));
    rope.sin = sines;
    if (!wd_device_is_dry(rope.device)) fill(host, (float *)host + count, config, grid);
    wd_queue_copy_and_wait(queue, rope.cos, host, count * sizeof(float));
    wd_queue_copy_and_wait(queue, rope.sin, (float *)host + count, count * sizeof(float));
    *out = rope;
out:
    if (status != WD_OK) wd_dit_rope_close(&rope);
    wd_free(host);
    return status;
}

void wd_dit_rope_close(wd_dit_rope *rope)
{
    if (!rope->device) return;
    wd_device_free(rope->device, rope->sin);
    wd_device_free(rope->device, rope->cos);
    *rope = (wd_dit_rope){0};
}
