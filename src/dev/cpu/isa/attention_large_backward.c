/* Attention over many tokens, backward: one task is one head. For every tile of keys it processes
 * the queries in blocks, and computes the probabilities again from lse:
 *
 *     p = exp(scale k q - lse), dp = v do, ds = p (dp - delta) scale, delta = sum over d of do o
 *     dq += k ds (kept transposed until the end), dv += p do, dk += ds q
 *
 * If one tile has all keys, delta is the sum of p dp over the sum of p instead. Then the sum of ds
 * over keys is zero up to rounding, on which gradients of keys' biases depend, since they are such
 * differences.
 *
 * p and ds are needed in two roles: as rows (of keys, summed over queries) and ds as a panel (of
 * queries, summed over keys).
 */
#include "dev/cpu/isa/attention_large.h"

#include <math.h>

/* Buffers of one thread: see wd__attention_plan_backward. */
typedef struct scratch {
    unit *q, *d_o; /* packed columns: queries of the block, summed over the head dimension */
    unit *q_sum, *d_o_sum;  /* packed columns: elements, summed over queries */
    unit *k, *v;            /* packed rows: keys of the tile */
    unit *k_turned;         /* packed rows: elements, summed over keys */
    unit *p, *dp, *ds;      /* [KEYS, WIDE] of one panel */
    unit *p_rows, *ds_rows; /* [KEYS, LINE], summed over queries */
    unit *dk, *dv;          /* [KEYS, width] */
    unit *dq;               /* [K, WIDE] for each panel of queries */
    float *lse, *delta;     /* per query; infinity and 0 for lanes without a query */
    int64_t width;
} scratch;

static scratch scratch_in(float *memory, int64_t block, int64_t q_tokens, int64_t head_dim)
{
    int64_t width =
        (head_dim + WD_PRODUCT_WIDE_MAX - 1) / WD_PRODUCT_WIDE_MAX * WD_PRODUCT_WIDE_MAX;
    int64_t rows = (head_dim + DEPTH - 1) / DEPTH * KEYS * LINE, panel = KEYS * WD_PRODUCT_WIDE_MAX;
    int64_t tokens = (q_tokens + block - 1) / block * block;
    scratch s = {.width = width};
    unit **const array[] = {&s.q,  &s.d_o, &s.q_sum,  &s.d_o_sum, &s.k,  &s.v,  &s.k_turned, &s.p,
                            &s.dp, &s.ds,  &s.p_rows, &s.ds_rows, &s.dk, &s.dv, &s.dq};
    const int64_t size[] = {block * width, block * width, block * width, block * width,
                            rows,          rows,          width * LINE,  panel,
                            panel,         panel,         KEYS * LINE,   KEYS * LINE,
                            KEYS * width,  KEYS * width,  tokens * width};
    for (size_t i = 0; i < sizeof array / sizeof *array; i++) {
        *array[i] = memory;
        memory += size[i];
    }
    s.lse = memory;
    s.delta = memory + tokens;
    return s;
}

/* A row of WIDE values as units of a packed row, summed over queries from l on. */
ALWAYS_INLINE void store_row(unit *row, int64_t l, const float *x, packing pack)
{
    if (pack != PACK_PAIR) {
        memcpy(row + l, x, WIDE * sizeof *x);
        return;
    }
    uint16_t narrow_x[WIDE];
    for (int j = 0; j < WIDE; j++) narrow_x[j] = (uint16_t)(bf16_bits(x[j]) >> 16);
    memcpy(row + l / 2, narrow_x, sizeof narrow_x);
}

/* Replaces scores by p; if the tile has all keys, also computes delta: see the top. more: is added
 * to the last key's scaled score. */
