/* Convolutions by cuDNN: what library.h declares of them. Plans are made once per shape; the engine
 * is the one that cuDNN's heuristic names for one picture, so that a picture's bits do not depend
 * on how many others are in the launch. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/require.h"
#include "dev/cuda/conv_graph.h"
#include "dev/cuda/cudnn_open.h"

typedef struct planned {
    wd_conv_key key;
    wd_cudnn_plan plan;
} planned;

struct wd_cuda_conv {
    wd_cudnn_target target;
    pthread_mutex_t lock; /* of the plans, and of the handle, which has one stream at a time */
    planned **plan;       /* in the order in which they were first used */
    int64_t plans;
};

wd_status wd_cuda_conv_open(wd_cuda_conv **out, const wd_cuda_gpu *gpu, wd_err *err)
{
    wd_cuda_conv *c;
    *out = NULL;
    WD_TRY(wd_alloc((void **)&c, 1, sizeof *c, "the convolutions of a GPU", err));
    wd_status status = wd_cudnn_open(&c->target, gpu, "convolution on a GPU", err);
    if (status != WD_OK) {
        wd_free(c);
        return status;
    }
    pthread_mutex_init(&c->lock, NULL);
    *out = c;
    return WD_OK;
}

void wd_cuda_conv_close(wd_cuda_conv *c)
{
    if (!c) return;
    while (c->plans > 0) {
        wd_cudnn_plan_close(&c->plan[--c->plans]->plan);
        wd_free(c->plan[c->plans]);
    }
    wd_free(c->plan);
    wd_cudnn_close(&c->target);
    pthread_mutex_destroy(&c->lock);
    wd_free(c);
}

bool wd_cuda_conv_can(wd_cuda_conv *conv, const wd_conv_args *args)
{
    (void)conv;
    return wd_conv_can(args);
}

size_t wd_cuda_conv_workspace(wd_cuda_conv *conv, const wd_conv_args *args)
{
    (void)conv;
    return wd_conv_workspace(args);
}

/* ---- plans ---- */

static wd_status make_plan(wd_cudnn_plan *out, wd_cuda_conv *c, const wd_conv_key *key,
                           size_t workspace_max, const wd_cudnn_choice *choice, wd_err *err)
{
    char what[160];
    wd_cudnn_graph graph;
    snprintf(what, sizeof what,
             "a convolution of %lld to %lld channels, %lld x %lld x %lld taps, at %lld x %lld",
             (long long)key->ci, (long long)key->co, (long long)key->taps[0],
             (long long)key->taps[1], (long long)key->taps[2], (long long)key->in[1],
             (long long)key->in[2]);
    wd_cudnn_graph_open(&graph, &c->target);
    wd_conv_graph(&graph, key);
    return wd_cudnn_plan_open(out, &graph,
                              &(wd_cudnn_wish){.notes_refused = wd_conv_notes_refused(key),
                                               .workspace_max = (int64_t)workspace_max,
                                               .choice = choice},
                              what, err);
}

/* The plan of `key`, with the engine that one picture has. */
static wd_status plan_as_one(wd_cudnn_plan *out, wd_cuda_conv *c, const wd_conv_key *key,
                             size_t workspace_max, wd_err *err)
{
    wd_conv_key one = *key;
    wd_cudnn_plan first;
    one.pictures = 1;
    size_t share = (workspace_max - WD_CONV_SPARE_BYTES) / (size_t)key->pictures;
    WD_TRY(make_plan(&first, c, &one, share + WD_CONV_SPARE_BYTES, NULL, err));
    if (key->pictures == 1) {
        *out = first;
        return WD_OK;
    }
    wd_cudnn_choice choice = first.choice;
    wd_cudnn_plan_close(&first);
    return make_plan(out, c, key, workspace_max, &choice, err);
}

