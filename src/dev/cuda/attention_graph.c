/* Attention in cuDNN operations. cuDNN recognises these graphs and runs each as one kernel; which
 * operations, in which order and between which types of tensors, is what its documentation of fused
 * attention asks for (cuDNN 9, "fused flash attention", forward and backward). */
#include "dev/cuda/attention_graph.h"

#include <stdio.h>

#include "dev/cuda/attention_way.h"

/* What both graphs are made of. */
typedef struct drawing {
    wd_cudnn_graph *graph;
    const wd_attention_key *key;
    wd_cudnn_descriptor scale;
} drawing;

/* [B, H, rows, columns] that is never in memory; columns the innermost. */
static wd_cudnn_descriptor between(drawing *d, wd_cudnn_data type, int64_t rows, int64_t columns)
{
    const int64_t dim[] = {d->key->samples, d->key->heads, rows, columns};
    wd_cudnn_shape shape = wd__cudnn_dense(type, 4, dim);
    return wd__cudnn_tensor(d->graph, WD_CUDNN_VIRTUAL, 0, &shape);
}

/* The same seen with its last two dimensions exchanged: [B, H, columns, rows]. */
static wd_cudnn_descriptor turned(drawing *d, wd_cudnn_data type, int64_t rows, int64_t columns)
{
    const int64_t dim[] = {d->key->samples, d->key->heads, rows, columns};
    wd_cudnn_shape shape = wd__cudnn_dense(type, 4, dim);
    shape.dim[2] = columns, shape.dim[3] = rows;
    shape.stride[2] = 1, shape.stride[3] = columns;
    return wd__cudnn_tensor(d->graph, WD_CUDNN_VIRTUAL, 0, &shape);
}

/* A tensor in rows of tokens, seen as [B, H, tokens, K]; `turn`: as [B, H, K, tokens]. */
static wd_cudnn_shape token_shape(const drawing *d, int64_t tokens, int64_t stride, int64_t samples,
                                  bool turn)
{
    const wd_attention_key *k = d->key;
    wd_cudnn_shape shape = {
        .type = WD_CUDNN_DATA_BFLOAT16,
        .ndim = 4,
        .dim = {k->samples, k->heads, turn ? k->head_dim : tokens, turn ? tokens : k->head_dim},
        .stride = {samples == 1 ? 0 : tokens * stride, k->head_dim, turn ? 1 : stride,
                   turn ? stride : 1}};
    if (k->samples == 1) shape.stride[0] = tokens * stride;
    return shape;
}

static wd_cudnn_descriptor queries(drawing *d, int64_t id, int64_t stride)
{
    wd_cudnn_shape shape = token_shape(d, d->key->q_tokens, stride, d->key->samples, false);
    return wd__cudnn_tensor(d->graph, WD_CUDNN_REAL, id, &shape);
}

static wd_cudnn_descriptor keys(drawing *d, int64_t id, bool turn)
{
    const wd_attention_key *k = d->key;
    wd_cudnn_shape shape = token_shape(d, k->kv_tokens, k->kv_stride, k->kv_samples, turn);
    return wd__cudnn_tensor(d->graph, WD_CUDNN_REAL, id, &shape);
}

/* [B, H, S, 1] fp32 in memory. */
static wd_cudnn_descriptor per_query(drawing *d, int64_t id)
{
    const int64_t dim[] = {d->key->samples, d->key->heads, d->key->q_tokens, 1};
    wd_cudnn_shape shape = wd__cudnn_dense(WD_CUDNN_DATA_FLOAT, 4, dim);
    return wd__cudnn_tensor(d->graph, WD_CUDNN_REAL, id, &shape);
}

static wd_cudnn_descriptor number(drawing *d, int64_t id)
{
    static const int64_t dim[] = {1, 1, 1, 1};
    wd_cudnn_shape shape = wd__cudnn_dense(WD_CUDNN_DATA_FLOAT, 4, dim);
    return wd__cudnn_tensor(d->graph, WD_CUDNN_VALUE, id, &shape);
}

/* A new tensor in between = mode(x, b). */
static wd_cudnn_descriptor apply(drawing *d, int mode, wd_cudnn_descriptor x, wd_cudnn_descriptor b,
                                 int64_t columns)
{
    wd_cudnn_descriptor y = between(d, WD_CUDNN_DATA_FLOAT, d->key->q_tokens, columns);
    wd__cudnn_pointwise(d->graph, mode, y, x, b);
    return y;
}

