/* Memory of a pass, and the VAE's layers on the device: see model/vae/vae_pass.h. */
#include "model/vae/vae_pass.h"

#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "core/checked.h"
#include "core/error.h"

/* ---- memory of a pass ---- */

enum { ALIGN = 64 };

void wd__vae_pool_over(wd_vae_pool *pool, void *base, size_t capacity)
{
    *pool = (wd_vae_pool){.base = base, .capacity = capacity};
    if (!base) *pool = (wd_vae_pool){.base = (char *)ALIGN, .capacity = SIZE_MAX};
}

/* Takes `bytes`, aligned to 64. The capacity was planned, so exceeding it is a bug in this library.
 */
static void *pool_take(wd_vae_pool *pool, size_t bytes)
{
    size_t start = 0, rounded = wd_round_up(bytes ? bytes : 1, ALIGN);
    int at = 0;
    WD_REQUIRE(pool->count < WD_VAE_POOL_BLOCKS, "the VAE needs more than %d blocks",
               WD_VAE_POOL_BLOCKS);
    while (at < pool->count && pool->used[at].offset - start < rounded) {
        start = pool->used[at].offset + pool->used[at].bytes;
        at++;
    }
    memmove(&pool->used[at + 1], &pool->used[at], (size_t)(pool->count - at) * sizeof *pool->used);
    pool->used[at].offset = start;
    pool->used[at].bytes = rounded;
    pool->count++;
    if (start + rounded > pool->peak) pool->peak = start + rounded;
    WD_REQUIRE(pool->peak <= pool->capacity, "the VAE needs %zu bytes, planned were %zu",
               pool->peak, pool->capacity);
    return pool->base + start;
}

static void pool_give(wd_vae_pool *pool, const void *block)
{
    int at = 0;
    while (at < pool->count && pool->base + pool->used[at].offset != block) at++;
    WD_REQUIRE(at < pool->count, "a block of the VAE is given back twice");
    pool->count--;
    memmove(&pool->used[at], &pool->used[at + 1], (size_t)(pool->count - at) * sizeof *pool->used);
}

/* The rows of a band are a multiple of this, since the tiles of a convolution's result have four
 * rows. */
enum { BAND_ROWS = 8 };

float *wd__vae_take(wd_vae_pass *p, int64_t count)
{
    return pool_take(&p->pool, (size_t)count * sizeof(float));
}

void wd__vae_give(wd_vae_pass *p, const float *block)
{
    pool_give(&p->pool, block);
}

void wd__vae_frames_take(wd_vae_pass *p, wd_vae_frames *x)
{
    x->data = wd__vae_take(p, x->samples * x->frames * wd__vae_frame_count(x));
    x->saved = false;
}

void wd__vae_frames_give(wd_vae_pass *p, const wd_vae_frames *x)
{
    if (!x->saved) wd__vae_give(p, x->data);
}

const wd_tensor *wd__vae_weight(const wd_vae_pass *p, int layer, wd_vae_slot slot)
{
    int line = p->layers->layer[layer].line[slot];
    return line < 0 || !p->weight ? NULL : &p->weight[line];
}

/* ---- launches, which a pass that only measures skips ---- */

void wd__vae_copy(wd_vae_pass *p, float *to, const float *from, int64_t count)
{
    if (p->queue) wd_queue_copy(p->queue, to, from, (size_t)count * sizeof *to);
}

static void zero(wd_vae_pass *p, float *to, int64_t count)
{
    if (p->queue) wd_op_fill(p->queue, &(wd_fill_args){.to = to, .type = WD_F32, .count = count});
}

/* y = act(norm(x)). */
static void launch_norm(wd_vae_pass *p, float *y, const float *x, const wd_tensor *gamma,
                        int64_t rows, wd_act act)
{
    if (!p->queue) return;
    wd_op_channelnorm(p->queue, &(wd_channelnorm_args){.y = y,
                                                       .x = x,
                                                       .gamma = gamma->data,
                                                       .type = WD_F32,
                                                       .w_type = WD_F32,
                                                       .rows = rows,
                                                       .width = gamma->dim[0],
                                                       .act = act});
}

