/* The operations of devices. Each has an argument struct and a launch function.
 *
 * Conventions
 *   R rows, D width, B samples, L image tokens, S text tokens, N heads, K head dimension.
 *   Pointers are device memory. "any" = F32 or BF16, as the dtype field beside it says; sums are
 *   taken in fp32 whatever the storage. Strides are in elements. A written value is rounded once,
 *   to nearest even, unless the comment names other roundings of the reference.
 *   Every output says = (written) or += (added to). Outputs may be the same memory as an input of
 *   the same shape and dtype where "in place" is said, else they must not overlap.
 *   Bits: a result depends neither on the number of threads, nor, for a row or sample, on which
 *   other rows or samples are in the same launch.
 */
#ifndef WD_DEV_OPS_H
#define WD_DEV_OPS_H

#include <stdbool.h>

#include "core/dtype.h"
#include "dev/device.h"

/* X(OP, name): argument struct wd_<name>_args, launch function wd_op_<name>(queue, &args). */
#define WD_OP_MAP(X)                                                                               \
    X(MATMUL, matmul)                                                                              \
    X(ATTENTION, attention)                                                                        \
    X(ATTENTION_BACKWARD, attention_backward)                                                      \
    X(CONV, conv)                                                                                  \
    X(LAYERNORM, layernorm)                                                                        \
    X(LAYERNORM_BACKWARD, layernorm_backward)                                                      \
    X(RMSNORM, rmsnorm)                                                                            \
    X(RMSNORM_BACKWARD, rmsnorm_backward)                                                          \
    X(CHANNELNORM, channelnorm)                                                                    \
    X(RESIDUAL, residual)                                                                          \
    X(RESIDUAL_BACKWARD, residual_backward)                                                        \
    X(ACTIVATION, activation)                                                                      \
    X(ACTIVATION_BACKWARD, activation_backward)                                                    \
    X(MULTIPLY, multiply)                                                                          \
    X(ADD_TABLE, add_table)                                                                        \
    X(SUM_ROWS, sum_rows)                                                                          \
    X(TIMESTEP_EMBED, timestep_embed)                                                              \
    X(STRIDED_COPY, strided_copy)                                                                  \
    X(GATHER_ROWS, gather_rows)                                                                    \
    X(CAST, cast)                                                                                  \
    X(DEQUANTISE, dequantise)                                                                      \
    X(FILL, fill)                                                                                  \
    X(COMBINE, combine)                                                                            \
    X(GUIDANCE, guidance)                                                                          \
    X(STEP_SAMPLES, step_samples)                                                                  \
    X(MSE, mse)                                                                                    \
    X(SUM_SQUARES, sum_squares)                                                                    \
    X(SUM_SQUARES_CHUNKS, sum_squares_chunks)                                                      \
    X(CLIP_FACTOR, clip_factor)                                                                    \
    X(MOMENTS, moments)                                                                            \
    X(MASTERS, masters)                                                                            \
    X(ADAMW, adamw)                                                                                \
    X(EMA, ema)

typedef enum wd_op {
#define X(op, name) WD_OP_##op,
    WD_OP_MAP(X)
#undef X
        WD_OP_COUNT
} wd_op;

typedef enum wd_act { WD_ACT_NONE, WD_ACT_GELU_TANH, WD_ACT_SILU } wd_act;

/* c[i] = act(op(a[i]) op(b[i]) + bias) + beta c[i], i < batch, act only with beta 0.
 * op(a) is [m, k], op(b) is [k, n]; transpose_a: a is stored [k, m], transpose_b: b is [n, k]
 * (a Linear weight [out, in] is b with transpose_b). bias [n], added to every row, or NULL. */
