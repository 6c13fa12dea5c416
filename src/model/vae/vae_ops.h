/* Functions of which the VAE's layers consist: memory, launches, histories. Private to vae*.c.
 *
 * A pass that only measures (without a queue) takes and gives back memory as usual, and launches
 * nothing. */
#ifndef WD_MODEL_VAE_VAE_OPS_H
#define WD_MODEL_VAE_VAE_OPS_H

#include "dev/ops.h"
#include "model/vae/vae_pass.h"

/* ---- memory ---- */

float *wd__vae_take(wd_vae_pass *pass, int64_t count);
void wd__vae_give(wd_vae_pass *pass, const float *block);
/* Does nothing if a later ADD reads the frames. */
void wd__vae_frames_give(wd_vae_pass *pass, const wd_vae_frames *x);

/* NULL: the layer has none, or the pass only measures. */
const wd_tensor *wd__vae_weight(const wd_vae_pass *pass, int layer, wd_vae_slot slot);

/* ---- launches ---- */

void wd__vae_copy(wd_vae_pass *pass, float *to, const float *from, int64_t count);
/* y = act(norm(x)). */
void wd__vae_norm(wd_vae_pass *pass, float *y, const float *x, const wd_tensor *gamma, int64_t rows,
                  wd_act act);
/* y = x w^T + b per pixel (beta 0), or += (beta 1). */
void wd__vae_point(wd_vae_pass *pass, float *y, const float *x, const wd_tensor *w,
                   const wd_tensor *b, int64_t rows, float beta);
/* y = x + branch. */
void wd__vae_add(wd_vae_pass *pass, float *y, const float *x, const float *branch, int64_t rows,
                 int64_t width);
/* Fills in the remaining fields of args (weights, channels, strides (0: 1), taps (0: all), out) and
 * launches. */
void wd__vae_conv(wd_vae_pass *pass, wd_conv_args args, const wd_tensor *w, const wd_tensor *b);

/* How a convolution is divided: into several whole pictures, or into bands of rows of one. */
typedef struct wd_vae_cut {
    int64_t pictures, rows;
} wd_vae_cut;

/* The cut for pictures whose convolution reads `row_count` values per row. */
wd_vae_cut wd__vae_cut_for(const wd_vae_pass *pass, int64_t samples, int64_t height,
                           int64_t row_count);

/* ---- histories ---- */

/* The last `frames` frames, of the shape of x, that the slot's convolution saw in earlier chunks;
 * zeros if there were none. NULL: there is only one chunk. */
float *wd__vae_history(wd_vae_pass *pass, int layer, int slot, const wd_vae_frames *x,
                       int64_t frames);
/* Moves the frames of x into the history; the oldest frames drop out. */
void wd__vae_remember(wd_vae_pass *pass, float *history, const wd_vae_frames *x, int64_t frames);

/* ---- layers of vae_resample.c ---- */

void wd__vae_upsample(wd_vae_pass *pass, wd_vae_frames *x, int layer);
void wd__vae_downsample(wd_vae_pass *pass, wd_vae_frames *x, int layer);
void wd__vae_add_up(wd_vae_pass *pass, wd_vae_frames *x, int layer);
void wd__vae_add_down(wd_vae_pass *pass, wd_vae_frames *x, int layer);

#endif