/* y = x w^T + b per pixel (beta 0), or += (beta 1). */
static void launch_point(wd_vae_pass *p, float *y, const float *x, const wd_tensor *w,
                         const wd_tensor *b, int64_t rows, float beta)
{
    if (!p->queue) return;
    wd_op_matmul(p->queue, &(wd_matmul_args){.c = y,
                                             .a = x,
                                             .b = w->data,
                                             .bias = b->data,
                                             .transpose_b = true,
                                             .m = rows,
                                             .n = w->dim[0],
                                             .k = w->dim[1],
                                             .lda = w->dim[1],
                                             .ldb = w->dim[1],
                                             .ldc = w->dim[0],
                                             .batch = 1,
                                             .beta = beta});
}

/* y = x + branch. */
static void launch_add(wd_vae_pass *p, float *y, const float *x, const float *branch, int64_t rows,
                       int64_t width)
{
    if (!p->queue) return;
    wd_op_residual(p->queue, &(wd_residual_args){.y = y,
                                                 .x = x,
                                                 .branch = branch,
                                                 .type = WD_F32,
                                                 .rows = rows,
                                                 .width = width,
                                                 .rows_per_sample = rows});
}

void wd__vae_conv(wd_vae_pass *p, wd_conv_args args, const wd_tensor *w, const wd_tensor *b)
{
    if (!p->queue) return;
    args.w = w->data;
    args.bias = b->data;
    args.co = w->dim[0];
    args.ci = w->dim[1];
    if (!args.tap1) args.tap1 = args.kernel[0];
    for (int d = 0; d < 3; d++) {
        int64_t taps = d ? args.kernel[d] : args.tap1 - args.tap0;
        if (!args.stride[d]) args.stride[d] = 1;
        args.out[d] =
            (args.in[d] + args.pad_before[d] + args.pad_after[d] - taps) / args.stride[d] + 1;
    }
    wd_op_conv(p->queue, &args);
}

/* ---- histories ---- */

float *wd__vae_history(wd_vae_pass *p, int layer, int slot, const wd_vae_frames *x, int64_t frames)
{
    float **history = &p->history[layer][slot];
    if (!*history && p->more) {
        *history = wd__vae_take(p, frames * wd__vae_frame_count(x));
        zero(p, *history, frames * wd__vae_frame_count(x));
    }
    return *history;
}

void wd__vae_remember(wd_vae_pass *p, float *history, const wd_vae_frames *x, int64_t frames)
{
    int64_t frame = wd__vae_frame_count(x), newer = x->frames < frames ? x->frames : frames;
    if (!history || !p->more) return;
    if (newer < frames) wd__vae_copy(p, history, history + newer * frame, (frames - newer) * frame);
    wd__vae_copy(p, history + (frames - newer) * frame, x->data + (x->frames - newer) * frame,
                 newer * frame);
}

void wd__vae_pass_forget(wd_vae_pass *p)
{
    for (int i = 0; i < p->layers->count; i++)
        for (int slot = 0; slot < 2; slot++) {
            if (p->history[i][slot]) wd__vae_give(p, p->history[i][slot]);
            p->history[i][slot] = NULL;
        }
}

wd_vae_cut wd__vae_cut_for(const wd_vae_pass *p, int64_t samples, int64_t height, int64_t row_count)
{
    int64_t fit = p->band_bytes / (row_count * (int64_t)sizeof(float)), pictures = fit / height;
    int64_t rows = fit > BAND_ROWS ? fit / BAND_ROWS * BAND_ROWS : BAND_ROWS;
    if (pictures < 1 && rows < height) return (wd_vae_cut){1, rows};
    if (pictures < 1) pictures = 1;
    return (wd_vae_cut){pictures < samples ? pictures : samples, height};
}

/* ---- causal convolutions ---- */

typedef struct causal {
    const float *history;           /* the two frames before; NULL: there are none */
    const wd_tensor *gamma, *w, *b; /* gamma NULL: no norm and no SiLU before */
    float *y;                       /* [samples, frames, height, width, out] */
    bool add;                       /* y += instead of y = */
    int64_t out;                    /* channels of y */
} causal;

