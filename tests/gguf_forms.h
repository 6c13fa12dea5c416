/* Components of wan-tiny as GGUF files, and their dequantised twins: the same values as F32, by
 * formulas that are not the program's. */
#ifndef WD_TESTS_GGUF_FORMS_H
#define WD_TESTS_GGUF_FORMS_H

#include "gguf_blocks.h"
#include "quantised.h"

#include "core/memory.h"

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
        } else {
            wd_test_block(b, wide + i, v + i, type);
        }
    }
}

/* ---- files ---- */

static const struct {
    wd_dtype dtype;
    uint32_t number;
} wd_test_gguf_types[] = {{WD_Q8_0, 8},    {WD_Q4_K, 12}, {WD_Q6_K, 14},   {WD_BF16, 30},
                          {WD_Q5_K, 13},   {WD_Q5_0, 6},  {WD_F16, 1},     {WD_Q4_0, 2},
                          {WD_Q5_1, 7},    {WD_Q2_K, 10}, {WD_IQ4_NL, 20}, {WD_Q3_K, 11},
                          {WD_IQ4_XS, 23}, {WD_Q4_1, 3},  {WD_F32, 0}};
enum { WD_TEST_GGUF_TYPES = sizeof wd_test_gguf_types / sizeof *wd_test_gguf_types };

typedef struct wd_test_gguf {
    wd_test_bytes values, tensors, data;
    uint64_t value_count, tensor_count;
    bool merges_dims; /* shapes are written as stable-diffusion.cpp writes them */
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

/* The dimensions as GGML has them: of five the first two become one, and leading ones are left out.
 * Returns their number. */
static inline int wd_test_merge_dims(int64_t dim[WD_DIMS_MAX], const wd_tensor *t)
{
    int ndim = 0;
    for (int i = 0; i < t->ndim; i++) {
        const bool joins = i == 1 && t->ndim == 5;
        if (joins && ndim)
            dim[ndim - 1] *= t->dim[i];
        else if (t->dim[i] > 1 || ndim || i == t->ndim - 1)
            dim[ndim++] = t->dim[i];
    }
    return ndim;
}

/* Adds a tensor in type number `type` of the table, in rows of 256 where its own are no blocks. */
static inline void wd_test_gguf_tensor(wd_test_gguf *g, wd_test_file *twin, const char *name,
                                       const wd_safetensors_entry *e, int type)
{
    const wd_tensor *t = &e->tensor;
    const int64_t count = wd_tensor_count(t), row = t->ndim ? t->dim[t->ndim - 1] : 1;
    if (t->ndim < 2 || count % 256) type = WD_TEST_GGUF_TYPES - 1;
    if (g->merges_dims && row % wd_dtype_block(wd_test_gguf_types[type].dtype))
        type = WD_TEST_GGUF_TYPES - 1;
    const wd_dtype dtype = wd_test_gguf_types[type].dtype;
    const bool reshaped = row % wd_dtype_block(dtype) != 0;
    int64_t dim[WD_DIMS_MAX];
    int ndim = t->ndim;
    memcpy(dim, t->dim, sizeof dim);
    if (g->merges_dims) ndim = wd_test_merge_dims(dim, t);
    float *v = malloc((size_t)count * 4), *wide = malloc((size_t)count * 4);
    for (int64_t i = 0; i < count; i++) v[i] = wd_test_value(t, (size_t)i);
    if (reshaped) wd_test_gguf_shape(g, name, t);
    wd_test_text(&g->tensors, name);
    wd_test_u32(&g->tensors, reshaped ? 2 : (uint32_t)ndim);
    if (reshaped) {
        wd_test_u64(&g->tensors, 256);
        wd_test_u64(&g->tensors, (uint64_t)count / 256);
    }
    for (int i = ndim - 1; i >= 0 && !reshaped; i--) wd_test_u64(&g->tensors, (uint64_t)dim[i]);
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
            assert_true(wd__names_umt5_to_llama(name, sizeof name, e->name));
        else
            wd_test_form_name(name, e->name, c, p, &names);
        wd_test_gguf_tensor(&g, twin, name, e, (int)(first + i) % WD_TEST_GGUF_TYPES);
    }
    wd_test_gguf_write(&g, path);
    wd_test_write_file(twin, twin_path, NULL);
    wd_safetensors_close(set);
}

/* Writes a transformer or text encoder as stable-diffusion.cpp does: without metadata, names behind
 * its prefixes, shapes of at most four dimensions; and its twin. The text encoder has a tensor that
 * it does not use, as ComfyUI's has. */
static inline void wd_test_write_sdcpp(const char *path, const char *twin_path,
                                       const wd_pipeline *p, wd_component c)
{
    static const wd_test_form names = {true, "model.diffusion_model.", WD_DTYPE_COUNT};
    wd_err err;
    wd_safetensors *set;
    wd_test_gguf g = {.merges_dims = true};
    float one = 1;
    const wd_safetensors_entry unused = {.name = "logit_scale",
                                         .tensor = {&one, WD_F32, 1, {1}, {0}}};
    wd_test_file *twin = calloc(1, sizeof *twin);
    wd_test_ok(wd_pipeline_open_weights(&set, p, c, &err), &err);
    for (int64_t i = 0; i < wd_safetensors_count(set); i++) {
        const wd_safetensors_entry *e = wd_safetensors_at(set, i);
        char name[256];
        if (!strcmp(e->name, "encoder.embed_tokens.weight")) continue; /* it is shared.weight */
        if (c == WD_COMPONENT_TEXT_ENCODER)
            snprintf(name, sizeof name, "text_encoders.t5xxl.transformer.%s", e->name);
        else
            wd_test_form_name(name, e->name, c, p, &names);
        wd_test_gguf_tensor(&g, twin, name, e, (int)i % WD_TEST_GGUF_TYPES);
    }
    if (c == WD_COMPONENT_TEXT_ENCODER)
        wd_test_gguf_tensor(&g, twin, "logit_scale", &unused, WD_TEST_GGUF_TYPES - 1);
    wd_test_gguf_write(&g, path);
    wd_test_write_file(twin, twin_path, NULL);
    wd_safetensors_close(set);
}

#endif
