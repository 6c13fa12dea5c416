/* The layers of the Wan VAE and their tensors: see model/vae/vae_layers.h. Names, channels and
 * order as autoencoder_kl_wan.py of diffusers builds them. */
#include "model/vae/vae_layers.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"

enum { TABLE_MAX = WD_VAE_LAYERS_MAX * WD_VAE_SLOTS * 2, PREFIX_MAX = 96 };

/* The state of a build. */
typedef struct build {
    const wd_vae_config *config;
    wd_vae_layers *layers;
    wd_tensor_spec *spec; /* [TABLE_MAX]; NULL: lines are only counted */
    int64_t specs;
    int stage;
    bool uneven; /* a shortcut of the 2.2 layout has channels that do not divide evenly */
} build;

/* ---- tensors ---- */

static int add_spec(build *b, const char *name, int ndim, const int64_t *dim)
{
    WD_REQUIRE(b->specs < TABLE_MAX, "the VAE has more than %d tensors", TABLE_MAX);
    if (!b->spec) return (int)b->specs++;
    wd_tensor_spec *spec = &b->spec[b->specs];
    *spec = (wd_tensor_spec){.ndim = ndim, .stage = b->stage};
    for (int i = 0; i < ndim; i++) spec->dim[i] = dim[i];
    snprintf(spec->name, sizeof spec->name, "%s", name);
    return (int)b->specs++;
}

/* Adds weight and bias of a convolution as slots `slot` and `slot + 1`; kt 0: a 2D convolution. */
static void add_conv(build *b, wd_vae_layer *layer, wd_vae_slot slot, const char *prefix,
                     const char *name, int64_t out, int64_t in, int64_t kt, int64_t k)
{
    char full[WD_TENSOR_NAME_MAX];
    const int64_t dim3[] = {out, in, kt, k, k}, dim2[] = {out, in, k, k};
    snprintf(full, sizeof full, "%s%s.weight", prefix, name);
    layer->line[slot] = add_spec(b, full, kt ? 5 : 4, kt ? dim3 : dim2);
    snprintf(full, sizeof full, "%s%s.bias", prefix, name);
    layer->line[slot + 1] = add_spec(b, full, 1, &out);
}

static void add_gamma(build *b, wd_vae_layer *layer, wd_vae_slot slot, const char *prefix,
                      const char *name, int64_t channels, int ndim)
{
    char full[WD_TENSOR_NAME_MAX];
    const int64_t dim[] = {channels, 1, 1, 1};
    snprintf(full, sizeof full, "%s%s.gamma", prefix, name);
    layer->line[slot] = add_spec(b, full, ndim, dim);
}

/* ---- layers ---- */

static wd_vae_layer *add_layer(build *b, wd_vae_kind kind, int64_t in, int64_t out)
{
    WD_REQUIRE(b->layers->count < WD_VAE_LAYERS_MAX, "the VAE has more than %d layers",
               WD_VAE_LAYERS_MAX);
    wd_vae_layer *layer = &b->layers->layer[b->layers->count++];
    *layer = (wd_vae_layer){.kind = kind, .in = in, .out = out, .time = 1, .space = 1};
    for (int i = 0; i < WD_VAE_SLOTS; i++) layer->line[i] = -1;
    return layer;
}

static void add_point(build *b, const char *name, int64_t in, int64_t out)
{
    add_conv(b, add_layer(b, WD_VAE_POINT, in, out), WD_VAE_W1, "", name, out, in, 1, 1);
}

static void add_causal(build *b, const char *name, int64_t in, int64_t out)
{
    add_conv(b, add_layer(b, WD_VAE_CONV, in, out), WD_VAE_W1, "", name, out, in, 3, 3);
}

static void add_resnet(build *b, const char *prefix, int64_t in, int64_t out)
{
    wd_vae_layer *layer = add_layer(b, WD_VAE_RESNET, in, out);
    add_gamma(b, layer, WD_VAE_NORM1, prefix, ".norm1", in, 4);
    add_conv(b, layer, WD_VAE_W1, prefix, ".conv1", out, in, 3, 3);
    add_gamma(b, layer, WD_VAE_NORM2, prefix, ".norm2", out, 4);
    add_conv(b, layer, WD_VAE_W2, prefix, ".conv2", out, out, 3, 3);
    if (in != out) add_conv(b, layer, WD_VAE_W3, prefix, ".conv_shortcut", out, in, 1, 1);
}