ALWAYS_INLINE void probabilities(scratch x, const float *lse, float *delta, int64_t keys,
                                 float scale, float more, bool all_keys)
{
    float sum[WIDE] = {0}, sum_dp[WIDE] = {0};
    for (int64_t s = 0; s < keys; s++) {
        float add_s = s + 1 == keys ? more : 0;
        for (int j = 0; j < WIDE; j++) {
            float p = exp_f32(x.p[s * WIDE + j] * scale + add_s - lse[j]);
            x.p[s * WIDE + j] = p;
            sum[j] += p;
            sum_dp[j] += p * x.dp[s * WIDE + j];
        }
    }
    if (!all_keys) return;
    float rest[WIDE] = {0}; /* what rounding has left */
    for (int j = 0; j < WIDE; j++) delta[j] = sum[j] > 0 ? sum_dp[j] / sum[j] : 0;
    for (int64_t s = 0; s < keys; s++)
        for (int j = 0; j < WIDE; j++)
            rest[j] += x.p[s * WIDE + j] * (x.dp[s * WIDE + j] - delta[j]);
    for (int j = 0; j < WIDE; j++) delta[j] += sum[j] > 0 ? rest[j] / sum[j] : 0;
}

/* From p and dp of a panel, whose queries begin at l of the block: p_rows, ds_rows and ds. */
ALWAYS_INLINE void softmax_backward_panel(scratch x, const float *delta, int64_t l, int64_t keys,
                                          float scale, packing pack)
{
    for (int64_t s = 0; s < keys; s++) {
        float p[WIDE], ds[WIDE];
        for (int j = 0; j < WIDE; j++) {
            p[j] = x.p[s * WIDE + j];
            ds[j] = p[j] * (x.dp[s * WIDE + j] - delta[j]) * scale;
        }
        store_row(x.p_rows + s * LINE, l, p, pack);
        store_row(x.ds_rows + s * LINE, l, ds, pack);
        memcpy(x.ds + s * WIDE, ds, sizeof ds);
    }
    if (pack == PACK_PAIR) pair_rows(x.ds, keys);
}

/* c [keys, width] (+)= rows [keys, LINE], summed over the block's queries, times packed elements.
 */
static void sum_over_queries(unit *c, const unit *rows, const unit *columns, int64_t keys,
                             int64_t queries, int64_t head_dim, int64_t width, bool add,
                             packing pack)
{
    int64_t depth = units_of(pack, queries);
    for (int64_t d = 0; d < head_dim; d += WIDE)
        multiply_rows(c + d, width, rows, columns + d * depth, keys, least(WIDE, head_dim - d),
                      depth, add, pack);
}

/* Computes the block of queries [l, l + queries) with the tile of keys [s, s + keys), which is
 * packed in x. */
static void meet(const wd_attention_backward_args *a, packing pack, operand q, operand d_o,
                 int64_t l, int64_t queries, int64_t s, int64_t keys, scratch x)
{
    int64_t dim = a->head_dim;
    float more = s + keys == a->kv_tokens ? log_repeat(a->last_key_repeat) : 0;
    pack_many_columns(x.q, q, pack, l, l + queries, dim);
    pack_many_columns(x.d_o, d_o, pack, l, l + queries, dim);
    pack_columns(x.q_sum, turned(q), pack, 0, dim, l, l + queries);
    pack_columns(x.d_o_sum, turned(d_o), pack, 0, dim, l, l + queries);
    for (int64_t j = 0; j < queries; j += WIDE) {
        multiply_panel(x.p, x.k, x.q, keys, j, queries, dim, pack);
        multiply_panel(x.dp, x.v, x.d_o, keys, j, queries, dim, pack);
        probabilities(x, x.lse + l + j, x.delta + l + j, keys, a->scale, more,
                      keys == a->kv_tokens);
        softmax_backward_panel(x, x.delta + l + j, j, keys, a->scale, pack);
        multiply_rows(x.dq + (l + j) * dim, WIDE, x.k_turned, x.ds, dim, least(WIDE, queries - j),
                      units_of(pack, keys), s > 0, pack);
    }
    sum_over_queries(x.dv, x.p_rows, x.d_o_sum, keys, queries, dim, x.width, l > 0, pack);
    sum_over_queries(x.dk, x.ds_rows, x.q_sum, keys, queries, dim, x.width, l > 0, pack);
}

/* Computes lse and delta of all queries of one head; lanes without a query in the last panel get p
 * = 0. */
