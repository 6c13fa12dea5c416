/* Components of wan-tiny quantised as files on the Hub are, and their dequantised twins: the same
 * values as F32, by formulas that are not the program's. */
#ifndef WD_TESTS_QUANTISED_H
#define WD_TESTS_QUANTISED_H

#include <math.h>

#include "forms.h"

typedef enum wd_test_mark {
    WD_MARK_NONE,
    WD_MARK_SCALED_FP8,  /* a tensor "scaled_fp8" */
    WD_MARK_METADATA,    /* "_quantization_metadata" */
    WD_MARK_COMFY_QUANT, /* a tensor "x.comfy_quant" of each layer */
} wd_test_mark;

typedef struct wd_test_quantised {
    const char *name;
    wd_dtype dtype;      /* F8_E4M3, F8_E5M2, I8 */
    const char *scale;   /* how scales are named; NULL: there are none, every tensor is quantised */
    wd_dtype scale_type; /* of scales */
    bool by_row;         /* one for each of a row's `parts`, else one for the tensor */
    int64_t parts;
    wd_test_mark mark;
} wd_test_quantised;

static const wd_test_quantised wd_test_quantised_forms[] = {
    {"fp8", WD_F8_E4M3, NULL, WD_F32, false, 1, WD_MARK_NONE},
    {"fp8-e5m2", WD_F8_E5M2, NULL, WD_F32, false, 1, WD_MARK_NONE},
    {"scaled-fp8", WD_F8_E4M3, "scale_weight", WD_F32, false, 1, WD_MARK_SCALED_FP8},
    {"scaled-fp8-metadata", WD_F8_E4M3, "weight_scale", WD_F32, false, 1, WD_MARK_METADATA},
    {"scaled-fp8-marks", WD_F8_E5M2, "weight_scale", WD_F32, false, 1, WD_MARK_COMFY_QUANT},
    {"fp8-rows", WD_F8_E4M3, "weight_scale", WD_F32, true, 1, WD_MARK_NONE},
    {"fp8-blocks", WD_F8_E4M3, "scale_weight", WD_BF16, true, 4, WD_MARK_NONE},
    {"int8-rows", WD_I8, "weight_scale", WD_F32, true, 1, WD_MARK_NONE},
};
enum { WD_TEST_QUANTISED_FORMS = sizeof wd_test_quantised_forms / sizeof *wd_test_quantised_forms };

/* ---- values ---- */

/* A quantised value near v, and what it is as a float. */
static inline uint8_t wd_test_encode(float v, wd_dtype dtype)
{
    uint32_t bits;
    if (dtype == WD_I8) return (uint8_t)(int8_t)lrintf(v);
    if (dtype == WD_F8_E5M2) return (uint8_t)(wd_f32_to_f16(v) >> 8);
    const float small = fabsf(v) * 0x1p-120f;
    memcpy(&bits, &small, sizeof bits);
    bits >>= 20;
    return (uint8_t)((bits > 0x7e ? 0x7e : bits) | (v < 0 ? 0x80 : 0));
}

static inline float wd_test_decode(uint8_t q, wd_dtype dtype)
{
    if (dtype == WD_I8) return (float)(int8_t)q;
    if (dtype == WD_F8_E5M2) return wd_f16_to_f32((uint16_t)(q << 8));
    const int e = q >> 3 & 15, m = q & 7;
    const float magnitude = e ? ldexpf(1 + (float)m / 8, e - 7) : ldexpf((float)m, -9);
    return q & 0x80 ? -magnitude : magnitude;
}

static inline float wd_test_limit(wd_dtype dtype)
{
    return dtype == WD_I8 ? 127 : dtype == WD_F8_E5M2 ? 57344 : 448;
}

/* A tensor of `count` values in `groups` equal parts, each with its scale. */
typedef struct wd_test_packed {
    uint8_t *q;
    float *wide;
    uint16_t *scale16;
    float *scale32;
    int64_t count, groups;
} wd_test_packed;

