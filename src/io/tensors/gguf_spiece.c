/* The tokenizer in a GGUF file: see io/tensors/gguf.h.
 *
 * A SentencePiece model is a protocol buffer (ModelProto): a message for each piece, one that says
 * how it was trained, and one that says how text is normalised. The numbers of types of pieces are
 * those of GGUF's types of tokens. The metadata are read from the set's copy of them, in which
 * lengths stay as they were when the room for the model was counted. */
#include "io/tensors/gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/text.h"
#include "io/tensors/gguf_cursor.h"
#include "io/tensors/safetensors_impl.h"

static const char model_key[] = "tokenizer.ggml.model";

enum {
    TOKENS_MAX = 1 << 20,       /* UMT5 has 256,384 */
    TOKEN_BYTES_MAX = 1024,     /* real ones have below 100 */
    MAP_BYTES_MAX = 4 << 20,    /* real ones have 250 kB */
    ROOM_BESIDE_TOKEN = 24,     /* of a piece's message: score, type, keys and lengths */
    ROOM_BESIDE_TOKENS = 1 << 7 /* of the other messages, without the map */
};

/* Types of tokens, and of pieces. */
enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };

typedef struct source {
    const char *path;
    wd_gguf_value tokens, scores, types, map, prefix, spaces; /* key.at NULL: it is not there */
    uint8_t *out, *at;                                        /* the model, and where it goes on */
} source;

bool wd_gguf_has_spiece(const wd_safetensors *set)
{
    return wd__gguf_is(&set->file[0]) && wd_safetensors_metadata(set, model_key);
}

/* ---- metadata ---- */

static wd_status refuse(const source *s, const char *what, wd_err *err)
{
    return wd_fail(
        err, WD_BAD_FORMAT,
        "%s: its metadata have a tokenizer, but %s; give spiece.model of google/umt5-xxl "
        "as --tokenizer",
        s->path, what);
}

static wd_status read_values(source *s, const wd_safetensors_file *file, wd_err *err)
{
    const uint8_t *begin = file->header;
    wd_gguf_cursor cursor = {file->path, begin, begin, begin + file->header_bytes, false};
    const struct {
        const char *key;
        wd_gguf_value *value;
    } wanted[] = {{"tokenizer.ggml.tokens", &s->tokens},
                  {"tokenizer.ggml.scores", &s->scores},
                  {"tokenizer.ggml.token_type", &s->types},
                  {"tokenizer.ggml.precompiled_charsmap", &s->map},
                  {"tokenizer.ggml.add_space_prefix", &s->prefix},
                  {"tokenizer.ggml.remove_extra_whitespaces", &s->spaces}};
    uint64_t tensors, values;
    wd_gguf_value value;
    WD_TRY(wd__gguf_begin(&tensors, &values, &cursor, err));
    for (uint64_t i = 0; i < values; i++) {
        WD_TRY(wd__gguf_value_next(&value, &cursor, err));
        for (size_t k = 0; k < sizeof wanted / sizeof *wanted; k++)
            if (wd__gguf_is_key(&value, wanted[k].key)) *wanted[k].value = value;
    }
    return WD_OK;
}

static wd_status check_values(const source *s, wd_err *err)
{
    const wd_gguf_value *t = &s->tokens, *map = &s->map;
    if (!t->key.at || !t->is_array || t->type != WD_GGUF_STRING || t->count > TOKENS_MAX)
        return refuse(s, "tokenizer.ggml.tokens is no list of at most 1048576 texts", err);
    if (!s->scores.key.at || !s->scores.is_array || s->scores.type != WD_GGUF_F32 ||
        s->scores.count != t->count)
        return refuse(s, "tokenizer.ggml.scores has no F32 number for each token", err);
    if (!s->types.key.at || !s->types.is_array || s->types.count != t->count)
        return refuse(s, "tokenizer.ggml.token_type has no number for each token", err);
    if (map->key.at && (!map->is_array || map->count > MAP_BYTES_MAX))
        return refuse(s, "tokenizer.ggml.precompiled_charsmap is no list of at most 4 MiB", err);
    return WD_OK;
}

/* A flag; true where the file does not say. */
static bool flag(const wd_gguf_value *v)
{
    return !v->key.at || v->is_array || v->type != WD_GGUF_BOOL || *v->data;
}

/* Converters fill the list up to the rows of the embedding with "[PAD256000]" and the like, which
 * the model that they have read does not have. */
static bool is_filling(wd_gguf_text text, uint64_t type, uint64_t i)
{
    char name[32];
    const int bytes = snprintf(name, sizeof name, "[PAD%" PRIu64 "]", i);
    return type == UNUSED && text.bytes == (size_t)bytes && !memcmp(text.at, name, text.bytes);
}

/* ---- the protocol buffer ---- */

enum { VARINT = 0, LENGTH = 2, FIXED32 = 5 };

static void put_number(source *s, uint64_t number)
{
    for (; number > 0x7f; number >>= 7) *s->at++ = (uint8_t)(number | 0x80);
    *s->at++ = (uint8_t)number;
}

static void put_varint(source *s, uint64_t field, uint64_t value)
{
    put_number(s, field << 3 | VARINT);
    put_number(s, value);
}