typedef struct wd_matmul_args {
    void *c;          /* [batch, m, n] c_type, = (beta 0) or += (beta 1) */
    const void *a;    /* a_type */
    const void *b;    /* b_type */
    const void *bias; /* [n] bias_type, or NULL */
    wd_dtype c_type, a_type, b_type, bias_type; /* any; a_type == b_type */
    bool transpose_a, transpose_b;
    int64_t m, n, k;
    int64_t lda, ldb, ldc; /* elements from row to row as stored */
    int64_t batch, stride_a, stride_b, stride_c;
    float beta; /* 0 or 1 */
    wd_act act; /* NONE or GELU_TANH */
} wd_matmul_args;

/* o = softmax(scale q kT + bias + mask) v, per sample and head.
 * q, o: [B, L, N, K]; k, v: [B, S, N, K]; from token to token *_stride elements (at least N K).
 * kv_samples is B, or 1 where all samples share one k and v.
 * The last key and value may represent n equal ones, which weigh as one whose scaled score is
 * larger by log n: n exp(s) = exp(s + log n). kv_tokens counts it once. */
typedef struct wd_attention_args {
    void *o;               /* = type */
    float *lse;            /* = [B, N, L] log of the sum of exponentials, or NULL */
    const void *q, *k, *v; /* type */
    const float *bias;     /* [N, L, S] added to the scaled scores, or NULL */
    const float *mask;     /* [B, S] added to the scaled scores, or NULL */
    wd_dtype type;
    int64_t samples, kv_samples, heads, head_dim, q_tokens, kv_tokens;
    int64_t last_key_repeat; /* how many keys the last one represents; 0 means 1 */
    int64_t q_stride, kv_stride, o_stride;
    float scale;
} wd_attention_args;

/* Gradients of the above without bias and mask; kv_samples == samples. dq, dk, dv are laid out as
 * q, k, v; dk and dv of a last key that represents many are the sums over these. */
typedef struct wd_attention_backward_args {
    void *dq, *dk, *dv;              /* = type */
    const void *d_o, *q, *k, *v, *o; /* type; d_o laid out as o */
    const float *lse;                /* [B, N, L] of the forward pass */
    wd_dtype type;
    int64_t samples, heads, head_dim, q_tokens, kv_tokens;
    int64_t last_key_repeat;               /* as in the forward pass */
    int64_t q_stride, kv_stride, o_stride; /* o_stride: of o and d_o */
    float scale;
} wd_attention_backward_args;

/* Convolution over frames, channels last: x [B, FI, HI, WI, CI] -> y [B, FO, HO, WO, CO].
 * Zero padding before and after per axis; x is read as if it were padded. Taps [tap0, tap1) of the
 * kernel's time axis are computed (all: 0, kt); with one causal frame this is only the last one. */
typedef struct wd_conv_args {
    void *y;          /* = type */
    const void *x;    /* type */
    const void *w;    /* [CO, CI, kt, kh, kw] w_type, as PyTorch stores it (2-D: kt = 1) */
    const void *bias; /* [CO] w_type, or NULL */
    wd_dtype type, w_type;
    int64_t samples, in[3], out[3], ci, co; /* in, out: frames, height, width */
    int64_t kernel[3], stride[3], pad_before[3], pad_after[3];
    int64_t tap0, tap1; /* out frames = (in + pads - (tap1 - tap0)) / stride + 1 */
} wd_conv_args;

/* y = LN(x) (scale_one + scale) + shift; biased variance. Row r belongs to sample
 * r / rows_per_sample, whose scale and shift lie at that index times sample_stride (0: one for
 * all). Modulation: scale_one 1. Affine: scale = weight, shift = bias, scale_one 0,
 * sample_stride 0. scale and shift NULL: plain. */
typedef struct wd_layernorm_args {
    void *y;                    /* [R, D] type, = */
    const void *x;              /* [R, D] type */
    const float *scale, *shift; /* [D] per sample */
    wd_dtype type;
    int64_t rows, width, rows_per_sample, sample_stride;
    float eps, scale_one;
} wd_layernorm_args;

