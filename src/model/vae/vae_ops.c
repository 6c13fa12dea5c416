/* Functions of the VAE's layers: see model/vae/vae_ops.h. */
#include "model/vae/vae_ops.h"

/* The rows of a band are a multiple of this, since the tiles of a convolution's result have four
 * rows. */
enum { BAND_ROWS = 8 };

float *wd__vae_take(wd_vae_pass *p, int64_t count)
{
    return wd__vae_pool_take(&p->pool, (size_t)count * sizeof(float));
}

void wd__vae_give(wd_vae_pass *p, const float *block)
{
    wd__vae_pool_give(&p->pool, block);
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

void wd__vae_norm(wd_vae_pass *p, float *y, const float *x, const wd_tensor *gamma, int64_t rows,
                  wd_act act)
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

void wd__vae_point(wd_vae_pass *p, float *y, const float *x, const wd_tensor *w, const wd_tensor *b,
                   int64_t rows, float beta)
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

void wd__vae_add(wd_vae_pass *p, float *y, const float *x, const float *branch, int64_t rows,
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
