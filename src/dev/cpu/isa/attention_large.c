/* Attention over many tokens, forward: one task is a block of queries of one head. It processes the
 * keys in tiles and keeps a running maximum and sum per query (Milakov and Gimelshein, "Online
 * normalizer calculation for softmax", 2018; Dao et al., "FlashAttention", 2022), so that only the
 * scores of one tile and one panel are stored: [KEYS, WIDE] floats. */
#include "dev/cpu/isa/attention_large.h"

#include <math.h>

/* Buffers of one thread: see wd__attention_plan_forward. */
typedef struct scratch {
    unit *q;           /* packed columns: the queries of the block */
    unit *o;           /* [K, WIDE] for each panel of queries */
    unit *k, *v;       /* packed rows: keys; elements of the values */
    unit *p;           /* [KEYS, WIDE] */
    float *most, *sum; /* per query */
} scratch;

static scratch scratch_in(float *memory, int64_t queries, int64_t head_dim)
{
    int64_t width =
        (head_dim + WD_PRODUCT_WIDE_MAX - 1) / WD_PRODUCT_WIDE_MAX * WD_PRODUCT_WIDE_MAX;
    int64_t blocks = (head_dim + DEPTH - 1) / DEPTH;
    scratch s = {.q = memory, .o = memory + queries * width};
    s.k = s.o + queries * width;
    s.v = s.k + blocks * KEYS * LINE;
    s.p = s.v + width * LINE;
    s.most = s.p + KEYS * WD_PRODUCT_WIDE_MAX;
    s.sum = s.most + queries;
    return s;
}

/* p [keys, WIDE] = scale p + bias + mask, for queries l .. l + columns, keys from s on. */
static void add_bias(float *p, const wd_attention_args *a, int64_t b, int64_t n, int64_t l,
                     int64_t columns, int64_t s, int64_t keys)
{
    for (int64_t i = 0; i < keys; i++)
        for (int64_t j = 0; j < columns; j++) {
            float x = p[i * WIDE + j] * a->scale;
            if (a->bias) x += a->bias[(n * a->q_tokens + l + j) * a->kv_tokens + s + i];
            if (a->mask) x += a->mask[b * a->kv_tokens + s + i];
            p[i * WIDE + j] = x;
        }
}

/* p = exp(scale p - most), with `most` and `sum` updated; factor: by which earlier sums are
 * multiplied; more: is added to the last key's scaled score. */
static void softmax_panel(float *restrict p, float *restrict most, float *restrict sum,
                          float *restrict factor, int64_t keys, float scale, float more)
{
    float now[WIDE], base[WIDE], add[WIDE] = {0};
    for (int j = 0; j < WIDE; j++) now[j] = most[j];
    for (int64_t s = 0; s < keys; s++) {
        float add_s = s + 1 == keys ? more : 0;
        for (int j = 0; j < WIDE; j++) {
            float x = p[s * WIDE + j] * scale + add_s;
            p[s * WIDE + j] = x;
            now[j] = x > now[j] ? x : now[j];
        }
    }
    for (int j = 0; j < WIDE; j++) {
        base[j] = now[j] == -INFINITY ? 0 : now[j]; /* all keys so far are masked */
        factor[j] = exp_f32(most[j] - base[j]);
        most[j] = now[j];
    }
    for (int64_t s = 0; s < keys; s++)
        for (int j = 0; j < WIDE; j++) {
            float x = exp_f32(p[s * WIDE + j] - base[j]);
            p[s * WIDE + j] = x;
            add[j] += x;
        }
    for (int j = 0; j < WIDE; j++) sum[j] = sum[j] * factor[j] + add[j];
}

static void rescale(float *restrict o, const float *restrict factor, int64_t width)
{
    bool change = false;
    for (int j = 0; j < WIDE; j++) change |= factor[j] != 1;
    if (!change) return;
    for (int64_t d = 0; d < width; d++)
        for (int j = 0; j < WIDE; j++) o[d * WIDE + j] *= factor[j];
}

/* Computes all queries of the block [l, l + queries) with the keys [s, s + keys), which are packed
 * in x. */