typedef struct wd_layernorm_backward_args {
    void *dx;               /* [R, D] type, += */
    float *dscale, *dshift; /* as scale and shift: = per sample (sample_stride > 0), or += over all
                               rows (sample_stride 0); NULL: not computed */
    const void *dy, *x;     /* [R, D] type */
    const float *scale;     /* as in the forward pass */
    wd_dtype type;
    int64_t rows, width, rows_per_sample, sample_stride;
    float eps, scale_one;
} wd_layernorm_backward_args;

/* y = x rsqrt(mean(x^2) + eps) w over the whole width, then rotated (RoPE) if cos is not NULL, with
 * interleaved pairs (2j, 2j+1) in each head of head_dim, token r mod tokens. round_first (UMT5): x
 * rsqrt(..) is rounded to `type` before it is multiplied by w. Without round_first all is fp32
 * until the norm's result, rounded to `type`; then RoPE in fp32, rounded again (diffusers: two
 * modules). */
typedef struct wd_rmsnorm_args {
    void *y;                /* [R, D] type, =; in place */
    const void *x;          /* [R, D] type */
    const void *w;          /* [D] w_type */
    const float *cos, *sin; /* [tokens, head_dim / 2], or NULL: no rotation */
    wd_dtype type, w_type;
    int64_t rows, width, head_dim, tokens;
    int64_t x_stride, y_stride; /* elements from row to row; 0: width */
    float eps;
    bool round_first;
} wd_rmsnorm_args;

/* Gradients of rmsnorm without round_first. */
typedef struct wd_rmsnorm_backward_args {
    void *dx;               /* [R, D] type, =; in place with dy */
    float *dw;              /* [D], += */
    const void *dy, *x;     /* [R, D] type; x: before the norm */
    const void *w;          /* [D] w_type */
    const float *cos, *sin; /* as in the forward pass */
    wd_dtype type, w_type;
    int64_t rows, width, head_dim, tokens;
    int64_t x_stride, dy_stride; /* elements from row to row, of x, and of dy and dx; 0: width */
    float eps;
} wd_rmsnorm_backward_args;

/* Wan VAE's norm: y = x / max(|x|_2, 1e-12) sqrt(D) gamma per row, then act (NONE or SILU).
 * With type BF16 the reference rounds the norm, after each of the three steps, and after act. */
typedef struct wd_channelnorm_args {
    void *y;           /* [R, D] type, =; in place */
    const void *x;     /* [R, D] type */
    const void *gamma; /* [D] w_type */
    wd_dtype type, w_type;
    int64_t rows, width;
    wd_act act;
} wd_channelnorm_args;

/* y = x + branch gate: gate [D] per sample as in layernorm, or NULL: y = x + branch. */
typedef struct wd_residual_args {
    void *y;                /* [R, D] type, =; in place with x */
    const void *x, *branch; /* [R, D] type */
    const float *gate;
    wd_dtype type;
    int64_t rows, width, rows_per_sample, sample_stride;
} wd_residual_args;

typedef struct wd_residual_backward_args {
    void *dbranch;           /* [R, D] type, = dy gate; in place with branch */
    float *dgate;            /* [D] per sample, = sum over its rows of dy branch */
    const void *dy, *branch; /* [R, D] type */
    const float *gate;
    wd_dtype type;
    int64_t rows, width, rows_per_sample, sample_stride;
} wd_residual_backward_args;

/* y = act(x), evaluated in fp32. */
typedef struct wd_activation_args {
    void *y;       /* [count] type, =; in place */
    const void *x; /* [count] type */
    wd_dtype type;
    int64_t count;
    wd_act act;
    bool round_steps; /* gelu_new of transformers in bf16: every elementary step is rounded */
} wd_activation_args;

typedef struct wd_activation_backward_args {
    void *dx;           /* [count] type, =; in place with dy */
    const void *dy, *x; /* [count] type; x: before the activation */
    wd_dtype type;
    int64_t count;
    wd_act act;
} wd_activation_backward_args;

