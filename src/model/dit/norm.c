/* Norms and residuals: launches of the operations of model/dit/norm.h. */
#include "model/dit/norm.h"

#include <assert.h>

static wd_layernorm_args forward_args(void *y, const void *x, const float *scale,
                                      const float *shift, const wd_norm_shape *shape)
{
    return (wd_layernorm_args){.y = y,
                               .x = x,
                               .scale = scale,
                               .shift = shift,
                               .type = shape->type,
                               .rows = shape->rows,
                               .width = shape->width,
                               .rows_per_sample = shape->rows_per_sample,
                               .eps = shape->eps};
}

static wd_layernorm_backward_args backward_args(void *dx, float *dscale, float *dshift,
                                                const void *dy, const void *x, const float *scale,
                                                const wd_norm_shape *shape)
{
    return (wd_layernorm_backward_args){.dx = dx,
                                        .dscale = dscale,
                                        .dshift = dshift,
                                        .dy = dy,
                                        .x = x,
                                        .scale = scale,
                                        .type = shape->type,
                                        .rows = shape->rows,
                                        .width = shape->width,
                                        .rows_per_sample = shape->rows_per_sample,
                                        .eps = shape->eps};
}

void wd__modulate_forward(void *y, const void *x, const float *shift, const float *scale,
                          const wd_norm_shape *shape, wd_queue *queue)
{
    assert(shape->modulation_stride >= shape->width);
    wd_layernorm_args args = forward_args(y, x, scale, shift, shape);
    args.sample_stride = shape->modulation_stride;
    args.scale_one = 1;
    wd_op_layernorm(queue, &args);
}

void wd__modulate_backward(void *dx, float *dshift, float *dscale, const void *dy, const void *x,
                           const float *scale, const wd_norm_shape *shape, wd_queue *queue)
{
    assert(shape->modulation_stride >= shape->width);
    wd_layernorm_backward_args args = backward_args(dx, dscale, dshift, dy, x, scale, shape);
    args.sample_stride = shape->modulation_stride;
    args.scale_one = 1;
    wd_op_layernorm_backward(queue, &args);
}

void wd__layernorm_forward(void *y, const void *x, const float *w, const float *b,
                           const wd_norm_shape *shape, wd_queue *queue)
{
    wd_layernorm_args args = forward_args(y, x, w, b, shape);
    wd_op_layernorm(queue, &args);
}

void wd__layernorm_backward(void *dx, float *dw, float *db, const void *dy, const void *x,
                            const float *w, const wd_norm_shape *shape, wd_queue *queue)
{
    wd_layernorm_backward_args args = backward_args(dx, dw, db, dy, x, w, shape);
    wd_op_layernorm_backward(queue, &args);
}

void wd__residual_forward(void *y, const void *x, const void *branch, const float *gate,
                          const wd_norm_shape *shape, wd_queue *queue)
{
    wd_op_residual(queue, &(wd_residual_args){.y = y,
                                              .x = x,
                                              .branch = branch,
                                              .gate = gate,
                                              .type = shape->type,
                                              .rows = shape->rows,
                                              .width = shape->width,
                                              .rows_per_sample = shape->rows_per_sample,
                                              .sample_stride = shape->modulation_stride});
}

void wd__residual_backward(void *dbranch, float *dgate, const void *dy, const void *branch,
                           const float *gate, const wd_norm_shape *shape, wd_queue *queue)
{
    wd_op_residual_backward(
        queue, &(wd_residual_backward_args){.dbranch = dbranch,
                                            .dgate = dgate,
                                            .dy = dy,
                                            .branch = branch,
                                            .gate = gate,
                                            .type = shape->type,
                                            .rows = shape->rows,
                                            .width = shape->width,
                                            .rows_per_sample = shape->rows_per_sample,
                                            .sample_stride = shape->modulation_stride});
}

void wd__rms_rope_forward(void *y, const void *x, const void *w, const float *cos, const float *sin,
                          const wd_rms_shape *shape, wd_queue *queue)
{
    assert(shape->x_stride >= shape->width && shape->y_stride >= shape->width);
    assert(shape->width % shape->head_dim == 0 && !cos == !sin);
    wd_op_rmsnorm(queue, &(wd_rmsnorm_args){.y = y,
                                            .x = x,
                                            .w = w,
                                            .cos = cos,
                                            .sin = sin,
                                            .type = shape->type,
                                            .w_type = shape->w_type,
                                            .rows = shape->rows,
                                            .width = shape->width,
                                            .head_dim = shape->head_dim,
                                            .tokens = shape->tokens,
                                            .x_stride = shape->x_stride,
                                            .y_stride = shape->y_stride,
                                            .eps = shape->eps});
}

void wd__rms_rope_backward(void *dx, float *dw, const void *dy, const void *x, const void *w,
                           const float *cos, const float *sin, const wd_rms_shape *shape,
                           wd_queue *queue)
{
    assert(shape->x_stride >= shape->width && shape->y_stride >= shape->width);
    assert(shape->width % shape->head_dim == 0 && !cos == !sin);
    wd_op_rmsnorm_backward(queue, &(wd_rmsnorm_backward_args){.dx = dx,
                                                              .dw = dw,
                                                              .dy = dy,
                                                              .x = x,
                                                              .w = w,
                                                              .cos = cos,
                                                              .sin = sin,
                                                              .type = shape->type,
                                                              .w_type = shape->w_type,
                                                              .rows = shape->rows,
                                                              .width = shape->width,
                                                              .head_dim = shape->head_dim,
                                                              .tokens = shape->tokens,
                                                              .x_stride = shape->x_stride,
                                                              .dy_stride = shape->y_stride,
                                                              .eps = shape->eps});
}
