/* GGUF files: see io/tensors/gguf.h. First the metadata are read, then the tensors, then their data
 * are checked to lie in the file, apart from one another.
 *
 * Another process may change a file while it is mapped. So the metadata are read from a copy, and
 * of the list of tensors each length, count and text is read once, before it is checked. */
#include "io/tensors/gguf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/checked.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/text.h"
#include "core/unicode.h"
#include "io/json/json.h"
#include "io/tensors/gguf_cursor.h"

enum {
    HEADER_BYTES_MAX = 256 << 20,
    ALIGNMENT_MAX = 1 << 20,
    TEXT_BYTES_MAX = 1024,
    NAME_BYTES_MAX = 255
};

/* The key of a tensor's shape, in front of its name, where a converter has flattened a tensor of
 * more than four dimensions, or one whose rows are not whole blocks. */
static const char shape_key[] = "comfy.gguf.orig_shape.";

typedef struct reader {
    wd_gguf_cursor cursor;
    wd_safetensors_file *file;
    uint64_t tensors, values, alignment;
    wd_gguf_value *value; /* [values], sorted by key */
} reader;

bool wd__gguf_is(const wd_safetensors_file *file)
{
    return file->bytes >= 4 && !memcmp(file->map, "GGUF", 4);
}

/* ---- metadata ---- */

/* Copies what is in front of the list of tensors. Nothing behind HEADER_BYTES_MAX is read, whatever
 * a file of any size says of its metadata. */
static wd_status copy_header(wd_safetensors_file *file, wd_err *err)
{
    const uint8_t *begin = file->map;
    const bool is_part = file->bytes > HEADER_BYTES_MAX;
    const uint8_t *end = begin + (is_part ? HEADER_BYTES_MAX : file->bytes);
    wd_gguf_cursor c = {file->path, begin, begin, end, is_part};
    uint64_t tensors, values;
    wd_gguf_value ignored;
    WD_TRY(wd__gguf_begin(&tensors, &values, &c, err));
    for (uint64_t i = 0; i < values; i++) WD_TRY(wd__gguf_value_next(&ignored, &c, err));
    const size_t bytes = (size_t)(c.at - begin);
    WD_TRY(wd_alloc(&file->header, bytes, 1, "metadata of a GGUF file", err));
    memcpy(file->header, begin, bytes);
    file->header_bytes = bytes;
    return WD_OK;
}

static wd_status take_alignment(reader *r, const wd_gguf_value *v, wd_err *err)
{
    if (v->is_array || !wd__gguf_integer(&r->alignment, v, 0) || !r->alignment ||
        r->alignment > ALIGNMENT_MAX || r->alignment & (r->alignment - 1))
        return wd_fail(err, WD_BAD_FORMAT, "%s: general.alignment is not a power of two up to %d",
                       r->cursor.path, ALIGNMENT_MAX);
    return WD_OK;
}

/* Keeps a short text; one that is not UTF-8, or whose key has a NUL, is dropped. */
static void keep_text(wd_safetensors_file *file, const wd_gguf_value *v)
{
    wd_gguf_text text;
    uint64_t bytes;
    if (v->type != WD_GGUF_STRING || v->is_array) return;
    memcpy(&bytes, v->data, sizeof bytes);
    text = (wd_gguf_text){(const char *)v->data + sizeof bytes, (size_t)bytes};
    if (text.bytes > TEXT_BYTES_MAX || v->key.bytes > TEXT_BYTES_MAX) return;
    if (memchr(v->key.at, 0, v->key.bytes)) return; /* it would be taken for a shorter key */
    char key[TEXT_BYTES_MAX + 1];
    memcpy(key, v->key.at, v->key.bytes);
    key[v->key.bytes] = 0;
    json_object_set_new(file->metadata, key, json_stringn(text.at, text.bytes));
}

static int compare_texts(wd_gguf_text a, wd_gguf_text b)
{
    const int order = memcmp(a.at, b.at, a.bytes < b.bytes ? a.bytes : b.bytes);
    return order ? order : (a.bytes > b.bytes) - (a.bytes < b.bytes);
}

static int by_key(const void *a, const void *b)
{
    const wd_gguf_value *x = a, *y = b;
    return compare_texts(x->key, y->key);
}