/* The lock is held. */
static wd_status find_plan(const wd_cudnn_plan **out, wd_cuda_conv *c, const wd_conv_key *key,
                           size_t workspace_max, wd_err *err)
{
    int64_t at = 0;
    planned *next;
    while (at < c->plans && memcmp(&c->plan[at]->key, key, sizeof *key)) at++;
    if (at < c->plans) {
        *out = &c->plan[at]->plan;
        return WD_OK;
    }
    WD_TRY(wd_resize((void **)&c->plan, (size_t)c->plans + 1, sizeof *c->plan,
                     "the list of planned convolutions", err));
    WD_TRY(wd_alloc((void **)&next, 1, sizeof *next, "a planned convolution", err));
    next->key = *key;
    wd_status status = plan_as_one(&next->plan, c, key, workspace_max, err);
    if (status != WD_OK) {
        wd_free(next);
        return status;
    }
    c->plan[c->plans++] = next;
    *out = &next->plan;
    return WD_OK;
}

/* ---- launches ---- */

/* Weights [CO, CI, kt, kh, kw] -> [CO, taps, kh, kw, CI] at `to`. */
static wd_status turn_weights(const wd_cuda_work *work, void *to, const wd_conv_args *a,
                              wd_err *err)
{
    int64_t kt = a->kernel[0], kh = a->kernel[1], kw = a->kernel[2], taps = a->tap1 - a->tap0;
    const char *from = (const char *)a->w + (size_t)(a->tap0 * kh * kw) * wd_dtype_bytes(a->w_type);
    return wd_cuda_kernels_launch(
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
    return wd_cuda_kernels_launch(work, WD_OP_STRIDED_COPY,
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

wd_status wd_cuda_conv_prepare(wd_cuda_conv *c, const wd_conv_args *a, wd_err *err)
{
    const wd_conv_key key = wd_conv_key_of(a);
    const wd_cudnn_plan *plan;
    pthread_mutex_lock(&c->lock);
    const wd_status status = find_plan(&plan, c, &key, wd_conv_plan_bytes(a), err);
    pthread_mutex_unlock(&c->lock);
    return status;
}

static wd_status run(wd_cuda_conv *c, const wd_cuda_work *work, const wd_conv_args *a,
                     void *weights, void *workspace, wd_err *err)
{
    static const int64_t id[] = {WD_CONV_X, WD_CONV_W, WD_CONV_Y, WD_CONV_BIAS};
    void *const address[] = {(void *)(uintptr_t)a->x, weights, a->y, (void *)(uintptr_t)a->bias};
    wd_conv_key key = wd_conv_key_of(a);
    const wd_cudnn_plan *plan;
    pthread_mutex_lock(&c->lock);
    wd_status status = find_plan(&plan, c, &key, wd_conv_plan_bytes(a), err);
    if (status == WD_OK) status = wd_cudnn_use_stream(&c->target, work->stream, err);
    if (status == WD_OK)
        status =
            wd_cudnn_plan_run(plan, key.bias ? 4 : 3, id, address, workspace, "a convolution", err);
    pthread_mutex_unlock(&c->lock);
    if (status == WD_UNSUPPORTED) status = err->status = WD_INTERNAL;
    return status;
}

wd_status wd_cuda_conv_launch(wd_cuda_conv *c, const wd_cuda_work *work, const wd_conv_args *a,
                              wd_err *err)
{
    wd_cuda_work without = *work;
    char *space = work->workspace;
    WD_REQUIRE(wd_conv_can(a) && work->workspace_bytes >= wd_conv_workspace(a),
               "a convolution that cuDNN cannot do was launched, or without its workspace");
    without.workspace = NULL;
    without.workspace_bytes = 0;
    WD_TRY(turn_weights(&without, space, a, err));
    WD_TRY(run(c, work, a, space, space + wd_conv_weights_bytes(a), err));
    return a->bias && !wd_conv_fuses_bias(a) ? add_bias(&without, a, err) : WD_OK;
}