static inline wd_test_packed wd_test_pack(const wd_tensor *t, const wd_test_quantised *form)
{
    wd_test_packed p = {.count = wd_tensor_count(t), .groups = 1};
    if (form->by_row) p.groups = t->dim[0] * form->parts;
    p.q = malloc((size_t)p.count);
    p.wide = malloc((size_t)p.count * sizeof(float));
    p.scale32 = malloc((size_t)p.groups * sizeof(float));
    p.scale16 = malloc((size_t)p.groups * sizeof(uint16_t));
    for (int64_t g = 0, n = p.count / p.groups; g < p.groups; g++) {
        float most = 0;
        for (int64_t i = g * n; i < (g + 1) * n; i++)
            most = fmaxf(most, fabsf(wd_test_value(t, (size_t)i)));
        float scale = most > 0 ? most / wd_test_limit(form->dtype) * 1.01f : 1;
        p.scale16[g] = wd_f32_to_bf16(scale);
        if (form->scale_type == WD_BF16) scale = wd_bf16_to_f32(p.scale16[g]);
        if (!form->scale) scale = 1;
        p.scale32[g] = scale;
        for (int64_t i = g * n; i < (g + 1) * n; i++) {
            p.q[i] = wd_test_encode(wd_test_value(t, (size_t)i) / scale, form->dtype);
            p.wide[i] = wd_test_decode(p.q[i], form->dtype) * scale;
        }
    }
    return p;
}

static inline void wd_test_unpack(wd_test_packed *p)
{
    free(p->q);
    free(p->wide);
    free(p->scale16);
    free(p->scale32);
}

/* ---- files ---- */

static inline bool wd_test_is_quantised(const wd_safetensors_entry *e, const wd_test_quantised *f)
{
    const size_t length = strlen(e->name);
    return !f->scale || (e->tensor.ndim == 2 && !strncmp(e->name, "blocks.", 7) && length > 7 &&
                         !strcmp(e->name + length - 7, ".weight"));
}

/* The items of a file that is written: tensors and what describes them, each with its bytes. */
typedef struct wd_test_file {
    wd_safetensors_item item[4096];
    char name[4096][256];
    void *data[4096];
    int64_t count;
} wd_test_file;

/* Takes the bytes, which are freed when the file is written. */
static inline void wd_test_add(wd_test_file *file, const char *name, const char *end,
                               wd_dtype dtype, int ndim, const int64_t *dim, void *data)
{
    wd_safetensors_item *item = &file->item[file->count];
    snprintf(file->name[file->count], 256, "%s%s", name, end);
    *item = (wd_safetensors_item){file->name[file->count], dtype, ndim, {0}};
    for (int i = 0; i < ndim; i++) item->dim[i] = dim[i];
    file->data[file->count++] = data;
}

static inline void *wd_test_copy(const void *from, size_t bytes)
{
    void *to = malloc(bytes ? bytes : 1);
    memcpy(to, from, bytes);
    return to;
}

static inline void wd_test_write_file(wd_test_file *file, const char *path,
                                      const char *const *metadata)
{
    wd_err err;
    wd_safetensors_writer *writer;
    wd_test_ok(wd_safetensors_create(&writer, path, file->item, file->count, metadata, &err), &err);
    for (int64_t i = 0; i < file->count; i++) {
        int64_t count = 1;
        for (int d = 0; d < file->item[i].ndim; d++) count *= file->item[i].dim[d];
        wd_test_ok(wd_safetensors_put(writer, file->data[i],
                                      wd_dtype_size(file->item[i].dtype, count), &err),
                   &err);
        free(file->data[i]);
    }
    wd_test_ok(wd_safetensors_finish(writer, &err), &err);
    free(file);
}