static wd_status check_keys(const reader *r, wd_err *err)
{
    for (uint64_t i = 1; i < r->values; i++) {
        const wd_gguf_text key = r->value[i].key;
        if (compare_texts(key, r->value[i - 1].key)) continue;
        return wd_fail(err, WD_BAD_FORMAT, "%s: metadata key \"%.*s\" occurs twice", r->cursor.path,
                       wd__gguf_shown_bytes(key), key.at);
    }
    return WD_OK;
}

static wd_status read_values(reader *r, wd_err *err)
{
    void *block;
    r->alignment = WD_GGUF_ALIGNMENT;
    WD_TRY(wd_alloc(&block, (size_t)r->values + 1, sizeof *r->value, "a list of metadata", err));
    r->value = block;
    wd_json_watch_memory();
    r->file->metadata = json_object();
    for (uint64_t i = 0; i < r->values; i++) {
        wd_gguf_value *value = &r->value[i];
        WD_TRY(wd__gguf_value_next(value, &r->cursor, err));
        if (wd__gguf_is_key(value, "general.alignment"))
            WD_TRY(take_alignment(r, value, err));
        else
            keep_text(r->file, value);
    }
    if (wd_json_lacked_memory())
        return wd_fail(err, WD_OUT_OF_MEMORY, "%s: no memory for its metadata", r->cursor.path);
    qsort(r->value, (size_t)r->values, sizeof *r->value, by_key);
    return check_keys(r, err);
}

/* ---- tensors ---- */

/* ggml's number of a type of weights. `dtype` WD_DTYPE_COUNT: it is not read. */
static const struct {
    uint32_t number;
    wd_dtype dtype;
    const char *name;
} types[] = {
    {0, WD_F32, "F32"},
    {1, WD_F16, "F16"},
    {2, WD_Q4_0, "Q4_0"},
    {3, WD_Q4_1, "Q4_1"},
    {6, WD_Q5_0, "Q5_0"},
    {7, WD_Q5_1, "Q5_1"},
    {8, WD_Q8_0, "Q8_0"},
    {9, WD_DTYPE_COUNT, "Q8_1"},
    {10, WD_Q2_K, "Q2_K"},
    {11, WD_Q3_K, "Q3_K"},
    {12, WD_Q4_K, "Q4_K"},
    {13, WD_Q5_K, "Q5_K"},
    {14, WD_Q6_K, "Q6_K"},
    {15, WD_DTYPE_COUNT, "Q8_K"},
    {16, WD_DTYPE_COUNT, "IQ2_XXS"},
    {17, WD_DTYPE_COUNT, "IQ2_XS"},
    {18, WD_DTYPE_COUNT, "IQ3_XXS"},
    {19, WD_DTYPE_COUNT, "IQ1_S"},
    {20, WD_IQ4_NL, "IQ4_NL"},
    {21, WD_DTYPE_COUNT, "IQ3_S"},
    {22, WD_DTYPE_COUNT, "IQ2_S"},
    {23, WD_IQ4_XS, "IQ4_XS"},
    {24, WD_DTYPE_COUNT, "I8"},
    {25, WD_DTYPE_COUNT, "I16"},
    {26, WD_DTYPE_COUNT, "I32"},
    {27, WD_DTYPE_COUNT, "I64"},
    {28, WD_DTYPE_COUNT, "F64"},
    {29, WD_DTYPE_COUNT, "IQ1_M"},
    {30, WD_BF16, "BF16"},
    {34, WD_DTYPE_COUNT, "TQ1_0"},
    {35, WD_DTYPE_COUNT, "TQ2_0"},
    {39, WD_DTYPE_COUNT, "MXFP4"},
    {40, WD_DTYPE_COUNT, "NVFP4"},
    {41, WD_DTYPE_COUNT, "Q1_0"},
    {42, WD_DTYPE_COUNT, "Q2_0"},
};

uint32_t wd__gguf_type_of(wd_dtype dtype)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].dtype == dtype) return types[i].number;
    WD_REQUIRE(false, "a dtype that GGUF files do not have");
    return 0;
}

static wd_status take_type(wd_dtype *out, uint32_t number, const char *name, const char *path,
                           wd_err *err)
{
    const char *found = "of an unknown type";
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (types[i].number != number) continue;
        found = types[i].name;
        *out = types[i].dtype;
        if (*out != WD_DTYPE_COUNT) return WD_OK;
    }
    return wd_fail(err, WD_UNSUPPORTED,
                   "%s: tensor \"%s\" is %s (type %" PRIu32
                   "), which is not read; expected F32, F16, BF16, Q8_0, Q6_K, Q5_K, Q5_1, Q5_0, "
                   "Q4_K, Q4_1, Q4_0, IQ4_XS, IQ4_NL, Q3_K or Q2_K",
                   path, name, found, number);
}

