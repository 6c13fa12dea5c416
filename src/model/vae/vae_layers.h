/* The Wan VAE as a list of layers. Its tensor table, its memory plan and its passes are made from
 * this list.
 *
 * Decoder and encoder have a list each, in the order of the data flow. 2.1 and 2.2 differ in names
 * and channels, and 2.2 saves the input of a block of levels and adds it, resampled, to the block's
 * output (SAVE ... ADD). */
#ifndef WD_MODEL_VAE_VAE_LAYERS_H
#define WD_MODEL_VAE_VAE_LAYERS_H

#include "model/tables/config.h"
#include "model/vae/vae.h"

typedef enum wd_vae_kind {
    WD_VAE_POINT,      /* 1x1x1 convolution: a matrix product per pixel */
    WD_VAE_CONV,       /* causal 3x3x3 convolution */
    WD_VAE_RESNET,     /* norm, SiLU, conv, norm, SiLU, conv, + input or its 1x1x1 convolution */
    WD_VAE_ATTENTION,  /* norm, q k v, attention over a frame's pixels with one head, + input */
    WD_VAE_UPSAMPLE,   /* [time_conv, two frames from one], pixels doubled, 3x3 convolution */
    WD_VAE_DOWNSAMPLE, /* 3x3 convolution of stride 2, [time_conv of stride 2] */
    WD_VAE_HEAD,       /* norm, SiLU, conv */
    WD_VAE_SAVE,       /* saves its input */
    WD_VAE_ADD_UP,     /* adds the saved input, repeated (DupUp3D) */
    WD_VAE_ADD_DOWN    /* adds the saved input, averaged (AvgDown3D) */
} wd_vae_kind;

/* Tensors of a layer, by slot. Norms have gammas only. */
typedef enum wd_vae_slot {
    WD_VAE_NORM1,
    WD_VAE_W1,
    WD_VAE_B1,
    WD_VAE_NORM2,
    WD_VAE_W2,
    WD_VAE_B2,
    WD_VAE_W3,
    WD_VAE_B3,
    WD_VAE_SLOTS
} wd_vae_slot;

typedef struct wd_vae_layer {
    wd_vae_kind kind;
    int64_t in, out;        /* channels */
    int64_t time, space;    /* factors of resampling: 1 or 2 */
    int line[WD_VAE_SLOTS]; /* of the tensor table, or -1 */
} wd_vae_layer;

enum { WD_VAE_LAYERS_MAX = 128, WD_VAE_PARTS = 2 };

/* A decoder's or encoder's layers with their tensors. */
typedef struct wd_vae_layers {
    wd_vae_layer layer[WD_VAE_LAYERS_MAX];
    int count;
} wd_vae_layers;

/* Builds the lists of the decoder (part 0, stage 0 of the table) and the encoder (1), and the table
 * to which their lines refer, which the caller closes with wd_vae_table_close. WD_UNSUPPORTED: more
 * than WD_VAE_LAYERS_MAX layers. */
wd_status wd__vae_layers_build(wd_vae_layers part[WD_VAE_PARTS], wd_tensor_table *table,
                               const wd_vae_config *config, wd_err *err);

#endif
