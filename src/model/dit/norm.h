/* Norms and residuals of a transformer block, forward and backward.
 *
 * Rows [R, D] are tokens, rows_per_sample of them in a sample. Modulation (shift, scale, gate) is a
 * vector [D] per sample, vectors of neighbouring samples modulation_stride elements apart: a slice
 * of a wider row. A backward pass recomputes its norm from the norm's input: keeping statistics
 * instead would save little time and take much memory. */
#ifndef WD_MODEL_DIT_NORM_H
#define WD_MODEL_DIT_NORM_H

#include "dev/ops.h"

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

#endif
