/* Attention in plain fp32, forward and backward, for what libraries do not take: fp32 itself, and
 * any head dimension. Correct rather than fast.
 *
 * A warp has one query (or, for dk and dv, one key), kept in shared memory with what it adds up. It
 * takes 32 keys (queries) at a time: each lane makes one score, then each lane adds up its own
 * columns of what the 32 weigh. So sums run over keys in a fixed order: a result depends on nothing
 * else in the launch. A block's warps have neighbouring queries of one head, and read the same
 * keys.
 */
#include "dev/cuda/kernels/args.h"
#include "dev/cuda/kernels/rows.cuh"
#include "dev/math.h"

/* What of a sample's head a warp works on. */
struct place {
    int64_t b, n;
    int64_t token; /* the query, or key */
    bool here;     /* there is one */
};

/* Blocks are numbered sample by sample, head by head; the second dimension of a block is its warps.
 */
WD_DEVICE place place_of(int64_t heads, int64_t tokens)
{
    uint32_t warps = blockDim.y, blocks = (uint32_t)((tokens + warps - 1) / warps);
    uint32_t head = blockIdx.x / blocks;
    int64_t token = (int64_t)(blockIdx.x % blocks) * warps + threadIdx.y;
    return place{head / (uint32_t)heads, head % (uint32_t)heads, token, token < tokens};
}

/* This warp's part of shared memory: `floats` of it. */
WD_DEVICE float *warp_memory(int floats)
{
    return (float *)wd_shared() + threadIdx.y * floats;
}

WD_DEVICE void keep_columns(float *to, const void *from, wd_dtype type, int64_t at, int width)
{
    for (int c = (int)threadIdx.x; c < width; c += WD_WARP) to[c] = load_one(from, type, at + c);
}

WD_DEVICE void clear_columns(float *to, int width)
{
    for (int c = (int)threadIdx.x; c < width; c += WD_WARP) to[c] = 0;
}

/* x y, of which x is in shared memory. */
WD_DEVICE float dot(const float *x, const void *y, wd_dtype type, int64_t at, int width)
{
    float sum = 0, v[EIGHT];
    for (int c = 0; c < width; c += EIGHT) {
        int n = eight_below(c, width);
        load_eight(v, y, type, at + c, n);
        EACH_OF_EIGHT (i)
            if (i < n) sum = fmaf(x[c + i], v[i], sum);
    }
    return sum;
}

/* sum[c] = keep sum[c] + the sum over i < n of weight[i] from[i stride + c], for this lane's c. */
WD_DEVICE void add_weighted(float *sum, float keep, const float *weight, int n, const void *from,
                            wd_dtype type, int64_t at, int64_t stride, int width)
{
    for (int c = (int)threadIdx.x; c < width; c += WD_WARP) {
        float total = sum[c] * keep;
        for (int i = 0; i < n; i++)
            total = fmaf(weight[i], load_one(from, type, at + i * stride + c), total);
        sum[c] = total;
    }
}

WD_DEVICE float max_of_lanes(float lane)
{
    WD_UNROLL for (int lane_distance = WD_WARP / 2; lane_distance > 0; lane_distance /= 2) lane =
        fmaxf(lane, __shfl_xor_sync(WD_WARP_ALL, lane, lane_distance));
    return lane;
}

/* What the last key's score is larger by, where it stands for many. */
WD_DEVICE float more_of(int64_t key, int64_t keys, float log_repeat)
{
    return key + 1 == keys ? log_repeat : 0;
}

/* ---- forward ---- */

WD_DEVICE float score_of(const wd_cuda_attention &a, const place &p, const float *q, int64_t key,
                         int64_t at_k)
{
    const wd_attention_args &op = a.op;
    float score = op.scale * dot(q, op.k, op.type, at_k, (int)op.head_dim);
    if (op.bias) score += op.bias[(p.n * op.q_tokens + p.token) * op.kv_tokens + key];
    if (op.mask) score += op.mask[p.b * op.kv_tokens + key];
    return score + more_of(key, op.kv_tokens, a.log_repeat);
}

/* Shared memory of a warp: q [K], o [K], weights [32]. */
WD_KERNEL(attention, wd_cuda_attention)
{
    const wd_attention_args &op = a.op;
    int width = (int)op.head_dim, lane = (int)threadIdx.x;
    float *q = warp_memory(2 * width + WD_WARP), *o = q + width, *weight = o + width;
    place p = place_of(op.heads, op.q_tokens);
    int64_t row = p.b * op.q_tokens + p.token, head = p.n * width;
    int64_t first_key = (op.kv_samples == 1 ? 0 : p.b) * op.kv_tokens;
    float most = -INFINITY, sum = 0;
    if (p.here) keep_columns(q, op.q, op.type, row * op.q_stride + head, width);
    clear_columns(o, width);
    for (int64_t key = 0; key < op.kv_tokens; key += WD_WARP) {
        int n = op.kv_tokens - key < WD_WARP ? (int)(op.kv_tokens - key) : WD_WARP;
        int64_t at = (first_key + key) * op.kv_stride + head;
        __syncthreads();
        float score = -INFINITY;
        if (p.here && lane < n) score = score_of(a, p, q, key + lane, at + lane * op.kv_stride);
        float before = most;
        most = fmaxf(most, max_of_lanes(score));
        float base = most == -INFINITY ? 0 : most, keep = exp_f32(before - base);
        weight[lane] = exp_f32(score - base);
        sum = sum * keep + sum_of_lanes(weight[lane]);
        __syncthreads();
        if (p.here) add_weighted(o, keep, weight, n, op.v, op.type, at, op.kv_stride, width);
    }
    if (!p.here) return;
    for (int c = lane; c < width; c += WD_WARP)
        store_one(op.o, op.type, row * op.o_stride + head + c, o[c] / sum);
    if (op.lse && lane == 0)
        op.lse[(p.b * op.heads + p.n) * op.q_tokens + p.token] =
            (float)((double)most + log((double)sum));
}

