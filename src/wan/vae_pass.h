/* A pass of the VAE's layers over frames on the device. Private to vae*.c.
 *
 * A video is passed in chunks, as the reference does: the decoder takes one latent frame at a time,
 * the encoder first one picture, then four. In the first chunk a causal convolution sees nothing
 * but zeros before its frame, so only its last time tap takes part; from then on it sees the last
 * two frames of the chunks before, which the pass keeps as histories. One frame needs none of this.
 *
 * Convolutions run over bands of rows, so that what a norm or an upsampling makes for them is
 * small, and still in the cache when it is read: a resnet needs its input, its middle, and one
 * band. */
#ifndef WD_WAN_VAE_PASS_H
#define WD_WAN_VAE_PASS_H

#include "dev/device.h"
#include "wan/vae_layers.h"
#include "wan/vae_pool.h"

/* Activations [samples, frames, height, width, channels] F32, device, contiguous. */
typedef struct wd_vae_frames {
    float *data;
    int64_t samples, frames; /* one of them is 1 */
    int64_t height, width, channels;
    bool saved; /* a later ADD reads it: not to be changed or given back */
} wd_vae_frames;

/* A band of a convolution's input: large enough to keep a launch's overhead small, small enough to
 * stay in a processor's last cache level. */
enum { WD_VAE_BAND_BYTES = 8 << 20 };

typedef struct wd_vae_pass {
    wd_queue *queue; /* NULL: nothing is launched, the pool alone is measured */
    const wd_vae_layers *layers;
    const wd_tensor *weight; /* by line of the table: F32, device */
    wd_vae_pool pool;
    int64_t band_bytes;
    int64_t chunk;                        /* 0: the first */
    bool more;                            /* chunks will follow */
    float *history[WD_VAE_LAYERS_MAX][2]; /* frames that a layer's convolutions saw last */
    wd_vae_frames save;                   /* of the SAVE that is open */
} wd_vae_pass;

/* Values of one frame. */
static inline int64_t wd_vae_frame_count(const wd_vae_frames *x)
{
    return x->height * x->width * x->channels;
}

/* Takes memory for all of `x` as it is shaped. */
void wd_vae_frames_take(wd_vae_pass *pass, wd_vae_frames *x);

/* *x = layer(*x); the memory of the input goes back to the pool. */
void wd_vae_pass_layer(wd_vae_pass *pass, wd_vae_frames *x, int layer);

/* Tests: bands of about `bytes`, so that small pictures are cut, too. */
void wd_vae_set_band_bytes(wd_vae *vae, int64_t bytes);

/* Gives the histories back: the video is done. */
void wd_vae_pass_forget(wd_vae_pass *pass);

#endif
