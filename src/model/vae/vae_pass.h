/* A pass of the VAE's layers over frames on the device, and the memory that it takes. Private to
 * vae*.c.
 *
 * A video is passed in chunks, as the reference does: the decoder takes one latent frame at a time,
 * the encoder first one picture, then four. In the first chunk a causal convolution sees only zeros
 * before its frame, so only its last time tap is computed; later it sees the last two frames of the
 * previous chunks, which the pass keeps as histories. A single frame needs no histories.
 *
 * Convolutions run over bands of rows, so that the result of the norm or upsampling before them is
 * small, and still in the cache when it is read: a resnet needs memory for its input, its middle,
 * and one band. */
#ifndef WD_MODEL_VAE_VAE_PASS_H
#define WD_MODEL_VAE_VAE_PASS_H

#include <stddef.h>

#include "dev/device.h"
#include "dev/ops.h"
#include "model/vae/vae_layers.h"

/* ---- memory of a pass: a first-fit allocator within one range ----
 *
 * It is no stack like an arena (core/memory.h), because in a chain of layers the input is freed
 * while the later output stays. The pass first runs once without launches to find the peak; the
 * same order of calls then gives the same addresses, so the peak is exact. */

enum { WD_VAE_POOL_BLOCKS = 320 };

typedef struct wd_vae_pool {
    char *base;
    size_t capacity, peak;
    struct {
        size_t offset, bytes;
    } used[WD_VAE_POOL_BLOCKS]; /* by offset */
    int count;
} wd_vae_pool;

/* Starts a pool over `capacity` bytes at `base`; NULL: addresses are not real, and only the peak is
 * used. */
void wd__vae_pool_over(wd_vae_pool *pool, void *base, size_t capacity);

/* ---- the pass ---- */

/* Activations [samples, frames, height, width, channels] F32, device, contiguous. */
typedef struct wd_vae_frames {
    float *data;
    int64_t samples, frames; /* one of them is 1 */
    int64_t height, width, channels;
    bool saved; /* a later ADD reads it: it must not be changed or given back */
} wd_vae_frames;

typedef struct wd_vae_pass {
    wd_queue *queue; /* NULL: nothing is launched, only the pool is measured */
    const wd_vae_layers *layers;
    const wd_tensor *weight; /* by line of the table: F32, device */
    wd_vae_pool pool;
    int64_t band_bytes;                   /* of a band of a convolution's input, about */
    int64_t chunk;                        /* 0: the first */
    bool more;                            /* more chunks follow */
    float *history[WD_VAE_LAYERS_MAX][2]; /* the last frames that a layer's convolutions saw */
    wd_vae_frames save;                   /* the saved input of the current SAVE */
} wd_vae_pass;

/* Values of one frame. */
static inline int64_t wd__vae_frame_count(const wd_vae_frames *x)
{
    return x->height * x->width * x->channels;
}

/* Takes memory for the frames of `x`, whose shape is set. */
void wd__vae_frames_take(wd_vae_pass *pass, wd_vae_frames *x);

/* *x = layer(*x); the memory of the input goes back to the pool. */
void wd__vae_pass_layer(wd_vae_pass *pass, wd_vae_frames *x, int layer);

/* For tests: sets the size of bands to about `bytes`, so that small pictures are cut, too. */
void wd__vae_set_band_bytes(wd_vae *vae, int64_t bytes);

/* Gives the histories back after a video. */
void wd__vae_pass_forget(wd_vae_pass *pass);

/* ---- what the layers consist of ----
 *
 * Functions of which the VAE's layers consist: memory, launches, histories. Private to vae*.c.
 *
 * A pass that only measures (without a queue) takes and gives back memory as usual, and launches
 * nothing. */

/* ---- memory ---- */

float *wd__vae_take(wd_vae_pass *pass, int64_t count);
void wd__vae_give(wd_vae_pass *pass, const float *block);
/* Does nothing if a later ADD reads the frames. */
void wd__vae_frames_give(wd_vae_pass *pass, const wd_vae_frames *x);

/* NULL: the layer has none, or the pass only measures. */
const wd_tensor *wd__vae_weight(const wd_vae_pass *pass, int layer, wd_vae_slot slot);

/* ---- launches ---- */

void wd__vae_copy(wd_vae_pass *pass, float *to, const float *from, int64_t count);
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
