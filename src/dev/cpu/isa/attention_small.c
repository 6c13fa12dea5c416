/* Attention over few tokens: thousands of (sample, head) pairs of some ten queries and keys each,
 * the case of tiny models. One thread does a whole pair, in buffers that stay in the first-level
 * cache.
 *
 * Queries are in lanes: scores are stored as [keys, lanes], so that the maximum and the sum of a
 * softmax run over rows, lane by lane, and nothing is summed across a vector. Four or eight rows of
 * every product are computed at once, in registers (mix). Everything is fp32; bf16 is converted
 * when it is read.
 *
 * Backward computes delta = sum over d of do o as the sum over keys of p dp over the sum of p. This
 * is mathematically equal, but then the sum of ds over keys is zero up to rounding, on which
 * gradients of keys' biases depend, since they are such differences. */
#include "dev/cpu/isa/attention.h"

#include <math.h>

#include "dev/cpu/attention_plan.h"
#include "dev/cpu/isa/rows.h"
#include "dev/cpu/isa/vec.h"
#include "dev/math.h"

#if defined(__AVX512F__)
enum { MIX_ROWS = 8 };
#else
enum { MIX_ROWS = 4 };
#endif

/* ---- products ---- */

/* `rows` x `wide` vectors of c [., c_stride] (+)= sum over k < depth of a[r row + k step] times row
 * k of b [., b_stride]. */
ALWAYS_INLINE void mix_block(float *c, int64_t c_stride, const float *a, int64_t row, int64_t step,
                             const float *b, int64_t b_stride, int64_t depth, bool add, int rows,
                             int wide)
{
    vec sum[MIX_ROWS][2];
    TIMES(r, rows)
    TIMES(j, wide) sum[r][j] = add ? vec_load(c + r * c_stride + j * VL) : vec_all(0);
    for (int64_t k = 0; k < depth; k++, a += step, b += b_stride) {
        vec x[2];
        TIMES(j, wide) x[j] = vec_load(b + j * VL);
        TIMES(r, rows)
        {
            vec y = vec_all(a[r * row]);
            TIMES(j, wide) sum[r][j] = vec_fma(y, x[j], sum[r][j]);
        }
    }
    TIMES(r, rows)
    TIMES(j, wide) vec_store(c + r * c_stride + j * VL, sum[r][j]);
}

/* All rows of `wide` vectors. */
ALWAYS_INLINE void mix_rows(float *c, int64_t c_stride, const float *a, int64_t row, int64_t step,
                            const float *b, int64_t b_stride, int64_t rows, int64_t depth, bool add,
                            int wide)
{
    int64_t r = 0;
    for (; r + MIX_ROWS <= rows; r += MIX_ROWS)
        mix_block(c + r * c_stride, c_stride, a + r * row, row, step, b, b_stride, depth, add,
                  MIX_ROWS, wide);
    if (MIX_ROWS == 8 && r + 4 <= rows) {
        mix_block(c + r * c_stride, c_stride, a + r * row, row, step, b, b_stride, depth, add, 4,
                  wide);
        r += 4;
    }
    if (r + 2 <= rows) {
        mix_block(c + r * c_stride, c_stride, a + r * row, row, step, b, b_stride, depth, add, 2,
                  wide);
        r += 2;
    }
    if (r < rows)
        mix_block(c + r * c_stride, c_stride, a + r * row, row, step, b, b_stride, depth, add, 1,
                  wide);
}

/* c [rows, width] (+)= sum over k of a[r row + k step] b[k]; width: whole vectors. */
static void mix(float *c, int64_t c_stride, const float *a, int64_t row, int64_t step,
                const float *b, int64_t b_stride, int64_t rows, int64_t width, int64_t depth,
                bool add)
{
    int64_t j = 0;
    for (; j + 2 * VL <= width; j += 2 * VL)
        mix_rows(c + j, c_stride, a, row, step, b + j, b_stride, rows, depth, add, 2);
    for (; j < width; j += VL)
        mix_rows(c + j, c_stride, a, row, step, b + j, b_stride, rows, depth, add, 1);
}

/* ---- moving ---- */

