/* Attention by cuDNN: what library.h declares of it.
 *
 * Plans are made once per shape. Which engine runs, with which settings, is what cuDNN's heuristic
 * says of one sample of that shape: so a sample's bits do not depend on how many others are in the
 * launch. Engines whose sums come in a different order each time are refused.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/require.h"
#include "dev/cuda/attention_graph.h"
#include "dev/cuda/attention_way.h"
#include "dev/cuda/cudnn_open.h"

typedef struct planned {
    wd_attention_key key;
    wd_cudnn_plan plan;
} planned;

struct wd_cuda_attention {
    const wd_cuda_gpu *gpu;
    wd_cudnn_target target;
    size_t piece_bytes;   /* see attention_way.h */
    pthread_mutex_t lock; /* of the plans, and of the handle, which has one stream at a time */
    planned **plan;       /* in the order in which they were first used */
    int64_t plans;
};

wd_status wd_cuda_attention_open(wd_cuda_attention **out, const wd_cuda_gpu *gpu, wd_err *err)
{
    wd_cuda_attention *a;
    *out = NULL;
    WD_TRY(wd_alloc((void **)&a, 1, sizeof *a, "the attention of a GPU", err));
    a->gpu = gpu;
    a->piece_bytes = WD_ATTENTION_PIECE_BYTES;
    wd_status status = wd_cudnn_open(&a->target, gpu, "attention on a GPU", err);
    if (status != WD_OK) {
        wd_free(a);
        return status;
    }
    pthread_mutex_init(&a->lock, NULL);
    *out = a;
    return WD_OK;
}

void wd_cuda_attention_close(wd_cuda_attention *a)
{
    if (!a) return;
    while (a->plans > 0) {
        wd_cudnn_plan_close(&a->plan[--a->plans]->plan);
        wd_free(a->plan[a->plans]);
    }
    wd_free(a->plan);
    wd_cudnn_close(&a->target);
    pthread_mutex_destroy(&a->lock);
    wd_free(a);
}

void wd_cuda_attention_version(const wd_cuda_attention *a, char *out, size_t bytes)
{
    size_t at = strlen(out), version = a->target.cudnn->get_version();
    WD_REQUIRE(at < bytes, "the text of versions is full");
    snprintf(out + at, bytes - at, "cuDNN %zu.%zu.%zu", version / 10000, version / 100 % 100,
             version % 100);
}

bool wd_cuda_attention_can(wd_cuda_attention *attention, const wd_attention_args *args)
{
    (void)attention;
    return wd_attention_is_fused(args);
}

size_t wd_cuda_attention_workspace(wd_cuda_attention *attention, const wd_attention_args *args)
{
    (void)attention;
    return wd_attention_workspace(args);
}

bool wd_cuda_attention_backward_can(wd_cuda_attention *attention,
                                    const wd_attention_backward_args *args)
{
    (void)attention;
    return wd_attention_backward_is_fused(args);
}

size_t wd_cuda_attention_backward_workspace(wd_cuda_attention *attention,
                                            const wd_attention_backward_args *args)
{
    return wd_attention_backward_workspace(args, attention->piece_bytes);
}

void wd_cuda_attention_cut(wd_cuda_attention *attention, size_t piece_bytes)
{
    attention->piece_bytes = piece_bytes;
}

/* ---- plans ---- */

/* The workspace that the plan of `key` may take. */
static int64_t workspace_max(const wd_attention_key *key)
{
    int64_t pairs = key->backward ? key->samples * key->heads : 0;
    return (int64_t)wd_attention_scores_bytes(pairs, key->q_tokens, key->kv_tokens) +
           WD_ATTENTION_PLAN_BYTES;
}

