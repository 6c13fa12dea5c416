/* Attention by cuDNN: what library.h declares of it. Which shapes it computes, in which pieces,
 * says attention_way.h; how a shape is planned, and what becomes of shapes that cuDNN refuses,
 * cudnn_shapes.h. Engines whose sums come in a different order each time are refused.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "dev/cuda/attention_graph.h"
#include "dev/cuda/attention_way.h"
#include "dev/cuda/cudnn_graph.h"

/* The bias of a last key that stands for `repeat` keys: `keys` fp32 numbers. */
typedef struct kept_row {
    int64_t keys, repeat;
    wd_cu_address at; /* device memory, which the reserve of memory.c has room for */
} kept_row;

struct wd_cuda_attention {
    const wd_cuda_gpu *gpu;
    wd_cudnn_target target;
    size_t piece_bytes; /* see attention_way.h */
    wd_cudnn_shapes shapes;
    pthread_mutex_t lock; /* of: */
    kept_row *row;
    int64_t rows;
};

/* ---- open and close ---- */

wd_status wd__cuda_attention_open(wd_cuda_attention **out, const wd_cuda_gpu *gpu, wd_err *err)
{
    wd_cuda_attention *a;
    *out = NULL;
    WD_TRY(wd_alloc((void **)&a, 1, sizeof *a, "the attention of a GPU", err));
    a->piece_bytes = WD_ATTENTION_PIECE_BYTES;
    wd_status status = wd__cudnn_open(&a->target, gpu, "attention on a GPU", err);
    if (status != WD_OK) {
        wd_free(a);
        return status;
    }
    wd__cudnn_shapes_open(&a->shapes, &wd_attention_kind, &a->target);
    a->gpu = gpu;
    pthread_mutex_init(&a->lock, NULL);
    *out = a;
    return WD_OK;
}

void wd__cuda_attention_close(wd_cuda_attention *a)
{
    if (!a) return;
    wd__cudnn_shapes_close(&a->shapes);
    wd__cudnn_close(&a->target);
    while (a->rows > 0) a->gpu->api->driver.mem_free(a->row[--a->rows].at);
    wd_free(a->row);
    pthread_mutex_destroy(&a->lock);
    wd_free(a);
}

void wd__cuda_attention_version(const wd_cuda_attention *a, char *out, size_t bytes)
{
    size_t at = strlen(out), version = a->target.cudnn->get_version();
    WD_REQUIRE(at < bytes, "the text of versions is full");
    snprintf(out + at, bytes - at, "cuDNN %zu.%zu.%zu", version / 10000, version / 100 % 100,
             version % 100);
}

bool wd__cuda_attention_describe(wd_cuda_attention *attention, int64_t i, char *out, size_t bytes)
{
    return wd__cudnn_shapes_describe(&attention->shapes, i, out, bytes);
}

bool wd__cuda_attention_can(wd_cuda_attention *attention, const wd_attention_args *args)
{
    (void)attention;
    return wd__attention_is_fused(args);
}

size_t wd__cuda_attention_workspace(wd_cuda_attention *attention, const wd_attention_args *args)
{
    (void)attention;
    return wd__attention_workspace(args);
}

bool wd__cuda_attention_backward_can(wd_cuda_attention *attention,
                                     const wd_attention_backward_args *args)
{
    (void)attention;
    return wd__attention_backward_is_fused(args);
}

size_t wd__cuda_attention_backward_workspace(wd_cuda_attention *attention,
                                             const wd_attention_backward_args *args)
{
    return wd__attention_backward_workspace(args, attention->piece_bytes);
}

void wd__cuda_attention_cut(wd_cuda_attention *attention, size_t piece_bytes)
{
    attention->piece_bytes = piece_bytes;
}

/* ---- preparing ---- */

static wd_attention_key forward_key(const wd_attention_args *args)
{
    const bool repeats = args->last_key_repeat > 1;
    return (wd_attention_key){.samples = args->samples,
                              .heads = args->heads,
                              .head_dim = args->head_dim,
                              .q_tokens = args->q_tokens,
                              .kv_tokens = args->kv_tokens,
                              .kv_samples = args->kv_samples,
                              .q_stride = args->q_stride,
                              .kv_stride = args->kv_stride,
                              .o_stride = args->o_stride,
                              .bias = repeats      ? WD_ATTENTION_ROW_BIAS
                                      : args->bias ? WD_ATTENTION_FULL_BIAS
                                                   : WD_ATTENTION_NO_BIAS,
                              .statistics = args->lse != NULL};
}

