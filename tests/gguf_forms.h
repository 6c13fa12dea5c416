/* Components of wan-tiny as GGUF files, and their dequantised twins: the same values as F32, by
 * formulas that are not the program's. */
#ifndef WD_TESTS_GGUF_FORMS_H
#define WD_TESTS_GGUF_FORMS_H

#include "quantised.h"

#include "core/memory.h"

/* ---- bytes ---- */

typedef struct wd_test_bytes {
    uint8_t *data;
    size_t used, room;
} wd_test_bytes;

static inline void wd_test_append(wd_test_bytes *b, const void *data, size_t bytes)
{
    if (!bytes) return;
    if (b->used + bytes > b->room) {
        b->room = 2 * (b->used + bytes) + 4096;
        b->data = realloc(b->data, b->room);
    }
    if (data)
        memcpy(b->data + b->used, data, bytes);
    else
        memset(b->data + b->used, 0, bytes);
    b->used += bytes;
}

static inline void wd_test_u32(wd_test_bytes *b, uint32_t v)
{
    wd_test_append(b, &v, sizeof v);
}

static inline void wd_test_u64(wd_test_bytes *b, uint64_t v)
{
    wd_test_append(b, &v, sizeof v);
}

static inline void wd_test_text(wd_test_bytes *b, const char *text)
{
    wd_test_u64(b, strlen(text));
    wd_test_append(b, text, strlen(text));
}

static inline void wd_test_f16(wd_test_bytes *b, float v)
{
    const uint16_t half = wd_f32_to_f16(v);
    wd_test_append(b, &half, sizeof half);
}

static inline float wd_test_round_f16(float v)
{
    return wd_f16_to_f32(wd_f32_to_f16(v));
}

/* ---- blocks: n values become bytes, and wide what these are ---- */

static inline int wd_test_step(float v, float step, int low, int high)
{
    const float q = step != 0 ? rintf(v / step) : 0;
    return q < (float)low ? low : q > (float)high ? high : (int)q;
}

static inline float wd_test_most(const float *v, int n)
{
    float most = 0;
    for (int i = 0; i < n; i++) most = fmaxf(most, fabsf(v[i]));
    return most;
}

/* Q8_0, Q5_0, Q4_0: 32 values with one step; integers from -half to half - 1. */
static inline void wd_test_block_0(wd_test_bytes *b, float *wide, const float *v, wd_dtype type)
{
    const int half = type == WD_Q8_0 ? 128 : type == WD_Q5_0 ? 16 : 8;
    const float step = wd_test_round_f16(wd_test_most(v, 32) / (float)(half - 1));
    uint8_t q[32], halves[16];
    uint32_t high = 0;
    wd_test_f16(b, step);
    for (int i = 0; i < 32; i++) {
        const int n = wd_test_step(v[i], step, -half, half - 1);
        wide[i] = step * (float)n;
        q[i] = (uint8_t)(type == WD_Q8_0 ? n : n + half);
        high |= (uint32_t)(q[i] >> 4 & 1) << i;
    }
    for (int i = 0; i < 16; i++) halves[i] = (uint8_t)((q[i] & 15) | q[i + 16] << 4);
    if (type == WD_Q5_0) wd_test_u32(b, high);
    if (type == WD_Q8_0)
        wd_test_append(b, q, 32);
    else
        wd_test_append(b, halves, 16);
}

/* Q4_K, Q5_K: 8 groups of 32 values, each with a factor and an offset of 6 bits. */
static inline void wd_test_block_k(wd_test_bytes *b, float *wide, const float *v, wd_dtype type)
{
    const int top = type == WD_Q5_K ? 31 : 15;
    float step[8], below[8];
    uint8_t q[256], scales[12] = {0}, high[32] = {0}, halves[128];
    int factor[8], offset[8];
    for (int g = 0; g < 8; g++) {
        float least = 0, most = 0;
        for (int i = 0; i < 32; i++) {
            least = fminf(least, v[32 * g + i]);
            most = fmaxf(most, v[32 * g + i]);
        }
        step[g] = (most - least) / (float)top;
        below[g] = -least;
    }
    const float d = wd_test_round_f16(wd_test_most(step, 8) / 63);
    const float dmin = wd_test_round_f16(wd_test_most(below, 8) / 63);
    for (int g = 0; g < 8; g++) {
        factor[g] = wd_test_step(step[g], d, 0, 63);
        offset[g] = wd_test_step(below[g], dmin, 0, 63);
        const float scale = d * (float)factor[g], less = dmin * (float)offset[g];
        for (int i = 32 * g; i < 32 * g + 32; i++) {
            q[i] = (uint8_t)wd_test_step(v[i] + less, scale, 0, top);
            wide[i] = scale * (float)q[i] - less;
            high[i % 32] |= (uint8_t)(q[i] >> 4 << g);
        }
    }
    for (int g = 0; g < 4; g++) { /* 6 bits of each pair of a group and the fourth behind it */
        scales[g] = (uint8_t)(factor[g] | factor[g + 4] >> 4 << 6);
        scales[g + 4] = (uint8_t)(offset[g] | offset[g + 4] >> 4 << 6);
        scales[g + 8] = (uint8_t)((factor[g + 4] & 15) | (offset[g + 4] & 15) << 4);
    }
    for (int i = 0; i < 128; i++) {
        const int at = i / 32 * 64 + i % 32;
        halves[i] = (uint8_t)((q[at] & 15) | (q[at + 32] & 15) << 4);
    }
    wd_test_f16(b, d);
    wd_test_f16(b, dmin);
    wd_test_append(b, scales, 12);
    if (type == WD_Q5_K) wd_test_append(b, high, 32);
    wd_test_append(b, halves, 128);
}