static wd_status make_plan(wd_cudnn_plan *out, wd_cuda_attention *a, const wd_attention_key *key,
                           const wd_cudnn_choice *choice, wd_err *err)
{
    char what[128];
    wd_cudnn_graph graph;
    snprintf(what, sizeof what, "attention%s of %lld queries and %lld keys, head dimension %lld",
             key->backward ? "'s backward pass" : "", (long long)key->q_tokens,
             (long long)key->kv_tokens, (long long)key->head_dim);
    wd_cudnn_graph_open(&graph, &a->target);
    wd_attention_graph(&graph, key);
    return wd_cudnn_plan_open(
        out, &graph,
        &(wd_cudnn_wish){.notes_refused = 1u << WD_CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC,
                         .workspace_max = workspace_max(key),
                         .choice = choice},
        what, err);
}

static wd_status find_plan(const wd_cudnn_plan **out, wd_cuda_attention *a,
                           const wd_attention_key *key, wd_err *err);

/* The plan of `key`, with the engine that one sample has, whose plan is made once for all numbers
 * of samples. */
static wd_status plan_as_one(wd_cudnn_plan *out, wd_cuda_attention *a, const wd_attention_key *key,
                             wd_err *err)
{
    wd_attention_key one = *key;
    const wd_cudnn_plan *first;
    if (key->samples == 1) return make_plan(out, a, key, NULL, err);
    one.samples = one.kv_samples = 1;
    WD_TRY(find_plan(&first, a, &one, err));
    const wd_cudnn_choice choice = first->choice;
    return make_plan(out, a, key, &choice, err);
}

/* The lock is held. */
static wd_status find_plan(const wd_cudnn_plan **out, wd_cuda_attention *a,
                           const wd_attention_key *key, wd_err *err)
{
    int64_t at = 0;
    planned *next;
    while (at < a->plans && memcmp(&a->plan[at]->key, key, sizeof *key)) at++;
    if (at < a->plans) {
        *out = &a->plan[at]->plan;
        return WD_OK;
    }
    WD_TRY(wd_alloc((void **)&next, 1, sizeof *next, "planned attention", err));
    next->key = *key;
    wd_status status = plan_as_one(&next->plan, a, key, err);
    if (status != WD_OK) {
        wd_free(next);
        return status;
    }
    status = wd_resize((void **)&a->plan, (size_t)a->plans + 1, sizeof *a->plan,
                       "the list of planned attention", err);
    if (status != WD_OK) {
        wd_cudnn_plan_close(&next->plan);
        wd_free(next);
        return status;
    }
    a->plan[a->plans++] = next;
    *out = &next->plan;
    return WD_OK;
}

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
    const wd_attention_piece piece = wd_attention_piece_of(args, a->piece_bytes);
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

static wd_status prepare(wd_cuda_attention *a, const wd_attention_key *key, wd_err *err)
{
    const wd_cudnn_plan *plan;
    pthread_mutex_lock(&a->lock);
    const wd_status status = find_plan(&plan, a, key, err);
    pthread_mutex_unlock(&a->lock);
    return status;
}

wd_status wd_cuda_attention_prepare(wd_cuda_attention *a, const wd_attention_args *args,
                                    wd_err *err)
{
    const wd_attention_key key = forward_key(args);
    return prepare(a, &key, err);
}

