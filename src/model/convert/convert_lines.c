/* Tensors as files: see model/convert/convert_lines.h. */
#include "model/convert/convert_lines.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/parallel.h"
#include "core/stop.h"
#include "dev/codec/encode.h"
#include "dev/codec/values.h"
#include "io/tensors/gguf.h"
#include "model/dit/dit_file.h"
#include "model/tables/dit_table.h"

enum { CHUNK_VALUES = 1 << 20, GRAIN_VALUES = 1 << 14, SMALL_VALUES = 1024 };

/* The largest value of F8_E4M3, which the largest magnitude of a tensor becomes. */
static const float most_of_float8 = 448;

/* ---- dtypes ---- */

wd_dtype wd_convert_safetensors_dtype(const wd_tensor_spec *spec, wd_dtype stored, wd_dtype asked)
{
    if (asked == WD_F8_E4M3)
        return wd_dit_is_matrix(spec) ? WD_F8_E4M3 : wd_spec_dtype(spec, WD_BF16);
    if (asked != WD_DTYPE_COUNT) return wd_spec_dtype(spec, asked);
    return wd_dtype_is_quantised(stored) ? wd_spec_dtype(spec, WD_BF16) : stored;
}

wd_dtype wd_convert_gguf_dtype(const wd_tensor_spec *spec, wd_dtype stored, wd_dtype asked)
{
    int64_t count = 1;
    const wd_dtype narrow = stored == WD_F32 || stored == WD_F16 ? WD_F16 : WD_BF16;
    for (int d = 0; d < spec->ndim; d++) count *= spec->dim[d];
    if (spec->ndim != 2 || count <= SMALL_VALUES) return WD_F32;
    const int64_t row = spec->dim[1];
    if (asked == WD_DTYPE_COUNT) {
        const bool has_scales = wd_dtype_is_quantised(stored) && wd_dtype_block(stored) == 1;
        return has_scales || row % wd_dtype_block(stored) ? wd_spec_dtype(spec, WD_BF16) : stored;
    }
    if (!wd_dtype_is_quantised(asked)) return wd_spec_dtype(spec, asked);
    if (!wd_dit_is_matrix(spec)) return wd_spec_dtype(spec, narrow);
    if (row % wd_dtype_block(asked) == 0) return asked;
    return row % wd_dtype_block(WD_Q8_0) == 0 ? WD_Q8_0 : narrow;
}

/* ---- values ---- */

/* A piece of a tensor in host memory: its values, and what they are encoded to. */
typedef struct chunk {
    const wd_tensor *tensor;
    int64_t at;
    float *values;
    uint8_t *bytes;
} chunk;

static void read_some(int64_t begin, int64_t end, void *context)
{
    const chunk *c = context;
    wd_tensor_values(c->values + begin, c->tensor, c->at + begin, end - begin);
}

static wd_status check_values(const wd_convert_line *l, const float *values, int64_t count,
                              wd_err *err)
{
    const bool is_quantised = wd_dtype_is_quantised(l->dtype);
    const float most = wd_dtype_most(l->dtype);
    for (int64_t i = 0; i < count; i++) {
        const float v = values[i];
        if (fabsf(v) <= most || (!is_quantised && !isfinite(v))) continue;
        return wd_fail(err, WD_UNSUPPORTED,
                       "%s: tensor \"%s\" has the value %g, which %s cannot hold; use bfloat16 or "
                       "float32",
                       l->from->file, l->from->stored, (double)v, wd_dtype_option_name(l->dtype));
    }
    return WD_OK;
}

/* Reads the next values of a line, at most a chunk of them, and checks them. */
static wd_status read_chunk(int64_t *out, chunk *c, const wd_convert_line *l, wd_err *err)
{
    const int64_t left = wd_tensor_count(c->tensor) - c->at;
    const int64_t count = left < CHUNK_VALUES ? left : CHUNK_VALUES;
    if (wd_stop_requested()) return wd_fail(err, WD_INTERRUPTED, "stopped on request");
    wd_parallel_for(count, GRAIN_VALUES, read_some, c);
    *out = count;
    return check_values(l, c->values, count, err);
}

/* Whether the bytes of the source are those of the file. */
static bool is_copied(const wd_convert_line *l)
{
    const wd_tensor *t = &l->from->tensor;
    const bool has_one_scale = t->scales.rows * t->scales.columns == 1;
    return t->dtype == l->dtype && (!t->scales.data || has_one_scale);
}