/* Rows of one head, `stride` elements apart, as fp32 in [rows, width], padded with zeros. */
static void gather(float *to, int64_t width, const void *from, wd_dtype type, int64_t at,
                   int64_t stride, int64_t rows, int64_t head_dim)
{
    for (int64_t r = 0; r < rows; r++, at += stride, to += width) {
        const float *row = widen(to, from, type, at, head_dim);
        if (row != to) EACH(i, head_dim) to[i] = row[i];
        for (int64_t i = head_dim; i < width; i++) to[i] = 0;
    }
}

static void scatter(void *to, wd_dtype type, int64_t at, int64_t stride, const float *from,
                    int64_t width, int64_t rows, int64_t head_dim)
{
    for (int64_t r = 0; r < rows; r++, at += stride, from += width) {
        if (type == WD_F32)
            EACH(i, head_dim)((float *)to)[at + i] = from[i];
        else
            narrow(to, type, at, from, head_dim);
    }
}

/* to [width, lanes] = scale from [lanes, width]. */
static void transpose(float *to, const float *from, int64_t width, int64_t lanes, float scale)
{
    vec factor = vec_all(scale);
    for (int64_t i = 0; i < lanes; i += VL)
        for (int64_t j = 0; j < width; j += VL) {
            vec v[VL];
            TIMES(r, VL) v[r] = vec_load(from + (i + r) * width + j) * factor;
            vec_transpose(v);
            TIMES(r, VL) vec_store(to + (j + r) * lanes + i, v[r]);
        }
}

/* ---- forward ---- */

/* Buffers of one thread: see wd__attention_small_floats. */
typedef struct scratch {
    float *k, *v, *dk, *dv;     /* [S, width] */
    float *rows, *turned, *out; /* [lanes, width], [width, lanes], [lanes, width] */
    float *d_rows, *d_turned;   /* rows and turned of do */
    float *p, *dp;              /* [S, lanes] */
} scratch;

static scratch scratch_in(float *memory, int64_t keys, int64_t width, bool backward)
{
    int64_t key_size = keys * width, lane_size = WD_ATTENTION_LANES_MAX * width;
    scratch s = {.k = memory, .v = memory + key_size};
    memory += 2 * key_size;
    s.rows = memory, s.turned = memory + lane_size, s.out = memory + 2 * lane_size;
    memory += 3 * lane_size;
    s.p = memory;
    memory += keys * WD_ATTENTION_LANES_MAX;
    if (!backward) return s;
    s.dk = memory, s.dv = memory + key_size;
    memory += 2 * key_size;
    s.d_rows = memory, s.d_turned = memory + lane_size;
    s.dp = memory + 2 * lane_size;
    return s;
}

/* Bias and mask of one sample and head are added to p [keys, lanes], from query l0 on. */
static void add_bias(float *p, const wd_attention_args *a, int64_t b, int64_t n, int64_t l0,
                     int64_t queries, int64_t lanes)
{
    for (int64_t s = 0; s < a->kv_tokens; s++)
        for (int64_t l = 0; l < queries; l++) {
            if (a->bias) p[s * lanes + l] += a->bias[(n * a->q_tokens + l0 + l) * a->kv_tokens + s];
            if (a->mask) p[s * lanes + l] += a->mask[b * a->kv_tokens + s];
        }
}

/* The last row of p [keys, lanes] is the score of `repeat` equal keys. */
static void repeat_last(float *p, int64_t repeat, int64_t keys, int64_t lanes)
{
    float more = log_repeat(repeat);
    if (more != 0) EACH(j, lanes) p[(keys - 1) * lanes + j] += more;
}

/* p [keys, lanes] becomes its softmax over keys; lse [lanes] if it is wanted. */
ALWAYS_INLINE void softmax_lanes(float *restrict p, float *lse, int64_t keys, int lanes)
{
    float most[WD_ATTENTION_LANES_MAX], sum[WD_ATTENTION_LANES_MAX] = {0};
    for (int j = 0; j < lanes; j++) most[j] = p[j];
    for (int64_t s = 1; s < keys; s++)
        for (int j = 0; j < lanes; j++)
            most[j] = p[s * lanes + j] > most[j] ? p[s * lanes + j] : most[j];
    for (int64_t s = 0; s < keys; s++)
        for (int j = 0; j < lanes; j++) {
            p[s * lanes + j] = exp_f32(p[s * lanes + j] - most[j]);
            sum[j] += p[s * lanes + j];
        }
    if (lse)
        for (int j = 0; j < lanes; j++) lse[j] = most[j] + logf(sum[j]);
    for (int j = 0; j < lanes; j++) sum[j] = 1.0f / sum[j];
    for (int64_t s = 0; s < keys; s++)
        for (int j = 0; j < lanes; j++) p[s * lanes + j] *= sum[j];
}

