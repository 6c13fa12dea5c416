/* The VAE on a device: see model/vae/vae.h. This file has the weights, and the copies of pictures
 * and latents to and from the device.
 *
 *   host [B, C, F, H, W] -> planes on the device -> channels last (patches of the 2.2 layout become
 *   channels) -> layers, chunk by chunk (model/vae/vae_pass.h) -> planes -> host
 *
 * A call allocates one block, of exactly the size that the same pass without launches found. */
#include "model/vae/vae.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "core/memory.h"
#include "core/text.h"
#include "model/tables/weights.h"
#include "model/vae/vae_pass.h"

/* Small pictures are computed together as long as their largest activation has at most this size.
 */
enum { GROUP_BYTES = 32 << 20 };

/* Bytes of a band of a convolution's input. They are enough to keep the overhead of launches small,
 * and few enough for a processor's last cache level. */
enum { BAND_BYTES = 8 << 20 };

struct wd_vae {
    wd_vae_config config;
    wd_queue *queue;
    int parts; /* wd_vae_part */
    int64_t band_bytes;
    wd_vae_layers part[WD_VAE_PARTS];
    wd_tensor *weight; /* by line of the table */
    void *block;       /* device: weights that are not used in place */
};

/* ---- weights ---- */

/* Sets the address of every tensor of the open parts: in the file, or in the arena. With `bring` it
 * also starts to copy tensors to the arena. *raw_bytes is set to the maximal temporary bytes of a
 * copy. */
static wd_status place_weights(wd_vae *v, size_t *raw_bytes, wd_arena *arena, void *raw, bool bring,
                               const wd_tensor_table *table, const wd_safetensors *weights,
                               wd_err *err)
{
    for (int64_t i = 0; i < table->count; i++) {
        const wd_tensor_spec *spec = &table->spec[i];
        if (!(v->parts & (spec->stage == 0 ? WD_VAE_DECODER : WD_VAE_ENCODER))) continue;
        WD_TRY(wd_safetensors_expect(&v->weight[i], weights, spec, err));
        const wd_safetensors_entry *entry = wd_safetensors_find(weights, spec->name);
        if (wd_weight_in_place(entry, WD_F32, v->queue)) continue;
        v->weight[i].dtype = WD_F32;
        v->weight[i].data = wd_arena_push(arena, wd_tensor_bytes(&v->weight[i]));
        size_t bytes = wd_weight_raw_bytes(entry, WD_F32, v->queue);
        if (bytes > *raw_bytes) *raw_bytes = bytes;
        if (bring) wd_weight_bring(v->weight[i].data, raw, entry, WD_F32, v->queue);
    }
    return WD_OK;
}

wd_status wd_vae_open(wd_vae **out, const wd_vae_config *config, const wd_safetensors *weights,
                      wd_vae_part part, wd_queue *queue, wd_err *err)
{
    void *block, *raw = NULL;
    size_t raw_bytes = 0;
    wd_tensor_table table = {0};
    wd_device *device = wd_queue_device(queue);
    wd_arena arena = wd_arena_over(NULL, SIZE_MAX);
    wd_status status;
    WD_TRY(wd_alloc(&block, 1, sizeof(wd_vae), "a VAE", err));
    wd_vae *v = block;
    *v = (wd_vae){.config = *config, .queue = queue, .parts = (int)part, .band_bytes = BAND_BYTES};
    WD_TRY_OUT(wd__vae_layers_build(v->part, &table, config, err));
    WD_TRY_OUT(wd_alloc(&block, (size_t)table.count, sizeof *v->weight, "a VAE", err));
    v->weight = block;
    WD_TRY_OUT(place_weights(v, &raw_bytes, &arena, NULL, false, &table, weights, err));
    if (arena.peak) {
        WD_TRY_OUT(wd_device_alloc(&v->block, device, arena.peak, "VAE weights", err));
        if (raw_bytes) WD_TRY_OUT(wd_device_alloc(&raw, device, raw_bytes, "VAE tensor", err));
        arena = wd_arena_over(v->block, arena.peak);
        WD_TRY_OUT(place_weights(v, &raw_bytes, &arena, raw, true, &table, weights, err));
        wd_queue_wait(queue);
    }
    *out = v;
    v = NULL;
out:
    wd_device_free(device, raw);
    wd_vae_table_close(&table);
    wd_vae_close(v);
    return status;
}