/* Q6_K: 16 groups of 16 values, each with a factor of 8 bits. */
static inline void wd_test_block_6(wd_test_bytes *b, float *wide, const float *v)
{
    float step[16];
    uint8_t q[256], low[128], high[64] = {0};
    int8_t factor[16];
    for (int g = 0; g < 16; g++) step[g] = wd_test_most(v + 16 * g, 16) / 31;
    const float d = wd_test_round_f16(wd_test_most(step, 16) / 127);
    for (int g = 0; g < 16; g++) {
        factor[g] = (int8_t)wd_test_step(step[g], d, 0, 127);
        for (int i = 16 * g; i < 16 * g + 16; i++) {
            const int n = wd_test_step(v[i], d * (float)factor[g], -32, 31);
            wide[i] = d * (float)factor[g] * (float)n;
            q[i] = (uint8_t)(n + 32);
        }
    }
    for (int i = 0; i < 256; i++) { /* of 128: 32 and 32 below 32 and 32 */
        const int part = i / 128, group = i % 128 / 32, at = i % 32;
        uint8_t *to = &low[part * 64 + group % 2 * 32 + at];
        *to = (uint8_t)(group < 2 ? q[i] & 15 : (*to & 15) | (q[i] & 15) << 4);
        high[part * 32 + at] |= (uint8_t)(q[i] >> 4 << 2 * group);
    }
    wd_test_append(b, low, 128);
    wd_test_append(b, high, 64);
    wd_test_append(b, factor, 16);
    wd_test_f16(b, d);
}

static inline void wd_test_gguf_values(wd_test_bytes *b, float *wide, const float *v, int64_t count,
                                       wd_dtype type)
{
    for (int64_t i = 0; i < count; i += wd_dtype_block(type)) {
        uint16_t half = type == WD_F16 ? wd_f32_to_f16(v[i]) : wd_f32_to_bf16(v[i]);
        if (type == WD_F32) {
            wide[i] = v[i];
            wd_test_append(b, &v[i], 4);
        } else if (type == WD_F16 || type == WD_BF16) {
            wide[i] = type == WD_F16 ? wd_f16_to_f32(half) : wd_bf16_to_f32(half);
            wd_test_append(b, &half, 2);
        } else if (type == WD_Q6_K) {
            wd_test_block_6(b, wide + i, v + i);
        } else if (type == WD_Q5_K || type == WD_Q4_K) {
            wd_test_block_k(b, wide + i, v + i, type);
        } else {
            wd_test_block_0(b, wide + i, v + i, type);
        }
    }
}

/* ---- files ---- */

static const struct {
    wd_dtype dtype;
    uint32_t number;
} wd_test_gguf_types[] = {{WD_Q8_0, 8}, {WD_Q4_K, 12}, {WD_Q6_K, 14}, {WD_BF16, 30}, {WD_Q5_K, 13},
                          {WD_Q5_0, 6}, {WD_F16, 1},   {WD_Q4_0, 2},  {WD_F32, 0}};
enum { WD_TEST_GGUF_TYPES = sizeof wd_test_gguf_types / sizeof *wd_test_gguf_types };

typedef struct wd_test_gguf {
    wd_test_bytes values, tensors, data;
    uint64_t value_count, tensor_count;
} wd_test_gguf;

static inline void wd_test_gguf_text(wd_test_gguf *g, const char *key, const char *value)
{
    wd_test_text(&g->values, key);
    wd_test_u32(&g->values, 8);
    wd_test_text(&g->values, value);
    g->value_count++;
}

