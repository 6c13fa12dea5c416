/* Linear layers: one matrix product in each direction, and a sum over rows for the bias. The
 * product itself adds to weight gradients in fp32. */
#include "model/dit/linear.h"

#include <assert.h>

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
