/* Opening cuDNN, and graphs, whose descriptors are made and finalized one by one: see
 * dev/cuda/cudnn_graph.h. */
#include "dev/cuda/cudnn_graph.h"

#include "core/error.h"

/* ---- the library ---- */

enum { VERSION_MIN = 91800 };

/* Up to 9.15 attention's backward pass is wrong where the number of keys is no multiple of 128, and
 * before 9.18 its deterministic form is none on an H100 (release notes of cudnn-frontend;
 * NVIDIA-NeMo/Megatron-Bridge#2169). */
static wd_status check_version(size_t version, const char *what, wd_err *err)
{
    if (version < 90000 || version >= 100000)
        return wd_fail(err, WD_UNSUPPORTED,
                       "%s: expected cuDNN 9, found version number %zu: install "
                       "nvidia-cudnn-cu13 or nvidia-cudnn-cu12 with pip",
                       what, version);
    if (version >= VERSION_MIN) return WD_OK;
    return wd_fail(
        err, WD_UNSUPPORTED,
        "%s: cuDNN %zu.%zu.%zu has known faults: expected 9.18 or later; earlier versions "
        "give wrong gradients of attention for some numbers of keys, or other gradients "
        "each time; a Python environment with PyTorch may have an older cuDNN, which is "
        "found first: install the newest into an environment of its own (pip install "
        "nvidia-cudnn-cu13, or nvidia-cudnn-cu12), and make that the active one",
        what, version / 10000, version / 100 % 100, version % 100);
}

wd_status wd__cudnn_open(wd_cudnn_target *out, const wd_cuda_gpu *gpu, const char *what,
                         wd_err *err)
{
    const wd_cuda_cudnn *cudnn = &gpu->api->cudnn;
    *out = (wd_cudnn_target){0};
    if (!gpu->api->has[WD_CUDA_CUDNN])
        return wd_fail(err, WD_UNSUPPORTED, "%s needs cuDNN 9", what);
    size_t version = cudnn->get_version();
    WD_TRY(check_version(version, what, err));
    wd_cudnn_handle handle = NULL;
    wd_cudnn_status status = cudnn->create(&handle);
    if (status)
        return wd_fail(
            err,
            status == WD_CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ? WD_OUT_OF_MEMORY
                                                                            : WD_UNSUPPORTED,
            "cuDNN %zu does not work on this GPU: %s", version, cudnn->error_string(status));
    *out = (wd_cudnn_target){.cudnn = cudnn, .handle = handle};
    return WD_OK;
}

void wd__cudnn_close(wd_cudnn_target *target)
{
    if (target->handle) target->cudnn->destroy(target->handle);
    *target = (wd_cudnn_target){0};
}

wd_status wd__cudnn_use_stream(const wd_cudnn_target *target, wd_cu_stream stream, wd_err *err)
{
    wd_cudnn_status status = target->cudnn->set_stream(target->handle, stream);
    if (!status) return WD_OK;
    return wd_fail(err, WD_INTERNAL, "cuDNN %zu refused a stream: %s", target->cudnn->get_version(),
                   target->cudnn->error_string(status));
}

/* ---- descriptors ---- */

static void note(wd_cudnn_graph *g, wd_cudnn_status status, const char *what)
{
    if (status == WD_CUDNN_STATUS_SUCCESS || g->status != WD_CUDNN_STATUS_SUCCESS) return;
    g->status = status;
    g->failed = what;
}

/* A descriptor that the graph owns, or NULL if the graph has failed already. */
static wd_cudnn_descriptor make(wd_cudnn_graph *g, wd_cudnn_backend kind, const char *what)
{
    wd_cudnn_descriptor descriptor = NULL;
    WD_REQUIRE(g->mades < WD_CUDNN_MADE_MAX, "a cuDNN graph has more than %d descriptors",
               WD_CUDNN_MADE_MAX);
    if (g->status != WD_CUDNN_STATUS_SUCCESS) return NULL;
    note(g, g->target->cudnn->descriptor_create(kind, &descriptor), what);
    if (g->status != WD_CUDNN_STATUS_SUCCESS) return NULL;
    return g->made[g->mades++] = descriptor;
}

static void set(wd_cudnn_graph *g, wd_cudnn_descriptor d, wd_cudnn_attr attribute,
                wd_cudnn_type type, int64_t count, const void *value, const char *what)
{
    if (g->status != WD_CUDNN_STATUS_SUCCESS) return;
    note(g, g->target->cudnn->set(d, attribute, type, count, value), what);
}

static void set_descriptor(wd_cudnn_graph *g, wd_cudnn_descriptor d, wd_cudnn_attr attribute,
                           wd_cudnn_descriptor value, const char *what)
{
    set(g, d, attribute, WD_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value, what);
}