static inline void wd_test_gguf_shape(wd_test_gguf *g, const char *name, const wd_tensor *t)
{
    char key[300];
    snprintf(key, sizeof key, "comfy.gguf.orig_shape.%s", name);
    wd_test_text(&g->values, key);
    wd_test_u32(&g->values, 9);
    wd_test_u32(&g->values, 5);
    wd_test_u64(&g->values, (uint64_t)t->ndim);
    for (int i = 0; i < t->ndim; i++) wd_test_u32(&g->values, (uint32_t)t->dim[i]);
    g->value_count++;
}

/* Adds a tensor in type number `type` of the table, in rows of 256 where its own are no blocks. */
static inline void wd_test_gguf_tensor(wd_test_gguf *g, wd_test_file *twin, const char *name,
                                       const wd_safetensors_entry *e, int type)
{
    const wd_tensor *t = &e->tensor;
    const int64_t count = wd_tensor_count(t), row = t->ndim ? t->dim[t->ndim - 1] : 1;
    if (t->ndim < 2 || count % 256) type = WD_TEST_GGUF_TYPES - 1;
    const wd_dtype dtype = wd_test_gguf_types[type].dtype;
    const bool reshaped = row % wd_dtype_block(dtype) != 0;
    float *v = malloc((size_t)count * 4), *wide = malloc((size_t)count * 4);
    for (int64_t i = 0; i < count; i++) v[i] = wd_test_value(t, (size_t)i);
    if (reshaped) wd_test_gguf_shape(g, name, t);
    wd_test_text(&g->tensors, name);
    wd_test_u32(&g->tensors, reshaped ? 2 : (uint32_t)t->ndim);
    if (reshaped) {
        wd_test_u64(&g->tensors, 256);
        wd_test_u64(&g->tensors, (uint64_t)count / 256);
    }
    for (int i = t->ndim - 1; i >= 0 && !reshaped; i--)
        wd_test_u64(&g->tensors, (uint64_t)t->dim[i]);
    wd_test_u32(&g->tensors, wd_test_gguf_types[type].number);
    wd_test_append(&g->data, NULL, (32 - g->data.used % 32) % 32);
    wd_test_u64(&g->tensors, g->data.used);
    wd_test_gguf_values(&g->data, wide, v, count, dtype);
    wd_test_add(twin, e->name, "", WD_F32, t->ndim, t->dim, wide);
    g->tensor_count++;
    free(v);
}

/* ---- the tokenizer ---- */

/* The number at *at, which moves on. */
static inline uint64_t wd_test_varint(const uint8_t **at)
{
    uint64_t out = 0;
    for (int shift = 0;; shift += 7) {
        const uint8_t byte = *(*at)++;
        out |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return out;
    }
}

/* Lists of a SentencePiece model in GGUF's forms. */
typedef struct wd_test_pieces {
    wd_test_bytes tokens, scores, types, map;
    uint32_t count, map_count;
    uint8_t prefix, spaces;
} wd_test_pieces;

static inline void wd_test_take_piece(wd_test_pieces *p, const uint8_t *at, const uint8_t *end)
{
    uint32_t type = 1;
    while (at < end) {
        const uint64_t key = wd_test_varint(&at);
        if (key == (3 << 3)) {
            type = (uint32_t)wd_test_varint(&at);
        } else if (key == (2 << 3 | 5)) {
            wd_test_append(&p->scores, at, 4);
            at += 4;
        } else {
            assert_int_equal(key, 1 << 3 | 2);
            const uint64_t bytes = wd_test_varint(&at);
            wd_test_u64(&p->tokens, bytes);
            wd_test_append(&p->tokens, at, bytes);
            at += bytes;
        }
    }
    wd_test_u32(&p->types, type);
    p->count++;
}

static inline void wd_test_take_normalizer(wd_test_pieces *p, const uint8_t *at, const uint8_t *end)
{
    while (at < end) {
        const uint64_t key = wd_test_varint(&at), value = wd_test_varint(&at);
        if (key == (2 << 3 | 2)) wd_test_append(&p->map, at, value);
        if (key == (2 << 3 | 2)) p->map_count = (uint32_t)value;
        if (key == (3 << 3)) p->prefix = (uint8_t)value;
        if (key == (4 << 3)) p->spaces = (uint8_t)value;
        if ((key & 7) == 2) at += value;
    }
}

/* Reads wan-tiny's spiece.model. */
static inline wd_test_pieces wd_test_read_pieces(void)
{
    char *model;
    size_t bytes;
    wd_err err;
    wd_test_pieces p = {.prefix = 1, .spaces = 1};
    wd_test_ok(wd_file_read(&model, &bytes, WD_SOURCE_DIR "/models/wan-tiny/tokenizer/spiece.model",
                            1 << 24, &err),
               &err);
    const uint8_t *at = (const uint8_t *)model, *end = at + bytes;
    while (at < end) {
        const uint64_t key = wd_test_varint(&at), length = wd_test_varint(&at);
        assert_int_equal(key & 7, 2);
        if (key >> 3 == 1) wd_test_take_piece(&p, at, at + length);
        if (key >> 3 == 3) wd_test_take_normalizer(&p, at, at + length);
        at += length;
    }
    wd_free(model);
    return p;
}