/* y = a b, elementwise. */
typedef struct wd_multiply_args {
    void *y;           /* [count] type, =; in place with a or b */
    const void *a, *b; /* [count] type */
    wd_dtype type;
    int64_t count;
} wd_multiply_args;

/* y[r, :] = table[:] + x[r, :]. */
typedef struct wd_add_table_args {
    float *y;           /* [R, D], = */
    const float *table; /* [D] */
    const void *x;      /* [R, D] type; x_stride elements from row to row (0: the same row) */
    wd_dtype type;
    int64_t rows, width, x_stride;
} wd_add_table_args;

/* y[:] += sum over rows of x[r, :]: a bias' gradient. In row order within fixed chunks of rows. */
typedef struct wd_sum_rows_args {
    float *y;      /* [D], = (beta 0) or += (beta 1) */
    const void *x; /* [R, D] type */
    wd_dtype type;
    int64_t rows, width;
    int64_t x_stride; /* elements from row to row; 0: width */
    float beta;
} wd_sum_rows_args;

/* y[b] = [cos(t e_0..), sin(t e_0..)], e_i = exp(-ln(10000) i / (width / 2)), every operation in
 * fp32 (diffusers get_timestep_embedding, flip_sin_to_cos, downscale_freq_shift 0). */
typedef struct wd_timestep_embed_args {
    float *y;       /* [B, width], = */
    const float *t; /* [B] */
    int64_t samples, width;
} wd_timestep_embed_args;

/* to[sum i_d to_stride_d] = alpha from[sum i_d from_stride_d] + beta to[..], for all indices
 * i_d < dim_d, d < ndim <= 6. Permutes, patchifies, slices, repeats (from_stride 0), averages. */
typedef struct wd_strided_copy_args {
    void *to;                    /* to_type */
    const void *from;            /* from_type */
    wd_dtype to_type, from_type; /* any */
    int ndim;
    int64_t dim[6], to_stride[6], from_stride[6];
    float alpha, beta; /* beta 0 or 1 */
} wd_strided_copy_args;

/* to[i, :] = from[index[i], :]; index -1 gives a row of zeros. Other indices out of range are a bug
 * of the caller. */
typedef struct wd_gather_rows_args {
    void *to;             /* [R, D] to_type, = */
    const void *from;     /* [table_rows, D] from_type */
    const int32_t *index; /* [R] */
    wd_dtype to_type, from_type;
    int64_t rows, width, table_rows;
} wd_gather_rows_args;

/* Converts between F32, F16 and BF16. */
typedef struct wd_cast_args {
    void *to;         /* [count] to_type, = */
    const void *from; /* [count] from_type */
    wd_dtype to_type, from_type;
    int64_t count;
} wd_cast_args;

/* to = from's values times their scales, in fp32, rounded to `rounded`, then to to_type. What a
 * quantised value is, dev/codec/codec.h says. */
typedef struct wd_dequantise_args {
    void *to;                     /* [R, D] to_type, = */
    const void *from;             /* [R, D] from_type, rows of whole blocks */
    const void *scale;            /* [scale_rows, scale_columns] scale_type; NULL: 1 */
    wd_dtype to_type, from_type;  /* to_type: F32, F16, BF16 */
    wd_dtype scale_type, rounded; /* F32, F16, BF16 */
    int64_t rows, width;
    int64_t scale_rows, scale_columns; /* R or 1; a divisor of D */
} wd_dequantise_args;

typedef struct wd_fill_args {
    void *to; /* [count] type, = value */
    wd_dtype type;
    int64_t count;
    float value;
} wd_fill_args;

/* y = sum over i < terms of factor[i] x[i] (fp32, in this order), then rounded through bf16 if
 * round_bf16 (a scheduler that casts its latents). A scheduler's step. */
