/* The UMT5 encoder: see model/text/umt5.h. Matches UMT5Stack of transformers' modeling_umt5.py.
 *
 *   x = embedding[ids]
 *   per layer:  n = rms(x);  x += O attention(Q n, K n, V n; bias of this layer)
 *               n = rms(x);  x += WO (gelu_new(WI0 n) * WI1 n)
 *   out = rms(x)
 *
 * x [R, D] of all prompts stays on the device; everything else exists for a piece of PIECE_ROWS
 * rows at a time. Unlike T5, every layer has a bias table of its own. The scores are not scaled. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "dev/codec/values.h"
#include "model/dit/layers.h"
#include "model/text/umt5_impl.h"

enum { PIECE_ROWS = 1024, EMBED_ROWS = 64 };

/* The prompts of one call. */
typedef struct batch {
    const int32_t *ids;   /* [first[samples]] host */
    const int64_t *first; /* [samples + 1] */
    const int32_t *mask; /* [samples, tokens_max] host, or NULL: all prompts attend to all tokens */
    int64_t samples, tokens_max, piece_rows;
} batch;

/* Device memory of one call. */
typedef struct buffers {
    void *x;         /* [R, D] residual stream */
    void *n;         /* [piece, max(D, N K)] normed rows; the attention's output */
    void *q;         /* [piece, max(D, N K)] queries; the output of either branch */
    void *k, *v;     /* [piece, N K] */
    void *g, *u;     /* [piece, E] gate and up projection; overlap k and v */
    float *wide;     /* [piece, D] rows of the result as F32; overlaps k and v */
    float *relative; /* [layers, N, 2 tokens_max - 1] bias by distance */
    float *bias;     /* [N, L, L] of one layer and prompt length */
    float *mask;     /* [samples, tokens_max], or NULL */
} buffers;

/* ---- on the host: embedding, relative bias, mask ---- */

/* Writes one row of the embedding in the compute dtype. */
static void embed(char *to, const wd_umt5 *e, int32_t id)
{
    int64_t width = e->config.d_model;
    const wd_tensor *table = &e->embedding->tensor;
    size_t row_bytes = (size_t)width * wd_dtype_bytes(e->dtype);
    if (table->dtype == e->dtype) {
        memcpy(to, (const char *)table->data + (size_t)id * row_bytes, row_bytes);
        return;
    }
    for (int64_t i = 0; i < width; i++) {
        float v;
        wd_tensor_values(&v, table, id * width + i, 1);
        if (e->dtype == WD_F32)
            ((float *)(void *)to)[i] = v;
        else
            ((uint16_t *)(void *)to)[i] = wd_f32_to_bf16(v);
    }
}

/* x = embedding[ids], gathered in host memory, since the table may be larger than the device. */
static wd_status embed_all(const buffers *d, wd_umt5 *e, const batch *b, wd_err *err)
{
    int64_t rows = b->first[b->samples];
    size_t row_bytes = (size_t)e->config.d_model * wd_dtype_bytes(e->dtype);
    void *block;
    if (wd_device_is_dry(wd_queue_device(e->queue))) rows = 0;
    WD_TRY(wd_alloc(&block, EMBED_ROWS, row_bytes, "text embeddings", err));
    char *staged = block;
    for (int64_t r = 0; r < rows; r += EMBED_ROWS) {
        int64_t count = rows - r < EMBED_ROWS ? rows - r : EMBED_ROWS;
        for (int64_t i = 0; i < count; i++) embed(staged + i * row_bytes, e, b->ids[r + i]);
        wd_queue_copy_and_wait(e->queue, (char *)d->x + r * row_bytes, staged, count * row_bytes);
    }
    wd_free(block);
    return WD_OK;
}

/* T5's bucket of key position minus query position, in both directions: half of the buckets each;
 * half of those have one distance each, the others grow logarithmically up to max_distance. */
static int64_t bucket_of(int64_t distance, const wd_umt5_config *c)
{
    int64_t half = c->buckets / 2, exact = half / 2, base = distance > 0 ? half : 0;
    int64_t n = distance > 0 ? distance : -distance;
    if (n < exact) return base + n;
    float scale = (float)log((double)c->max_distance / (double)exact);
    float grown = logf((float)n / (float)exact) / scale * (float)(half - exact);
    int64_t bucket = exact + (int64_t)grown;
    return base + (bucket < half ? bucket : half - 1);
}

