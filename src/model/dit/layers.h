/* The layers that blocks consist of, forward and backward: linear layers, norms and residuals,
 * attention.
 *
 * Linear layers are like PyTorch's nn.Linear, y = x W^T + b, and their gradients.
 *
 * Letters: R rows, I inputs, O outputs. A layer is a view of a weight [O, I] and a bias [O]; its
 * compute dtype is the weight's. x and dx are contiguous; y and dy may have rows further apart, so
 * that layers with one input can write side by side.
 *
 * A group is a set of layers with one input, such as Q, K and V of an attention. If their weights
 * follow one another in memory, as in flat parameters, one product computes them all. That changes
 * no bit of the forward pass, because the columns of a product do not depend on each other. */
#ifndef WD_MODEL_DIT_LAYERS_H
#define WD_MODEL_DIT_LAYERS_H

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

/* ---- norms and residuals ----
 *
 * Norms and residuals of a transformer block, forward and backward.
 *
 * Rows [R, D] are tokens, rows_per_sample of them in a sample. Modulation (shift, scale, gate) is a
 * vector [D] per sample, vectors of neighbouring samples modulation_stride elements apart: a slice
 * of a wider row. A backward pass recomputes its norm from the norm's input: keeping statistics
 * instead would save little time and take much memory. */

typedef struct wd_norm_shape {
    wd_dtype type; /* of x, y and their gradients */
    int64_t rows, width;
    int64_t rows_per_sample, modulation_stride;
    float eps;
} wd_norm_shape;

/* y = LN(x) (1 + scale) + shift. */
void wd__modulate_forward(void *y, const void *x, const float *shift, const float *scale,
                          const wd_norm_shape *shape, wd_queue *queue);
void wd__modulate_backward(void *dx,                     /* += */
                           float *dshift, float *dscale, /* = , laid out as shift and scale */
                           const void *dy, const void *x, const float *scale,
                           const wd_norm_shape *shape, wd_queue *queue);

/* y = LN(x) w + b. */
void wd__layernorm_forward(void *y, const void *x, const float *w, const float *b,
                           const wd_norm_shape *shape, wd_queue *queue);
void wd__layernorm_backward(void *dx, float *dw, float *db, /* += */
                            const void *dy, const void *x, const float *w,
                            const wd_norm_shape *shape, wd_queue *queue);

/* y = x + branch gate; gate NULL: y = x + branch. y may be x. */
void wd__residual_forward(void *y, const void *x, const void *branch, const float *gate,
                          const wd_norm_shape *shape, wd_queue *queue);
/* The gradients of branch and gate; the gradient of x is dy itself. dbranch may be branch. */
void wd__residual_backward(void *dbranch, float *dgate, /* = */
                           const void *dy, const void *branch, const float *gate,
                           const wd_norm_shape *shape, wd_queue *queue);

/* RMS norm over all heads, followed by the rotation by position (RoPE) if cos is not NULL. */
typedef struct wd_rms_shape {
    wd_dtype type, w_type;
    int64_t rows, width, head_dim, tokens; /* row r is token r mod tokens */
    int64_t x_stride, y_stride;            /* elements from row to row of x, and of y, dy and dx */
    float eps;
} wd_rms_shape;

void wd__rms_rope_forward(void *y, /* =; may be x */
                          const void *x, const void *w, const float *cos, const float *sin,
                          const wd_rms_shape *shape, wd_queue *queue);
void wd__rms_rope_backward(void *dx,  /* =; may be dy */
                           float *dw, /* += */
                           const void *dy, const void *x, const void *w, const float *cos,
                           const float *sin, const wd_rms_shape *shape, wd_queue *queue);

/* ---- attention ----
 *
 * Scaled dot-product attention over heads, forward and backward: softmax(q kT / sqrt(K)) v.
 *
 * Letters: B samples, L queries, S keys, N heads, K head dimension. Rows of q, k, v may be parts of
 * wider rows: q is [B, L, N K] with rows q_stride elements apart, k and v [B, S, N K] with
 * kv_stride. There is no mask: Wan also attends to the padding of text. The keys of padding are all
 * equal, so the last key may represent all of them. */

typedef struct wd_attention_shape {
    wd_dtype type;
    int64_t samples, kv_samples; /* kv_samples: samples, or 1 shared by all */
    int64_t heads, head_dim, q_tokens, kv_tokens;
    int64_t last_key_repeat; /* how many equal keys the last one represents; 0 means 1 */
    int64_t q_stride, kv_stride;
} wd_attention_shape;

void wd__attention_forward(
    void *o,    /* [B, L, N K], =, contiguous */
    float *lse, /* [B, N, L], =: log-sum-exp for the backward pass; NULL: not computed */
    const void *q, const void *k, const void *v, const wd_attention_shape *shape, wd_queue *queue);

void wd__attention_backward(void *dq, void *dk, void *dv, /* =, laid out as q, k, v */
                            const void *d_o, const void *q, const void *k, const void *v,
                            const void *o, const float *lse, const wd_attention_shape *shape,
                            wd_queue *queue);

#endif
