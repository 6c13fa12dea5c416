/* The numbers of a cuDNN graph: see cudnn.h. Operation by operation, index by index, in fp32, with
 * sums in double; what is bf16, in memory or not, is rounded when it is written. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/dtype.h"
#include "standin/cudnn.h"

/* A tensor while a program runs: `data` holds elements in the tensor's type, or floats. */
typedef struct place {
    const wd_standin_tensor *tensor;
    void *data;
    bool floats;
} place;

static float load(const place *p, int64_t at)
{
    if (p->floats || p->tensor->type == WD_CUDNN_DATA_FLOAT) return ((const float *)p->data)[at];
    return wd_bf16_to_f32(((const uint16_t *)p->data)[at]);
}

static void store(const place *p, int64_t at, float value)
{
    uint16_t narrow = wd_f32_to_bf16(value);
    if (p->tensor->type == WD_CUDNN_DATA_BFLOAT16) value = wd_bf16_to_f32(narrow);
    if (p->floats || p->tensor->type == WD_CUDNN_DATA_FLOAT)
        ((float *)p->data)[at] = value;
    else
        ((uint16_t *)p->data)[at] = narrow;
}

/* Where index `i` of `shape` (an index is counted as if that were dense) lies in `p`, whose
 * dimensions of 1 are repeated. */
static int64_t at_index(const place *p, const wd_standin_tensor *shape, int64_t i)
{
    int64_t at = 0;
    for (int d = shape->ndim - 1; d >= 0; d--) {
        int64_t index = i % shape->dim[d];
        i /= shape->dim[d];
        at += (p->tensor->dim[d] == 1 ? 0 : index) * p->tensor->stride[d];
    }
    return at;
}

static int64_t count_of(const wd_standin_tensor *t)
{
    int64_t count = 1;
    for (int d = 0; d < t->ndim; d++) count *= t->dim[d];
    return count;
}

static void run_pointwise(int mode, const place *y, const place *x, const place *b)
{
    for (int64_t i = 0, count = count_of(y->tensor); i < count; i++) {
        float v = load(x, at_index(x, y->tensor, i));
        float w = b ? load(b, at_index(b, y->tensor, i)) : 0;
        switch (mode) {
        case WD_CUDNN_POINTWISE_ADD:
            v += w;
            break;
        case WD_CUDNN_POINTWISE_MUL:
            v *= w;
            break;
        case WD_CUDNN_POINTWISE_DIV:
            v /= w;
            break;
        case WD_CUDNN_POINTWISE_SUB:
            v -= w;
            break;
        case WD_CUDNN_POINTWISE_EXP:
            v = expf(v);
            break;
        default:
            v = logf(v);
        }
        store(y, at_index(y, y->tensor, i), v);
    }
}

static void run_reduction(int mode, const place *y, const place *x)
{
    int64_t results = count_of(y->tensor);
    double *sum = malloc((size_t)results * sizeof *sum);
    wd_standin_tensor dense = *y->tensor; /* places in `sum` */
    for (int64_t d = dense.ndim - 1, stride = 1; d >= 0; stride *= dense.dim[d--])
        dense.stride[d] = stride;
    const place to = {&dense, sum, true};
    for (int64_t i = 0; i < results; i++)
        sum[i] = mode == WD_CUDNN_REDUCE_TENSOR_MAX ? -INFINITY : 0;
    for (int64_t i = 0, count = count_of(x->tensor); i < count; i++) {
        double v = load(x, at_index(x, x->tensor, i));
        int64_t at = at_index(&to, x->tensor, i);
        sum[at] = mode == WD_CUDNN_REDUCE_TENSOR_MAX ? fmax(sum[at], v) : sum[at] + v;
    }
    for (int64_t i = 0; i < results; i++) store(y, at_index(y, y->tensor, i), (float)sum[i]);
    free(sum);
}

static double *doubles(int64_t count)
{
    double *out = calloc((size_t)count, sizeof *out);
    if (!out) abort();
    return out;
}

/* Adds a term to many sums, each of which has its terms in the order of calls. */
static void add_products(double *sum, double x, const double *factor, int64_t count)
{
    for (int64_t i = 0; i < count; i++) sum[i] += x * factor[i];
}

/* Row m of matrix [s, h]: sums [N] of products with `wide`, which is b [K, N]. */
static void run_matmul_row(const place *c, const place *a, const double *wide, double *sum,
                           int64_t at_a, int64_t at_c)
{
    const wd_standin_tensor *ta = a->tensor, *tc = c->tensor;
    const int64_t n = tc->dim[3];
    for (int64_t j = 0; j < n; j++) sum[j] = 0;
    for (int64_t k = 0; k < ta->dim[3]; k++)
        add_products(sum, load(a, at_a + k * ta->stride[3]), wide + k * n, n);
    for (int64_t j = 0; j < n; j++) store(c, at_c + j * tc->stride[3], (float)sum[j]);
}