static void prepare_queries(const wd_attention_backward_args *a, int64_t b, int64_t n, scratch x)
{
    int64_t dim = a->head_dim;
    const float *lse = a->lse + (b * a->heads + n) * a->q_tokens;
    float left_buffer[1024], right_buffer[1024];
    for (int64_t l = 0; l < a->q_tokens; l++) {
        int64_t at = (b * a->q_tokens + l) * a->o_stride + n * dim;
        float sum = 0;
        for (int64_t d = 0; d < dim; d += 1024) {
            int64_t count = least(1024, dim - d);
            const float *left = widen(left_buffer, a->d_o, a->type, at + d, count);
            const float *right = widen(right_buffer, a->o, a->type, at + d, count);
            float part;
            SUM_OF(part, count, i, left[i] * right[i]);
            sum += part;
        }
        x.lse[l] = lse[l];
        x.delta[l] = sum;
    }
    for (int64_t l = a->q_tokens; l < whole_panels(a->q_tokens); l++)
        x.lse[l] = INFINITY, x.delta[l] = 0;
}

static void store_keys(void *to, wd_dtype type, int64_t at, int64_t stride, const unit *x,
                       int64_t width, int64_t keys, int64_t head_dim)
{
    for (int64_t s = 0; s < keys; s++, at += stride, x += width)
        if (type == WD_F32)
            memcpy((float *)to + at, x, (size_t)head_dim * sizeof *x);
        else
            narrow(to, type, at, x, head_dim);
}

static void make_head(const wd_attention_backward_args *a, int64_t b, int64_t n, int64_t block,
                      scratch x)
{
    packing pack = packing_of(a->type);
    int64_t dim = a->head_dim, at_q = b * a->q_tokens * a->q_stride + n * dim;
    int64_t at_kv = b * a->kv_tokens * a->kv_stride + n * dim;
    operand q = head_of(a->q, a->type, at_q, a->q_stride);
    operand k = head_of(a->k, a->type, at_kv, a->kv_stride);
    operand v = head_of(a->v, a->type, at_kv, a->kv_stride);
    operand d_o = head_of(a->d_o, a->type, b * a->q_tokens * a->o_stride + n * dim, a->o_stride);
    prepare_queries(a, b, n, x);
    for (int64_t s = 0; s < a->kv_tokens; s += KEYS) {
        int64_t keys = least(KEYS, a->kv_tokens - s), at = at_kv + s * a->kv_stride;
        pack_many_rows(x.k, k, pack, s, keys, a->kv_tokens, 0, dim);
        pack_many_rows(x.v, v, pack, s, keys, a->kv_tokens, 0, dim);
        pack_many_rows(x.k_turned, turned(k), pack, 0, dim, dim, s, s + keys);
        for (int64_t l = 0; l < a->q_tokens; l += block)
            meet(a, pack, q, d_o, l, least(block, a->q_tokens - l), s, keys, x);
        store_keys(a->dk, a->type, at, a->kv_stride, x.dk, x.width, keys, dim);
        store_keys(a->dv, a->type, at, a->kv_stride, x.dv, x.width, keys, dim);
    }
    for (int64_t l = 0; l < a->q_tokens; l += WIDE)
        store_turned(a->dq, a->type, at_q + l * a->q_stride, a->q_stride, x.dq + l * dim, dim,
                     least(WIDE, a->q_tokens - l));
}

typedef struct job {
    const wd_attention_backward_args *args;
    wd_attention_plan plan;
    float *workspace;
} job;

static void make_part(int64_t begin, int64_t end, void *context)
{
    const job *w = context;
    const wd_attention_backward_args *a = w->args;
    const wd_attention_plan *p = &w->plan;
    bool amx = on_amx(packing_of(a->type));
    if (amx) amx_configure(PAIR_ROWS);
    for (int64_t part = begin; part < end; part++) {
        scratch x = scratch_in(w->workspace + (size_t)part * p->part_floats, p->queries,
                               a->q_tokens, a->head_dim);
        int64_t pair_end = p->tasks * (part + 1) / p->parts;
        for (int64_t pair = p->tasks * part / p->parts; pair < pair_end; pair++)
            make_head(a, pair / a->heads, pair % a->heads, p->queries, x);
    }
    if (amx) amx_release();
}

void KERNEL(attention_backward_large)(const wd_attention_backward_args *a, wd_cpu_context *context)
{
    job w = {a, wd__attention_plan_backward(a->samples * a->heads, a->q_tokens, a->head_dim),
             context->workspace};
    wd_parallel_for(w.plan.parts, 1, make_part, &w);
}