/* Of each piece. */
static wd_attention_key backward_key(const wd_cuda_attention *a,
                                     const wd_attention_backward_args *args)
{
    const bool repeats = args->last_key_repeat > 1;
    const wd_attention_piece piece = wd__attention_piece_of(args, a->piece_bytes);
    return (wd_attention_key){.samples = piece.samples,
                              .heads = piece.heads,
                              .head_dim = args->head_dim,
                              .q_tokens = args->q_tokens,
                              .kv_tokens = args->kv_tokens,
                              .kv_samples = piece.samples,
                              .q_stride = args->q_stride,
                              .kv_stride = args->kv_stride,
                              .o_stride = args->o_stride,
                              .bias = repeats ? WD_ATTENTION_ROW_BIAS : WD_ATTENTION_NO_BIAS,
                              .backward = true};
}

/* Fills new device memory with a row: zeros, and the log of `repeat` at its end. */
static wd_status write_row(const kept_row *row, const wd_cuda_driver *driver, wd_err *err)
{
    const char *name = NULL;
    const size_t bytes = (size_t)row->keys * sizeof(float);
    float *values;
    WD_TRY(
        wd_alloc((void **)&values, (size_t)row->keys, sizeof *values, "a bias of attention", err));
    values[row->keys - 1] = (float)log((double)row->repeat);
    wd_cu_result result = driver->mem_copy(row->at, (uintptr_t)values, bytes);
    if (!result) result = driver->ctx_synchronize(); /* the GPU may not have it yet */
    wd_free(values);
    if (!result) return WD_OK;
    driver->get_error_name(result, &name);
    return wd_fail(err, WD_DEVICE_FAULT, "a bias of attention for %lld keys: %s",
                   (long long)row->keys, name ? name : "unknown error");
}

static wd_status add_row(wd_cuda_attention *a, int64_t keys, int64_t repeat, wd_err *err)
{
    const wd_cuda_driver *driver = &a->gpu->api->driver;
    kept_row row = {.keys = keys, .repeat = repeat};
    WD_TRY(wd_resize((void **)&a->row, (size_t)a->rows + 1, sizeof *a->row,
                     "the list of biases of attention", err));
    if (driver->mem_alloc(&row.at, (size_t)keys * sizeof(float)))
        return wd_fail(err, WD_OUT_OF_MEMORY, "no memory for a bias of attention for %lld keys",
                       (long long)keys);
    const wd_status status = write_row(&row, driver, err);
    if (status == WD_OK)
        a->row[a->rows++] = row;
    else
        driver->mem_free(row.at);
    return status;
}

/* *out = the row of the bias that a shape has, written when it is first asked for; NULL: it has no
 * such bias. Rows are never written again, so that they are good for all streams. */
static wd_status find_row(const float **out, wd_cuda_attention *a, const wd_attention_key *key,
                          int64_t repeat, wd_err *err)
{
    int64_t at = 0;
    wd_status status = WD_OK;
    *out = NULL;
    if (key->bias != WD_ATTENTION_ROW_BIAS && key->bias != WD_ATTENTION_ROWS_BIAS) return WD_OK;
    pthread_mutex_lock(&a->lock);
    while (at < a->rows && (a->row[at].keys != key->kv_tokens || a->row[at].repeat != repeat)) at++;
    if (at == a->rows) status = add_row(a, key->kv_tokens, repeat, err);
    if (status == WD_OK) *out = (const float *)(uintptr_t)a->row[at].at;
    pthread_mutex_unlock(&a->lock);
    return status;
}

static wd_status prepare(wd_cuda_attention *a, const wd_attention_key *key, int64_t repeat,
                         wd_err *err)
{
    const wd_cudnn_planned *shape;
    const float *row;
    WD_TRY(wd__cudnn_shapes_find(&shape, &a->shapes, key, err));
    return shape ? find_row(&row, a, key, repeat, err) : WD_OK;
}

