/* Parts of a GGUF file: see io/tensors/gguf_cursor.h. */
#include "io/tensors/gguf_cursor.h"

#include <inttypes.h>
#include <string.h>

#include "core/text.h"

enum { KEY_BYTES_MAX = 65535, COUNT_MAX = 65536 };

static wd_status cut_short(const wd_gguf_cursor *c, wd_err *err)
{
    if (c->is_part)
        return wd_fail(err, WD_BAD_FORMAT,
                       "%s: expected metadata of at most %zu MiB, found more (damaged?)", c->path,
                       (size_t)(c->end - c->begin) >> 20);
    return wd_fail(err, WD_BAD_FORMAT,
                   "%s: its header overruns the file of %zu bytes (truncated, or a download that "
                   "failed?)",
                   c->path, (size_t)(c->end - c->begin));
}

static wd_status take(const uint8_t **out, wd_gguf_cursor *c, uint64_t bytes, wd_err *err)
{
    if (bytes > (size_t)(c->end - c->at)) return cut_short(c, err);
    *out = c->at;
    c->at += bytes;
    return WD_OK;
}

wd_status wd__gguf_u32(uint32_t *out, wd_gguf_cursor *c, wd_err *err)
{
    const uint8_t *from = NULL;
    WD_TRY(take(&from, c, sizeof *out, err));
    memcpy(out, from, sizeof *out);
    return WD_OK;
}

wd_status wd__gguf_u64(uint64_t *out, wd_gguf_cursor *c, wd_err *err)
{
    const uint8_t *from = NULL;
    WD_TRY(take(&from, c, sizeof *out, err));
    memcpy(out, from, sizeof *out);
    return WD_OK;
}

wd_status wd__gguf_text_next(wd_gguf_text *out, wd_gguf_cursor *c, wd_err *err)
{
    uint64_t bytes;
    const uint8_t *from = NULL;
    WD_TRY(wd__gguf_u64(&bytes, c, err));
    WD_TRY(take(&from, c, bytes, err));
    *out = (wd_gguf_text){(const char *)from, (size_t)bytes};
    return WD_OK;
}

static const uint8_t type_bytes[WD_GGUF_TYPES] = {
#define X(name, number, bytes) [number] = bytes,
    WD_GGUF_TYPE_MAP(X)
#undef X
};

/* Moves over `count` values of a type. */
static wd_status skip_values(wd_gguf_cursor *c, wd_gguf_type type, uint64_t count, wd_err *err)
{
    const uint8_t *ignored;
    wd_gguf_text text;
    const uint64_t bytes = type_bytes[type];
    if (type != WD_GGUF_STRING) {
        if (count > (size_t)(c->end - c->at) / bytes) return cut_short(c, err);
        return take(&ignored, c, count * bytes, err);
    }
    for (uint64_t i = 0; i < count; i++) WD_TRY(wd__gguf_text_next(&text, c, err));
    return WD_OK;
}

wd_status wd__gguf_value_next(wd_gguf_value *out, wd_gguf_cursor *c, wd_err *err)
{
    uint32_t type;
    *out = (wd_gguf_value){.count = 1};
    WD_TRY(wd__gguf_text_next(&out->key, c, err));
    if (out->key.bytes > KEY_BYTES_MAX)
        return wd_fail(err, WD_BAD_FORMAT, "%s: a metadata key of %zu bytes, expected at most %d",
                       c->path, out->key.bytes, KEY_BYTES_MAX);
    WD_TRY(wd__gguf_u32(&type, c, err));
    out->is_array = type == WD_GGUF_ARRAY;
    if (out->is_array) {
        WD_TRY(wd__gguf_u32(&type, c, err));
        WD_TRY(wd__gguf_u64(&out->count, c, err));
    }
    if (type >= WD_GGUF_TYPES || type == WD_GGUF_ARRAY)
        return wd_fail(err, WD_BAD_FORMAT, "%s: metadata \"%.*s\" has the unknown type %" PRIu32,
                       c->path, wd__gguf_shown_bytes(out->key), out->key.at, type);
    out->type = (wd_gguf_type)type;
    out->data = c->at;
    return skip_values(c, out->type, out->count, err);
}

wd_status wd__gguf_begin(uint64_t *tensors, uint64_t *values, wd_gguf_cursor *c, wd_err *err)
{
    const uint8_t *magic = NULL;
    uint32_t version;
    WD_TRY(take(&magic, c, 4, err));
    WD_TRY(wd__gguf_u32(&version, c, err));
    if (version != WD_GGUF_VERSION)
        return wd_fail(err, WD_UNSUPPORTED,
                       "%s: is a GGUF file of version %" PRIu32 "%s; expected version %d", c->path,
                       version & 0xffff ? version : version >> 24,
                       version & 0xffff ? "" : " (big-endian)", WD_GGUF_VERSION);
    WD_TRY(wd__gguf_u64(tensors, c, err));
    WD_TRY(wd__gguf_u64(values, c, err));
    if (*tensors > COUNT_MAX || *values > COUNT_MAX)
        return wd_fail(err, WD_BAD_FORMAT,
                       "%s: has %" PRIu64 " tensors and %" PRIu64
                       " metadata, expected at most %d of each",
                       c->path, *tensors, *values, COUNT_MAX);
    return WD_OK;
}

int wd__gguf_shown_bytes(wd_gguf_text text)
{
    return wd_terminal_safe_bytes(text.at, text.bytes, 200);
}

bool wd__gguf_is_key(const wd_gguf_value *value, const char *key)
{
    return value->key.bytes == strlen(key) && !memcmp(value->key.at, key, value->key.bytes);
}

bool wd__gguf_integer(uint64_t *out, const wd_gguf_value *value, uint64_t i)
{
    const size_t bytes = type_bytes[value->type];
    uint64_t bits = 0;
    if (i >= value->count) return false;
    switch (value->type) {
    case WD_GGUF_U8:
    case WD_GGUF_U16:
    case WD_GGUF_U32:
    case WD_GGUF_U64:
        memcpy(&bits, value->data + i * bytes, bytes); /* little endian */
        *out = bits;
        return true;
    case WD_GGUF_I8:
    case WD_GGUF_I16:
    case WD_GGUF_I32:
    case WD_GGUF_I64:
        memcpy(&bits, value->data + i * bytes, bytes);
        *out = bits;
        return !(bits >> (8 * bytes - 1));
    default:
        return false;
    }
}
