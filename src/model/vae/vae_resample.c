/* The VAE's layers that change the size of pictures or the number of frames, and the shortcuts of
 * the 2.2 layout around them. */
#include <assert.h>

#include "model/vae/vae_pass.h"

/* ---- resampling ---- */

/* Makes two frames of one: the convolution gives [frames, h, w, 2 c], whose channels are first
 * those of the first frame, then those of the second. The first latent frame is not upsampled in
 * time, and is not added to the history. */
static wd_vae_frames time_upsample(wd_vae_pass *p, const wd_vae_frames *x, int layer)
{
    int64_t frame = wd__vae_frame_count(x);
    float *history = wd__vae_history(p, layer, 0, x, 2);
    wd_vae_frames y = *x;
    float *in = wd__vae_take(p, (2 + x->frames) * frame);
    y.channels = 2 * x->channels;
    wd__vae_frames_take(p, &y);
    wd__vae_copy(p, in, history, 2 * frame);
    wd__vae_copy(p, in + 2 * frame, x->data, x->frames * frame);
    wd__vae_conv(p,
                 (wd_conv_args){.y = y.data,
                                .x = in,
                                .samples = 1,
                                .in = {2 + x->frames, x->height, x->width},
                                .kernel = {3, 1, 1}},
                 wd__vae_weight(p, layer, WD_VAE_W2), wd__vae_weight(p, layer, WD_VAE_B2));
    wd__vae_remember(p, history, x, 2);
    wd__vae_give(p, in);
    return y;
}

/* Repeats every pixel of `pictures` pictures of `rows` rows to 2 x 2. Pixels are `stride` values
 * apart, pictures `picture` values. */
static void double_pixels(wd_vae_pass *p, float *to, const float *from, int64_t pictures,
                          int64_t rows, int64_t width, int64_t channels, int64_t picture,
                          int64_t stride)
{
    int64_t c = channels;
    if (!p->queue) return;
    wd_op_strided_copy(
        p->queue, &(wd_strided_copy_args){.to = to,
                                          .from = from,
                                          .ndim = 6,
                                          .dim = {pictures, rows, 2, width, 2, c},
                                          .to_stride = {4 * rows * width * c, 4 * width * c,
                                                        2 * width * c, 2 * c, c, 1},
                                          .from_stride = {picture, width * stride, 0, stride, 0, 1},
                                          .alpha = 1});
}

/* Upsamples one frame of all samples: doubles and convolves (3x3) it band by band. `from` is frame
 * data whose pixels are `stride` values apart. */
static void upsample_frame(wd_vae_pass *p, float *y, const float *from, const wd_vae_frames *x,
                           int64_t stride, int layer)
{
    int64_t h = x->height, w = x->width, c = x->channels, co = p->layers->layer[layer].out;
    int64_t picture = h * w * stride;
    wd_vae_cut cut = wd__vae_cut_for(p, x->samples, h, 4 * w * c);
    int64_t halo = cut.rows + 2 < h ? cut.rows + 2 : h;
    float *in = wd__vae_take(p, cut.pictures * halo * 4 * w * c);
    for (int64_t at = 0; at < x->samples; at += cut.pictures) {
        int64_t left = x->samples - at, pictures = left < cut.pictures ? left : cut.pictures;
        for (int64_t row = 0; row < h; row += cut.rows) {
            int64_t end = row + cut.rows < h ? row + cut.rows : h;
            int64_t low = row ? row - 1 : 0, high = end < h ? end + 1 : end;
            /* The halo is one row of the doubled picture, half of a doubled row. */
            int64_t skip = row ? 1 : 0, drop = end < h ? 1 : 0;
            double_pixels(p, in, from + at * picture + low * w * stride, pictures, high - low, w, c,
                          picture, stride);
            wd__vae_conv(p,
                         (wd_conv_args){.y = y + (at * 2 * h + 2 * row) * 2 * w * co,
                                        .x = in + skip * 2 * w * c,
                                        .samples = pictures,
                                        .in = {1, 2 * (high - low) - skip - drop, 2 * w},
                                        .kernel = {1, 3, 3},
                                        .pad_before = {0, row == 0, 1},
                                        .pad_after = {0, end == h, 1}},
                         wd__vae_weight(p, layer, WD_VAE_W1), wd__vae_weight(p, layer, WD_VAE_B1));
        }
    }
    wd__vae_give(p, in);
}