wd_status wd__cuda_attention_prepare(wd_cuda_attention *a, const wd_attention_args *args,
                                     wd_err *err)
{
    const wd_attention_key key = forward_key(args);
    return prepare(a, &key, args->last_key_repeat, err);
}

wd_status wd__cuda_attention_backward_prepare(wd_cuda_attention *a,
                                              const wd_attention_backward_args *args, wd_err *err)
{
    const wd_attention_key key = backward_key(a, args);
    return prepare(a, &key, args->last_key_repeat, err);
}

/* ---- launches ---- */

/* The tensors of a run, by number. */
typedef struct run_list {
    int count;
    int64_t id[WD_CUDNN_TENSORS_MAX];
    void *address[WD_CUDNN_TENSORS_MAX];
} run_list;

static void add(run_list *list, int64_t id, const void *address)
{
    list->id[list->count] = id;
    list->address[list->count++] = (void *)(uintptr_t)address;
}

/* The bias that a plan wants of a last key that stands for many: the row, or the same once per
 * query at the beginning of the workspace; NULL: it wants none. */
static wd_status bias_of(const float **out, wd_cuda_attention *a, const wd_cuda_work *work,
                         const wd_attention_key *planned, int64_t repeat, wd_err *err)
{
    const float *row;
    const int64_t keys = planned->kv_tokens;
    WD_TRY(find_row(&row, a, planned, repeat, err));
    *out = row;
    if (planned->bias != WD_ATTENTION_ROWS_BIAS) return WD_OK;
    *out = work->workspace;
    wd_cuda_work without = *work;
    without.workspace = NULL;
    without.workspace_bytes = 0;
    return wd__cuda_kernels_launch(&without, WD_OP_STRIDED_COPY,
                                   &(wd_strided_copy_args){.to = work->workspace,
                                                           .from = row,
                                                           .to_type = WD_F32,
                                                           .from_type = WD_F32,
                                                           .ndim = 2,
                                                           .dim = {planned->q_tokens, keys},
                                                           .to_stride = {keys, 1},
                                                           .from_stride = {0, 1},
                                                           .alpha = 1},
                                   err);
}

/* The planned samples from number `sample` on. */
static wd_status run_samples(bool *own, wd_cuda_attention *a, const wd_cuda_work *work,
                             const wd_attention_args *args, const wd_cudnn_planned *shape,
                             const float *bias, int64_t sample, wd_err *err)
{
    const int64_t kv_sample = args->kv_samples == 1 ? 0 : sample;
    const size_t at_q = (size_t)(sample * args->q_tokens * args->q_stride) * 2;
    const size_t at_o = (size_t)(sample * args->q_tokens * args->o_stride) * 2;
    const size_t at_k = (size_t)(kv_sample * args->kv_tokens * args->kv_stride) * 2;
    char *space = work->workspace;
    run_list list = {0};
    add(&list, WD_ATTENTION_Q, (const char *)args->q + at_q);
    add(&list, WD_ATTENTION_K, (const char *)args->k + at_k);
    add(&list, WD_ATTENTION_V, (const char *)args->v + at_k);
    add(&list, WD_ATTENTION_O, (char *)args->o + at_o);
    add(&list, WD_ATTENTION_SCALE, &args->scale);
    if (args->lse) add(&list, WD_ATTENTION_LSE, args->lse + sample * args->heads * args->q_tokens);
    if (bias) add(&list, WD_ATTENTION_BIAS, bias);
    space += wd__attention_rows_bytes(args->last_key_repeat, args->q_tokens, args->kv_tokens);
    return wd__cudnn_planned_run(own, &a->shapes, shape, work->stream, list.count, list.id,
                                 list.address, space, err);
}