/* Uploads relative[layer][head][distance + tokens_max - 1], rounded as the weights are, and the
 * mask as values that are added to scores. */
static wd_status upload_biases(const buffers *d, wd_umt5 *e, const batch *b, wd_err *err)
{
    void *block;
    const wd_umt5_config *c = &e->config;
    int64_t span = 2 * b->tokens_max - 1, count = c->layers * c->heads * span;
    int64_t masked = b->mask ? b->samples * b->tokens_max : 0;
    if (wd_device_is_dry(wd_queue_device(e->queue))) return WD_OK;
    WD_TRY(wd_alloc(&block, (size_t)(count + masked), sizeof(float), "text position bias", err));
    float *relative = block, *mask = relative + count;
    for (int64_t layer = 0; layer < c->layers; layer++) {
        const wd_tensor *table = &e->line[wd__umt5_layer_line(layer) + WD_UMT5_BIAS]->tensor;
        for (int64_t head = 0; head < c->heads; head++)
            for (int64_t i = 0; i < span; i++) {
                int64_t bucket = bucket_of(i - b->tokens_max + 1, c);
                float v;
                wd_tensor_values(&v, table, bucket * c->heads + head, 1);
                if (e->dtype == WD_BF16) v = wd_bf16_to_f32(wd_f32_to_bf16(v));
                relative[(layer * c->heads + head) * span + i] = v;
            }
    }
    for (int64_t i = 0; i < masked; i++) mask[i] = b->mask[i] ? 0 : -FLT_MAX;
    wd_queue_copy_and_wait(e->queue, d->relative, relative, (size_t)count * sizeof(float));
    if (masked) wd_queue_copy_and_wait(e->queue, d->mask, mask, (size_t)masked * sizeof(float));
    wd_free(block);
    return WD_OK;
}

/* ---- layers ---- */

static void norm(void *y, const void *x, const wd_tensor *w, int64_t rows, const wd_umt5 *e)
{
    wd_op_rmsnorm(e->queue, &(wd_rmsnorm_args){.y = y,
                                               .x = x,
                                               .w = w->data,
                                               .type = e->dtype,
                                               .w_type = w->dtype,
                                               .rows = rows,
                                               .width = e->config.d_model,
                                               .head_dim = e->config.d_model,
                                               .tokens = 1,
                                               .eps = (float)e->config.eps,
                                               .round_first = true});
}

static void project(void *y, const void *x, const wd_tensor *w, int64_t rows, const wd_umt5 *e)
{
    wd_linear_forward(y, w->dim[0], x, wd_linear_of(w, NULL), rows, WD_ACT_NONE, e->queue);
}

static void add(void *x, const void *branch, int64_t rows, const wd_umt5 *e)
{
    wd_op_residual(e->queue, &(wd_residual_args){.y = x,
                                                 .x = x,
                                                 .branch = branch,
                                                 .type = e->dtype,
                                                 .rows = rows,
                                                 .width = e->config.d_model,
                                                 .rows_per_sample = rows});
}

/* bias[head][i][j] = relative[head][j - i], for `tokens` queries and keys. This is a Toeplitz
 * matrix: each row is the same array, read from one element earlier. */
static void spread_bias(const buffers *d, const wd_umt5 *e, const batch *b, int64_t layer,
                        int64_t tokens)
{
    int64_t span = 2 * b->tokens_max - 1, heads = e->config.heads;
    const float *relative = d->relative + layer * heads * span;
    wd_op_strided_copy(e->queue, &(wd_strided_copy_args){.to = d->bias,
                                                         .from = relative + b->tokens_max - 1,
                                                         .to_type = WD_F32,
                                                         .from_type = WD_F32,
                                                         .ndim = 3,
                                                         .dim = {heads, tokens, tokens},
                                                         .to_stride = {tokens * tokens, tokens, 1},
                                                         .from_stride = {span, -1, 1},
                                                         .alpha = 1});
}

