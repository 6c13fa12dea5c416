/* Writing a GGUF file as a stream: see io/tensors/gguf.h.
 *
 * The header is made twice by the same code: first it is counted, then written into memory of that
 * size. What follows is the stream of io/tensors/safetensors_writer.c. */
#include <string.h>

#include "core/checked.h"
#include "core/memory.h"
#include "io/tensors/gguf.h"
#include "io/tensors/gguf_cursor.h"
#include "io/tensors/safetensors_impl.h"

/* Where a header goes; `at` NULL: it is counted only. */
typedef struct sink {
    uint8_t *at;
    size_t bytes;
} sink;

static void put(sink *s, const void *from, size_t bytes)
{
    if (s->at) memcpy(s->at + s->bytes, from, bytes);
    s->bytes += bytes;
}

static void put_u32(sink *s, uint32_t value)
{
    put(s, &value, sizeof value);
}

static void put_u64(sink *s, uint64_t value)
{
    put(s, &value, sizeof value);
}

static void put_text(sink *s, const char *text)
{
    put_u64(s, strlen(text));
    put(s, text, strlen(text));
}

static void put_pair(sink *s, const wd_gguf_pair *pair)
{
    put_text(s, pair->key);
    put_u32(s, pair->text ? WD_GGUF_STRING : WD_GGUF_U32);
    if (pair->text)
        put_text(s, pair->text);
    else
        put_u32(s, pair->number);
}

/* Its bytes; *end is moved to where the next tensor begins. */
static wd_status measure(uint64_t *end, const wd_safetensors_item *item, const char *path,
                         wd_err *err)
{
    size_t count = 1, bytes = 0;
    const int64_t block = wd_dtype_block(item->dtype);
    bool fits = item->ndim >= 0 && item->ndim <= WD_DIMS_MAX;
    for (int i = 0; fits && i < item->ndim; i++)
        fits = item->dim[i] > 0 && wd_mul_size(&count, count, (size_t)item->dim[i]);
    fits = fits && (item->ndim ? item->dim[item->ndim - 1] : 1) % block == 0 &&
           wd_mul_size(&bytes, count / (size_t)block, wd_dtype_bytes(item->dtype)) &&
           bytes <= INT64_MAX / 2 && *end <= INT64_MAX / 2;
    if (!fits)
        return wd_fail(err, WD_INTERNAL, "%s: tensor \"%s\" has an impossible shape", path,
                       item->name);
    *end = wd_round_up(*end + bytes, WD_GGUF_ALIGNMENT);
    return WD_OK;
}

static wd_status put_header(sink *s, uint64_t *data_bytes, const char *path,
                            const wd_safetensors_item *items, int64_t count,
                            const wd_gguf_pair *pairs, int64_t pair_count, wd_err *err)
{
    *data_bytes = 0;
    put(s, "GGUF", 4);
    put_u32(s, WD_GGUF_VERSION);
    put_u64(s, (uint64_t)count);
    put_u64(s, (uint64_t)pair_count);
    for (int64_t i = 0; i < pair_count; i++) put_pair(s, &pairs[i]);
    for (int64_t i = 0; i < count; i++) {
        const wd_safetensors_item *item = &items[i];
        const uint64_t begin = *data_bytes;
        WD_TRY(measure(data_bytes, item, path, err));
        put_text(s, item->name);
        put_u32(s, (uint32_t)item->ndim);
        for (int d = item->ndim; d-- > 0;) put_u64(s, (uint64_t)item->dim[d]); /* fastest first */
        put_u32(s, wd__gguf_type_of(item->dtype));
        put_u64(s, begin);
    }
    return WD_OK;
}

wd_status wd_gguf_create(wd_safetensors_writer **out, const char *path,
                         const wd_safetensors_item *items, int64_t count, const wd_gguf_pair *pairs,
                         int64_t pair_count, wd_err *err)
{
    void *header;
    uint64_t bytes;
    sink size = {0};
    WD_TRY(put_header(&size, &bytes, path, items, count, pairs, pair_count, err));
    const size_t length = wd_round_up(size.bytes, WD_GGUF_ALIGNMENT);
    WD_TRY(wd_alloc(&header, length, 1, "a GGUF header", err));
    sink text = {.at = header};
    wd_status status = put_header(&text, &bytes, path, items, count, pairs, pair_count, err);
    if (status == WD_OK)
        status = wd__safetensors_begin(out, path, WD_WHILE_UNNAMED, header, length, bytes, err);
    wd_free(header);
    return status;
}

wd_status wd_gguf_pad(wd_safetensors_writer *writer, wd_err *err)
{
    static const char zeros[WD_GGUF_ALIGNMENT];
    const uint64_t at = wd__safetensors_bytes_put(writer);
    const size_t bytes = (size_t)(wd_round_up(at, WD_GGUF_ALIGNMENT) - at);
    return wd_safetensors_put(writer, zeros, bytes, err);
}