/* scale q kT + bias: [B, H, S, T]. */
static wd_cudnn_descriptor scores(drawing *d, wd_cudnn_descriptor q, wd_cudnn_descriptor k)
{
    const wd_attention_key *key = d->key;
    int64_t keys_count = key->kv_tokens;
    wd_cudnn_descriptor s = between(d, WD_CUDNN_DATA_FLOAT, key->q_tokens, keys_count);
    wd__cudnn_matmul(d->graph, s, q, k);
    s = apply(d, WD_CUDNN_POINTWISE_MUL, s, d->scale, keys_count);
    if (key->bias == WD_ATTENTION_NO_BIAS) return s;
    const int64_t heads = key->bias == WD_ATTENTION_FULL_BIAS ? key->heads : 1;
    const int64_t rows = key->bias == WD_ATTENTION_ROW_BIAS ? 1 : key->q_tokens;
    const int64_t dim[] = {1, heads, rows, keys_count};
    wd_cudnn_shape shape = wd__cudnn_dense(WD_CUDNN_DATA_FLOAT, 4, dim);
    wd_cudnn_descriptor bias = wd__cudnn_tensor(d->graph, WD_CUDNN_REAL, WD_ATTENTION_BIAS, &shape);
    return apply(d, WD_CUDNN_POINTWISE_ADD, s, bias, keys_count);
}

/* o = softmax(scores) v, lse = log of the sum of exponentials. */
static void draw_forward(drawing *d)
{
    const wd_attention_key *key = d->key;
    wd_cudnn_graph *g = d->graph;
    wd_cudnn_descriptor q = queries(d, WD_ATTENTION_Q, key->q_stride);
    wd_cudnn_descriptor k = keys(d, WD_ATTENTION_K, true), v = keys(d, WD_ATTENTION_V, false);
    wd_cudnn_descriptor o = queries(d, WD_ATTENTION_O, key->o_stride);
    wd_cudnn_descriptor s = scores(d, q, k);
    wd_cudnn_descriptor most = between(d, WD_CUDNN_DATA_FLOAT, key->q_tokens, 1);
    wd__cudnn_reduce(g, WD_CUDNN_REDUCE_TENSOR_MAX, most, s);
    s = apply(d, WD_CUDNN_POINTWISE_SUB, s, most, key->kv_tokens);
    s = apply(d, WD_CUDNN_POINTWISE_EXP, s, NULL, key->kv_tokens);
    wd_cudnn_descriptor sum = between(d, WD_CUDNN_DATA_FLOAT, key->q_tokens, 1);
    wd__cudnn_reduce(g, WD_CUDNN_REDUCE_TENSOR_ADD, sum, s);
    /* cuDNN recognises the graph only with its statistics, wanted or not */
    wd_cudnn_descriptor log = apply(d, WD_CUDNN_POINTWISE_LOG, sum, NULL, 1);
    wd_cudnn_descriptor lse = key->statistics ? per_query(d, WD_ATTENTION_LSE)
                                              : between(d, WD_CUDNN_DATA_FLOAT, key->q_tokens, 1);
    wd__cudnn_pointwise(g, WD_CUDNN_POINTWISE_ADD, lse, most, log);
    wd_cudnn_descriptor p = between(d, WD_CUDNN_DATA_BFLOAT16, key->q_tokens, key->kv_tokens);
    wd__cudnn_pointwise(g, WD_CUDNN_POINTWISE_DIV, p, s, sum);
    wd__cudnn_matmul(g, o, p, v);
}

/* dot = sum over K of do o: [B, H, S, 1], in memory. */
static wd_cudnn_descriptor dot_of(drawing *d, wd_cudnn_descriptor d_o, wd_cudnn_descriptor o)
{
    const wd_attention_key *key = d->key;
    wd_cudnn_descriptor product = apply(d, WD_CUDNN_POINTWISE_MUL, d_o, o, key->head_dim);
    wd_cudnn_descriptor sum = between(d, WD_CUDNN_DATA_FLOAT, key->q_tokens, 1);
    wd__cudnn_reduce(d->graph, WD_CUDNN_REDUCE_TENSOR_ADD, sum, product);
    wd_cudnn_descriptor dot = per_query(d, WD_ATTENTION_DOT);
    wd__cudnn_pointwise(d->graph, WD_CUDNN_POINTWISE_MUL, dot, sum, number(d, WD_ATTENTION_ONE));
    return dot;
}