/* Queries are taken one or two vectors at a time. */
static int64_t lanes_for(int64_t queries)
{
    return queries > VL ? 2 * VL : VL;
}

static void head_forward(const wd_attention_args *a, int64_t b, int64_t n, scratch s)
{
    int64_t keys = a->kv_tokens, dim = a->head_dim, width = wd__attention_padded(dim);
    int64_t lanes = lanes_for(a->q_tokens), at_kv = (a->kv_samples == 1 ? 0 : b) * keys;
    gather(s.k, width, a->k, a->type, at_kv * a->kv_stride + n * dim, a->kv_stride, keys, dim);
    gather(s.v, width, a->v, a->type, at_kv * a->kv_stride + n * dim, a->kv_stride, keys, dim);
    for (int64_t l = 0; l < a->q_tokens; l += lanes) {
        int64_t queries = least(lanes, a->q_tokens - l), row = b * a->q_tokens + l;
        float lse[WD_ATTENTION_LANES_MAX];
        gather(s.rows, width, a->q, a->type, row * a->q_stride + n * dim, a->q_stride, queries,
               dim);
        memset(s.rows + queries * width, 0, (size_t)((lanes - queries) * width) * sizeof(float));
        transpose(s.turned, s.rows, width, lanes, a->scale);
        mix(s.p, lanes, s.k, width, 1, s.turned, lanes, keys, lanes, dim, false);
        if (a->bias || a->mask) add_bias(s.p, a, b, n, l, queries, lanes);
        repeat_last(s.p, a->last_key_repeat, keys, lanes);
        if (lanes == VL)
            softmax_lanes(s.p, a->lse ? lse : NULL, keys, VL);
        else
            softmax_lanes(s.p, a->lse ? lse : NULL, keys, 2 * VL);
        mix(s.out, width, s.p, 1, lanes, s.v, width, queries, width, keys, false);
        scatter(a->o, a->type, row * a->o_stride + n * dim, a->o_stride, s.out, width, queries,
                dim);
        if (a->lse)
            memcpy(a->lse + (b * a->heads + n) * a->q_tokens + l, lse,
                   (size_t)queries * sizeof *lse);
    }
}

/* ---- backward ---- */

/* p = exp(p - lse), ds = p (dp - delta) scale. */
ALWAYS_INLINE void softmax_backward_lanes(float *restrict p, float *restrict dp, const float *lse,
                                          float scale, int64_t keys, int lanes)
{
    float delta[WD_ATTENTION_LANES_MAX] = {0}, sum[WD_ATTENTION_LANES_MAX] = {0};
    for (int64_t s = 0; s < keys; s++)
        for (int j = 0; j < lanes; j++) {
            int64_t i = s * lanes + j;
            p[i] = exp_f32(p[i] - lse[j]);
            delta[j] += p[i] * dp[i];
            sum[j] += p[i];
        }
    for (int j = 0; j < lanes; j++) delta[j] /= sum[j];
    float rest[WD_ATTENTION_LANES_MAX] = {0}; /* what rounding has left */
    for (int64_t s = 0; s < keys; s++)
        for (int j = 0; j < lanes; j++)
            rest[j] += p[s * lanes + j] * (dp[s * lanes + j] - delta[j]);
    for (int j = 0; j < lanes; j++) delta[j] += rest[j] / sum[j];
    for (int64_t s = 0; s < keys; s++)
        for (int j = 0; j < lanes; j++) {
            int64_t i = s * lanes + j;
            dp[i] = p[i] * (dp[i] - delta[j]) * scale;
        }
}