typedef struct wd_combine_args {
    float *y;          /* [count], =; in place with any x */
    const float *x[6]; /* [count] */
    float factor[6];
    int terms;
    int64_t count;
    bool round_bf16;
} wd_combine_args;

/* Classifier-free guidance: v = u + scale (c - u), each operation rounded to type (diffusers).
 * scale per sample: [B], or one for all with samples 1. */
typedef struct wd_guidance_args {
    float *v;           /* [B, D], =, fp32 */
    const void *c, *u;  /* [B, D] type: conditional and unconditional velocity; u NULL: v = c */
    const float *scale; /* [B] */
    wd_dtype type;
    int64_t samples, width;
} wd_guidance_args;

/* x[b] += dt[b] v[b]: an Euler step of each sample's own ODE. */
typedef struct wd_step_samples_args {
    float *x;        /* [B, D], += */
    const float *v;  /* [B, D] */
    const float *dt; /* [B] */
    int64_t samples, width;
} wd_step_samples_args;

/* loss[b] = mean over D of (y - target)^2 per sample; dy = weight[b] 2 factor (y -
 * target) / D. */
typedef struct wd_mse_args {
    float *loss;         /* [B], = */
    void *dy;            /* [B, D] type, =; NULL: not computed */
    const void *y;       /* [B, D] type */
    const float *target; /* [B, D] */
    const float *weight; /* [B] by which the samples' gradients are multiplied; NULL: 1 */
    wd_dtype type;
    int64_t samples, width;
    float factor; /* 1 / (samples of the whole optimiser step) */
} wd_mse_args;

/* Elements of a chunk. Sums are taken within chunks, then over chunks, for any number of threads.
 */
enum { WD_SUM_CHUNK = 32768 };

/* sum[0] = sum of x^2, chunk by chunk. */
typedef struct wd_sum_squares_args {
    float *sum;    /* [1] */
    const void *x; /* [count] type */
    int64_t count;
    wd_dtype type;
} wd_sum_squares_args;

/* sums[i] = sum of x^2 in chunk i. sum_squares adds these in order; a caller can add chunks of
 * several arrays. */
typedef struct wd_sum_squares_chunks_args {
    double *sums;  /* [chunks of count], = */
    const void *x; /* [count] type */
    int64_t count;
    wd_dtype type;
} wd_sum_squares_chunks_args;

/* norm[0] = sqrt(sum[0]); factor[0] = min(1, norm_max / (norm + 1e-6)) (torch clip_grad_norm_),
 * 1 if norm_max is 0. A norm that is not finite gives factor 0: the step is dropped, and changes
 * nothing. steps[0] counts the steps that are taken. */
typedef struct wd_clip_factor_args {
    float *norm, *factor; /* [1], = */
    int64_t *steps;       /* [1], += 1, or += 0 if the step is dropped */
    const float *sum;     /* [1] */
    float norm_max;
} wd_clip_factor_args;

/* Moments in 8 bits, in groups of 32: dev/moments.h. */
typedef struct wd_moments8 {
    void *codes;      /* [count] int8 of first moments, uint8 of second ones */
    uint16_t *scales; /* [groups of count] */
} wd_moments8;

typedef enum wd_moment { WD_MOMENT_FIRST, WD_MOMENT_SECOND } wd_moment;

/* Packs values (rounded to the nearest) or unpacks them. What is unpacked packs to the same bits.
 */
typedef struct wd_moments_args {
    float *values;     /* [count], = if they are unpacked */
    wd_moments8 codes; /* = if they are packed */
    wd_moment moment;
    bool pack;
    int64_t count;
} wd_moments_args;

/* Master weights as a copy in bf16 and a remainder of 16 bits each (master_of in dev/convert.h).
 * Splits values into them, or merges them. Values are settled when they are split: what is split is
 * what is merged again, bit for bit, but for NaN. Rows of `values` are `values_stride` apart, those
 * of copy and remainder `stride`. */