/* n = attention of samples [begin, end), which all have `tokens` tokens; buffers start at row
 * `row`. */
static void attend(const buffers *d, const wd_umt5 *e, const batch *b, int64_t begin, int64_t end,
                   int64_t row)
{
    int64_t inner = e->config.heads * e->config.d_kv,
            tokens = b->first[begin + 1] - b->first[begin];
    size_t at = (size_t)(row * inner) * wd_dtype_bytes(e->dtype);
    wd_op_attention(e->queue,
                    &(wd_attention_args){.o = (char *)d->n + at,
                                         .q = (char *)d->q + at,
                                         .k = (char *)d->k + at,
                                         .v = (char *)d->v + at,
                                         .bias = d->bias,
                                         .mask = d->mask ? d->mask + begin * tokens : NULL,
                                         .type = e->dtype,
                                         .samples = end - begin,
                                         .kv_samples = end - begin,
                                         .heads = e->config.heads,
                                         .head_dim = e->config.d_kv,
                                         .q_tokens = tokens,
                                         .kv_tokens = tokens,
                                         .q_stride = inner,
                                         .kv_stride = inner,
                                         .o_stride = inner,
                                         .scale = 1});
}

/* The end of the samples from `begin` on that share a launch of attention: those of one length. A
 * GPU takes one at a time: its library has to make ready for each number of samples of each length,
 * which takes longer than all launches. */
static int64_t group_end(const wd_umt5 *e, const batch *b, int64_t begin, int64_t end)
{
    const int64_t tokens = b->first[begin + 1] - b->first[begin];
    int64_t next = begin + 1;
    if (!wd_device_traits(wd_queue_device(e->queue))->reads_host) return next;
    while (next < end && b->first[next + 1] - b->first[next] == tokens) next++;
    return next;
}

/* x += O attention(..) of samples [begin, end); *spread: the prompt length for which bias was
 * computed last. */
static void attention_part(const buffers *d, wd_umt5 *e, const wd_tensor *w, const batch *b,
                           int64_t layer, int64_t begin, int64_t end, int64_t *spread)
{
    int64_t row = b->first[begin], rows = b->first[end] - row;
    char *x = (char *)d->x + (size_t)(row * e->config.d_model) * wd_dtype_bytes(e->dtype);
    norm(d->n, x, &w[WD_UMT5_NORM1], rows, e);
    project(d->q, d->n, &w[WD_UMT5_Q], rows, e);
    project(d->k, d->n, &w[WD_UMT5_K], rows, e);
    project(d->v, d->n, &w[WD_UMT5_V], rows, e);
    for (int64_t i = begin, next; i < end; i = next) {
        int64_t tokens = b->first[i + 1] - b->first[i];
        next = group_end(e, b, i, end);
        if (*spread != tokens) spread_bias(d, e, b, layer, tokens);
        *spread = tokens;
        attend(d, e, b, i, next, b->first[i] - row);
    }
    project(d->q, d->n, &w[WD_UMT5_O], rows, e);
    add(x, d->q, rows, e);
}

/* x += WO (gelu_new(WI0 n) * WI1 n). */
static void feed_forward_part(const buffers *d, wd_umt5 *e, const wd_tensor *w, const batch *b,
                              int64_t begin, int64_t end)
{
    int64_t row = b->first[begin], rows = b->first[end] - row, count = rows * e->config.d_ff;
    char *x = (char *)d->x + (size_t)(row * e->config.d_model) * wd_dtype_bytes(e->dtype);
    norm(d->n, x, &w[WD_UMT5_NORM2], rows, e);
    project(d->g, d->n, &w[WD_UMT5_WI0], rows, e);
    project(d->u, d->n, &w[WD_UMT5_WI1], rows, e);
    wd_op_activation(e->queue, &(wd_activation_args){.y = d->g,
                                                     .x = d->g,
                                                     .type = e->dtype,
                                                     .count = count,
                                                     .act = WD_ACT_GELU_TANH,
                                                     .round_steps = true});
    wd_op_multiply(
        e->queue,
        &(wd_multiply_args){.y = d->g, .a = d->g, .b = d->u, .type = e->dtype, .count = count});
    project(d->q, d->g, &w[WD_UMT5_WO], rows, e);
    add(x, d->q, rows, e);
}