/* Computes rows [row, end) of pictures [at, at + pictures); `in` and `out` are scratch memory. */
static void causal_band(wd_vae_pass *p, const wd_vae_frames *x, const causal *c, float *in,
                        float *out, int64_t at, int64_t pictures, int64_t row, int64_t end)
{
    int64_t low = row ? row - 1 : 0, high = end < x->height ? end + 1 : end;
    int64_t frame = wd__vae_frame_count(x), past = c->history ? 2 : 0, co = c->out;
    int64_t pixels = pictures * (high - low) * x->width, skip = low * x->width * x->channels;
    int64_t out_pixels = pictures * (end - row) * x->width;
    for (int64_t f = 0; f < past + x->frames; f++) {
        const float *from = f < past ? c->history + f * frame : x->data + (at + f - past) * frame;
        float *to = in + f * pixels * x->channels;
        if (c->gamma)
            launch_norm(p, to, from + skip, c->gamma, pixels, WD_ACT_SILU);
        else
            wd__vae_copy(p, to, from + skip, pixels * x->channels);
    }
    for (int64_t f = 0; f < x->frames; f++) {
        float *y = c->y + (((at + f) * x->height + row) * x->width) * co;
        wd__vae_conv(p,
                     (wd_conv_args){.y = c->add ? out : y,
                                    .x = in + f * pixels * x->channels,
                                    .samples = pictures,
                                    .in = {past + 1, high - low, x->width},
                                    .kernel = {3, 3, 3},
                                    .pad_before = {0, row == 0, 1},
                                    .pad_after = {0, end == x->height, 1},
                                    .tap0 = 2 - past,
                                    .tap1 = 3},
                     c->w, c->b);
        if (c->add) launch_add(p, y, y, out, out_pixels, co);
    }
}

/* Causal 3x3x3 convolution of norm and SiLU of x, band by band. */
static void causal_conv(wd_vae_pass *p, const wd_vae_frames *x, const causal *c)
{
    int64_t frames = x->frames + (c->history ? 2 : 0), row_count = x->width * x->channels;
    assert(c->history || x->frames == 1);
    assert(x->samples == 1 || (x->frames == 1 && !c->history));
    wd_vae_cut cut = wd__vae_cut_for(p, x->samples, x->height, frames * row_count);
    int64_t halo = cut.rows + 2 < x->height ? cut.rows + 2 : x->height;
    float *in = wd__vae_take(p, cut.pictures * frames * halo * row_count);
    float *out = c->add ? wd__vae_take(p, cut.pictures * cut.rows * x->width * c->out) : NULL;
    for (int64_t at = 0; at < x->samples; at += cut.pictures) {
        int64_t left = x->samples - at, pictures = left < cut.pictures ? left : cut.pictures;
        for (int64_t row = 0; row < x->height; row += cut.rows) {
            int64_t end = row + cut.rows < x->height ? row + cut.rows : x->height;
            causal_band(p, x, c, in, out, at, pictures, row, end);
        }
    }
    if (out) wd__vae_give(p, out);
    wd__vae_give(p, in);
}

/* ---- layers ---- */

/* The frames that the convolution of a slot sees before this chunk; NULL in the first chunk. */
static const float *seen_before(const wd_vae_pass *p, float *history)
{
    return p->chunk ? history : NULL;
}

static void resnet(wd_vae_pass *p, wd_vae_frames *x, int layer)
{
    const wd_vae_layer *l = &p->layers->layer[layer];
    float *history = wd__vae_history(p, layer, 0, x, 2);
    wd_vae_frames middle = *x, y = *x;
    middle.channels = y.channels = l->out;
    wd__vae_frames_take(p, &middle);
    causal_conv(p, x,
                &(causal){.history = seen_before(p, history),
                          .gamma = wd__vae_weight(p, layer, WD_VAE_NORM1),
                          .w = wd__vae_weight(p, layer, WD_VAE_W1),
                          .b = wd__vae_weight(p, layer, WD_VAE_B1),
                          .y = middle.data,
                          .out = l->out});
    wd__vae_remember(p, history, x, 2);
    history = wd__vae_history(p, layer, 1, &middle, 2);
    bool in_place = l->in == l->out && !x->saved;
    if (!in_place) wd__vae_frames_take(p, &y);
    causal_conv(p, &middle,
                &(causal){.history = seen_before(p, history),
                          .gamma = wd__vae_weight(p, layer, WD_VAE_NORM2),
                          .w = wd__vae_weight(p, layer, WD_VAE_W2),
                          .b = wd__vae_weight(p, layer, WD_VAE_B2),
                          .y = y.data,
                          .add = in_place,
                          .out = l->out});
    wd__vae_remember(p, history, &middle, 2);
    wd__vae_frames_give(p, &middle);
    if (in_place) return;
    int64_t rows = x->samples * x->frames * x->height * x->width;
    if (l->in != l->out)
        launch_point(p, y.data, x->data, wd__vae_weight(p, layer, WD_VAE_W3),
                     wd__vae_weight(p, layer, WD_VAE_B3), rows, 1);
    else
        launch_add(p, y.data, y.data, x->data, rows, l->out);
    wd__vae_frames_give(p, x);
    *x = y;
}