typedef struct wd_masters_args {
    float *values;       /* [rows, count]; settled in place if they are split, else = */
    uint16_t *copy;      /* [rows, count], = if values are split; or NULL, with the next: values are
                          * only settled */
    uint16_t *remainder; /* [rows, count], = if values are split */
    bool split;
    int64_t rows, count;
    int64_t values_stride, stride; /* elements; any with one row */
} wd_masters_args;

/* One AdamW step on a range (Loshchilov & Hutter; torch.optim.AdamW, decoupled decay):
 *   g = factor grad; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2;
 *   move = lr / (1-b1^t) m
 *   p = p (1 - lr decay) - move / (sqrt(v / (1-b2^t)) + eps)
 *   ema = ema + (1 - min(ema_decay, (1 + t) / (10 + t))) (p - ema)
 * With `slow` it is a step of AdEMAMix (arXiv 2409.03137), and a cautious one (arXiv 2411.16085):
 *   slow = b3 slow + (1-b3) g;
 *   move = lr / (1-b1^t) m + lr alpha slow;
 *   move = move g > 0 ? WD_CAUTIOUS_GAIN move : 0
 * With factor[0] == 0 (step not finite) nothing changes.
 * Without `m` and `v` they are in 8 bits, in `m8` and `v8`: they are unpacked, and packed after the
 * step, which computes with fp32 values (dev/moments.h). Then the first element is a group's first,
 * and there is no `slow`.
 * Where the copy is bf16, p is settled (wd_masters_args) before copy and EMA are made of it. */
#define WD_CAUTIOUS_GAIN 1.5f /* about 1 over the share of the weights that move */

typedef struct wd_adamw_args {
    float *p;            /* [count], in place; or NULL: it is the copy, in bf16, and the next */
    uint16_t *remainder; /* [count], in place, where `p` is NULL */
    float *m, *v;        /* [count], in place; or both NULL */
    wd_moments8 m8, v8;  /* in place, where these are NULL */
    float *slow;         /* [count], in place; or NULL */
    void *copy;          /* [count] copy_type, = p rounded: the compute weights; or NULL */
    float *ema;          /* [count], in place; or NULL */
    const void *grad;    /* [count] grad_type */
    const float *factor; /* [1] */
    const int64_t *step; /* [1]: t, from 1 */
    const float *lr; /* [1]: values that change between steps are read when the launch runs, so that
                        every step launches the same operations */
    const float *alpha, *beta3; /* [1] each, with `slow` */
    wd_dtype copy_type, grad_type;
    int64_t count;
    float beta1, beta2, eps, decay, ema_decay;
} wd_adamw_args;

/* What a step of wd_adamw_args does to its EMA, with the same bits, where that is done apart:
 *   ema = ema + (1 - min(ema_decay, (1 + t) / (10 + t))) (p - ema)
 * With factor[0] == 0 nothing changes. */
typedef struct wd_ema_args {
    float *ema;     /* [count], in place */
    const float *p; /* [count]: the weights after the step; or NULL: they are the next two */
    const uint16_t *copy, *remainder; /* [count] */
    const float *factor;              /* [1] */
    const int64_t *step;              /* [1]: t, from 1 */
    int64_t count;
    float ema_decay;
} wd_ema_args;

#define X(op, name)                                                                                \
    static inline void wd_op_##name(wd_queue *queue, const wd_##name##_args *args)                 \
    {                                                                                              \
        wd_queue_launch(queue, WD_OP_##op, args, sizeof *args);                                    \
    }
WD_OP_MAP(X)
#undef X

/* FLOPs of one launch, as wd_queue_totals counts them: 0 of elementwise operations. */
double wd_op_flops(wd_op op, const void *args);

/* What one launch computes these FLOPs in: fp32 unless all factors are bf16. */
wd_precision wd_op_precision(wd_op op, const void *args);

const char *wd_op_name(wd_op op); /* "matmul" */

#endif