static void finalize(wd_cudnn_graph *g, wd_cudnn_descriptor d, const char *what)
{
    if (g->status != WD_CUDNN_STATUS_SUCCESS) return;
    note(g, g->target->cudnn->finalize(d), what);
}

void wd__cudnn_graph_open(wd_cudnn_graph *g, const wd_cudnn_target *target)
{
    *g = (wd_cudnn_graph){.target = target, .ids = 1000};
}

void wd__cudnn_graph_close(wd_cudnn_graph *g)
{
    while (g->mades > 0) g->target->cudnn->descriptor_destroy(g->made[--g->mades]);
    g->ops = 0;
}

/* ---- tensors and operations ---- */

wd_cudnn_shape wd__cudnn_dense(wd_cudnn_data type, int ndim, const int64_t *dim)
{
    wd_cudnn_shape shape = {.type = type, .ndim = ndim};
    WD_REQUIRE(ndim > 0 && ndim <= WD_CUDNN_DIMS_MAX, "a tensor of %d dimensions", ndim);
    for (int64_t d = ndim - 1, stride = 1; d >= 0; stride *= dim[d--]) {
        shape.dim[d] = dim[d];
        shape.stride[d] = stride;
    }
    return shape;
}

wd_cudnn_descriptor wd__cudnn_tensor(wd_cudnn_graph *g, wd_cudnn_place place, int64_t id,
                                     const wd_cudnn_shape *shape)
{
    static const char what[] = "tensor";
    const int64_t align = shape->type == WD_CUDNN_DATA_FLOAT && place == WD_CUDNN_REAL ? 4 : 16;
    bool yes = true;
    wd_cudnn_descriptor d = make(g, WD_CUDNN_BACKEND_TENSOR_DESCRIPTOR, what);
    if (place == WD_CUDNN_VIRTUAL) id = ++g->ids;
    set(g, d, WD_CUDNN_ATTR_TENSOR_UNIQUE_ID, WD_CUDNN_TYPE_INT64, 1, &id, what);
    set(g, d, WD_CUDNN_ATTR_TENSOR_DATA_TYPE, WD_CUDNN_TYPE_DATA_TYPE, 1, &shape->type, what);
    set(g, d, WD_CUDNN_ATTR_TENSOR_DIMENSIONS, WD_CUDNN_TYPE_INT64, shape->ndim, shape->dim, what);
    set(g, d, WD_CUDNN_ATTR_TENSOR_STRIDES, WD_CUDNN_TYPE_INT64, shape->ndim, shape->stride, what);
    set(g, d, WD_CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, WD_CUDNN_TYPE_INT64, 1, &align, what);
    if (place == WD_CUDNN_VIRTUAL)
        set(g, d, WD_CUDNN_ATTR_TENSOR_IS_VIRTUAL, WD_CUDNN_TYPE_BOOLEAN, 1, &yes, what);
    if (place == WD_CUDNN_VALUE)
        set(g, d, WD_CUDNN_ATTR_TENSOR_IS_BY_VALUE, WD_CUDNN_TYPE_BOOLEAN, 1, &yes, what);
    finalize(g, d, what);
    return d;
}

/* Adds an operation whose attributes are set to the graph. */
static void add(wd_cudnn_graph *g, wd_cudnn_descriptor op, const char *what)
{
    WD_REQUIRE(g->ops < WD_CUDNN_OPS_MAX, "a cuDNN graph has more than %d operations",
               WD_CUDNN_OPS_MAX);
    finalize(g, op, what);
    g->op[g->ops++] = op;
}

static const wd_cudnn_data in_f32 = WD_CUDNN_DATA_FLOAT;

void wd__cudnn_matmul(wd_cudnn_graph *g, wd_cudnn_descriptor c, wd_cudnn_descriptor a,
                      wd_cudnn_descriptor b)
{
    static const char what[] = "product";
    wd_cudnn_descriptor how = make(g, WD_CUDNN_BACKEND_MATMUL_DESCRIPTOR, what);
    set(g, how, WD_CUDNN_ATTR_MATMUL_COMP_TYPE, WD_CUDNN_TYPE_DATA_TYPE, 1, &in_f32, what);
    finalize(g, how, what);
    wd_cudnn_descriptor op = make(g, WD_CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, what);
    set_descriptor(g, op, WD_CUDNN_ATTR_OPERATION_MATMUL_ADESC, a, what);
    set_descriptor(g, op, WD_CUDNN_ATTR_OPERATION_MATMUL_BDESC, b, what);
    set_descriptor(g, op, WD_CUDNN_ATTR_OPERATION_MATMUL_CDESC, c, what);
    set_descriptor(g, op, WD_CUDNN_ATTR_OPERATION_MATMUL_DESC, how, what);
    add(g, op, what);
}