/* ---- backward: p = exp(s - lse), ds = p (do v - do o) scale ---- */

/* Of a query and a key, one of which is in shared memory: *p and *ds. */
WD_DEVICE void weights_of(float *p, float *ds, const wd_attention_backward_args &op, float score,
                          float dp, float more, float lse, float dot_o)
{
    *p = exp_f32(op.scale * score + more - lse);
    *ds = *p * (dp - dot_o) * op.scale;
}

/* dq, and do o of every query for what follows. Shared memory of a warp: q, do, dq [K], ds [32]. */
WD_KERNEL(attention_backward_queries, wd_cuda_attention_backward)
{
    const wd_attention_backward_args &op = a.op;
    int width = (int)op.head_dim, lane = (int)threadIdx.x;
    float *q = warp_memory(3 * width + WD_WARP), *d_o = q + width, *dq = d_o + width;
    float *ds = dq + width;
    place p = place_of(op.heads, op.q_tokens);
    int64_t row = p.b * op.q_tokens + p.token, head = p.n * width;
    int64_t number = (p.b * op.heads + p.n) * op.q_tokens + p.token;
    float dot_o = 0, lse = 0;
    if (p.here) {
        keep_columns(q, op.q, op.type, row * op.q_stride + head, width);
        keep_columns(d_o, op.d_o, op.type, row * op.o_stride + head, width);
        int64_t at = row * op.o_stride + head;
        dot_o = sum_of(width, [&](int c) {
            return load_one(op.d_o, op.type, at + c) * load_one(op.o, op.type, at + c);
        });
        lse = op.lse[number];
        if (lane == 0) a.dot_o[number] = dot_o;
    }
    clear_columns(dq, width);
    for (int64_t key = 0; key < op.kv_tokens; key += WD_WARP) {
        int n = op.kv_tokens - key < WD_WARP ? (int)(op.kv_tokens - key) : WD_WARP;
        int64_t at = (p.b * op.kv_tokens + key) * op.kv_stride + head;
        __syncthreads();
        if (p.here && lane < n) {
            int64_t at_key = at + lane * op.kv_stride;
            float score = dot(q, op.k, op.type, at_key, width), weight;
            weights_of(&weight, &ds[lane], op, score, dot(d_o, op.v, op.type, at_key, width),
                       more_of(key + lane, op.kv_tokens, a.log_repeat), lse, dot_o);
        }
        __syncthreads();
        if (p.here) add_weighted(dq, 1, ds, n, op.k, op.type, at, op.kv_stride, width);
    }
    if (!p.here) return;
    for (int c = lane; c < width; c += WD_WARP)
        store_one(op.dq, op.type, row * op.q_stride + head + c, dq[c]);
}

/* dk and dv. Shared memory of a warp: k, v, dk, dv [K], weights and ds [32]. */
WD_KERNEL(attention_backward_keys, wd_cuda_attention_backward)
{
    const wd_attention_backward_args &op = a.op;
    int width = (int)op.head_dim, lane = (int)threadIdx.x;
    float *k = warp_memory(4 * width + 2 * WD_WARP), *v = k + width, *dk = v + width;
    float *dv = dk + width, *weight = dv + width, *ds = weight + WD_WARP;
    place p = place_of(op.heads, op.kv_tokens);
    int64_t head = p.n * width, at_key = (p.b * op.kv_tokens + p.token) * op.kv_stride + head;
    float more = more_of(p.token, op.kv_tokens, a.log_repeat);
    if (p.here) {
        keep_columns(k, op.k, op.type, at_key, width);
        keep_columns(v, op.v, op.type, at_key, width);
    }
    clear_columns(dk, width);
    clear_columns(dv, width);
    for (int64_t query = 0; query < op.q_tokens; query += WD_WARP) {
        int n = op.q_tokens - query < WD_WARP ? (int)(op.q_tokens - query) : WD_WARP;
        int64_t row = p.b * op.q_tokens + query;
        int64_t at_q = row * op.q_stride + head, at_o = row * op.o_stride + head;
        __syncthreads();
        if (p.here && lane < n) {
            int64_t number = (p.b * op.heads + p.n) * op.q_tokens + query + lane;
            float score = dot(k, op.q, op.type, at_q + lane * op.q_stride, width);
            float dp = dot(v, op.d_o, op.type, at_o + lane * op.o_stride, width);
            weights_of(&weight[lane], &ds[lane], op, score, dp, more, op.lse[number],
                       a.dot_o[number]);
        }
        __syncthreads();
        if (!p.here) continue;
        add_weighted(dk, 1, ds, n, op.q, op.type, at_q, op.q_stride, width);
        add_weighted(dv, 1, weight, n, op.d_o, op.type, at_o, op.o_stride, width);
    }
    if (!p.here) return;
    for (int c = lane; c < width; c += WD_WARP) {
        store_one(op.dk, op.type, at_key + c, dk[c]);
        store_one(op.dv, op.type, at_key + c, dv[c]);
    }
}
