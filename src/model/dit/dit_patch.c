/* Latents to patches and back. The permutation is launched once per pixel position in a patch, so
 * that its inner loop runs over channels or columns, and not over the two neighbouring pixels of a
 * patch. */
#include "model/dit/dit_impl.h"

/* The source or the target of the copy. */
typedef struct side {
    void *data;
    wd_dtype type;
    int64_t stride[5]; /* of sample, patch frame, patch row, patch column, channel */
    int64_t pixel[3];  /* of frame, row, column within a patch */
} side;

static side latent_side(void *latents, const wd_dit_patch_layout *layout, const wd_dit_context *c)
{
    const wd_dit_shape *s = &c->shape;
    const int64_t *patch = c->config->patch, plane = s->height * s->width;
    return (side){.data = latents,
                  .type = layout->latent_type,
                  .stride = {layout->channels * s->frames * plane, patch[0] * plane,
                             patch[1] * s->width, patch[2], s->frames * plane},
                  .pixel = {plane, s->width, 1}};
}

static side patch_side(void *patches, const wd_dit_patch_layout *layout, const wd_dit_context *c)
{
    const wd_dit_shape *s = &c->shape;
    const int64_t *patch = c->config->patch, pixels = patch[0] * patch[1] * patch[2];
    int64_t width = layout->channels * pixels, rows = s->height / patch[1];
    int64_t columns = s->width / patch[2], frames = s->frames / patch[0];
    bool fastest = layout->order == WD_DIT_CHANNEL_FASTEST;
    int64_t channel = fastest ? 1 : pixels, pixel = fastest ? layout->channels : 1;
    return (side){.data = patches,
                  .type = layout->patch_type,
                  .stride = {frames * rows * columns * width, rows * columns * width,
                             columns * width, width, channel},
                  .pixel = {patch[1] * patch[2] * pixel, patch[2] * pixel, pixel}};
}

/* The address of pixel (f, y, x) in the first patch. */
static void *at_pixel(const side *s, int64_t f, int64_t y, int64_t x)
{
    return wd__dit_at(s->data, s->type, f * s->pixel[0] + y * s->pixel[1] + x * s->pixel[2]);
}

static void copy(const side *to, const side *from, int64_t channels, const wd_dit_context *c)
{
    const wd_dit_shape *s = &c->shape;
    const int64_t *patch = c->config->patch;
    wd_strided_copy_args args = {.to_type = to->type,
                                 .from_type = from->type,
                                 .ndim = 5,
                                 .dim = {s->samples, s->frames / patch[0], s->height / patch[1],
                                         s->width / patch[2], channels},
                                 .alpha = 1};
    for (int i = 0; i < 5; i++) {
        args.to_stride[i] = to->stride[i];
        args.from_stride[i] = from->stride[i];
    }
    for (int64_t f = 0; f < patch[0]; f++)
        for (int64_t y = 0; y < patch[1]; y++)
            for (int64_t x = 0; x < patch[2]; x++) {
                args.to = at_pixel(to, f, y, x);
                args.from = at_pixel(from, f, y, x);
                wd_op_strided_copy(c->queue, &args);
            }
}

void wd__dit_patchify(void *patches, const void *latents, const wd_dit_patch_layout *layout,
                      const wd_dit_context *context)
{
    side to = patch_side(patches, layout, context);
    side from = latent_side((void *)latents, layout, context);
    copy(&to, &from, layout->channels, context);
}

void wd__dit_unpatchify(void *latents, const void *patches, const wd_dit_patch_layout *layout,
                        const wd_dit_context *context)
{
    side to = latent_side(latents, layout, context);
    side from = patch_side((void *)patches, layout, context);
    copy(&to, &from, layout->channels, context);
}