void wd_vae_close(wd_vae *v)
{
    if (!v) return;
    wd_device_free(wd_queue_device(v->queue), v->block);
    wd_free(v->weight);
    wd_free(v);
}

void wd__vae_set_band_bytes(wd_vae *v, int64_t bytes)
{
    v->band_bytes = bytes;
}

/* ---- in and out of the device ---- */

/* A decoding or encoding of a whole array. */
typedef struct job {
    const wd_vae_layers *layers;
    const float *in; /* [samples, in_channels, host_frames, height, width] host */
    float *out;      /* [samples, out_channels, out_frames, ..] host */
    int64_t samples, in_channels, out_channels, in_frames, out_frames, height, width;
    int64_t in_patch, out_patch;
    int64_t host_frames;  /* frames of `in`; the last ones may be dropped */
    int64_t chunk_frames; /* input frames of every chunk but the first, which has one */
    int64_t group;        /* samples that are computed together */
} job;

/* Copies planes [samples, channels, frames, plane] between the device and a part of an array of
 * `all_frames` frames on the host, which begins at `host`. */
static void move_planes(wd_vae_pass *p, float *device, float *host, bool to_host, int64_t channels,
                        int64_t frames, int64_t all_frames, int64_t plane)
{
    int64_t count = frames * plane;
    if (!p->queue) return;
    if (frames == all_frames) { /* then it is one range */
        count *= channels;
        channels = 1;
    }
    for (int64_t i = 0; i < channels; i++) {
        float *d = device + i * count, *h = host + i * all_frames * plane;
        wd_queue_copy_and_wait(p->queue, to_host ? h : d, to_host ? d : h,
                               (size_t)count * sizeof *d);
    }
}

/* Converts between planes of `channels` channels and channels-last frames, whose channels are
 * (plane channel, column in the patch, row in the patch), the row fastest, as in diffusers'
 * patchify. x may have more channels, which are ignored. */
static void transpose(wd_vae_pass *p, float *planes, const wd_vae_frames *x, bool to_planes,
                      int64_t channels, int64_t patch)
{
    int64_t width = x->width * patch, plane = x->height * patch * width;
    bool video = x->samples == 1;
    const int64_t plane_stride[] = {
        video ? plane : channels * plane, patch * width, width, patch, 1, x->frames * plane};
    const int64_t pixel_stride[] = {
        wd__vae_frame_count(x), x->width * x->channels, 1, x->channels, patch, patch * patch};
    wd_strided_copy_args args = {
        .to = to_planes ? planes : x->data,
        .from = to_planes ? x->data : planes,
        .ndim = 6,
        .dim = {x->samples * x->frames, x->height, patch, x->width, patch, channels},
        .alpha = 1};
    memcpy(args.to_stride, to_planes ? plane_stride : pixel_stride, sizeof args.to_stride);
    memcpy(args.from_stride, to_planes ? pixel_stride : plane_stride, sizeof args.from_stride);
    if (p->queue) wd_op_strided_copy(p->queue, &args);
}

/* ---- passes ---- */

/* Computes a chunk: samples from `at` on, `frames` input frames from `in_at` on; returns the number
 * of output frames. */
static int64_t pass_chunk(wd_vae_pass *p, const job *j, int64_t at, int64_t samples, int64_t in_at,
                          int64_t frames, int64_t out_at)
{
    int64_t plane = j->height * j->width, patch = j->in_patch;
    wd_vae_frames x = {.samples = samples,
                       .frames = frames,
                       .height = j->height / patch,
                       .width = j->width / patch,
                       .channels = j->in_channels * patch * patch};
    float *planes = wd__vae_take(p, samples * j->in_channels * frames * plane);
    /* The host array is only read, although the type has no const. */
    float *host = (float *)j->in;
    if (host) host += (at * j->in_channels * j->host_frames + in_at) * plane;
    move_planes(p, planes, host, false, samples * j->in_channels, frames, j->host_frames, plane);
    wd__vae_frames_take(p, &x);
    transpose(p, planes, &x, false, j->in_channels, patch);
    wd__vae_give(p, planes);
    for (int i = 0; i < j->layers->count; i++) wd__vae_pass_layer(p, &x, i);
    patch = j->out_patch;
    plane = x.height * x.width * patch * patch;
    planes = wd__vae_take(p, samples * j->out_channels * x.frames * plane);
    transpose(p, planes, &x, true, j->out_channels, patch);
    wd__vae_frames_give(p, &x);
    host = j->out;
    if (host) host += (at * j->out_channels * j->out_frames + out_at) * plane;
    move_planes(p, planes, host, true, samples * j->out_channels, x.frames, j->out_frames, plane);
    wd__vae_give(p, planes);
    return x.frames;
}