static wd_status put_line(wd_safetensors_writer *writer, const wd_convert_line *l, chunk *c,
                          wd_err *err)
{
    const wd_tensor *t = &l->from->tensor;
    const int64_t count = wd_tensor_count(t);
    int64_t n = 0;
    if (wd_stop_requested()) return wd_fail(err, WD_INTERRUPTED, "stopped on request");
    if (is_copied(l)) {
        WD_TRY(wd_safetensors_put(writer, t->data, wd_tensor_bytes(t), err));
        wd_safetensors_dont_need(l->from);
        return WD_OK;
    }
    c->tensor = t;
    for (c->at = 0; c->at < count; c->at += n) {
        WD_TRY(read_chunk(&n, c, l, err));
        if (l->dtype == WD_F8_E4M3)
            for (int64_t i = 0; i < n; i++) c->values[i] /= l->scale;
        wd_values_encode(c->bytes, l->dtype, c->values, n);
        WD_TRY(wd_safetensors_put(writer, c->bytes, wd_dtype_size(l->dtype, n), err));
    }
    wd_safetensors_dont_need(l->from);
    return WD_OK;
}

/* The scale with which the largest magnitude is float8's largest value; 1 where that is below the
 * least normal float, of which quotients may be infinite. */
static wd_status find_scale(wd_convert_line *l, chunk *c, wd_err *err)
{
    const wd_tensor *t = &l->from->tensor;
    const int64_t count = wd_tensor_count(t);
    int64_t n = 0;
    float most = 0;
    l->scale = 1;
    if (is_copied(l)) {
        if (t->scales.data) l->scale = wd_float_at(t->scales.data, t->scales.dtype, 0);
        return WD_OK;
    }
    c->tensor = t;
    for (c->at = 0; c->at < count; c->at += n) {
        WD_TRY(read_chunk(&n, c, l, err));
        for (int64_t i = 0; i < n; i++) {
            const float magnitude = fabsf(c->values[i]);
            most = magnitude > most ? magnitude : most;
        }
    }
    wd_safetensors_dont_need(l->from);
    if (most / most_of_float8 >= FLT_MIN) l->scale = most / most_of_float8;
    return WD_OK;
}

static wd_status open_chunk(chunk *out, wd_err *err)
{
    void *block;
    *out = (chunk){0};
    WD_TRY(wd_alloc(&block, CHUNK_VALUES, sizeof(float), "a chunk of weights", err));
    out->values = block;
    WD_TRY(wd_alloc(&block, CHUNK_VALUES, sizeof(float), "a chunk of weights", err));
    out->bytes = block;
    return WD_OK;
}

static void close_chunk(chunk *c)
{
    wd_free(c->values);
    wd_free(c->bytes);
}

/* ---- items ---- */

static wd_safetensors_item item_of(const wd_convert_line *l)
{
    wd_safetensors_item item = {
        .name = l->name, .dtype = l->dtype, .ndim = l->from->tensor.ndim, .dim = {0}};
    memcpy(item.dim, l->from->tensor.dim, sizeof item.dim);
    return item;
}

/* In safetensors files wide elements come first, so that all tensors are aligned: 4 bytes, 2, 1. */
static int place_of(const wd_convert_line *l)
{
    return l->dtype == WD_F32 ? 0 : l->dtype == WD_F8_E4M3 ? 2 : 1;
}
enum { PLACES = 3 };

/* "x.weight" becomes "x.scale_weight". */
static void name_scale(char out[WD_TENSOR_NAME_MAX], const char *name)
{
    const size_t end = strlen(".weight"), length = strlen(name);
    snprintf(out, WD_TENSOR_NAME_MAX, "%.*s.scale_weight", (int)(length - end), name);
}

typedef struct listed {
    wd_safetensors_item *item; /* first the scales, then the lines in their places, then the mark */
    int64_t count, scales;
    char (*scale_name)[WD_TENSOR_NAME_MAX];
} listed;

/* Lists what a safetensors file has; the caller frees out->item and out->scale_name. */
static wd_status list_items(listed *out, const wd_convert_line *lines, int64_t count, wd_err *err)
{
    void *block;
    *out = (listed){0};
    WD_TRY(wd_alloc(&block, 2 * (size_t)count + 1, sizeof *out->item, "a header", err));
    out->item = block;
    WD_TRY(wd_alloc(&block, (size_t)count, sizeof *out->scale_name, "names of scales", err));
    out->scale_name = block;
    for (int64_t i = 0; i < count; i++) {
        if (lines[i].dtype != WD_F8_E4M3) continue;
        name_scale(out->scale_name[out->scales], lines[i].name);
        out->item[out->count++] = (wd_safetensors_item){
            .name = out->scale_name[out->scales++], .dtype = WD_F32, .dim = {0}};
    }
    for (int place = 0; place < PLACES; place++)
        for (int64_t i = 0; i < count; i++)
            if (place_of(&lines[i]) == place) out->item[out->count++] = item_of(&lines[i]);
    if (out->scales) /* of two values: products are not computed in 8 bits (ComfyUI's rule) */
        out->item[out->count++] =
            (wd_safetensors_item){.name = "scaled_fp8", .dtype = WD_F8_E4M3, .ndim = 1, .dim = {2}};
    return WD_OK;
}

