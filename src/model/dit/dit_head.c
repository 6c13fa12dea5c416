/* The head: a norm modulated by temb alone, the output layer, and unpatchify.
 *
 * Its modulation has two rows, shift and scale, to both of which temb is added; they are stored as
 * two planes [2, B, D]. */
#include "model/dit/dit_impl.h"
#include "model/dit/layers.h"

static wd_linear projection(const wd_dit_stage *stage)
{
    return wd_linear_of(&stage->t[WD_DIT_HEAD_PROJ_W], &stage->t[WD_DIT_HEAD_PROJ_B]);
}

static wd_dit_patch_layout patch_layout(const wd_dit_context *c, wd_dtype type)
{
    return (wd_dit_patch_layout){.patch_type = type,
                                 .latent_type = type,
                                 .channels = c->config->out_channels,
                                 .order = WD_DIT_CHANNEL_FASTEST};
}

/* n = LN(x) (1 + scale) + shift. */
static void norm(void *n, const void *x, const float *m, const wd_dit_context *c)
{
    wd_norm_shape shape = wd__dit_norm_shape(c, wd_dit_width(c->config));
    wd__modulate_forward(n, x, m, m + c->shape.samples * shape.width, &shape, c->queue);
}

/* Pushes and computes the modulation [2, B, D]. */
static float *modulation(const wd_dit_stream *stream, const wd_dit_stage *weights,
                         const wd_dit_context *c)
{
    const wd_dit_dims d = wd__dit_dims_of(c);
    float *m = wd__dit_push(c, 2 * d.samples * d.width, WD_F32);
    const float *table = weights->t[WD_DIT_HEAD_TABLE].data;
    for (int i = 0; i < 2; i++)
        wd_op_add_table(c->queue, &(wd_add_table_args){.y = m + i * d.samples * d.width,
                                                       .table = table + i * d.width,
                                                       .x = stream->temb,
                                                       .type = d.type,
                                                       .rows = d.samples,
                                                       .width = d.width,
                                                       .x_stride = d.width});
    return m;
}

/* patches = n W + b. */
static void project(void *patches, const void *n, const wd_dit_stage *weights,
                    const wd_dit_context *c)
{
    const wd_linear proj = projection(weights);
    wd_linear_forward(patches, proj.out, n, proj, wd__dit_dims_of(c).rows, WD_ACT_NONE, c->queue);
}

void wd_dit_head_forward(void *velocity, wd_dit_head_saved *saved, const wd_dit_stream *stream,
                         const wd_dit_stage *weights, const wd_dit_context *c)
{
    const wd_dit_dims d = wd__dit_dims_of(c);
    const wd_dit_patch_layout layout = patch_layout(c, d.type);
    size_t mark = wd_arena_mark(c->arena);
    float *m = modulation(stream, weights, c);
    if (saved) {
        saved->m = m;
        mark = wd_arena_mark(c->arena);
    }
    void *n = wd__dit_push(c, d.rows * d.width, d.type);
    void *patches = wd__dit_push(c, d.rows * projection(weights).out, d.type);
    norm(n, stream->x, m, c);
    project(patches, n, weights, c);
    wd__dit_unpatchify(velocity, patches, &layout, c);
    wd_arena_reset(c->arena, mark);
}

void wd_dit_head_backward(wd_dit_stream_grad *grad, const wd_dit_stage *dweights,
                          const void *dvelocity, const wd_dit_head_saved *saved,
                          const wd_dit_stream *stream, const wd_dit_stage *weights,
                          const wd_dit_context *c)
{
    wd_dit_dims d = wd__dit_dims_of(c);
    wd_queue *queue = c->queue;
    wd_linear proj = projection(weights);
    wd_linear_grad dproj =
        wd__linear_grad_of(&dweights->t[WD_DIT_HEAD_PROJ_W], &dweights->t[WD_DIT_HEAD_PROJ_B]);
    size_t mark = wd_arena_mark(c->arena);
    int64_t plane = d.samples * d.width;
    float *dm = wd__dit_push(c, 2 * plane, WD_F32);
    void *dpatches = wd__dit_push(c, d.rows * proj.out, d.type);
    void *n = wd__dit_push(c, d.rows * d.width, d.type);
    wd_dit_patch_layout layout = patch_layout(c, d.type);
    wd__dit_patchify(dpatches, dvelocity, &layout, c);
    norm(n, stream->x, saved->m, c);
    wd__linear_backward_weights(dproj, dpatches, proj.out, n, proj, d.rows, queue);
    void *dn = n; /* n is done with */
    wd__linear_backward_input(dn, dpatches, proj.out, proj, d.type, 0, d.rows, queue);

    wd_norm_shape shape = wd__dit_norm_shape(c, d.width);
    wd_op_fill(queue, &(wd_fill_args){.to = grad->dx, .type = d.type, .count = d.rows * d.width});
    wd__modulate_backward(grad->dx, dm, dm + plane, dn, stream->x, saved->m + plane, &shape, queue);
    float *dtable = dweights->t[WD_DIT_HEAD_TABLE].data;
    for (int i = 0; i < 2; i++) {
        wd_op_sum_rows(queue, &(wd_sum_rows_args){.y = dtable + i * d.width,
                                                  .x = dm + i * plane,
                                                  .type = WD_F32,
                                                  .rows = d.samples,
                                                  .width = d.width,
                                                  .beta = 1});
        wd__dit_add(grad->dtemb, dm + i * plane, WD_F32, plane, queue);
    }
    wd_arena_reset(c->arena, mark);
}
