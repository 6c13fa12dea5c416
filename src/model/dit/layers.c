/* The layers that blocks consist of: see model/dit/layers.h.
 *
 * Linear layers: one matrix product in each direction, and a sum over rows for the bias. The
 * product itself adds to weight gradients in fp32. */
#include "model/dit/layers.h"

#include <assert.h>
#include <math.h>

wd_linear wd_linear_of(const wd_tensor *w, const wd_tensor *b)
{
    assert(w->ndim >= 2 && w->dim[0] > 0);
    assert(!b || wd_tensor_count(b) == w->dim[0]);
    return (wd_linear){.w = w->data,
                       .b = b ? b->data : NULL,
                       .type = w->dtype,
                       .b_type = b ? b->dtype : w->dtype,
                       .out = w->dim[0],
                       .in = wd_tensor_count(w) / w->dim[0]};
}

wd_linear_grad wd__linear_grad_of(const wd_tensor *dw, const wd_tensor *db)
{
    assert(dw->dtype == WD_F32 && (!db || db->dtype == WD_F32));
    return (wd_linear_grad){.dw = dw->data, .db = db ? db->data : NULL};
}

void wd_linear_forward(void *y, int64_t y_stride, const void *x, wd_linear layer, int64_t rows,
                       wd_act act, wd_queue *queue)
{
    assert(y_stride >= layer.out);
    wd_op_matmul(queue, &(wd_matmul_args){.c = y,
                                          .a = x,
                                          .b = layer.w,
                                          .bias = layer.b,
                                          .c_type = layer.type,
                                          .a_type = layer.type,
                                          .b_type = layer.type,
                                          .bias_type = layer.b_type,
                                          .transpose_b = true,
                                          .m = rows,
                                          .n = layer.out,
                                          .k = layer.in,
                                          .lda = layer.in,
                                          .ldb = layer.in,
                                          .ldc = y_stride,
                                          .batch = 1,
                                          .act = act});
}

void wd__linear_backward_input(void *dx, const void *dy, int64_t dy_stride, wd_linear layer,
                               wd_dtype dx_type, float beta, int64_t rows, wd_queue *queue)
{
    assert(dy_stride >= layer.out);
    wd_op_matmul(queue, &(wd_matmul_args){.c = dx,
                                          .a = dy,
                                          .b = layer.w,
                                          .c_type = dx_type,
                                          .a_type = layer.type,
                                          .b_type = layer.type,
                                          .m = rows,
                                          .n = layer.in,
                                          .k = layer.out,
                                          .lda = dy_stride,
                                          .ldb = layer.in,
                                          .ldc = layer.in,
                                          .batch = 1,
                                          .beta = beta});
}

void wd__linear_backward_weights(wd_linear_grad grad, const void *dy, int64_t dy_stride,
                                 const void *x, wd_linear layer, int64_t rows, wd_queue *queue)
{
    assert(dy_stride >= layer.out);
    wd_op_matmul(queue, &(wd_matmul_args){.c = grad.dw,
                                          .a = dy,
                                          .b = x,
                                          .c_type = WD_F32,
                                          .a_type = layer.type,
                                          .b_type = layer.type,
                                          .transpose_a = true,
                                          .m = layer.out,
                                          .n = layer.in,
                                          .k = rows,
                                          .lda = dy_stride,
                                          .ldb = layer.in,
                                          .ldc = layer.in,
                                          .batch = 1,
                                          .beta = 1});
    if (!grad.db) return;
    wd_op_sum_rows(queue, &(wd_sum_rows_args){.y = grad.db,
                                              .x = dy,
                                              .type = layer.type,
                                              .rows = rows,
                                              .width = layer.out,
                                              .x_stride = dy_stride,
                                              .beta = 1});
}

/* ---- groups ---- */

/* The address of element `i`. */
static const void *element(const void *base, wd_dtype type, int64_t i)
{
    return (const char *)base + (size_t)i * wd_dtype_bytes(type);
}

/* Whether weights, bias and gradients of `b` follow those of `a` in memory. */
static bool follows(const wd_linear *a, const wd_linear_grad *da, const wd_linear *b,
                    const wd_linear_grad *db)
{
    if (a->type != b->type || a->b_type != b->b_type || a->in != b->in) return false;
    if (element(a->w, a->type, a->out * a->in) != b->w) return false;
    if (!a->b != !b->b || (a->b && element(a->b, a->b_type, a->out) != b->b)) return false;
    if (!da->dw) return !db->dw;
    return da->dw + a->out * a->in == db->dw && (!da->db || da->db + a->out == db->db);
}