static void run_matmul(const place *c, const place *a, const place *b)
{
    const wd_standin_tensor *ta = a->tensor, *tb = b->tensor, *tc = c->tensor;
    const int64_t n = tc->dim[3], count = ta->dim[3] * n;
    double *wide = doubles(count), *sum = doubles(n);
    for (int64_t i = 0; i < tc->dim[0] * tc->dim[1]; i++) {
        const int64_t s = i / tc->dim[1], h = i % tc->dim[1];
        const int64_t at_a = s * ta->stride[0] + h * ta->stride[1];
        const int64_t at_b = s * tb->stride[0] + h * tb->stride[1];
        const int64_t at_c = s * tc->stride[0] + h * tc->stride[1];
        for (int64_t k = 0; k < count; k++)
            wide[k] = load(b, at_b + k / n * tb->stride[2] + k % n * tb->stride[3]);
        for (int64_t m = 0; m < tc->dim[2]; m++)
            run_matmul_row(c, a, wide, sum, at_a + m * ta->stride[2], at_c + m * tc->stride[2]);
    }
    free(wide);
    free(sum);
}

/* What lies in x's memory, read with y's strides. */
static void run_reshape(const place *y, const place *x)
{
    for (int64_t i = 0, count = count_of(y->tensor); i < count; i++) {
        int64_t at = at_index(y, y->tensor, i);
        store(y, at, load(x, at));
    }
}

/* The outputs of all channels at one position of sample `s`. `wide` is w as [taps, C, channels]. */
static void convolve(double *sum, const wd_standin_op *op, const place *x,
                     const wd_standin_tensor *tw, const double *wide, int64_t s,
                     const int64_t position[3])
{
    const wd_standin_tensor *tx = x->tensor;
    const int64_t channels = tw->dim[0];
    int64_t taps = 1;
    for (int d = 0; d < op->axes; d++) taps *= tw->dim[d + 2];
    for (int64_t i = 0; i < channels; i++) sum[i] = 0;
    for (int64_t tap = 0; tap < taps; tap++) {
        int64_t at_x = s * tx->stride[0], rest = tap;
        bool inside = true;
        for (int d = op->axes - 1; d >= 0; d--) {
            int64_t at = position[d] * op->step[d] - op->before[d] + rest % tw->dim[d + 2];
            rest /= tw->dim[d + 2];
            inside &= at >= 0 && at < tx->dim[d + 2];
            at_x += at * tx->stride[d + 2];
        }
        for (int64_t c = 0; inside && c < tx->dim[1]; c++)
            add_products(sum, load(x, at_x + c * tx->stride[1]),
                         wide + (tap * tx->dim[1] + c) * channels, channels);
    }
}

/* Weights [channels, C, taps...] as [taps, C, channels]. */
static double *weights_by_tap(const place *w)
{
    const wd_standin_tensor *t = w->tensor;
    const int64_t count = count_of(t), taps = count / (t->dim[0] * t->dim[1]);
    double *wide = doubles(count);
    for (int64_t i = 0; i < count; i++) {
        const int64_t tap = i % taps, c = i / taps % t->dim[1], channel = i / taps / t->dim[1];
        wide[(tap * t->dim[1] + c) * t->dim[0] + channel] = load(w, at_index(w, t, i));
    }
    return wide;
}

static void run_convolution(const wd_standin_op *op, const place *y, const place *x, const place *w)
{
    const wd_standin_tensor *t = y->tensor;
    double *wide = weights_by_tap(w), *sum = doubles(t->dim[1]);
    for (int64_t i = 0, count = count_of(t) / t->dim[1]; i < count; i++) {
        int64_t position[3] = {0}, rest = i, at = 0;
        for (int d = op->axes - 1; d >= 0; d--) {
            position[d] = rest % t->dim[d + 2];
            rest /= t->dim[d + 2];
            at += position[d] * t->stride[d + 2];
        }
        at += rest * t->stride[0];
        convolve(sum, op, x, w->tensor, wide, rest, position);
        for (int64_t c = 0; c < t->dim[1]; c++) store(y, at + c * t->stride[1], (float)sum[c]);
    }
    free(wide);
    free(sum);
}

static int64_t extent(const wd_standin_tensor *t)
{
    int64_t most = 0;
    for (int d = 0; d < t->ndim; d++) most += (t->dim[d] - 1) * t->stride[d];
    return most + 1;
}

void wd_standin_program_run(const void *argument)
{
    wd_standin_run_args run;
    place places[WD_STANDIN_TENSORS];
    memcpy(&run, argument, sizeof run);
    const wd_standin_program *p = run.program;
    memset(run.workspace, 0xff, (size_t)p->workspace_bytes);
    for (int t = 0; t < p->tensors; t++) {
        places[t] = (place){.tensor = &p->tensor[t], .floats = p->tensor[t].is_virtual};
        if (p->tensor[t].is_virtual) {
            /* of a virtual view of a real tensor the part that is not seen counts, too */
            places[t].data = calloc((size_t)extent(&p->tensor[t]), sizeof(float));
            continue;
        }
        int i = 0;
        while (run.id[i] != p->tensor[t].id) i++;
        places[t].data = p->tensor[t].by_value ? &run.value[i] : run.address[i];
    }
    for (int i = 0; i < p->ops; i++) {
        const wd_standin_op *op = &p->op[i];
        const place *x = &places[op->x], *y = &places[op->y],
                    *b = op->b < 0 ? NULL : &places[op->b];
        if (op->kind == WD_CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
            run_matmul(y, x, b);
        else if (op->kind == WD_CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
            run_pointwise(op->mode, y, x, b);
        else if (op->kind == WD_CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
            run_reduction(op->mode, y, x);
        else if (op->kind == WD_CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR)
            run_reshape(y, x);
        else
            run_convolution(op, y, x, b);
    }
    for (int t = 0; t < p->tensors; t++)
        if (p->tensor[t].is_virtual) free(places[t].data);
}