static void put_bytes(source *s, uint64_t field, const void *from, size_t bytes)
{
    put_number(s, field << 3 | LENGTH);
    put_number(s, bytes);
    if (bytes) memcpy(s->at, from, bytes);
    s->at += bytes;
}

/* Makes a message of what was put from `begin` on. There is room for its key and length. */
static void wrap(source *s, uint64_t field, uint8_t *begin)
{
    const size_t bytes = (size_t)(s->at - begin);
    uint8_t head[16];
    source room = {.at = head};
    put_number(&room, field << 3 | LENGTH);
    put_number(&room, bytes);
    const size_t more = (size_t)(room.at - head);
    memmove(begin + more, begin, bytes);
    memcpy(begin, head, more);
    s->at += more;
}

/* ModelProto.pieces: piece, score, type. */
static void put_piece(source *s, wd_gguf_text text, uint64_t i, uint64_t type)
{
    uint8_t *begin = s->at;
    put_bytes(s, 1, text.at, text.bytes);
    put_number(s, 2 << 3 | FIXED32);
    memcpy(s->at, s->scores.data + i * sizeof(float), sizeof(float));
    s->at += sizeof(float);
    put_varint(s, 3, type);
    wrap(s, 1, begin);
}

/* *kept: the tokens that are no filling; *room: bytes for the whole model. */
static wd_status count_tokens(uint64_t *kept, size_t *room, const source *s, wd_gguf_cursor tokens,
                              wd_err *err)
{
    wd_gguf_text text;
    uint64_t type;
    *kept = 0;
    *room = ROOM_BESIDE_TOKENS + (size_t)s->map.count;
    for (uint64_t i = 0; i < s->tokens.count; i++) {
        WD_TRY(wd__gguf_text_next(&text, &tokens, err));
        if (text.bytes > TOKEN_BYTES_MAX) return refuse(s, "a token has over 1024 bytes", err);
        if (!wd__gguf_integer(&type, &s->types, i) || type < NORMAL || type > BYTE)
            return refuse(s, "the type of a token is none of 1 to 6", err);
        *room += text.bytes + ROOM_BESIDE_TOKEN;
        if (!is_filling(text, type, i)) *kept = i + 1;
    }
    return WD_OK;
}

static wd_status put_model(source *s, wd_gguf_cursor tokens, uint64_t kept, wd_err *err)
{
    wd_gguf_text text;
    uint64_t type, byte;
    bool has_bytes = false;
    for (uint64_t i = 0; i < kept; i++) {
        WD_TRY(wd__gguf_text_next(&text, &tokens, err));
        wd__gguf_integer(&type, &s->types, i);
        put_piece(s, text, i, type);
        has_bytes |= type == BYTE;
    }
    uint8_t *begin = s->at; /* trainer_spec: model_type (1: unigram), vocab_size, byte_fallback */
    put_varint(s, 3, 1);
    put_varint(s, 4, kept);
    put_varint(s, 35, has_bytes);
    wrap(s, 2, begin);
    begin = s->at; /* normalizer_spec: the map, add_dummy_prefix, remove_extra_whitespaces */
    put_number(s, 2 << 3 | LENGTH);
    put_number(s, s->map.count);
    for (uint64_t i = 0; i < s->map.count; i++) {
        const bool is_signed = s->map.type == WD_GGUF_I8; /* some write bytes so */
        byte = s->map.data[i];
        if (!is_signed && (!wd__gguf_integer(&byte, &s->map, i) || byte > 255))
            return refuse(s, "tokenizer.ggml.precompiled_charsmap has what is no byte", err);
        *s->at++ = (uint8_t)byte;
    }
    put_varint(s, 3, flag(&s->prefix));
    put_varint(s, 4, flag(&s->spaces));
    wrap(s, 3, begin);
    return WD_OK;
}

wd_status wd_gguf_spiece(char **out, size_t *bytes, const wd_safetensors *set, wd_err *err)
{
    const wd_safetensors_file *file = &set->file[0];
    source s = {.path = file->path};
    const char *kind = wd_gguf_has_spiece(set) ? wd_safetensors_metadata(set, model_key) : NULL;
    uint64_t kept;
    size_t room;
    void *block;
    if (!kind || strcmp(kind, "t5"))
        return wd_fail(err, WD_UNSUPPORTED,
                       "%s: its metadata have %s%.*s%s, expected a tokenizer of the kind \"t5\"; "
                       "give spiece.model of google/umt5-xxl as --tokenizer",
                       s.path, kind ? "a tokenizer of the kind \"" : "no tokenizer",
                       kind ? wd_terminal_safe_bytes(kind, strlen(kind), 60) : 0, kind ? kind : "",
                       kind ? "\"" : "");
    WD_TRY(read_values(&s, file, err));
    WD_TRY(check_values(&s, err));
    const uint8_t *begin = s.tokens.data;
    const wd_gguf_cursor tokens = {s.path, begin, begin,
                                   (uint8_t *)file->header + file->header_bytes, false};
    WD_TRY(count_tokens(&kept, &room, &s, tokens, err));
    WD_TRY(wd_alloc(&block, room, 1, "a tokenizer's model", err));
    s.out = s.at = block;
    const wd_status status = put_model(&s, tokens, kept, err);
    *out = (char *)s.out;
    *bytes = (size_t)(s.at - s.out);
    if (status == WD_OK) return WD_OK;
    wd_free(s.out);
    *out = NULL;
    return status;
}
