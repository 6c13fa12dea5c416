/* Convolutions by cuDNN: what library.h declares of them. How a shape is planned, and what becomes
 * of shapes that cuDNN refuses, says cudnn_shapes.h; a sample is a picture there. */
#include "core/error.h"
#include "core/memory.h"
#include "dev/cuda/conv_graph.h"
#include "dev/cuda/cudnn_graph.h"

struct wd_cuda_conv {
    wd_cudnn_target target;
    wd_cudnn_shapes shapes;
};

wd_status wd__cuda_conv_open(wd_cuda_conv **out, const wd_cuda_gpu *gpu, wd_err *err)
{
    wd_cuda_conv *c;
    *out = NULL;
    WD_TRY(wd_alloc((void **)&c, 1, sizeof *c, "the convolutions of a GPU", err));
    wd_status status = wd__cudnn_open(&c->target, gpu, "convolution on a GPU", err);
    if (status != WD_OK) {
        wd_free(c);
        return status;
    }
    wd__cudnn_shapes_open(&c->shapes, &wd_conv_kind, &c->target);
    *out = c;
    return WD_OK;
}

void wd__cuda_conv_close(wd_cuda_conv *c)
{
    if (!c) return;
    wd__cudnn_shapes_close(&c->shapes);
    wd__cudnn_close(&c->target);
    wd_free(c);
}

bool wd__cuda_conv_describe(wd_cuda_conv *conv, int64_t i, char *out, size_t bytes)
{
    return wd__cudnn_shapes_describe(&conv->shapes, i, out, bytes);
}

bool wd__cuda_conv_can(wd_cuda_conv *conv, const wd_conv_args *args)
{
    (void)conv;
    return wd__conv_can(args);
}

size_t wd__cuda_conv_workspace(wd_cuda_conv *conv, const wd_conv_args *args)
{
    (void)conv;
    return wd__conv_workspace(args);
}

/* ---- launches ---- */

/* Weights [CO, CI, kt, kh, kw] -> [CO, taps, kh, kw, CI] at `to`. */
static wd_status turn_weights(const wd_cuda_work *work, void *to, const wd_conv_args *a,
                              wd_err *err)
{
    int64_t kt = a->kernel[0], kh = a->kernel[1], kw = a->kernel[2], taps = a->tap1 - a->tap0;
    const char *from = (const char *)a->w + (size_t)(a->tap0 * kh * kw) * wd_dtype_bytes(a->w_type);
    return wd__cuda_kernels_launch(
        work, WD_OP_STRIDED_COPY,
        &(wd_strided_copy_args){.to = to,
                                .from = from,
                                .to_type = a->type,
                                .from_type = a->w_type,
                                .ndim = 3,
                                .dim = {a->co, taps * kh * kw, a->ci},
                                .to_stride = {taps * kh * kw * a->ci, a->ci, 1},
                                .from_stride = {a->ci * kt * kh * kw, 1, kt * kh * kw},
                                .alpha = 1},
        err);
}

/* y += bias, pixel by pixel. */
static wd_status add_bias(const wd_cuda_work *work, const wd_conv_args *a, wd_err *err)
{
    int64_t pixels = a->samples * a->out[0] * a->out[1] * a->out[2];
    return wd__cuda_kernels_launch(work, WD_OP_STRIDED_COPY,
                                   &(wd_strided_copy_args){.to = a->y,
                                                           .from = a->bias,
                                                           .to_type = a->type,
                                                           .from_type = a->w_type,
                                                           .ndim = 2,
                                                           .dim = {pixels, a->co},
                                                           .to_stride = {a->co, 1},
                                                           .from_stride = {0, 1},
                                                           .alpha = 1,
                                                           .beta = 1},
                                   err);
}

wd_status wd__cuda_conv_prepare(wd_cuda_conv *c, const wd_conv_args *a, wd_err *err)
{
    const wd_conv_key key = wd__conv_key_of(a);
    const wd_cudnn_planned *shape;
    return wd__cudnn_shapes_find(&shape, &c->shapes, &key, err);
}

/* The planned pictures from number `picture` on. */
static wd_status run_pictures(bool *own, wd_cuda_conv *c, const wd_cuda_work *work,
                              const wd_conv_args *a, const wd_cudnn_planned *shape, void *weights,
                              void *workspace, int64_t picture, wd_err *err)
{
    static const int64_t id[] = {WD_CONV_X, WD_CONV_W, WD_CONV_Y, WD_CONV_BIAS};
    const wd_conv_key *k = (const wd_conv_key *)(const void *)shape->planned;
    const size_t size = wd_dtype_bytes(a->type);
    const size_t at_x = (size_t)(picture * k->in[0] * k->in[1] * k->in[2] * k->ci) * size;
    const size_t at_y = (size_t)(picture * k->out[0] * k->out[1] * k->out[2] * k->co) * size;
    void *const address[] = {(char *)(uintptr_t)a->x + at_x, weights, (char *)a->y + at_y,
                             (void *)(uintptr_t)a->bias};
    return wd__cudnn_planned_run(own, &c->shapes, shape, work->stream, k->bias ? 4 : 3, id, address,
                                 workspace, err);
}

wd_status wd__cuda_conv_launch(wd_cuda_conv *c, const wd_cuda_work *work, const wd_conv_args *a,
                               wd_err *err)
{
    const wd_conv_key key = wd__conv_key_of(a);
    wd_cuda_work without = *work;
    char *weights = work->workspace, *space = weights + wd__conv_weights_bytes(a);
    const wd_cudnn_planned *shape;
    bool own = false;
    WD_REQUIRE(wd__conv_can(a) && work->workspace_bytes >= wd__conv_workspace(a),
               "a convolution that cuDNN cannot do was launched, or without its workspace");
    without.workspace = NULL;
    without.workspace_bytes = 0;
    WD_TRY(wd__cudnn_shapes_find(&shape, &c->shapes, &key, err));
    if (!shape) return wd__cuda_kernels_launch(work, WD_OP_CONV, a, err);
    const wd_conv_key *planned = (const wd_conv_key *)(const void *)shape->planned;
    WD_TRY(turn_weights(&without, weights, a, err));
    for (int64_t p = 0; p < key.pictures && !own; p += planned->pictures)
        WD_TRY(run_pictures(&own, c, work, a, shape, weights, space, p, err));
    if (own) return wd__cuda_kernels_launch(work, WD_OP_CONV, a, err);
    return a->bias && !wd__conv_fuses_bias(a) ? add_bias(&without, a, err) : WD_OK;
}