static inline void wd_test_add_quantised(wd_test_file *file, wd_test_file *twin, char *metadata,
                                         const char *name, const wd_safetensors_entry *e,
                                         const wd_test_quantised *form)
{
    static const char format[2][40] = {"{\"format\":\"float8_e4m3fn\"}",
                                       "{\"format\":\"float8_e5m2\"}"};
    const wd_tensor *t = &e->tensor;
    wd_test_packed p = wd_test_pack(t, form);
    const int64_t scales[3] = {t->dim[0], form->parts, 1}, one = 1;
    char layer[256];
    wd_test_add(file, name, "", form->dtype, t->ndim, t->dim, p.q);
    wd_test_add(twin, e->name, "", WD_F32, t->ndim, t->dim, p.wide);
    p.q = NULL, p.wide = NULL;
    snprintf(layer, sizeof layer, "%.*s", (int)strlen(name) - 7, name);
    if (form->scale) {
        void *data = form->scale_type == WD_F32 ? wd_test_copy(p.scale32, (size_t)p.groups * 4)
                                                : wd_test_copy(p.scale16, (size_t)p.groups * 2);
        char end[32];
        snprintf(end, sizeof end, ".%s", form->scale);
        wd_test_add(file, layer, end, form->scale_type,
                    !form->by_row     ? 0
                    : form->parts > 1 ? 3
                                      : 2,
                    form->parts > 1 ? scales : (int64_t[]){t->dim[0], 1}, data);
    }
    const char *mark = format[form->dtype == WD_F8_E5M2];
    if (form->mark == WD_MARK_SCALED_FP8)
        wd_test_add(file, layer, ".scale_input", WD_F32, 1, &one, calloc(1, 4));
    if (form->mark == WD_MARK_COMFY_QUANT)
        wd_test_add(file, layer, ".comfy_quant", WD_U8, 1, &(int64_t){(int64_t)strlen(mark)},
                    wd_test_copy(mark, strlen(mark)));
    sprintf(metadata + strlen(metadata), "%s\"%s\":%s", *metadata ? "," : "", layer, mark);
    wd_test_unpack(&p);
}

/* Writes the component in that form to `path`, under the original names, and its twin under
 * diffusers' names to `twin_path`. */
static inline void wd_test_write_quantised(const char *path, const char *twin_path,
                                           const wd_pipeline *p, wd_component c,
                                           const wd_test_quantised *form)
{
    static const wd_test_form names = {true, "model.diffusion_model.", WD_DTYPE_COUNT};
    wd_err err;
    wd_safetensors *set;
    wd_test_ok(wd_pipeline_open_weights(&set, p, c, &err), &err);
    wd_test_file *file = calloc(1, sizeof *file), *twin = calloc(1, sizeof *twin);
    char *layers = calloc(1, 1 << 18), *text = calloc(1, (1 << 18) + 100), name[256];
    for (int64_t i = 0; i < wd_safetensors_count(set); i++) {
        const wd_safetensors_entry *e = wd_safetensors_at(set, i);
        const wd_tensor *t = &e->tensor;
        wd_test_form_name(name, e->name, c, p, &names);
        if (wd_test_is_quantised(e, form)) {
            wd_test_add_quantised(file, twin, layers, name, e, form);
            continue;
        }
        wd_test_add(file, name, "", t->dtype, t->ndim, t->dim,
                    wd_test_copy(t->data, wd_tensor_bytes(t)));
        wd_test_add(twin, e->name, "", t->dtype, t->ndim, t->dim,
                    wd_test_copy(t->data, wd_tensor_bytes(t)));
    }
    if (form->mark == WD_MARK_SCALED_FP8)
        wd_test_add(file, names.prefix, "scaled_fp8", WD_F8_E4M3, 1, &(int64_t){2}, calloc(1, 2));
    sprintf(text, "{\"format_version\":\"1.0\",\"layers\":{%s}}", layers);
    const char *const metadata[] = {"_quantization_metadata", text, NULL};
    wd_test_write_file(file, path, form->mark == WD_MARK_METADATA ? metadata : NULL);
    wd_test_write_file(twin, twin_path, NULL);
    wd_safetensors_close(set);
    free(layers);
    free(text);
}

#endif