static void add_middle(build *b, const char *part, int64_t channels)
{
    char prefix[PREFIX_MAX];
    snprintf(prefix, sizeof prefix, "%s.mid_block.resnets.0", part);
    add_resnet(b, prefix, channels, channels);
    snprintf(prefix, sizeof prefix, "%s.mid_block.attentions.0", part);
    wd_vae_layer *layer = add_layer(b, WD_VAE_ATTENTION, channels, channels);
    add_gamma(b, layer, WD_VAE_NORM1, prefix, ".norm", channels, 3);
    add_conv(b, layer, WD_VAE_W1, prefix, ".to_qkv", 3 * channels, channels, 0, 1);
    add_conv(b, layer, WD_VAE_W2, prefix, ".proj", channels, channels, 0, 1);
    snprintf(prefix, sizeof prefix, "%s.mid_block.resnets.1", part);
    add_resnet(b, prefix, channels, channels);
}

static void add_upsample(build *b, const char *prefix, int64_t in, int64_t out, bool in_time)
{
    wd_vae_layer *layer = add_layer(b, WD_VAE_UPSAMPLE, in, out);
    layer->space = 2;
    layer->time = in_time ? 2 : 1;
    add_conv(b, layer, WD_VAE_W1, prefix, ".resample.1", out, in, 0, 3);
    if (in_time) add_conv(b, layer, WD_VAE_W2, prefix, ".time_conv", 2 * in, in, 3, 1);
}

static void add_downsample(build *b, const char *prefix, int64_t channels, bool in_time)
{
    wd_vae_layer *layer = add_layer(b, WD_VAE_DOWNSAMPLE, channels, channels);
    layer->space = 2;
    layer->time = in_time ? 2 : 1;
    add_conv(b, layer, WD_VAE_W1, prefix, ".resample.1", channels, channels, 0, 3);
    if (in_time) add_conv(b, layer, WD_VAE_W2, prefix, ".time_conv", channels, channels, 3, 1);
}

static void add_head(build *b, const char *part, int64_t in, int64_t out)
{
    wd_vae_layer *layer = add_layer(b, WD_VAE_HEAD, in, out);
    add_gamma(b, layer, WD_VAE_NORM1, part, ".norm_out", in, 4);
    add_conv(b, layer, WD_VAE_W1, part, ".conv_out", out, in, 3, 3);
}

/* Adds the shortcut from the saved input (`in` channels) around a block of the 2.2 layout. */
static void add_shortcut(build *b, wd_vae_kind kind, int64_t in, int64_t out, int64_t space,
                         bool in_time)
{
    wd_vae_layer *layer = add_layer(b, kind, in, out);
    layer->space = space;
    layer->time = in_time ? 2 : 1;
    /* Channels correspond in runs of equal length, so that each part is a strided sum. */
    int64_t parts = space * space * layer->time;
    int64_t fine = kind == WD_VAE_ADD_UP ? out : in, coarse = kind == WD_VAE_ADD_UP ? in : out;
    int64_t run = fine * parts / coarse;
    b->uneven |= fine * parts % coarse != 0 || (run % parts != 0 && parts % run != 0);
}

/* ---- parts ---- */

static void build_decoder(build *b)
{
    const wd_vae_config *c = b->config;
    char prefix[PREFIX_MAX];
    int64_t top = c->decoder_base_dim * c->dim_mult[c->levels - 1], channels = top;
    add_point(b, "post_quant_conv", c->z_dim, c->z_dim);
    add_causal(b, "decoder.conv_in", c->z_dim, top);
    add_middle(b, "decoder", top);
    for (int64_t i = 0; i < c->levels; i++) {
        bool up = i < c->levels - 1, in_time = up && c->temporal_downsample[c->levels - 2 - i];
        int64_t in = channels, out = c->decoder_base_dim * c->dim_mult[c->levels - 1 - i];
        bool shortcut = c->is_residual && up;
        if (shortcut) add_layer(b, WD_VAE_SAVE, in, in);
        for (int64_t j = 0; j <= c->num_res_blocks; j++) {
            snprintf(prefix, sizeof prefix, "decoder.up_blocks.%d.resnets.%d", (int)i, (int)j);
            add_resnet(b, prefix, channels, out);
            channels = out;
        }
        if (!up) continue;
        snprintf(prefix, sizeof prefix, "decoder.up_blocks.%d.%s", (int)i,
                 c->is_residual ? "upsampler" : "upsamplers.0");
        channels = c->is_residual ? out : out / 2;
        add_upsample(b, prefix, out, channels, in_time);
        if (shortcut) add_shortcut(b, WD_VAE_ADD_UP, in, out, 2, in_time);
    }
    add_head(b, "decoder", channels, c->out_channels);
}