wd_status wd__convert_write_safetensors(const char *path, wd_convert_line *lines, int64_t count,
                                        const char *const *metadata, wd_err *err)
{
    wd_safetensors_writer *writer = NULL;
    listed list = {0};
    chunk c = {0};
    wd_status status;
    WD_TRY_OUT(open_chunk(&c, err));
    WD_TRY_OUT(list_items(&list, lines, count, err));
    WD_TRY_OUT(wd_safetensors_create_unnamed(&writer, path, list.item, list.count, metadata, err));
    for (int64_t i = 0; i < count; i++) {
        if (lines[i].dtype != WD_F8_E4M3) continue;
        WD_TRY_OUT(find_scale(&lines[i], &c, err));
        WD_TRY_OUT(wd_safetensors_put(writer, &lines[i].scale, sizeof lines[i].scale, err));
    }
    for (int place = 0; place < PLACES; place++)
        for (int64_t i = 0; i < count; i++)
            if (place_of(&lines[i]) == place) WD_TRY_OUT(put_line(writer, &lines[i], &c, err));
    if (list.scales) WD_TRY_OUT(wd_safetensors_put(writer, "\0", 2, err));
    status = wd_safetensors_finish(writer, err);
    writer = NULL;
out:
    wd_safetensors_abandon(writer);
    wd_free(list.item);
    wd_free(list.scale_name);
    close_chunk(&c);
    return status;
}

/* ---- GGUF ---- */

/* llama.cpp's number for what a file is mostly made of (enum llama_ftype): those of K types
 * are of Q5_K_S, Q4_K_S and Q3_K_S. */
static uint32_t file_type(const wd_convert_line *lines, int64_t count)
{
    static const struct {
        wd_dtype dtype;
        uint32_t number;
    } types[] = {{WD_F32, 0},  {WD_F16, 1},   {WD_BF16, 32}, {WD_Q8_0, 7},    {WD_Q5_0, 8},
                 {WD_Q4_0, 2}, {WD_Q6_K, 18}, {WD_Q5_K, 16}, {WD_Q4_K, 14},   {WD_Q5_1, 9},
                 {WD_Q4_1, 3}, {WD_Q3_K, 11}, {WD_Q2_K, 10}, {WD_IQ4_NL, 25}, {WD_IQ4_XS, 30}};
    int64_t values[WD_DTYPE_COUNT] = {0}, most = 0;
    uint32_t out = 0;
    for (int64_t i = 0; i < count; i++)
        values[lines[i].dtype] += wd_tensor_count(&lines[i].from->tensor);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (values[types[i].dtype] <= most) continue;
        most = values[types[i].dtype];
        out = types[i].number;
    }
    return out;
}

wd_status wd__convert_write_gguf(const char *path, wd_convert_line *lines, int64_t count,
                                 const char *config, wd_err *err)
{
    const wd_gguf_pair pairs[] = {
        {"general.architecture", "wan", 0},
        {"general.quantization_version", NULL, 2}, /* ggml's GGML_QNT_VERSION */
        {"general.file_type", NULL, file_type(lines, count)},
        {WD_DIT_FILE_CONFIG_KEY, config, 0},
    };
    wd_safetensors_writer *writer = NULL;
    void *items = NULL;
    chunk c = {0};
    wd_status status;
    WD_TRY_OUT(open_chunk(&c, err));
    WD_TRY_OUT(wd_alloc(&items, (size_t)count, sizeof(wd_safetensors_item), "a header", err));
    for (int64_t i = 0; i < count; i++) ((wd_safetensors_item *)items)[i] = item_of(&lines[i]);
    WD_TRY_OUT(
        wd_gguf_create(&writer, path, items, count, pairs, sizeof pairs / sizeof *pairs, err));
    for (int64_t i = 0; i < count; i++) {
        WD_TRY_OUT(put_line(writer, &lines[i], &c, err));
        WD_TRY_OUT(wd_gguf_pad(writer, err));
    }
    status = wd_safetensors_finish(writer, err);
    writer = NULL;
out:
    wd_safetensors_abandon(writer);
    wd_free(items);
    close_chunk(&c);
    return status;
}
