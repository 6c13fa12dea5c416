/* The operations of a cuDNN graph, read from its descriptors: see cudnn.h. What an operation or a
 * tensor lacks, or has too much of, is refused, and so is what cuDNN is known not to support. */
#include <string.h>

#include "standin/cudnn.h"

/* The tensor that an attribute of an operation names, as an index; -1: none, or not usable. */
static int tensor_of(wd_standin_program *p, const wd_standin_descriptor *op, wd_cudnn_attr name)
{
    const wd_standin_descriptor *d =
        wd_standin_descriptor_of(op, name, WD_CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    wd_standin_tensor t = {.align = 0};
    int64_t type;
    if (!d || p->tensors == WD_STANDIN_TENSORS ||
        !wd_standin_number_of(&t.id, d, WD_CUDNN_ATTR_TENSOR_UNIQUE_ID, WD_CUDNN_TYPE_INT64) ||
        !wd_standin_number_of(&t.align, d, WD_CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT,
                              WD_CUDNN_TYPE_INT64) ||
        !wd_standin_number_of(&type, d, WD_CUDNN_ATTR_TENSOR_DATA_TYPE, WD_CUDNN_TYPE_DATA_TYPE))
        return -1;
    const wd_standin_attribute *dim =
        wd_standin_attribute_of(d, WD_CUDNN_ATTR_TENSOR_DIMENSIONS, WD_CUDNN_TYPE_INT64);
    const wd_standin_attribute *stride =
        wd_standin_attribute_of(d, WD_CUDNN_ATTR_TENSOR_STRIDES, WD_CUDNN_TYPE_INT64);
    if (!dim || !stride || dim->count != stride->count || dim->count > WD_STANDIN_DIMS) return -1;
    t.type = (wd_cudnn_data)type;
    t.ndim = (int)dim->count;
    memcpy(t.dim, dim->data, (size_t)t.ndim * sizeof *t.dim);
    memcpy(t.stride, stride->data, (size_t)t.ndim * sizeof *t.stride);
    t.is_virtual =
        wd_standin_attribute_of(d, WD_CUDNN_ATTR_TENSOR_IS_VIRTUAL, WD_CUDNN_TYPE_BOOLEAN);
    t.by_value =
        wd_standin_attribute_of(d, WD_CUDNN_ATTR_TENSOR_IS_BY_VALUE, WD_CUDNN_TYPE_BOOLEAN);
    for (int i = 0; i < t.ndim; i++)
        if (t.dim[i] < 1 || t.stride[i] < 0) return -1;
    for (int i = 0; i < p->tensors; i++)
        if (p->tensor[i].id == t.id) return memcmp(&p->tensor[i], &t, sizeof t) ? -1 : i;
    p->tensor[p->tensors] = t;
    return p->tensors++;
}

/* In memory, rows of heads: whole 16 bytes from row to row, from head to head and from sample to
 * sample, with the innermost numbers side by side, no more than 256 of them. */
static bool is_laid_out(const wd_standin_tensor *t)
{
    if (t->is_virtual) return true;
    const int inner = t->stride[3] == 1 ? 3 : 2;
    return t->stride[inner] == 1 && t->dim[inner] % 8 == 0 && t->dim[inner] <= 256 &&
           t->stride[5 - inner] % 8 == 0 && t->stride[1] % 8 == 0 && t->stride[0] % 8 == 0 &&
           t->align % 16 == 0;
}

static bool is_tensor_core_type(const wd_standin_program *p, int tensor)
{
    return p->tensor[tensor].is_virtual || p->tensor[tensor].type == WD_CUDNN_DATA_BFLOAT16;
}

/* [.., m, k] [.., k, n] -> [.., m, n] with the same batch; of 16-bit elements only. */
static wd_cudnn_status check_matmul(const wd_standin_program *p, const wd_standin_op *op)
{
    const wd_standin_tensor *a = &p->tensor[op->x], *b = &p->tensor[op->b], *c = &p->tensor[op->y];
    if (a->ndim != 4 || b->ndim != 4 || c->ndim != 4 || a->dim[3] != b->dim[2] ||
        c->dim[2] != a->dim[2] || c->dim[3] != b->dim[3])
        return WD_CUDNN_STATUS_NOT_SUPPORTED_SHAPE;
    for (int i = 0; i < 2; i++)
        if (a->dim[i] != c->dim[i] || b->dim[i] != c->dim[i])
            return WD_CUDNN_STATUS_NOT_SUPPORTED_SHAPE;
    if (!is_tensor_core_type(p, op->x) || !is_tensor_core_type(p, op->b))
        return WD_CUDNN_STATUS_NOT_SUPPORTED;
    return is_laid_out(a) && is_laid_out(b) && is_laid_out(c)
               ? WD_CUDNN_STATUS_SUCCESS
               : WD_CUDNN_STATUS_NOT_SUPPORTED_LAYOUT;
}

/* y has x's dimensions, b has y's or 1. */
static wd_cudnn_status check_pointwise(const wd_standin_program *p, const wd_standin_op *op)
{
    const wd_standin_tensor *x = &p->tensor[op->x], *y = &p->tensor[op->y];
    bool two = op->mode == WD_CUDNN_POINTWISE_ADD || op->mode == WD_CUDNN_POINTWISE_MUL ||
               op->mode == WD_CUDNN_POINTWISE_DIV || op->mode == WD_CUDNN_POINTWISE_SUB;
    if (!two && op->mode != WD_CUDNN_POINTWISE_EXP && op->mode != WD_CUDNN_POINTWISE_LOG)
        return WD_CUDNN_STATUS_NOT_SUPPORTED;
    if (two != (op->b >= 0) || x->ndim != y->ndim) return WD_CUDNN_STATUS_BAD_PARAM;
    for (int i = 0; i < y->ndim; i++) {
        if (x->dim[i] != y->dim[i]) return WD_CUDNN_STATUS_NOT_SUPPORTED_SHAPE;
        if (two && p->tensor[op->b].dim[i] != y->dim[i] && p->tensor[op->b].dim[i] != 1)
            return WD_CUDNN_STATUS_NOT_SUPPORTED_SHAPE;
    }
    return WD_CUDNN_STATUS_SUCCESS;
}

static wd_cudnn_status read_matmul(wd_standin_program *p, wd_standin_op *op,
                                   const wd_standin_descriptor *d)
{
    const wd_standin_descriptor *how = wd_standin_descriptor_of(
        d, WD_CUDNN_ATTR_OPERATION_MATMUL_DESC, WD_CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    int64_t type;
    op->x = tensor_of(p, d, WD_CUDNN_ATTR_OPERATION_MATMUL_ADESC);
    op->b = tensor_of(p, d, WD_CUDNN_ATTR_OPERATION_MATMUL_BDESC);
    op->y = tensor_of(p, d, WD_CUDNN_ATTR_OPERATION_MATMUL_CDESC);
    if (op->x < 0 || op->b < 0 || op->y < 0 || !how ||
        !wd_standin_number_of(&type, how, WD_CUDNN_ATTR_MATMUL_COMP_TYPE,
                              WD_CUDNN_TYPE_DATA_TYPE) ||
        type != WD_CUDNN_DATA_FLOAT)
        return WD_CUDNN_STATUS_BAD_PARAM;
    return check_matmul(p, op);
}

static wd_cudnn_status read_pointwise(wd_standin_program *p, wd_standin_op *op,
                                      const wd_standin_descriptor *d)
{
    const wd_standin_descriptor *how = wd_standin_descriptor_of(
        d, WD_CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, WD_CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    int64_t mode;
    op->x = tensor_of(p, d, WD_CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
    op->y = tensor_of(p, d, WD_CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    if (wd_standin_attribute_of(d, WD_CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                                WD_CUDNN_TYPE_BACKEND_DESCRIPTOR)) {
        op->b = tensor_of(p, d, WD_CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
        if (op->b < 0) return WD_CUDNN_STATUS_BAD_PARAM;
    }
    if (op->x < 0 || op->y < 0 || !how ||
        !wd_standin_number_of(&mode, how, WD_CUDNN_ATTR_POINTWISE_MODE,
                              WD_CUDNN_TYPE_POINTWISE_MODE))
        return WD_CUDNN_STATUS_BAD_PARAM;
    op->mode = (int)mode;
    return check_pointwise(p, op);
}

static wd_cudnn_status read_reduction(wd_standin_program *p, wd_standin_op *op,
                                      const wd_standin_descriptor *d)
{
    const wd_standin_descriptor *how = wd_standin_descriptor_of(
        d, WD_CUDNN_ATTR_OPERATION_REDUCTION_DESC, WD_CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    int64_t mode;
    op->x = tensor_of(p, d, WD_CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
    op->y = tensor_of(p, d, WD_CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
    if (op->x < 0 || op->y < 0 || !how ||
        !wd_standin_number_of(&mode, how, WD_CUDNN_ATTR_REDUCTION_OPERATOR,
                              WD_CUDNN_TYPE_REDUCTION_OPERATOR_TYPE))
        return WD_CUDNN_STATUS_BAD_PARAM;
    op->mode = (int)mode;
    const wd_standin_tensor *x = &p->tensor[op->x], *y = &p->tensor[op->y];
    if (mode != WD_CUDNN_REDUCE_TENSOR_ADD && mode != WD_CUDNN_REDUCE_TENSOR_MAX)
        return WD_CUDNN_STATUS_NOT_SUPPORTED;
    for (int i = 0; i < y->ndim; i++)
        if (x->ndim != y->ndim || (y->dim[i] != x->dim[i] && y->dim[i] != 1))
            return WD_CUDNN_STATUS_NOT_SUPPORTED_SHAPE;
    return WD_CUDNN_STATUS_SUCCESS;
}

static wd_cudnn_status read_reshape(wd_standin_program *p, wd_standin_op *op,
                                    const wd_standin_descriptor *d)
{
    int64_t counts[2] = {1, 1};
    op->x = tensor_of(p, d, WD_CUDNN_ATTR_OPERATION_RESHAPE_XDESC);
    op->y = tensor_of(p, d, WD_CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
    if (op->x < 0 || op->y < 0) return WD_CUDNN_STATUS_BAD_PARAM;
    for (int side = 0; side < 2; side++) {
        const wd_standin_tensor *t = &p->tensor[side ? op->y : op->x];
        for (int i = 0; i < t->ndim; i++) counts[side] *= t->dim[i];
    }
    return counts[0] == counts[1] ? WD_CUDNN_STATUS_SUCCESS : WD_CUDNN_STATUS_NOT_SUPPORTED_SHAPE;
}

/* An attribute of a number per axis. */
static bool read_axes(int64_t out[3], const wd_standin_descriptor *how, wd_cudnn_attr name,
                      int axes)
{
    const wd_standin_attribute *a = wd_standin_attribute_of(how, name, WD_CUDNN_TYPE_INT64);
    if (!a || a->count != axes) return false;
    memcpy(out, a->data, (size_t)axes * sizeof *out);
    return true;
}

static wd_cudnn_status read_convolution(wd_standin_program *p, wd_standin_op *op,
                                        const wd_standin_descriptor *d)
{
    const wd_standin_descriptor *how =
        wd_standin_descriptor_of(d, WD_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                                 WD_CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    int64_t axes, mode, dilation[3];
    op->x = tensor_of(p, d, WD_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X);
    op->b = tensor_of(p, d, WD_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W);
    op->y = tensor_of(p, d, WD_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y);
    if (op->x < 0 || op->b < 0 || op->y < 0 || !how ||
        !wd_standin_number_of(&axes, how, WD_CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS,
                              WD_CUDNN_TYPE_INT64) ||
        !wd_standin_number_of(&mode, how, WD_CUDNN_ATTR_CONVOLUTION_CONV_MODE,
                              WD_CUDNN_TYPE_CONVOLUTION_MODE) ||
        (axes != 2 && axes != 3) || mode != WD_CUDNN_CROSS_CORRELATION)
        return WD_CUDNN_STATUS_BAD_PARAM;
    op->axes = (int)axes;
    if (!read_axes(op->step, how, WD_CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, op->axes) ||
        !read_axes(op->before, how, WD_CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, op->axes) ||
        !read_axes(op->after, how, WD_CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, op->axes) ||
        !read_axes(dilation, how, WD_CUDNN_ATTR_CONVOLUTION_DILATIONS, op->axes))
        return WD_CUDNN_STATUS_BAD_PARAM;
    const wd_standin_tensor *x = &p->tensor[op->x], *w = &p->tensor[op->b], *y = &p->tensor[op->y];
    if (x->ndim != axes + 2 || w->ndim != x->ndim || y->ndim != x->ndim || w->dim[1] != x->dim[1] ||
        y->dim[1] != w->dim[0] || y->dim[0] != x->dim[0])
        return WD_CUDNN_STATUS_NOT_SUPPORTED_SHAPE;
    for (int i = 0; i < axes; i++)
        if (dilation[i] != 1 ||
            y->dim[i + 2] !=
                (x->dim[i + 2] + op->before[i] + op->after[i] - w->dim[i + 2]) / op->step[i] + 1)
            return WD_CUDNN_STATUS_NOT_SUPPORTED_SHAPE;
    return x->type == w->type ? WD_CUDNN_STATUS_SUCCESS : WD_CUDNN_STATUS_NOT_SUPPORTED;
}

/* Every virtual tensor is written before it is read. */
static bool is_in_order(const wd_standin_program *p)
{
    bool written[WD_STANDIN_TENSORS] = {false};
    for (int i = 0; i < p->ops; i++) {
        const wd_standin_op *op = &p->op[i];
        if (p->tensor[op->x].is_virtual && !written[op->x]) return false;
        if (op->b >= 0 && p->tensor[op->b].is_virtual && !written[op->b]) return false;
        if (written[op->y]) return false;
        written[op->y] = true;
    }
    return true;
}

static bool has_pointwise(const wd_standin_program *p, int mode)
{
    for (int i = 0; i < p->ops; i++)
        if (p->op[i].kind == WD_CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR &&
            p->op[i].mode == mode)
            return true;
    return false;
}

/* A softmax without its statistics is not recognised (9.19). */
static bool is_recognised(const wd_standin_program *p)
{
    return !has_pointwise(p, WD_CUDNN_POINTWISE_DIV) || has_pointwise(p, WD_CUDNN_POINTWISE_LOG);
}

/* A bias in memory is added to scores [B, H, S, T]. It is [1, 1, 1, T], [1, 1, S, T], [1, H, S, T]
 * or [B, H, S, T], and its last dimension is the innermost (documentation of cuDNN 9). */
static bool is_bias_known(const wd_standin_tensor *bias, const wd_standin_tensor *scores)
{
    if (bias->dim[3] != scores->dim[3] || bias->stride[3] != 1 || bias->align % 4) return false;
    for (int i = 0; i < 3; i++) /* whole from its first dimension on that is not 1 */
        if (bias->dim[i] > 1 && i < 2 && bias->dim[i + 1] != scores->dim[i + 1]) return false;
    return !wd_the_standin_faults.cudnn_no_row || bias->dim[2] == scores->dim[2];
}

/* Biases of attention, which is recognised by its products. */
static bool are_biases_known(const wd_standin_program *p)
{
    bool attends = false;
    for (int i = 0; i < p->ops; i++)
        attends |= p->op[i].kind == WD_CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR;
    for (int i = 0; attends && i < p->ops; i++) {
        const wd_standin_op *op = &p->op[i];
        if (op->kind != WD_CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR ||
            op->mode != WD_CUDNN_POINTWISE_ADD || p->tensor[op->b].is_virtual)
            continue;
        if (!is_bias_known(&p->tensor[op->b], &p->tensor[op->y])) return false;
    }
    return true;
}

static bool is_refused_for_samples(const wd_standin_program *p)
{
    return wd_the_standin_faults.cudnn_no_many && p->ops && p->tensor[p->op[0].x].dim[0] > 1;
}

/* As cuDNN 9.19 says for an H200: the deterministic backward pass keeps ds in 16 bits. */
static int64_t workspace_of(const wd_standin_program *p)
{
    int matmuls = 0;
    for (int i = 0; i < p->ops; i++)
        if (p->op[i].kind == WD_CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR && ++matmuls == 5) {
            const wd_standin_tensor *q = &p->tensor[p->op[i].y];
            int64_t keys = p->tensor[p->op[i].b].dim[2];
            return 256 + 2 * q->dim[0] * q->dim[1] * ((q->dim[2] + 63) / 64 * 64) *
                             ((keys + 127) / 128 * 128);
        }
    return 256;
}

wd_cudnn_status wd_standin_program_read(wd_standin_program *p, const wd_standin_descriptor *graph)
{
    const wd_standin_attribute *ops = wd_standin_attribute_of(
        graph, WD_CUDNN_ATTR_OPERATIONGRAPH_OPS, WD_CUDNN_TYPE_BACKEND_DESCRIPTOR);
    if (!ops || ops->count > WD_STANDIN_OPS) return WD_CUDNN_STATUS_BAD_PARAM;
    *p = (wd_standin_program){.ops = (int)ops->count};
    for (int i = 0; i < p->ops; i++) {
        const wd_standin_descriptor *d = ((void *const *)ops->data)[i];
        wd_standin_op *op = &p->op[i];
        wd_cudnn_status status = WD_CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN;
        *op = (wd_standin_op){.kind = d->kind, .b = -1};
        if (d->kind == WD_CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) status = read_matmul(p, op, d);
        if (d->kind == WD_CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
            status = read_pointwise(p, op, d);
        if (d->kind == WD_CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
            status = read_reduction(p, op, d);
        if (d->kind == WD_CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR)
            status = read_reshape(p, op, d);
        if (d->kind == WD_CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)
            status = read_convolution(p, op, d);
        if (status) return status;
    }
    p->workspace_bytes = workspace_of(p);
    if (!are_biases_known(p) || is_refused_for_samples(p))
        return WD_CUDNN_STATUS_NOT_SUPPORTED_SHAPE;
    if (!is_recognised(p)) return WD_CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN;
    return is_in_order(p) ? WD_CUDNN_STATUS_SUCCESS : WD_CUDNN_STATUS_BAD_PARAM;
}