static inline void wd_test_gguf_list(wd_test_gguf *g, const char *key, uint32_t type,
                                     uint32_t count, const wd_test_bytes *data)
{
    wd_test_text(&g->values, key);
    wd_test_u32(&g->values, 9);
    wd_test_u32(&g->values, type);
    wd_test_u64(&g->values, count);
    wd_test_append(&g->values, data->data, data->used);
    g->value_count++;
}

static inline void wd_test_gguf_flag(wd_test_gguf *g, const char *key, uint8_t value)
{
    wd_test_text(&g->values, key);
    wd_test_u32(&g->values, 7);
    wd_test_append(&g->values, &value, 1);
    g->value_count++;
}

/* Adds the tokenizer, with two tokens that only fill up the list, as converters do. */
static inline void wd_test_gguf_tokenizer(wd_test_gguf *g)
{
    wd_test_pieces p = wd_test_read_pieces();
    for (int i = 0; i < 2; i++) {
        char name[32];
        const float score = -10000;
        snprintf(name, sizeof name, "[PAD%u]", p.count++);
        wd_test_text(&p.tokens, name);
        wd_test_append(&p.scores, &score, 4);
        wd_test_u32(&p.types, 5);
    }
    wd_test_gguf_text(g, "tokenizer.ggml.model", "t5");
    wd_test_gguf_list(g, "tokenizer.ggml.tokens", 8, p.count, &p.tokens);
    wd_test_gguf_list(g, "tokenizer.ggml.scores", 6, p.count, &p.scores);
    wd_test_gguf_list(g, "tokenizer.ggml.token_type", 5, p.count, &p.types);
    wd_test_gguf_flag(g, "tokenizer.ggml.add_space_prefix", p.prefix);
    wd_test_gguf_flag(g, "tokenizer.ggml.remove_extra_whitespaces", p.spaces);
    if (p.map_count)
        wd_test_gguf_list(g, "tokenizer.ggml.precompiled_charsmap", 0, p.map_count, &p.map);
    free(p.tokens.data);
    free(p.scores.data);
    free(p.types.data);
    free(p.map.data);
}

static inline void wd_test_gguf_write(wd_test_gguf *g, const char *path)
{
    wd_err err;
    wd_test_bytes file = {0};
    wd_test_append(&file, "GGUF", 4);
    wd_test_u32(&file, 3);
    wd_test_u64(&file, g->tensor_count);
    wd_test_u64(&file, g->value_count);
    wd_test_append(&file, g->values.data, g->values.used);
    wd_test_append(&file, g->tensors.data, g->tensors.used);
    wd_test_append(&file, NULL, (32 - file.used % 32) % 32);
    wd_test_append(&file, g->data.data, g->data.used);
    wd_test_ok(wd_file_write(path, file.data, file.used, &err), &err);
    free(file.data);
    free(g->values.data);
    free(g->tensors.data);
    free(g->data.data);
}

/* Writes the component to `path`, a text encoder with its tokenizer, its matrices in all types in
 * turn from number `first` on, and its twin under diffusers' names to `twin_path`. */
static inline void wd_test_write_gguf(const char *path, const char *twin_path, const wd_pipeline *p,
                                      wd_component c, const char *architecture, int first)
{
    static const wd_test_form names = {true, "", WD_DTYPE_COUNT};
    wd_err err;
    wd_safetensors *set;
    wd_test_gguf g = {0};
    wd_test_file *twin = calloc(1, sizeof *twin);
    wd_test_ok(wd_pipeline_open_weights(&set, p, c, &err), &err);
    if (architecture) wd_test_gguf_text(&g, "general.architecture", architecture);
    if (c == WD_COMPONENT_TEXT_ENCODER) wd_test_gguf_tokenizer(&g);
    for (int64_t i = 0; i < wd_safetensors_count(set); i++) {
        const wd_safetensors_entry *e = wd_safetensors_at(set, i);
        char name[256];
        if (c == WD_COMPONENT_TEXT_ENCODER)
            assert_true(wd_names_umt5_to_llama(name, sizeof name, e->name));
        else
            wd_test_form_name(name, e->name, c, p, &names);
        wd_test_gguf_tensor(&g, twin, name, e, (int)(first + i) % WD_TEST_GGUF_TYPES);
    }
    wd_test_gguf_write(&g, path);
    wd_test_write_file(twin, twin_path, NULL);
    wd_safetensors_close(set);
}

#endif
