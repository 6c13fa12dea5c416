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
#include "model/vae/vae_layers.h"

/* ---- memory of a pass: a first-fit allocator within one range ----
 *
 * It is no stack like core/memory.h, because in a chain of layers the input is freed while the
 * later output stays. The pass first runs once without launches to find the peak; the same order of
 * calls then gives the same addresses, so the peak is exact. */

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

/* Takes `bytes`, aligned to 64. The capacity was planned, so exceeding it is a bug in this library.
 */
void *wd__vae_pool_take(wd_vae_pool *pool, size_t bytes);
void wd__vae_pool_give(wd_vae_pool *pool, const void *block);

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

#endif