static void meet_keys(const wd_attention_args *a, packing pack, int64_t b, int64_t n, int64_t l,
                      int64_t queries, int64_t s, int64_t keys, scratch x)
{
    float more = s + keys == a->kv_tokens ? log_repeat(a->last_key_repeat) : 0;
    for (int64_t j = 0; j < queries; j += WIDE) {
        int64_t columns = least(WIDE, queries - j);
        float factor[WIDE];
        unit *o = x.o + j * a->head_dim;
        multiply_panel(x.p, x.k, x.q, keys, j, queries, a->head_dim, pack);
        bool biased = a->bias || a->mask;
        if (biased) add_bias(x.p, a, b, n, l + j, columns, s, keys);
        softmax_panel(x.p, x.most + j, x.sum + j, factor, keys, biased ? 1 : a->scale, more);
        if (s > 0) rescale(o, factor, a->head_dim);
        if (pack == PACK_PAIR) pair_rows(x.p, keys);
        multiply_rows(o, WIDE, x.v, x.p, a->head_dim, columns, units_of(pack, keys), s > 0, pack);
    }
}

static void make_block(const wd_attention_args *a, int64_t b, int64_t n, int64_t l, int64_t queries,
                       scratch x)
{
    packing pack = packing_of(a->type);
    int64_t dim = a->head_dim, kv = a->kv_samples == 1 ? 0 : b;
    operand q = head_of(a->q, a->type, b * a->q_tokens * a->q_stride + n * dim, a->q_stride);
    operand k = head_of(a->k, a->type, kv * a->kv_tokens * a->kv_stride + n * dim, a->kv_stride);
    operand v = head_of(a->v, a->type, kv * a->kv_tokens * a->kv_stride + n * dim, a->kv_stride);
    pack_many_columns(x.q, q, pack, l, l + queries, dim);
    for (int64_t j = 0; j < whole_panels(queries); j++) x.most[j] = -INFINITY, x.sum[j] = 0;
    for (int64_t s = 0; s < a->kv_tokens; s += KEYS) {
        int64_t keys = least(KEYS, a->kv_tokens - s);
        pack_many_rows(x.k, k, pack, s, keys, a->kv_tokens, 0, dim);
        pack_many_rows(x.v, turned(v), pack, 0, dim, dim, s, s + keys);
        meet_keys(a, pack, b, n, l, queries, s, keys, x);
    }
    for (int64_t j = 0; j < queries; j += WIDE) {
        int64_t columns = least(WIDE, queries - j), row = b * a->q_tokens + l + j;
        float factor[WIDE];
        for (int i = 0; i < WIDE; i++) factor[i] = 1.0f / x.sum[j + i];
        rescale(x.o + j * dim, factor, dim);
        store_turned(a->o, a->type, row * a->o_stride + n * dim, a->o_stride, x.o + j * dim, dim,
                     columns);
        float *lse = a->lse + ((b * a->heads + n) * a->q_tokens + l + j);
        for (int64_t i = 0; a->lse && i < columns; i++) lse[i] = x.most[j + i] + logf(x.sum[j + i]);
    }
}

typedef struct job {
    const wd_attention_args *args;
    wd_attention_plan plan;
    float *workspace;
} job;

static void make_part(int64_t begin, int64_t end, void *context)
{
    const job *w = context;
    const wd_attention_args *a = w->args;
    const wd_attention_plan *p = &w->plan;
    int64_t blocks = p->tasks / (a->samples * a->heads);
    bool amx = on_amx(packing_of(a->type));
    if (amx) amx_configure(PAIR_ROWS);
    for (int64_t part = begin; part < end; part++) {
        scratch x =
            scratch_in(w->workspace + (size_t)part * p->part_floats, p->queries, a->head_dim);
        int64_t task = p->tasks * part / p->parts, task_end = p->tasks * (part + 1) / p->parts;
        for (; task < task_end; task++) {
            int64_t pair = task / blocks, l = task % blocks * p->queries;
            make_block(a, pair / a->heads, pair % a->heads, l, least(p->queries, a->q_tokens - l),
                       x);
        }
    }
    if (amx) amx_release();
}

void KERNEL(attention_large)(const wd_attention_args *a, wd_cpu_context *context)
{
    job w = {a, wd__attention_plan_forward(a->samples * a->heads, a->q_tokens, a->head_dim),
             context->workspace};
    wd_parallel_for(w.plan.parts, 1, make_part, &w);
}