static void build_encoder(build *b)
{
    const wd_vae_config *c = b->config;
    char prefix[PREFIX_MAX];
    int64_t channels = c->base_dim;
    int flat = 0; /* 2.1 numbers the layers of all levels in one list */
    add_causal(b, "encoder.conv_in", c->in_channels, channels);
    for (int64_t i = 0; i < c->levels; i++) {
        bool down = i < c->levels - 1, in_time = down && c->temporal_downsample[i];
        int64_t in = channels, out = c->base_dim * c->dim_mult[i];
        if (c->is_residual) add_layer(b, WD_VAE_SAVE, in, in);
        for (int64_t j = 0; j < c->num_res_blocks; j++) {
            if (c->is_residual)
                snprintf(prefix, sizeof prefix, "encoder.down_blocks.%d.resnets.%d", (int)i,
                         (int)j);
            else
                snprintf(prefix, sizeof prefix, "encoder.down_blocks.%d", flat++);
            add_resnet(b, prefix, channels, out);
            channels = out;
        }
        if (down) {
            if (c->is_residual)
                snprintf(prefix, sizeof prefix, "encoder.down_blocks.%d.downsampler", (int)i);
            else
                snprintf(prefix, sizeof prefix, "encoder.down_blocks.%d", flat++);
            add_downsample(b, prefix, out, in_time);
        }
        if (c->is_residual) add_shortcut(b, WD_VAE_ADD_DOWN, in, out, down ? 2 : 1, in_time);
    }
    add_middle(b, "encoder", channels);
    add_head(b, "encoder", channels, 2 * c->z_dim);
    add_point(b, "quant_conv", 2 * c->z_dim, 2 * c->z_dim);
}

wd_status wd__vae_layers_build(wd_vae_layers part[WD_VAE_PARTS], wd_tensor_table *table,
                               const wd_vae_config *config, wd_err *err)
{
    const int64_t others = 8; /* layers outside the levels; a level has SAVE, resampling, ADD */
    if (config->levels * (config->num_res_blocks + 1 + 3) + others > WD_VAE_LAYERS_MAX)
        return wd_fail(err, WD_UNSUPPORTED,
                       "VAE: num_res_blocks %d at %d levels: at most %d layers are supported",
                       (int)config->num_res_blocks, (int)config->levels, WD_VAE_LAYERS_MAX);
    void *spec = NULL;
    if (table) WD_TRY(wd_alloc(&spec, TABLE_MAX, sizeof(wd_tensor_spec), "a tensor table", err));
    build b = {.config = config, .spec = spec};
    for (b.stage = 0; b.stage < WD_VAE_PARTS; b.stage++) {
        b.layers = &part[b.stage];
        b.layers->count = 0;
        if (b.stage == 0)
            build_decoder(&b);
        else
            build_encoder(&b);
    }
    if (b.uneven) {
        wd_free(spec);
        return wd_fail(
            err, WD_UNSUPPORTED,
            "VAE: is_residual with a \"dim_mult\" whose neighbours are not powers of two "
            "apart is not supported");
    }
    if (table) *table = (wd_tensor_table){.spec = spec, .count = b.specs, .stages = WD_VAE_PARTS};
    return WD_OK;
}

wd_status wd_vae_table_open(wd_tensor_table *out, const wd_vae_config *config, wd_err *err)
{
    wd_vae_layers part[WD_VAE_PARTS];
    return wd__vae_layers_build(part, out, config, err);
}

void wd_vae_table_close(wd_tensor_table *table)
{
    wd_free(table->spec);
    *table = (wd_tensor_table){0};
}