wd_status wd__cuda_attention_launch(wd_cuda_attention *a, const wd_cuda_work *work,
                                    const wd_attention_args *args, wd_err *err)
{
    const wd_attention_key key = forward_key(args);
    const wd_cudnn_planned *shape;
    const float *bias;
    bool own = false;
    WD_REQUIRE(wd__attention_is_fused(args) &&
                   work->workspace_bytes >= wd__attention_workspace(args),
               "attention that cuDNN cannot do was launched, or without its workspace");
    WD_TRY(wd__cudnn_shapes_find(&shape, &a->shapes, &key, err));
    if (!shape) return wd__cuda_kernels_launch(work, WD_OP_ATTENTION, args, err);
    const wd_attention_key *planned = (const wd_attention_key *)(const void *)shape->planned;
    WD_TRY(bias_of(&bias, a, work, planned, args->last_key_repeat, err));
    if (args->bias) bias = args->bias;
    for (int64_t s = 0; s < args->samples && !own; s += planned->samples)
        WD_TRY(run_samples(&own, a, work, args, shape, bias, s, err));
    return own ? wd__cuda_kernels_launch(work, WD_OP_ATTENTION, args, err) : WD_OK;
}

/* The piece that begins at (sample, head). */
static wd_status run_piece(bool *own, wd_cuda_attention *a, const wd_cuda_work *work,
                           const wd_attention_backward_args *args, const wd_cudnn_planned *shape,
                           const float *bias, int64_t sample, int64_t head, wd_err *err)
{
    static const float one = 1;
    const wd_attention_key *planned = (const wd_attention_key *)(const void *)shape->planned;
    const wd_attention_piece piece = {planned->samples, planned->heads};
    char *dot = (char *)work->workspace +
                wd__attention_rows_bytes(args->last_key_repeat, args->q_tokens, args->kv_tokens);
    char *space = dot + wd__attention_dot_bytes(piece, args->q_tokens);
    int64_t column = head * args->head_dim;
    size_t at_q = (size_t)(sample * args->q_tokens * args->q_stride + column) * 2;
    size_t at_o = (size_t)(sample * args->q_tokens * args->o_stride + column) * 2;
    size_t at_k = (size_t)(sample * args->kv_tokens * args->kv_stride + column) * 2;
    run_list list = {0};
    add(&list, WD_ATTENTION_Q, (const char *)args->q + at_q);
    add(&list, WD_ATTENTION_K, (const char *)args->k + at_k);
    add(&list, WD_ATTENTION_V, (const char *)args->v + at_k);
    add(&list, WD_ATTENTION_O, (const char *)args->o + at_o);
    add(&list, WD_ATTENTION_LSE, args->lse + (sample * args->heads + head) * args->q_tokens);
    add(&list, WD_ATTENTION_SCALE, &args->scale);
    add(&list, WD_ATTENTION_DO, (const char *)args->d_o + at_o);
    add(&list, WD_ATTENTION_DQ, (char *)args->dq + at_q);
    add(&list, WD_ATTENTION_DK, (char *)args->dk + at_k);
    add(&list, WD_ATTENTION_DV, (char *)args->dv + at_k);
    add(&list, WD_ATTENTION_DOT, dot);
    add(&list, WD_ATTENTION_ONE, &one);
    if (bias) add(&list, WD_ATTENTION_BIAS, bias);
    return wd__cudnn_planned_run(own, &a->shapes, shape, work->stream, list.count, list.id,
                                 list.address, space, err);
}

wd_status wd__cuda_attention_backward_launch(wd_cuda_attention *a, const wd_cuda_work *work,
                                             const wd_attention_backward_args *args, wd_err *err)
{
    const wd_attention_key key = backward_key(a, args);
    const wd_cudnn_planned *shape;
    const float *bias;
    bool own = false;
    WD_REQUIRE(wd__attention_backward_is_fused(args) &&
                   work->workspace_bytes >= wd__attention_backward_workspace(args, a->piece_bytes),
               "attention that cuDNN cannot do was launched, or without its workspace");
    WD_TRY(wd__cudnn_shapes_find(&shape, &a->shapes, &key, err));
    if (!shape) return wd__cuda_kernels_launch(work, WD_OP_ATTENTION_BACKWARD, args, err);
    const wd_attention_key *planned = (const wd_attention_key *)(const void *)shape->planned;
    WD_TRY(bias_of(&bias, a, work, planned, args->last_key_repeat, err));
    for (int64_t sample = 0; sample < args->samples && !own; sample += planned->samples)
        for (int64_t head = 0; head < args->heads && !own; head += planned->heads)
            WD_TRY(run_piece(&own, a, work, args, shape, bias, sample, head, err));
    return own ? wd__cuda_kernels_launch(work, WD_OP_ATTENTION_BACKWARD, args, err) : WD_OK;
}