/* Computes one group of samples from its first to its last frame. */
static void pass_group(wd_vae_pass *p, const job *j, int64_t at, int64_t samples)
{
    p->chunk = 0;
    for (int64_t in_at = 0, out_at = 0; in_at < j->in_frames; p->chunk++) {
        int64_t frames = p->chunk ? j->chunk_frames : 1;
        p->more = in_at + frames < j->in_frames;
        out_at += pass_chunk(p, j, at, samples, in_at, frames, out_at);
        in_at += frames;
    }
    wd__vae_pass_forget(p);
}

/* The bytes of a pass. `rehearsal`, if not NULL, is a queue that gets the launches of every size of
 * group. */
static size_t measure(const job *j, const wd_tensor *weight, int64_t band_bytes,
                      wd_queue *rehearsal)
{
    wd_vae_pass pass = {
        .queue = rehearsal, .layers = j->layers, .weight = weight, .band_bytes = band_bytes};
    wd__vae_pool_over(&pass.pool, NULL, 0);
    pass_group(&pass, j, 0, j->group);
    if (j->samples % j->group) pass_group(&pass, j, 0, j->samples % j->group);
    return pass.pool.peak;
}

static wd_status run(wd_vae *v, const job *j, wd_err *err)
{
    void *block;
    wd_queue *rehearsal;
    wd_device *device = wd_queue_device(v->queue);
    WD_TRY(wd_rehearsal_open(&rehearsal, v->queue, err));
    size_t bytes = measure(j, v->weight, v->band_bytes, rehearsal);
    WD_TRY(wd_rehearsal_close(rehearsal, v->queue, err));
    WD_TRY(wd_device_alloc(&block, device, bytes, "VAE activations", err));
    wd_vae_pass pass = {
        .queue = v->queue, .layers = j->layers, .weight = v->weight, .band_bytes = v->band_bytes};
    wd__vae_pool_over(&pass.pool, block, bytes);
    for (int64_t at = 0; at < j->samples; at += j->group) {
        int64_t left = j->samples - at;
        pass_group(&pass, j, at, left < j->group ? left : j->group);
    }
    wd_queue_wait(v->queue);
    wd_device_free(device, block);
    return WD_OK;
}

/* The number of samples that are computed together: one video, or pictures up to GROUP_BYTES of the
 * largest activation. */
static int64_t group_of(const job *j)
{
    int64_t pixels = j->height * j->width / (j->in_patch * j->in_patch), largest = 0;
    if (j->in_frames > 1) return 1;
    for (int i = 0; i < j->layers->count; i++) {
        const wd_vae_layer *l = &j->layers->layer[i];
        int64_t space = l->space * l->space;
        if (l->kind == WD_VAE_UPSAMPLE) pixels *= space;
        int64_t count = pixels * (l->in > l->out ? l->in : l->out);
        if (count > largest) largest = count;
        if (l->kind == WD_VAE_DOWNSAMPLE) pixels /= space;
    }
    int64_t group = GROUP_BYTES / (largest * (int64_t)sizeof(float));
    if (group > j->samples) group = j->samples;
    return group > 1 ? group : 1;
}

/* The number of frames per latent frame. */
static int64_t time_factor(const wd_vae_config *c)
{
    int64_t factor = 1;
    for (int64_t i = 0; i < c->levels - 1; i++) factor <<= c->temporal_downsample[i];
    return factor;
}

/* Pixels per latent pixel, in each direction. */
static int64_t space_factor(const wd_vae_config *c)
{
    return c->patch_size << (c->levels - 1);
}

static job decode_job(const wd_vae_layers *layers, const wd_vae_config *c, const int64_t dim[5])
{
    job j = {.layers = layers,
             .samples = dim[0],
             .in_channels = c->z_dim,
             .out_channels = c->out_channels / (c->patch_size * c->patch_size),
             .in_frames = dim[2],
             .out_frames = (dim[2] - 1) * time_factor(c) + 1,
             .height = dim[3],
             .width = dim[4],
             .in_patch = 1,
             .out_patch = c->patch_size,
             .host_frames = dim[2],
             .chunk_frames = 1};
    j.group = group_of(&j);
    return j;
}

