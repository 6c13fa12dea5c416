/* Linear layers like PyTorch's nn.Linear, y = x W^T + b, and their gradients.
 *
 * Letters: R rows, I inputs, O outputs. A layer is a view of a weight [O, I] and a bias [O]; its
 * compute dtype is the weight's. x and dx are contiguous; y and dy may have rows further apart, so
 * that layers with one input can write side by side.
 *
 * A group is a set of layers with one input, such as Q, K and V of an attention. If their weights
 * follow one another in memory, as in flat parameters, one product computes them all. That changes
 * no bit of the forward pass, because the columns of a product do not depend on each other. */
#ifndef WD_MODEL_DIT_LINEAR_H
#define WD_MODEL_DIT_LINEAR_H

#include "core/tensor.h"
#include "dev/ops.h"

typedef struct wd_linear {
    const void *w; /* [O, I] type */
    const void *b; /* [O] b_type, or NULL */
    wd_dtype type, b_type;
    int64_t out, in; /* O, I */
} wd_linear;

typedef struct wd_linear_grad {
    float *dw; /* [O, I] */
    float *db; /* [O], or NULL */
} wd_linear_grad;

/* The layer of a weight [O, ...], whose other dimensions count as one, and a bias [O] or NULL. */
wd_linear wd_linear_of(const wd_tensor *w, const wd_tensor *b);
wd_linear_grad wd__linear_grad_of(const wd_tensor *dw, const wd_tensor *db);

void wd_linear_forward(void *y,          /* [R, O] type, =; rows y_stride elements apart */
                       int64_t y_stride, /* O if y is contiguous */
                       const void *x,    /* [R, I] type */
                       wd_linear layer, int64_t rows, wd_act act, wd_queue *queue);

void wd__linear_backward_input(void *dx,       /* [R, I] dx_type, = (beta 0) or += (beta 1) */
                               const void *dy, /* [R, O] type; rows dy_stride elements apart */
                               int64_t dy_stride, wd_linear layer, wd_dtype dx_type, float beta,
                               int64_t rows, wd_queue *queue);

void wd__linear_backward_weights(wd_linear_grad grad, /* += */
                                 const void *dy,      /* [R, O] type; rows dy_stride apart */
                                 int64_t dy_stride, const void *x, /* [R, I] type */
                                 wd_linear layer, int64_t rows, wd_queue *queue);

/* ---- layers that share their input ---- */

enum { WD_LINEAR_GROUP_MAX = 3 };

typedef struct wd_linear_group {
    wd_linear layer[WD_LINEAR_GROUP_MAX]; /* joined where possible */
    wd_linear_grad grad[WD_LINEAR_GROUP_MAX];
    int layers;
    int64_t out; /* of all layers together: width of y */
} wd_linear_group;

/* The group of `layers` weights w and biases b, with the gradients dw and db; dw and db NULL: for a
 * forward pass. */
wd_linear_group wd__linear_group_of(const wd_tensor *w, const wd_tensor *b, const wd_tensor *dw,
                                    const wd_tensor *db, int layers);

/* As above; y and dy are [R, out], contiguous, the layers' columns side by side. */
void wd__linear_group_forward(void *y, const void *x, const wd_linear_group *group, int64_t rows,
                              wd_queue *queue);
void wd__linear_group_backward_input(void *dx, const void *dy, const wd_linear_group *group,
                                     wd_dtype dx_type, float beta, int64_t rows, wd_queue *queue);
void wd__linear_group_backward_weights(const void *dy, const void *x, const wd_linear_group *group,
                                       int64_t rows, wd_queue *queue);

#endif