void wd__vae_upsample(wd_vae_pass *p, wd_vae_frames *x, int layer)
{
    const wd_vae_layer *l = &p->layers->layer[layer];
    bool in_time = l->time == 2 && p->chunk > 0;
    wd_vae_frames from = *x, y = *x;
    if (l->time == 2) wd__vae_history(p, layer, 0, x, 2);
    if (in_time) {
        from = time_upsample(p, x, layer);
        wd__vae_frames_give(p, x);
        y.frames *= 2;
    }
    y.height *= 2;
    y.width *= 2;
    y.channels = l->out;
    wd__vae_frames_take(p, &y);
    for (int64_t f = 0; f < y.frames; f++) {
        const float *frame =
            in_time ? from.data + f / 2 * wd__vae_frame_count(&from) + f % 2 * x->channels
                    : from.data + f * wd__vae_frame_count(&from);
        upsample_frame(p, y.data + f * wd__vae_frame_count(&y), frame, x, from.channels, layer);
    }
    wd__vae_frames_give(p, &from);
    *x = y;
}

/* A 3x3 convolution of stride 2 with a row and a column of zeros at the end. Then, from the second
 * chunk on, two frames become one, with the last frame of the previous chunk before them. */
void wd__vae_downsample(wd_vae_pass *p, wd_vae_frames *x, int layer)
{
    const wd_vae_layer *l = &p->layers->layer[layer];
    bool in_time = l->time == 2 && p->chunk > 0;
    wd_vae_frames space = *x;
    space.height /= 2;
    space.width /= 2;
    space.frames += in_time;
    wd__vae_frames_take(p, &space);
    int64_t frame = wd__vae_frame_count(&space);
    wd_vae_frames fresh = space; /* without the frame of the previous chunk */
    fresh.data += in_time ? frame : 0;
    fresh.frames = x->frames;
    wd__vae_conv(p,
                 (wd_conv_args){.y = fresh.data,
                                .x = x->data,
                                .samples = x->samples * x->frames,
                                .in = {1, x->height, x->width},
                                .kernel = {1, 3, 3},
                                .stride = {1, 2, 2},
                                .pad_after = {0, 1, 1}},
                 wd__vae_weight(p, layer, WD_VAE_W1), wd__vae_weight(p, layer, WD_VAE_B1));
    wd__vae_frames_give(p, x);
    *x = space;
    if (l->time != 2) return;
    float *history = wd__vae_history(p, layer, 0, &space, 1);
    if (in_time) {
        wd_vae_frames y = space;
        y.frames = (space.frames - 3) / 2 + 1;
        wd__vae_frames_take(p, &y);
        wd__vae_copy(p, space.data, history, frame);
        wd__vae_conv(p,
                     (wd_conv_args){.y = y.data,
                                    .x = space.data,
                                    .samples = 1,
                                    .in = {space.frames, space.height, space.width},
                                    .kernel = {3, 1, 1},
                                    .stride = {2, 1, 1}},
                     wd__vae_weight(p, layer, WD_VAE_W2), wd__vae_weight(p, layer, WD_VAE_B2));
        *x = y;
    }
    wd__vae_remember(p, history, &fresh, 1);
    if (in_time) wd__vae_frames_give(p, &space);
}

/* ---- shortcuts of the 2.2 layout ----
 *
 * A coarse pixel corresponds to P = ft fs fs fine pixels: (t, a, b) in time, rows and columns. Both
 * shortcuts first move these into channels, q = c P + (t fs + a) fs + b, and then assign
 * consecutive runs of q to the channels of the other side. For one (t, a, b) this is a strided sum.
 * In the first chunk the only fine frame is the last of its ft; the frames before it are dropped
 * (up) or zero (down). */

