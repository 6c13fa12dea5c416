/* Latents to patches and back: a permutation, launched once per row of a patch, which leaves the
 * six dimensions that a strided copy has. */
#include "wan/dit_impl.h"

/* One side of the copy. */
typedef struct side {
    void *data;
    wd_dtype type;
    int64_t
        stride[6]; /* of sample, patch frame, patch row, patch column, channel, pixel in a row */
    int64_t frame, row; /* strides of a frame and a row within a patch */
} side;

static side latent_side(void *latents, const wd_dit_patch_layout *layout, const wd_dit_context *c)
{
    const wd_dit_shape *s = &c->shape;
    const int64_t *patch = c->config->patch, plane = s->height * s->width;
    return (side){.data = latents,
                  .type = layout->latent_type,
                  .stride = {layout->channels * s->frames * plane, patch[0] * plane,
                             patch[1] * s->width, patch[2], s->frames * plane, 1},
                  .frame = plane,
                  .row = s->width};
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
                             columns * width, width, channel, pixel},
                  .frame = patch[1] * patch[2] * pixel,
                  .row = patch[2] * pixel};
}

static void copy(const side *to, const side *from, int64_t channels, const wd_dit_context *c)
{
    const wd_dit_shape *s = &c->shape;
    const int64_t *patch = c->config->patch;
    wd_strided_copy_args args = {.to_type = to->type,
                                 .from_type = from->type,
                                 .ndim = 6,
                                 .dim = {s->samples, s->frames / patch[0], s->height / patch[1],
                                         s->width / patch[2], channels, patch[2]},
                                 .alpha = 1};
    for (int i = 0; i < 6; i++) {
        args.to_stride[i] = to->stride[i];
        args.from_stride[i] = from->stride[i];
    }
    for (int64_t frame = 0; frame < patch[0]; frame++)
        for (int64_t row = 0; row < patch[1]; row++) {
            args.to = wd_dit_at(to->data, to->type, frame * to->frame + row * to->row);
            args.from = wd_dit_at(from->data, from->type, frame * from->frame + row * from->row);
            wd_op_strided_copy(c->queue, &args);
        }
}

void wd_dit_patchify(void *patches, const void *latents, const wd_dit_patch_layout *layout,
                     const wd_dit_context *context)
{
    side to = patch_side(patches, layout, context);
    side from = latent_side((void *)latents, layout, context);
    copy(&to, &from, layout->channels, context);
}

void wd_dit_unpatchify(void *latents, const void *patches, const wd_dit_patch_layout *layout,
                       const wd_dit_context *context)
{
    side to = latent_side(latents, layout, context);
    side from = patch_side((void *)patches, layout, context);
    copy(&to, &from, layout->channels, context);
}