wd_status wd_cuda_attention_backward_prepare(wd_cuda_attention *a,
                                             const wd_attention_backward_args *args, wd_err *err)
{
    const wd_attention_key key = backward_key(a, args);
    return prepare(a, &key, err);
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

static wd_status run(wd_cuda_attention *a, const wd_cuda_work *work, const wd_attention_key *key,
                     const run_list *list, void *workspace, wd_err *err)
{
    const wd_cudnn_plan *plan;
    pthread_mutex_lock(&a->lock);
    wd_status status = find_plan(&plan, a, key, err);
    if (status == WD_OK) status = wd_cudnn_use_stream(&a->target, work->stream, err);
    if (status == WD_OK)
        status = wd_cudnn_plan_run(plan, list->count, list->id, list->address, workspace,
                                   key->backward ? "attention's backward pass" : "attention", err);
    pthread_mutex_unlock(&a->lock);
    if (status == WD_UNSUPPORTED) status = err->status = WD_INTERNAL;
    return status;
}

/* Writes the row bias at `row`: [T], zero but for the last, by our own kernels. */
static wd_status fill_row(const wd_cuda_work *work, float *row, int64_t keys, int64_t repeat,
                          wd_err *err)
{
    wd_cuda_work without = *work;
    without.workspace = NULL;
    without.workspace_bytes = 0;
    WD_TRY(wd_cuda_kernels_launch(&without, WD_OP_FILL,
                                  &(wd_fill_args){.to = row, .type = WD_F32, .count = keys}, err));
    return wd_cuda_kernels_launch(
        &without, WD_OP_FILL,
        &(wd_fill_args){
            .to = row + keys - 1, .type = WD_F32, .count = 1, .value = (float)log((double)repeat)},
        err);
}

wd_status wd_cuda_attention_launch(wd_cuda_attention *a, const wd_cuda_work *work,
                                   const wd_attention_args *args, wd_err *err)
{
    const bool repeats = args->last_key_repeat > 1;
    char *space = work->workspace;
    run_list list = {0};
    WD_REQUIRE(wd_attention_is_fused(args) && work->workspace_bytes >= wd_attention_workspace(args),
               "attention that cuDNN cannot do was launched, or without its workspace");
    const wd_attention_key key = forward_key(args);
    if (repeats)
        WD_TRY(fill_row(work, (float *)(void *)space, args->kv_tokens, args->last_key_repeat, err));
    add(&list, WD_ATTENTION_Q, args->q);
    add(&list, WD_ATTENTION_K, args->k);
    add(&list, WD_ATTENTION_V, args->v);
    add(&list, WD_ATTENTION_O, args->o);
    add(&list, WD_ATTENTION_SCALE, &args->scale);
    if (args->lse) add(&list, WD_ATTENTION_LSE, args->lse);
    if (key.bias) add(&list, WD_ATTENTION_BIAS, repeats ? (const void *)space : args->bias);
    return run(a, work, &key, &list,
               space + wd_attention_row_bytes(args->last_key_repeat, args->kv_tokens), err);
}

/* The piece that begins at (sample, head). */
static wd_status run_piece(wd_cuda_attention *a, const wd_cuda_work *work,
                           const wd_attention_backward_args *args, const wd_attention_key *key,
                           int64_t sample, int64_t head, wd_err *err)
{
    static const float one = 1;
    char *space = work->workspace;
    char *dot = space + wd_attention_row_bytes(args->last_key_repeat, args->kv_tokens);
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
    if (key->bias) add(&list, WD_ATTENTION_BIAS, space);
    wd_attention_piece piece = {key->samples, key->heads};
    return run(a, work, key, &list, dot + wd_attention_dot_bytes(piece, args->q_tokens), err);
}

wd_status wd_cuda_attention_backward_launch(wd_cuda_attention *a, const wd_cuda_work *work,
                                            const wd_attention_backward_args *args, wd_err *err)
{
    const bool repeats = args->last_key_repeat > 1;
    const wd_attention_piece piece = wd_attention_piece_of(args, a->piece_bytes);
    WD_REQUIRE(wd_attention_backward_is_fused(args) &&
                   work->workspace_bytes >= wd_attention_backward_workspace(args, a->piece_bytes),
               "attention that cuDNN cannot do was launched, or without its workspace");
    const wd_attention_key key = backward_key(a, args);
    if (repeats)
        WD_TRY(fill_row(work, work->workspace, args->kv_tokens, args->last_key_repeat, err));
    for (int64_t sample = 0; sample < args->samples; sample += piece.samples)
        for (int64_t head = 0; head < args->heads; head += piece.heads)
            WD_TRY(run_piece(a, work, args, &key, sample, head, err));
    return WD_OK;
}