/* The address and the strides of one side of such a sum. */
typedef struct side {
    float *data;
    int64_t frame, row, pixel, channel, repeat;
} side;

/* to += alpha from, over `frames` frames of `height` x `width` pixels of channels x repeats. */
static void add_side(wd_vae_pass *p, side to, side from, const wd_vae_frames *coarse,
                     int64_t channels, int64_t repeats, float alpha)
{
    if (!p->queue) return;
    wd_op_strided_copy(
        p->queue, &(wd_strided_copy_args){
                      .to = to.data,
                      .from = from.data,
                      .ndim = 5,
                      .dim = {coarse->samples * coarse->frames, coarse->height, coarse->width,
                              channels, repeats},
                      .to_stride = {to.frame, to.row, to.pixel, to.channel, to.repeat},
                      .from_stride = {from.frame, from.row, from.pixel, from.channel, from.repeat},
                      .alpha = alpha,
                      .beta = 1});
}

static side coarse_side(const wd_vae_frames *x)
{
    return (side){x->data, wd__vae_frame_count(x), x->width * x->channels, x->channels, 1, 0};
}

/* The fine pixels (t, a, b) of all coarse pixels. */
static side fine_side(const wd_vae_frames *x, const wd_vae_layer *l, bool first, int64_t t,
                      int64_t a, int64_t b)
{
    int64_t frame = wd__vae_frame_count(x), row = x->width * x->channels;
    return (side){x->data + (first ? 0 : t * frame) + a * row + b * x->channels,
                  first ? frame : l->time * frame,
                  l->space * row,
                  l->space * x->channels,
                  1,
                  0};
}

/* x += DupUp3D(saved): coarse channel = floor(q / repeats) with q of the fine channel. */
void wd__vae_add_up(wd_vae_pass *p, wd_vae_frames *x, int layer)
{
    const wd_vae_layer *l = &p->layers->layer[layer];
    int64_t parts = l->time * l->space * l->space, repeats = l->out * parts / l->in;
    bool first = p->chunk == 0;
    for (int64_t i = first ? parts - parts / l->time : 0; i < parts; i++) {
        int64_t b = i % l->space, a = i / l->space % l->space, t = i / (l->space * l->space);
        side to = fine_side(x, l, first, t, a, b), from = coarse_side(&p->save);
        if (repeats % parts == 0) { /* a coarse channel is added to whole fine channels */
            to.channel = repeats / parts;
            to.repeat = 1;
            add_side(p, to, from, &p->save, l->in, repeats / parts, 1);
        } else { /* the pixels of a fine channel may have different coarse channels */
            from.data += i / repeats;
            from.channel = parts / repeats;
            add_side(p, to, from, &p->save, l->out, 1, 1);
        }
    }
    wd__vae_give(p, p->save.data);
    p->save = (wd_vae_frames){0};
}

/* x += AvgDown3D(saved): coarse channel = floor(q / run) with q of the fine channel, mean of `run`.
 */
void wd__vae_add_down(wd_vae_pass *p, wd_vae_frames *x, int layer)
{
    const wd_vae_layer *l = &p->layers->layer[layer];
    int64_t parts = l->time * l->space * l->space, run = l->in * parts / l->out;
    bool first = p->chunk == 0;
    for (int64_t i = first ? parts - parts / l->time : 0; i < parts; i++) {
        int64_t b = i % l->space, a = i / l->space % l->space, t = i / (l->space * l->space);
        side from = fine_side(&p->save, l, first, t, a, b), to = coarse_side(x);
        if (run % parts ==
            0) { /* whole fine channels are added to a coarse channel, one after the other */
            from.channel = run / parts;
            for (int64_t j = 0; j < run / parts; j++, from.data++)
                add_side(p, to, from, x, l->out, 1, 1 / (float)run);
        } else { /* the pixels of a fine channel may be added to different coarse channels */
            to.data += i / run;
            to.channel = parts / run;
            add_side(p, to, from, x, l->in, 1, 1 / (float)run);
        }
    }
    wd__vae_give(p, p->save.data);
    p->save = (wd_vae_frames){0};
}