/* p = exp(scores - lse); dv = pT do; ds = p (do vT - dot) scale; dk = dsT q; dq = ds k. */
static void draw_backward(drawing *d)
{
    const wd_attention_key *key = d->key;
    wd_cudnn_graph *g = d->graph;
    int64_t rows = key->q_tokens, columns = key->kv_tokens;
    wd_cudnn_descriptor q = queries(d, WD_ATTENTION_Q, key->q_stride);
    wd_cudnn_descriptor k = keys(d, WD_ATTENTION_K, true), v = keys(d, WD_ATTENTION_V, true);
    wd_cudnn_descriptor o = queries(d, WD_ATTENTION_O, key->o_stride);
    wd_cudnn_descriptor d_o = queries(d, WD_ATTENTION_DO, key->o_stride);
    wd_cudnn_descriptor dot = dot_of(d, d_o, o);
    wd_cudnn_descriptor s = scores(d, q, k);
    wd_cudnn_descriptor lse = per_query(d, WD_ATTENTION_LSE);
    s = apply(d, WD_CUDNN_POINTWISE_SUB, s, lse, columns);
    wd_cudnn_descriptor p = apply(d, WD_CUDNN_POINTWISE_EXP, s, NULL, columns);
    wd_cudnn_descriptor p_turned = turned(d, WD_CUDNN_DATA_BFLOAT16, rows, columns);
    wd__cudnn_reshape(g, p_turned, p);
    wd__cudnn_matmul(g, keys(d, WD_ATTENTION_DV, false), p_turned, d_o);
    wd_cudnn_descriptor ds = between(d, WD_CUDNN_DATA_FLOAT, rows, columns);
    wd__cudnn_matmul(g, ds, d_o, v);
    ds = apply(d, WD_CUDNN_POINTWISE_SUB, ds, dot, columns);
    ds = apply(d, WD_CUDNN_POINTWISE_MUL, ds, p, columns);
    wd_cudnn_descriptor scaled = between(d, WD_CUDNN_DATA_FLOAT, rows, columns);
    wd__cudnn_pointwise(g, WD_CUDNN_POINTWISE_MUL, scaled, ds, d->scale);
    wd_cudnn_descriptor ds_turned = turned(d, WD_CUDNN_DATA_BFLOAT16, rows, columns);
    wd__cudnn_reshape(g, ds_turned, scaled);
    wd__cudnn_matmul(g, keys(d, WD_ATTENTION_DK, false), ds_turned, q);
    wd_cudnn_shape k_rows = token_shape(d, columns, key->kv_stride, key->kv_samples, false);
    k_rows.type = WD_CUDNN_DATA_FLOAT;
    wd_cudnn_descriptor k_turned = wd__cudnn_tensor(g, WD_CUDNN_VIRTUAL, 0, &k_rows);
    wd__cudnn_reshape(g, k_turned, k);
    wd__cudnn_matmul(g, queries(d, WD_ATTENTION_DQ, key->q_stride), scaled, k_turned);
}

/* ---- what a shape is ---- */

static void draw(wd_cudnn_graph *graph, const void *key)
{
    drawing d = {.graph = graph, .key = key};
    d.scale = number(&d, WD_ATTENTION_SCALE);
    if (d.key->backward)
        draw_backward(&d);
    else
        draw_forward(&d);
}

static void take_one(void *of)
{
    wd_attention_key *key = of;
    key->samples = key->kv_samples = 1;
}

/* A row of the bias once per query. */
static bool take_other_form(void *of)
{
    wd_attention_key *key = of;
    if (key->bias != WD_ATTENTION_ROW_BIAS ||
        !wd__attention_rows_bytes(2, key->q_tokens, key->kv_tokens))
        return false;
    key->bias = WD_ATTENTION_ROWS_BIAS;
    return true;
}

static unsigned notes_refused(const void *key)
{
    return (void)key, 1u << WD_CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
}

static int64_t workspace_max(const void *of)
{
    const wd_attention_key *key = of;
    const int64_t pairs = key->backward ? key->samples * key->heads : 0;
    return (int64_t)wd__attention_scores_bytes(pairs, key->q_tokens, key->kv_tokens) +
           WD_ATTENTION_PLAN_BYTES;
}

static void name(char out[WD_CUDNN_TEXT_MAX], const void *of)
{
    static const char *const biases[] = {[WD_ATTENTION_NO_BIAS] = "",
                                         [WD_ATTENTION_ROW_BIAS] = ", row bias",
                                         [WD_ATTENTION_ROWS_BIAS] = ", row bias once per query",
                                         [WD_ATTENTION_FULL_BIAS] = ", bias"};
    const wd_attention_key *key = of;
    snprintf(out, WD_CUDNN_TEXT_MAX, "attention%s, %lld x %lld heads of %lld, %lld x %lld%s%s",
             key->backward ? " backward" : "", (long long)key->samples, (long long)key->heads,
             (long long)key->head_dim, (long long)key->q_tokens, (long long)key->kv_tokens,
             biases[key->bias],
             key->kv_samples < key->samples ? ", one k and v for all samples" : "");
}

const wd_cudnn_kind wd_attention_kind = {.key_bytes = sizeof(wd_attention_key),
                                         .draw = draw,
                                         .take_one = take_one,
                                         .take_other_form = take_other_form,
                                         .notes_refused = notes_refused,
                                         .workspace_max = workspace_max,
                                         .name = name};