/* Takes the shape that the metadata say, if they do, which must be of as many values. */
static wd_status take_original_shape(wd_tensor *t, int64_t count, const char *name, const reader *r,
                                     wd_err *err)
{
    char key[sizeof shape_key + NAME_BYTES_MAX];
    const int bytes = snprintf(key, sizeof key, "%s%s", shape_key, name);
    const wd_gguf_value wanted = {.key = {key, (size_t)bytes}};
    const wd_gguf_value *v =
        bsearch(&wanted, r->value, (size_t)r->values, sizeof *r->value, by_key);
    if (!v) return WD_OK;
    uint64_t extent, product = 1;
    bool fine = v->is_array && v->count <= WD_DIMS_MAX;
    for (uint64_t d = 0; fine && d < v->count; d++) {
        fine = wd__gguf_integer(&extent, v, d) && extent <= INT64_MAX &&
               !__builtin_mul_overflow(product, extent, &product);
        if (fine) t->dim[d] = (int64_t)extent;
    }
    if (!fine || product != (uint64_t)count)
        return wd_fail(err, WD_BAD_FORMAT,
                       "%s: metadata \"%s\" is not a shape of the tensor's %" PRId64 " values",
                       r->cursor.path, key, count);
    t->ndim = (int)v->count;
    return WD_OK;
}

/* The dimensions, which the file has in the opposite order, and the bytes of the data. */
static wd_status take_shape(wd_tensor *t, size_t *bytes, const uint64_t *extents, uint32_t ndim,
                            const char *name, const reader *r, wd_err *err)
{
    const char *path = r->cursor.path;
    const int64_t block = wd_dtype_block(t->dtype);
    uint64_t count = 1;
    bool fits = true;
    for (uint32_t i = 0; i < ndim; i++) {
        fits = fits && extents[i] && !__builtin_mul_overflow(count, extents[i], &count) &&
               count <= INT64_MAX / 8;
        t->dim[ndim - 1 - i] = (int64_t)extents[i];
    }
    t->ndim = (int)ndim;
    if (!fits)
        return wd_fail(err, WD_BAD_FORMAT,
                       "%s: tensor \"%s\": its shape has a 0, or its product overflows", path,
                       name);
    if (ndim ? extents[0] % (uint64_t)block : block > 1)
        return wd_fail(err, WD_BAD_FORMAT,
                       "%s: tensor \"%s\": rows of %" PRIu64 " values, expected whole blocks of "
                       "%" PRId64 " (%s)",
                       path, name, ndim ? extents[0] : 1, block, wd_dtype_file_name(t->dtype));
    *bytes = wd_dtype_size(t->dtype, (int64_t)count);
    return take_original_shape(t, (int64_t)count, name, r, err);
}

static wd_status take_name(char **next, wd_gguf_text text, const char *path, wd_err *err)
{
    const size_t bytes = text.bytes <= NAME_BYTES_MAX ? text.bytes : 0;
    memcpy(*next, text.at, bytes);
    (*next)[bytes] = 0;
    if (!bytes || wd_utf8_check(*next, bytes) >= 0 ||
        (size_t)wd_terminal_safe_bytes(*next, bytes, NAME_BYTES_MAX) < bytes)
        return wd_fail(err, WD_BAD_FORMAT,
                       "%s: a tensor's name is empty, longer than %d bytes, has a control "
                       "character, or is not UTF-8",
                       path, NAME_BYTES_MAX);
    *next += bytes + 1;
    return WD_OK;
}