/* ---- a call ---- */

/* The end of the piece that begins at sample `begin`: as many samples as fit, at least one. */
static int64_t piece_end(const batch *b, int64_t begin)
{
    int64_t end = begin + 1;
    while (end < b->samples && b->first[end + 1] - b->first[begin] <= PIECE_ROWS) end++;
    return end;
}

static void lay_out(buffers *d, wd_arena *arena, const wd_umt5 *e, const batch *b,
                    wd_dtype out_type)
{
    const wd_umt5_config *c = &e->config;
    int64_t inner = c->heads * c->d_kv, width = inner > c->d_model ? inner : c->d_model;
    size_t element = wd_dtype_bytes(e->dtype), rows = (size_t)b->piece_rows;
    int64_t tokens = b->tokens_max;
    d->x = wd_arena_push(arena, (size_t)(b->first[b->samples] * c->d_model) * element);
    d->relative = wd_arena_push(arena, (size_t)(c->layers * c->heads * (2 * tokens - 1)) * 4);
    d->bias = wd_arena_push(arena, (size_t)(c->heads * tokens * tokens) * 4);
    d->mask = b->mask ? wd_arena_push(arena, (size_t)(b->samples * tokens) * 4) : NULL;
    d->n = wd_arena_push(arena, rows * (size_t)width * element);
    d->q = wd_arena_push(arena, rows * (size_t)width * element);
    size_t mark = wd_arena_mark(arena);
    d->k = wd_arena_push(arena, rows * (size_t)inner * element);
    d->v = wd_arena_push(arena, rows * (size_t)inner * element);
    wd_arena_reset(arena, mark);
    d->g = wd_arena_push(arena, rows * (size_t)c->d_ff * element);
    d->u = wd_arena_push(arena, rows * (size_t)c->d_ff * element);
    wd_arena_reset(arena, mark);
    if (out_type != e->dtype) d->wide = wd_arena_push(arena, rows * (size_t)c->d_model * 4);
}

/* out = rms(x), copied to the host. */
static void finish(void *out, wd_dtype out_type, const buffers *d, wd_umt5 *e, const batch *b)
{
    wd_arena stage = wd_arena_over(e->stage, e->stage_bytes);
    wd_tensor w = wd__umt5_bring(e, &stage, e->line[wd__umt5_norm_line(&e->config)]);
    int64_t width = e->config.d_model;
    for (int64_t begin = 0, end; begin < b->samples; begin = end) {
        end = piece_end(b, begin);
        int64_t row = b->first[begin], rows = b->first[end] - row;
        size_t out_row_bytes = (size_t)width * wd_dtype_bytes(out_type);
        const void *from = d->n;
        norm(d->n, (char *)d->x + (size_t)(row * width) * wd_dtype_bytes(e->dtype), &w, rows, e);
        if (out_type != e->dtype) {
            wd_op_cast(e->queue, &(wd_cast_args){.to = d->wide,
                                                 .from = d->n,
                                                 .to_type = out_type,
                                                 .from_type = e->dtype,
                                                 .count = rows * width});
            from = d->wide;
        }
        wd_queue_copy_and_wait(e->queue, (char *)out + (size_t)row * out_row_bytes, from,
                               (size_t)rows * out_row_bytes);
    }
}

static wd_status check_ids(const wd_umt5 *e, const batch *b, wd_err *err)
{
    for (int64_t i = 0; i < b->samples; i++)
        for (int64_t j = b->first[i]; j < b->first[i + 1]; j++) {
            if (b->ids[j] >= 0 && b->ids[j] < e->config.vocab_size) continue;
            return wd_fail(err, WD_MISMATCH,
                           "%s: token %" PRId64 " of prompt %" PRId64 " has id %" PRId32
                           ", expected 0 to %" PRId64
                           " (rows of %s): the tokenizer belongs to another text encoder",
                           e->embedding->file, j - b->first[i], i, b->ids[j],
                           e->config.vocab_size - 1, e->embedding->name);
        }
    return WD_OK;
}

