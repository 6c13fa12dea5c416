/* See conv_graph.h. */
#include "dev/cuda/conv_graph.h"

#include <stdio.h>

static wd_cudnn_data type_of(int32_t dtype)
{
    return dtype == WD_F32 ? WD_CUDNN_DATA_FLOAT : WD_CUDNN_DATA_BFLOAT16;
}

/* [pictures, channels, axes..] with channels the innermost in memory. */
static wd_cudnn_shape channels_last(const wd_conv_key *key, wd_cudnn_data type, int64_t pictures,
                                    int64_t channels, const int64_t size[3])
{
    wd_cudnn_shape shape = {.type = type, .ndim = key->axes + 2};
    int64_t stride = channels;
    for (int d = 2; d >= 3 - key->axes; d--) {
        int at = d - 3 + key->axes + 2;
        shape.dim[at] = size[d];
        shape.stride[at] = stride;
        stride *= size[d];
    }
    shape.dim[0] = pictures, shape.stride[0] = stride;
    shape.dim[1] = channels, shape.stride[1] = 1;
    return shape;
}

static void draw(wd_cudnn_graph *g, const void *of)
{
    const wd_conv_key *key = of;
    int first = 3 - key->axes;
    wd_cudnn_window window = {.axes = key->axes};
    for (int d = first; d < 3; d++) {
        window.stride[d - first] = key->stride[d];
        window.pad_before[d - first] = key->pad_before[d];
        window.pad_after[d - first] = key->pad_after[d];
    }
    wd_cudnn_data type = type_of(key->type);
    wd_cudnn_shape x_shape = channels_last(key, type, key->pictures, key->ci, key->in);
    wd_cudnn_shape w_shape = channels_last(key, type, key->co, key->ci, key->taps);
    wd_cudnn_shape y_shape = channels_last(key, type, key->pictures, key->co, key->out);
    wd_cudnn_descriptor x = wd__cudnn_tensor(g, WD_CUDNN_REAL, WD_CONV_X, &x_shape);
    wd_cudnn_descriptor w = wd__cudnn_tensor(g, WD_CUDNN_REAL, WD_CONV_W, &w_shape);
    wd_cudnn_descriptor y = wd__cudnn_tensor(g, WD_CUDNN_REAL, WD_CONV_Y, &y_shape);
    if (!key->bias) {
        wd__cudnn_convolution(g, y, x, w, &window);
        return;
    }
    static const int64_t one[3] = {1, 1, 1};
    wd_cudnn_shape bias_shape = channels_last(key, type_of(key->bias_type), 1, key->co, one);
    y_shape.type = WD_CUDNN_DATA_FLOAT;
    wd_cudnn_descriptor sum = wd__cudnn_tensor(g, WD_CUDNN_VIRTUAL, 0, &y_shape);
    wd_cudnn_descriptor bias = wd__cudnn_tensor(g, WD_CUDNN_REAL, WD_CONV_BIAS, &bias_shape);
    wd__cudnn_convolution(g, sum, x, w, &window);
    wd__cudnn_pointwise(g, WD_CUDNN_POINTWISE_ADD, y, sum, bias);
}

static void take_one(void *of)
{
    wd_conv_key *key = of;
    key->pictures = 1;
}

static unsigned notes_refused(const void *of)
{
    const wd_conv_key *key = of;
    unsigned notes = 1u << WD_CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC |
                     1u << WD_CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION |
                     1u << WD_CUDNN_NUMERICAL_NOTE_FFT | 1u << WD_CUDNN_NUMERICAL_NOTE_WINOGRAD;
    if (key->type == WD_F32)
        notes |= 1u << WD_CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS |
                 1u << WD_CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
    return notes;
}

static int64_t workspace_max(const void *key)
{
    return (int64_t)wd__conv_plan_bytes(key);
}

static void name(char out[WD_CUDNN_TEXT_MAX], const void *of)
{
    const wd_conv_key *k = of;
    snprintf(out, WD_CUDNN_TEXT_MAX,
             "a convolution of %lld to %lld channels, %lld x %lld x %lld taps, of %lld x %lld x "
             "%lld x %lld, %s%s",
             (long long)k->ci, (long long)k->co, (long long)k->taps[0], (long long)k->taps[1],
             (long long)k->taps[2], (long long)k->pictures, (long long)k->in[0],
             (long long)k->in[1], (long long)k->in[2], wd_dtype_file_name((wd_dtype)k->type),
             k->bias ? " with a bias" : "");
}

const wd_cudnn_kind wd_conv_kind = {.key_bytes = sizeof(wd_conv_key),
                                    .draw = draw,
                                    .take_one = take_one,
                                    .notes_refused = notes_refused,
                                    .workspace_max = workspace_max,
                                    .name = name};