static void head_backward(const wd_attention_backward_args *a, int64_t b, int64_t n, scratch s)
{
    int64_t keys = a->kv_tokens, dim = a->head_dim, width = wd__attention_padded(dim);
    int64_t lanes = lanes_for(a->q_tokens), at_kv = b * keys * a->kv_stride + n * dim;
    gather(s.k, width, a->k, a->type, at_kv, a->kv_stride, keys, dim);
    gather(s.v, width, a->v, a->type, at_kv, a->kv_stride, keys, dim);
    for (int64_t l = 0; l < a->q_tokens; l += lanes) {
        int64_t queries = least(lanes, a->q_tokens - l), row = b * a->q_tokens + l;
        size_t empty = (size_t)((lanes - queries) * width) * sizeof(float);
        float lse[WD_ATTENTION_LANES_MAX] = {0};
        memcpy(lse, a->lse + (b * a->heads + n) * a->q_tokens + l, (size_t)queries * sizeof *lse);
        gather(s.rows, width, a->q, a->type, row * a->q_stride + n * dim, a->q_stride, queries,
               dim);
        gather(s.d_rows, width, a->d_o, a->type, row * a->o_stride + n * dim, a->o_stride, queries,
               dim);
        memset(s.rows + queries * width, 0, empty);
        memset(s.d_rows + queries * width, 0, empty);
        transpose(s.turned, s.rows, width, lanes, a->scale);
        transpose(s.d_turned, s.d_rows, width, lanes, 1);
        mix(s.p, lanes, s.k, width, 1, s.turned, lanes, keys, lanes, dim, false);
        mix(s.dp, lanes, s.v, width, 1, s.d_turned, lanes, keys, lanes, dim, false);
        repeat_last(s.p, a->last_key_repeat, keys, lanes);
        if (lanes == VL)
            softmax_backward_lanes(s.p, s.dp, lse, a->scale, keys, VL);
        else
            softmax_backward_lanes(s.p, s.dp, lse, a->scale, keys, 2 * VL);
        mix(s.dv, width, s.p, lanes, 1, s.d_rows, width, keys, width, queries, l > 0);
        mix(s.dk, width, s.dp, lanes, 1, s.rows, width, keys, width, queries, l > 0);
        mix(s.out, width, s.dp, 1, lanes, s.k, width, queries, width, keys, false);
        scatter(a->dq, a->type, row * a->q_stride + n * dim, a->q_stride, s.out, width, queries,
                dim);
    }
    scatter(a->dk, a->type, at_kv, a->kv_stride, s.dk, width, keys, dim);
    scatter(a->dv, a->type, at_kv, a->kv_stride, s.dv, width, keys, dim);
}

/* ---- all heads ---- */

typedef struct job {
    const wd_attention_args *forward; /* one of the two */
    const wd_attention_backward_args *backward;
    int64_t pairs, heads, parts;
    float *workspace;
    size_t part_floats;
} job;

static void make_part(int64_t begin, int64_t end, void *context)
{
    const job *w = context;
    for (int64_t part = begin; part < end; part++) {
        float *memory = w->workspace + (size_t)part * w->part_floats;
        int64_t pair_end = w->pairs * (part + 1) / w->parts;
        for (int64_t pair = w->pairs * part / w->parts; pair < pair_end; pair++) {
            int64_t b = pair / w->heads, n = pair % w->heads;
            if (w->forward) {
                const wd_attention_args *a = w->forward;
                int64_t width = wd__attention_padded(a->head_dim);
                head_forward(a, b, n, scratch_in(memory, a->kv_tokens, width, false));
            } else {
                const wd_attention_backward_args *a = w->backward;
                int64_t width = wd__attention_padded(a->head_dim);
                head_backward(a, b, n, scratch_in(memory, a->kv_tokens, width, true));
            }
        }
    }
}

void KERNEL(attention_small)(const wd_attention_args *a, wd_cpu_context *context)
{
    job w = {.forward = a, .pairs = a->samples * a->heads, .heads = a->heads};
    w.part_floats = wd__attention_small_floats(a->kv_tokens, a->head_dim, false);
    w.parts = wd__attention_parts(w.pairs, a->q_tokens * a->kv_tokens * a->head_dim);
    w.workspace = context->workspace;
    wd_parallel_for(w.parts, 1, make_part, &w);
}

void KERNEL(attention_backward_small)(const wd_attention_backward_args *a, wd_cpu_context *context)
{
    job w = {.backward = a, .pairs = a->samples * a->heads, .heads = a->heads};
    w.part_floats = wd__attention_small_floats(a->kv_tokens, a->head_dim, true);
    w.parts = wd__attention_parts(w.pairs, a->q_tokens * a->kv_tokens * a->head_dim * 2);
    w.workspace = context->workspace;
    wd_parallel_for(w.parts, 1, make_part, &w);
}