static job encode_job(const wd_vae_layers *layers, const wd_vae_config *c, const int64_t dim[5])
{
    int64_t factor = time_factor(c), chunks = (dim[2] - 1) / factor;
    job j = {.layers = layers,
             .samples = dim[0],
             .in_channels = c->in_channels / (c->patch_size * c->patch_size),
             .out_channels = c->z_dim, /* means; log-variances follow them */
             .in_frames = 1 + chunks * factor,
             .out_frames = 1 + chunks,
             .height = dim[3],
             .width = dim[4],
             .in_patch = c->patch_size,
             .out_patch = 1,
             .host_frames = dim[2],
             .chunk_frames = factor};
    j.group = group_of(&j);
    return j;
}

static wd_status check_dims(const int64_t dim[5], int64_t channels, int64_t multiple,
                            const char *what, wd_err *err)
{
    bool good = dim[1] == channels && dim[3] % multiple == 0 && dim[4] % multiple == 0;
    char found[128];
    for (int i = 0; i < 5; i++) good = good && dim[i] > 0;
    if (good) return WD_OK;
    return wd_fail(err, WD_MISMATCH,
                   "VAE: %s: expected shape [samples, %" PRId64
                   ", frames, height, width] with height "
                   "and width multiples of %" PRId64 ", found %s",
                   what, channels, multiple, wd_dims_text(found, sizeof found, dim, 5));
}

wd_status wd_vae_decode(wd_vae *v, float *image, const float *z, const int64_t dim[5], wd_err *err)
{
    job j = decode_job(&v->part[0], &v->config, dim);
    assert(v->parts & WD_VAE_DECODER);
    WD_TRY(check_dims(dim, v->config.z_dim, 1, "latents", err));
    j.in = z;
    j.out = image;
    WD_TRY(run(v, &j, err));
    int64_t pixels = j.height * j.width * space_factor(&v->config) * space_factor(&v->config);
    int64_t count = j.samples * j.out_channels * j.out_frames * pixels;
    if (wd_device_is_dry(wd_queue_device(v->queue))) return WD_OK;
    for (int64_t i = 0; i < count; i++) {
        if (image[i] < -1) image[i] = -1;
        if (image[i] > 1) image[i] = 1;
    }
    return WD_OK;
}

wd_status wd_vae_encode(wd_vae *v, float *mean, const float *image, const int64_t dim[5],
                        wd_err *err)
{
    const wd_vae_config *c = &v->config;
    job j = encode_job(&v->part[1], c, dim);
    assert(v->parts & WD_VAE_ENCODER);
    WD_TRY(check_dims(dim, j.in_channels, space_factor(c), "image", err));
    j.in = image;
    j.out = mean;
    return run(v, &j, err);
}

size_t wd_vae_decode_bytes(const wd_vae_config *config, const int64_t dim[5])
{
    wd_vae_layers part[WD_VAE_PARTS];
    if (wd__vae_layers_build(part, NULL, config, NULL) != WD_OK) return 0;
    job j = decode_job(&part[0], config, dim);
    return measure(&j, NULL, BAND_BYTES, NULL);
}

/* ---- normalisation ---- */

void wd_vae_unnormalize(float *latents, const wd_vae_config *c, const int64_t dim[5])
{
    int64_t plane = dim[2] * dim[3] * dim[4];
    for (int64_t i = 0; i < dim[0] * dim[1]; i++, latents += plane) {
        float inverse = 1 / (float)c->latents_std[i % dim[1]];
        float mean = (float)c->latents_mean[i % dim[1]];
        for (int64_t k = 0; k < plane; k++) latents[k] = latents[k] / inverse + mean;
    }
}

void wd__vae_normalize(float *latents, const wd_vae_config *c, const int64_t dim[5])
{
    int64_t plane = dim[2] * dim[3] * dim[4];
    for (int64_t i = 0; i < dim[0] * dim[1]; i++, latents += plane) {
        float inverse = 1 / (float)c->latents_std[i % dim[1]];
        float mean = (float)c->latents_mean[i % dim[1]];
        for (int64_t k = 0; k < plane; k++) latents[k] = (latents[k] - mean) * inverse;
    }
}