/* Launches all layers of a call. */
/* false: a stop was requested on the way. */
static bool compute(void *out, wd_dtype out_type, const buffers *d, wd_umt5 *e, const batch *b)
{
    const bool dry = wd_device_is_dry(wd_queue_device(e->queue));
    wd_tensor w[WD_UMT5_LAYER_SLOTS];
    for (int64_t layer = 0; layer < e->config.layers; layer++) {
        int64_t spread = 0;
        wd__umt5_bring_layer(w, e, layer);
        for (int64_t begin = 0, end; begin < b->samples; begin = end) {
            end = piece_end(b, begin);
            if (!dry && wd_stop_requested()) return false;
            attention_part(d, e, w, b, layer, begin, end, &spread);
            feed_forward_part(d, e, w, b, begin, end);
        }
    }
    finish(out, out_type, d, e, b);
    return true;
}

static wd_status rehearse(void *out, wd_dtype out_type, const buffers *d, const wd_umt5 *e,
                          const batch *b, wd_err *err)
{
    wd_umt5 dry = *e;
    WD_TRY(wd_rehearsal_open(&dry.queue, e->queue, err));
    compute(out, out_type, d, &dry, b);
    return wd_rehearsal_close(dry.queue, e->queue, err);
}

static wd_status encode(wd_umt5 *e, void *out, wd_dtype out_type, batch *b, wd_err *err)
{
    wd_device *device = wd_queue_device(e->queue);
    void *memory = NULL;
    buffers d = {0};
    wd_arena arena = wd_arena_over(NULL, SIZE_MAX);
    wd_status status = WD_OK;
    if (b->samples == 0) return WD_OK;
    for (int64_t begin = 0, end; begin < b->samples; begin = end) {
        end = piece_end(b, begin);
        int64_t rows = b->first[end] - b->first[begin];
        if (rows > b->piece_rows) b->piece_rows = rows;
    }
    WD_TRY_OUT(check_ids(e, b, err));
    lay_out(&d, &arena, e, b, out_type);
    WD_TRY_OUT(rehearse(out, out_type, &d, e, b, err));
    WD_TRY_OUT(wd_device_alloc(&memory, device, arena.peak, "text encoder activations", err));
    arena = wd_arena_over(memory, arena.peak);
    lay_out(&d, &arena, e, b, out_type);
    WD_TRY_OUT(embed_all(&d, e, b, err));
    WD_TRY_OUT(upload_biases(&d, e, b, err));
    if (!compute(out, out_type, &d, e, b))
        status = wd_fail(err, WD_INTERRUPTED, "stopped on request while prompts were encoded");
    wd_queue_wait(e->queue);
out:
    wd_device_free(device, memory);
    return status;
}

wd_status wd_umt5_encode(wd_umt5 *e, float *out, const int32_t *ids, const int32_t *mask,
                         int64_t samples, int64_t tokens, wd_err *err)
{
    void *first;
    WD_REQUIRE(samples >= 0 && tokens > 0, "%" PRId64 " texts of %" PRId64 " tokens", samples,
               tokens);
    WD_TRY(wd_alloc(&first, (size_t)samples + 1, sizeof(int64_t), "prompt lengths", err));
    for (int64_t i = 0; i <= samples; i++) ((int64_t *)first)[i] = i * tokens;
    batch b = {.ids = ids, .first = first, .mask = mask, .samples = samples, .tokens_max = tokens};
    wd_status status = encode(e, out, WD_F32, &b, err);
    wd_free(first);
    return status;
}

wd_status wd_umt5_encode_rows(wd_umt5 *e, void *out, const int32_t *ids, const int64_t *first,
                              int64_t samples, wd_err *err)
{
    batch b = {.ids = ids, .first = first, .samples = samples};
    WD_REQUIRE(samples >= 0 && first[0] == 0, "%" PRId64 " texts from row %" PRId64, samples,
               first[0]);
    for (int64_t i = 0; i < samples; i++) {
        int64_t tokens = first[i + 1] - first[i];
        WD_REQUIRE(tokens > 0, "text %" PRId64 " has %" PRId64 " tokens", i, tokens);
        if (tokens > b.tokens_max) b.tokens_max = tokens;
    }
    return encode(e, out, e->dtype, &b, err);
}