/* One tensor; its offset counts from the data's start, which is not known yet. */
static wd_status read_tensor(wd_safetensors_entry *out, char **next, reader *r, wd_err *err)
{
    const char *path = r->cursor.path;
    wd_gguf_text text;
    uint32_t ndim, type;
    uint64_t extents[WD_DIMS_MAX] = {0}, offset;
    size_t bytes = 0;
    char *name = *next;
    WD_TRY(wd__gguf_text_next(&text, &r->cursor, err));
    WD_TRY(take_name(next, text, path, err));
    WD_TRY(wd__gguf_u32(&ndim, &r->cursor, err));
    if (ndim > WD_DIMS_MAX)
        return wd_fail(err, WD_BAD_FORMAT,
                       "%s: tensor \"%s\" has %" PRIu32 " dimensions, expected at most %d", path,
                       name, ndim, WD_DIMS_MAX);
    for (uint32_t i = 0; i < ndim; i++) WD_TRY(wd__gguf_u64(&extents[i], &r->cursor, err));
    WD_TRY(wd__gguf_u32(&type, &r->cursor, err));
    WD_TRY(wd__gguf_u64(&offset, &r->cursor, err));
    *out = (wd_safetensors_entry){.name = name, .stored = name, .file = path, .merges_dims = true};
    WD_TRY(take_type(&out->tensor.dtype, type, name, path, err));
    WD_TRY(take_shape(&out->tensor, &bytes, extents, ndim, name, r, err));
    if (offset % r->alignment || offset > r->file->bytes || bytes > r->file->bytes)
        return wd_fail(err, WD_BAD_FORMAT,
                       "%s: tensor \"%s\": data of %zu bytes at %" PRIu64
                       ", which is not a multiple of %" PRIu64
                       " or not in the file of %zu bytes (truncated?)",
                       path, name, bytes, offset, r->alignment, r->file->bytes);
    out->file_offset = offset;
    return WD_OK;
}

/* ---- data ---- */

static int by_offset(const void *a, const void *b)
{
    const wd_safetensors_entry *x = a, *y = b;
    if (x->file_offset != y->file_offset) return x->file_offset < y->file_offset ? -1 : 1;
    return strcmp(x->name, y->name);
}

static wd_status place_data(wd_safetensors_file *file, uint64_t start, wd_err *err)
{
    uint64_t at = start;
    qsort(file->entry, (size_t)file->count, sizeof *file->entry, by_offset);
    for (int64_t i = 0; i < file->count; i++) {
        wd_safetensors_entry *e = &file->entry[i];
        const size_t bytes = wd_tensor_bytes(&e->tensor);
        e->file_offset += start;
        if (e->file_offset < at)
            return wd_fail(err, WD_BAD_FORMAT, "%s: data of tensors \"%s\" and \"%s\" overlap",
                           file->path, file->entry[i - 1].name, e->name);
        if (e->file_offset > file->bytes || bytes > file->bytes - e->file_offset)
            return wd_fail(err, WD_BAD_FORMAT,
                           "%s: tensor \"%s\" ends at byte %" PRIu64
                           ", but the file has only %zu (truncated?)",
                           file->path, e->name, e->file_offset + bytes, file->bytes);
        at = e->file_offset + bytes;
        e->tensor.data = (char *)file->map + e->file_offset;
        e->unaligned = e->file_offset % wd_dtype_align(e->tensor.dtype) != 0;
    }
    return WD_OK;
}

static wd_status read_tensors(reader *r, wd_err *err)
{
    wd_safetensors_file *file = r->file;
    void *block;
    WD_TRY(wd_alloc(&block, (size_t)r->tensors + 1, NAME_BYTES_MAX + 1, "tensor names", err));
    file->names = block;
    WD_TRY(wd_alloc(&block, (size_t)r->tensors + 1, sizeof *file->entry, "a list of tensors", err));
    file->entry = block;
    char *next = file->names;
    for (uint64_t i = 0; i < r->tensors; i++) {
        WD_TRY(read_tensor(&file->entry[i], &next, r, err));
        file->count++;
    }
    const size_t header = (size_t)(r->cursor.at - r->cursor.begin);
    return place_data(file, wd_round_up(header, (size_t)r->alignment), err);
}

wd_status wd__gguf_read(wd_safetensors_file *file, wd_err *err)
{
    const uint8_t *begin = file->map, *header;
    reader r = {.file = file};
    wd_status status;
    WD_TRY(copy_header(file, err));
    header = file->header;
    r.cursor = (wd_gguf_cursor){file->path, header, header, header + file->header_bytes, false};
    WD_TRY_OUT(wd__gguf_begin(&r.tensors, &r.values, &r.cursor, err));
    WD_TRY_OUT(read_values(&r, err));
    r.cursor =
        (wd_gguf_cursor){file->path, begin, begin + file->header_bytes, begin + file->bytes, false};
    WD_TRY_OUT(read_tensors(&r, err));
out:
    wd_free(r.value);
    return status;
}