/* A causal convolution, with or without norm and SiLU before it. */
static void causal_layer(wd_vae_pass *p, wd_vae_frames *x, int layer)
{
    float *history = wd__vae_history(p, layer, 0, x, 2);
    wd_vae_frames y = *x;
    y.channels = p->layers->layer[layer].out;
    wd__vae_frames_take(p, &y);
    causal_conv(p, x,
                &(causal){.history = seen_before(p, history),
                          .gamma = wd__vae_weight(p, layer, WD_VAE_NORM1),
                          .w = wd__vae_weight(p, layer, WD_VAE_W1),
                          .b = wd__vae_weight(p, layer, WD_VAE_B1),
                          .y = y.data,
                          .out = y.channels});
    wd__vae_remember(p, history, x, 2);
    wd__vae_frames_give(p, x);
    *x = y;
}

static void point_layer(wd_vae_pass *p, wd_vae_frames *x, int layer)
{
    wd_vae_frames y = *x;
    y.channels = p->layers->layer[layer].out;
    wd__vae_frames_take(p, &y);
    launch_point(p, y.data, x->data, wd__vae_weight(p, layer, WD_VAE_W1),
                 wd__vae_weight(p, layer, WD_VAE_B1), x->samples * x->frames * x->height * x->width,
                 0);
    wd__vae_frames_give(p, x);
    *x = y;
}

/* x += proj(attention(norm(x))), over the pixels of each frame. */
static void attention(wd_vae_pass *p, wd_vae_frames *x, int layer)
{
    int64_t tokens = x->height * x->width, pictures = x->samples * x->frames, c = x->channels;
    int64_t rows = pictures * tokens;
    float *n = wd__vae_take(p, rows * c), *qkv = wd__vae_take(p, rows * 3 * c);
    assert(!x->saved);
    launch_norm(p, n, x->data, wd__vae_weight(p, layer, WD_VAE_NORM1), rows, WD_ACT_NONE);
    launch_point(p, qkv, n, wd__vae_weight(p, layer, WD_VAE_W1),
                 wd__vae_weight(p, layer, WD_VAE_B1), rows, 0);
    if (p->queue)
        wd_op_attention(p->queue, &(wd_attention_args){.o = n,
                                                       .q = qkv,
                                                       .k = qkv + c,
                                                       .v = qkv + 2 * c,
                                                       .type = WD_F32,
                                                       .samples = pictures,
                                                       .kv_samples = pictures,
                                                       .heads = 1,
                                                       .head_dim = c,
                                                       .q_tokens = tokens,
                                                       .kv_tokens = tokens,
                                                       .q_stride = 3 * c,
                                                       .kv_stride = 3 * c,
                                                       .o_stride = c,
                                                       .scale = 1 / sqrtf((float)c)});
    launch_point(p, x->data, n, wd__vae_weight(p, layer, WD_VAE_W2),
                 wd__vae_weight(p, layer, WD_VAE_B2), rows, 1);
    wd__vae_give(p, qkv);
    wd__vae_give(p, n);
}

void wd__vae_pass_layer(wd_vae_pass *p, wd_vae_frames *x, int layer)
{
    assert(x->channels == p->layers->layer[layer].in || p->save.data);
    switch (p->layers->layer[layer].kind) {
    case WD_VAE_POINT:
        point_layer(p, x, layer);
        break;
    case WD_VAE_CONV:
    case WD_VAE_HEAD:
        causal_layer(p, x, layer);
        break;
    case WD_VAE_RESNET:
        resnet(p, x, layer);
        break;
    case WD_VAE_ATTENTION:
        attention(p, x, layer);
        break;
    case WD_VAE_UPSAMPLE:
        wd__vae_upsample(p, x, layer);
        break;
    case WD_VAE_DOWNSAMPLE:
        wd__vae_downsample(p, x, layer);
        break;
    case WD_VAE_SAVE:
        x->saved = true;
        p->save = *x;
        break;
    case WD_VAE_ADD_UP:
        wd__vae_add_up(p, x, layer);
        break;
    case WD_VAE_ADD_DOWN:
        wd__vae_add_down(p, x, layer);
        break;
    }
}