void wd__cudnn_pointwise(wd_cudnn_graph *g, int mode, wd_cudnn_descriptor y, wd_cudnn_descriptor x,
                         wd_cudnn_descriptor b)
{
    static const char what[] = "elementwise operation";
    wd_cudnn_descriptor how = make(g, WD_CUDNN_BACKEND_POINTWISE_DESCRIPTOR, what);
    set(g, how, WD_CUDNN_ATTR_POINTWISE_MODE, WD_CUDNN_TYPE_POINTWISE_MODE, 1, &mode, what);
    set(g, how, WD_CUDNN_ATTR_POINTWISE_MATH_PREC, WD_CUDNN_TYPE_DATA_TYPE, 1, &in_f32, what);
    finalize(g, how, what);
    wd_cudnn_descriptor op = make(g, WD_CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, what);
    set_descriptor(g, op, WD_CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how, what);
    set_descriptor(g, op, WD_CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x, what);
    if (b) set_descriptor(g, op, WD_CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b, what);
    set_descriptor(g, op, WD_CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y, what);
    add(g, op, what);
}

void wd__cudnn_reduce(wd_cudnn_graph *g, int mode, wd_cudnn_descriptor y, wd_cudnn_descriptor x)
{
    static const char what[] = "reduction";
    wd_cudnn_descriptor how = make(g, WD_CUDNN_BACKEND_REDUCTION_DESCRIPTOR, what);
    set(g, how, WD_CUDNN_ATTR_REDUCTION_COMP_TYPE, WD_CUDNN_TYPE_DATA_TYPE, 1, &in_f32, what);
    set(g, how, WD_CUDNN_ATTR_REDUCTION_OPERATOR, WD_CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode,
        what);
    finalize(g, how, what);
    wd_cudnn_descriptor op = make(g, WD_CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, what);
    set_descriptor(g, op, WD_CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x, what);
    set_descriptor(g, op, WD_CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y, what);
    set_descriptor(g, op, WD_CUDNN_ATTR_OPERATION_REDUCTION_DESC, how, what);
    add(g, op, what);
}

void wd__cudnn_reshape(wd_cudnn_graph *g, wd_cudnn_descriptor y, wd_cudnn_descriptor x)
{
    static const char what[] = "change of shape";
    wd_cudnn_descriptor op = make(g, WD_CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, what);
    set_descriptor(g, op, WD_CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x, what);
    set_descriptor(g, op, WD_CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y, what);
    add(g, op, what);
}

void wd__cudnn_convolution(wd_cudnn_graph *g, wd_cudnn_descriptor y, wd_cudnn_descriptor x,
                           wd_cudnn_descriptor w, const wd_cudnn_window *window)
{
    static const char what[] = "convolution";
    static const int64_t dilation[3] = {1, 1, 1};
    static const float one = 1, zero = 0;
    const int mode = WD_CUDNN_CROSS_CORRELATION;
    int64_t axes = window->axes;
    wd_cudnn_descriptor how = make(g, WD_CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, what);
    set(g, how, WD_CUDNN_ATTR_CONVOLUTION_COMP_TYPE, WD_CUDNN_TYPE_DATA_TYPE, 1, &in_f32, what);
    set(g, how, WD_CUDNN_ATTR_CONVOLUTION_CONV_MODE, WD_CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode,
        what);
    set(g, how, WD_CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, WD_CUDNN_TYPE_INT64, 1, &axes, what);
    set(g, how, WD_CUDNN_ATTR_CONVOLUTION_DILATIONS, WD_CUDNN_TYPE_INT64, axes, dilation, what);
    set(g, how, WD_CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, WD_CUDNN_TYPE_INT64, axes, window->stride,
        what);
    set(g, how, WD_CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, WD_CUDNN_TYPE_INT64, axes,
        window->pad_before, what);
    set(g, how, WD_CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, WD_CUDNN_TYPE_INT64, axes,
        window->pad_after, what);
    finalize(g, how, what);
    wd_cudnn_descriptor op =
        make(g, WD_CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, what);
    set_descriptor(g, op, WD_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, how, what);
    set_descriptor(g, op, WD_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x, what);
    set_descriptor(g, op, WD_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w, what);
    set_descriptor(g, op, WD_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y, what);
    set(g, op, WD_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, WD_CUDNN_TYPE_FLOAT, 1, &one,
        what);
    set(g, op, WD_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, WD_CUDNN_TYPE_FLOAT, 1, &zero,
        what);
    add(g, op, what);
}