wd_linear_group wd__linear_group_of(const wd_tensor *w, const wd_tensor *b, const wd_tensor *dw,
                                    const wd_tensor *db, int layers)
{
    assert(layers <= WD_LINEAR_GROUP_MAX);
    wd_linear_group group = {0};
    for (int i = 0; i < layers; i++) {
        wd_linear layer = wd_linear_of(&w[i], &b[i]);
        wd_linear_grad grad = {0};
        if (dw) grad = wd__linear_grad_of(&dw[i], &db[i]);
        int last = group.layers - 1;
        group.out += layer.out;
        if (last >= 0 && follows(&group.layer[last], &group.grad[last], &layer, &grad)) {
            group.layer[last].out += layer.out;
            continue;
        }
        group.layer[group.layers] = layer;
        group.grad[group.layers++] = grad;
    }
    return group;
}

void wd__linear_group_forward(void *y, const void *x, const wd_linear_group *group, int64_t rows,
                              wd_queue *queue)
{
    char *at = y;
    for (int i = 0; i < group->layers; i++) {
        const wd_linear *layer = &group->layer[i];
        wd_linear_forward(at, group->out, x, *layer, rows, WD_ACT_NONE, queue);
        at += (size_t)layer->out * wd_dtype_bytes(layer->type);
    }
}

void wd__linear_group_backward_input(void *dx, const void *dy, const wd_linear_group *group,
                                     wd_dtype dx_type, float beta, int64_t rows, wd_queue *queue)
{
    const char *at = dy;
    for (int i = 0; i < group->layers; i++) {
        const wd_linear *layer = &group->layer[i];
        wd__linear_backward_input(dx, at, group->out, *layer, dx_type, i == 0 ? beta : 1, rows,
                                  queue);
        at += (size_t)layer->out * wd_dtype_bytes(layer->type);
    }
}

void wd__linear_group_backward_weights(const void *dy, const void *x, const wd_linear_group *group,
                                       int64_t rows, wd_queue *queue)
{
    const char *at = dy;
    for (int i = 0; i < group->layers; i++) {
        const wd_linear *layer = &group->layer[i];
        wd__linear_backward_weights(group->grad[i], at, group->out, x, *layer, rows, queue);
        at += (size_t)layer->out * wd_dtype_bytes(layer->type);
    }
}

/* ---- norms and residuals ---- */

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

/* ---- attention ---- */

static float scale_of(const wd_attention_shape *s)
{
    return 1.0f / sqrtf((float)s->head_dim);
}

void wd__attention_forward(void *o, float *lse, const void *q, const void *k, const void *v,
                           const wd_attention_shape *s, wd_queue *queue)
{
    int64_t width = s->heads * s->head_dim;
    assert(s->kv_samples == s->samples || s->kv_samples == 1);
    assert(s->q_stride >= width && s->kv_stride >= width);
    wd_op_attention(queue, &(wd_attention_args){.o = o,
                                                .lse = lse,
                                                .q = q,
                                                .k = k,
                                                .v = v,
                                                .type = s->type,
                                                .samples = s->samples,
                                                .kv_samples = s->kv_samples,
                                                .heads = s->heads,
                                                .head_dim = s->head_dim,
                                                .q_tokens = s->q_tokens,
                                                .kv_tokens = s->kv_tokens,
                                                .last_key_repeat = s->last_key_repeat,
                                                .q_stride = s->q_stride,
                                                .kv_stride = s->kv_stride,
                                                .o_stride = width,
                                                .scale = scale_of(s)});
}

void wd__attention_backward(void *dq, void *dk, void *dv, const void *d_o, const void *q,
                            const void *k, const void *v, const void *o, const float *lse,
                            const wd_attention_shape *s, wd_queue *queue)
{
    int64_t width = s->heads * s->head_dim;
    assert(s->kv_samples == s->samples);
    assert(s->q_stride >= width && s->kv_stride >= width);
    wd_op_attention_backward(queue,
                             &(wd_attention_backward_args){.dq = dq,
                                                           .dk = dk,
                                                           .dv = dv,
                                                           .d_o = d_o,
                                                           .q = q,
                                                           .k = k,
                                                           .v = v,
                                                           .o = o,
                                                           .lse = lse,
                                                           .type = s->type,
                                                           .samples = s->samples,
                                                           .heads = s->heads,
                                                           .head_dim = s->head_dim,
                                                           .q_tokens = s->q_tokens,
                                                           .kv_tokens = s->kv_tokens,
                                                           .last_key_repeat = s->last_key_repeat,
                                                           .q_stride = s->q_stride,
                                                           .kv_stride = s->kv_stride,
                                                           .o_stride = width,
                                                           .scale = scale_of(s)});
}
