/* A convolution as a graph of cuDNN operations, and what it takes. Pure but for the graph's
 * descriptors.
 *
 * cuDNN wants weights channels last, [CO, taps.., CI], and in the dtype of its input: our own
 * kernel brings them into that order in workspace, for those taps of the time axis that take part.
 * With one tap in time, frames are pictures, and the convolution is one over height and width.
 *
 * A result of bf16 is rounded after the bias is added, so the bias is part of its graph. To fp32
 * results our own kernel adds it: of the engines that multiply fp32 as it is, none does.
 */
#ifndef WD_DEV_CUDA_CONV_GRAPH_H
#define WD_DEV_CUDA_CONV_GRAPH_H

#include "core/checked.h"
#include "dev/cuda/cudnn_shapes.h"
#include "dev/ops.h"

enum { WD_CONV_SPARE_BYTES = 1 << 20, WD_CONV_X = 1, WD_CONV_W, WD_CONV_Y, WD_CONV_BIAS };

/* Everything that a plan depends on. */
typedef struct wd_conv_key {
    int64_t pictures, ci, co;
    int64_t in[3], out[3], taps[3], stride[3], pad_before[3], pad_after[3];
    int32_t axes; /* 2: height and width, at index 1 and 2 */
    int32_t type;
    int32_t bias, bias_type; /* whether it is part of the graph, and its dtype there */
} wd_conv_key;

_Static_assert(sizeof(wd_conv_key) == 21 * 8 + 16, "keys are compared as bytes");

/* Whether the bias is part of the graph. */
static inline bool wd__conv_fuses_bias(const wd_conv_args *a)
{
    return a->bias && a->type == WD_BF16;
}

static inline wd_conv_key wd__conv_key_of(const wd_conv_args *a)
{
    wd_conv_key key = {
        .pictures = a->samples, .ci = a->ci, .co = a->co, .axes = 3, .type = (int32_t)a->type};
    key.bias = wd__conv_fuses_bias(a);
    if (key.bias) key.bias_type = (int32_t)a->w_type;
    for (int d = 0; d < 3; d++) {
        key.in[d] = a->in[d];
        key.out[d] = a->out[d];
        key.taps[d] = d ? a->kernel[d] : a->tap1 - a->tap0;
        key.stride[d] = a->stride[d];
        key.pad_before[d] = a->pad_before[d];
        key.pad_after[d] = a->pad_after[d];
    }
    if (key.taps[0] == 1 && a->stride[0] == 1 && !a->pad_before[0] && !a->pad_after[0]) {
        key.axes = 2;
        key.pictures *= a->in[0];
        key.in[0] = key.out[0] = 1;
    }
    return key;
}

/* Weights are widened, never rounded. */
static inline bool wd__conv_can(const wd_conv_args *a)
{
    bool fits = (a->type == WD_F32 || a->type == WD_BF16) &&
                (a->w_type == WD_BF16 || a->w_type == a->type) && a->samples > 0 && a->ci > 0 &&
                a->co > 0 && a->tap0 >= 0 && a->tap1 > a->tap0 && a->tap1 <= a->kernel[0] &&
                (uintptr_t)a->x % 16 == 0 && (uintptr_t)a->y % 16 == 0 &&
                (!wd__conv_fuses_bias(a) || (uintptr_t)a->bias % 16 == 0);
    for (int d = 0; d < 3; d++) fits = fits && a->in[d] > 0 && a->out[d] > 0 && a->stride[d] > 0;
    return fits;
}

static inline size_t wd__conv_weights_bytes(const wd_conv_args *a)
{
    return wd_round_up((size_t)(a->co * a->ci * (a->tap1 - a->tap0) * a->kernel[1] * a->kernel[2]) *
                           wd_dtype_bytes(a->type),
                       256);
}

/* What a plan may take: engines for fp32 bring input, weights and output into another order (cuDNN
 * 9.19). */
static inline size_t wd__conv_plan_bytes(const wd_conv_key *k)
{
    const size_t size = wd_dtype_bytes((wd_dtype)k->type);
    const int64_t x = k->pictures * k->in[0] * k->in[1] * k->in[2] * k->ci;
    const int64_t y = k->pictures * k->out[0] * k->out[1] * k->out[2] * k->co;
    const int64_t w = k->co * k->ci * k->taps[0] * k->taps[1] * k->taps[2];
    return wd_round_up((size_t)(x + y) * size, 256) + wd_round_up((size_t)w * size, 256) +
           WD_CONV_SPARE_BYTES;
}

/* Bytes of workspace: the weights, then the plan's. */
static inline size_t wd__conv_workspace(const wd_conv_args *a)
{
    const wd_conv_key key = wd__conv_key_of(a);
    return wd__conv_weights_bytes(a) + wd__conv_plan_bytes(&key);
}

/* What cudnn_shapes.h asks of a wd_conv_key. Engines are refused that add in no fixed order, or
 * less precisely than in fp32 sums of the operands as they are. */
extern const wd_cudnn_kind wd_conv_kind;

#endif
