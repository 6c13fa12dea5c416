/* Scales of quantised weights: see wd_safetensors_pair_scales.
 *
 * Names and shapes follow what writes such files: ComfyUI (comfy/utils.py, comfy/quant_ops.py),
 * LightX2V (tools/convert) and musubi-tuner (modules/fp8_optimization_utils.py). First the marks
 * are checked, then tensors that are scales find their weights, then every quantised weight is
 * checked. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/dtype.h"
#include "core/memory.h"
#include "core/text.h"
#include "io/json/json.h"
#include "io/tensors/safetensors_impl.h"

enum { NAME_MAX_BYTES = 512, MARK_BYTES_MAX = 4096 };

/* What a tensor's name says that it is. UNUSED: a scale of a layer's inputs, which is dropped.
 * MARK: it says that the file is quantised. FOREIGN: it belongs to a form that is refused. */
typedef enum role { WEIGHT, SCALE, UNUSED, MARK, FOREIGN } role;

/* "weight_scale_inv" is what the weight is multiplied by, too, whatever its name says
 * (transformers, FineGrainedFP8). */
static const struct {
    const char *end;
    role role;
    const char *form; /* of a FOREIGN one */
} roles[] = {
    {".weight_scale", SCALE, NULL},
    {".scale_weight", SCALE, NULL},
    {".weight_scale_inv", SCALE, NULL},
    {".input_scale", UNUSED, NULL},
    {".scale_input", UNUSED, NULL},
    {"scaled_fp8", MARK, NULL},
    {".comfy_quant", MARK, NULL},
    {".weight_scale_2", FOREIGN, "nvfp4 or hybrid mxfp8"},
    {".weight_scalar", FOREIGN, "nvfp4 or hybrid mxfp8"},
    {".absmax", FOREIGN, "4 bits of bitsandbytes (nf4, fp4)"},
    {".quant_map", FOREIGN, "4 bits of bitsandbytes (nf4, fp4)"},
    {".nested_absmax", FOREIGN, "4 bits of bitsandbytes (nf4, fp4)"},
    {".nested_quant_map", FOREIGN, "4 bits of bitsandbytes (nf4, fp4)"},
    {".quant_state.bitsandbytes__nf4", FOREIGN, "4 bits of bitsandbytes (nf4)"},
    {".quant_state.bitsandbytes__fp4", FOREIGN, "4 bits of bitsandbytes (fp4)"},
    {".SCB", FOREIGN, "int8 of bitsandbytes"},
    {".weight._data", FOREIGN, "a form of quanto"},
    {".weight._scale", FOREIGN, "a form of quanto"},
    {".weight._shift", FOREIGN, "a form of quanto"},
    {".qweight", FOREIGN, "a form of GPTQ, AWQ or SVDQuant"},
};

/* *base gets the length of the name without its end, *form what a FOREIGN tensor is of. */
static role role_of(const char *name, size_t *base, const char **form)
{
    const size_t length = strlen(name);
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        const size_t end = strlen(roles[i].end);
        if (length < end || strcmp(name + length - end, roles[i].end)) continue;
        *base = length - end;
        *form = roles[i].form;
        return roles[i].role;
    }
    return WEIGHT;
}

bool wd__safetensors_is_scale(const char *name, size_t *base)
{
    const char *form;
    return role_of(name, base, &form) == SCALE;
}

/* ---- marks ---- */

/* A mark's JSON: {"format": "float8_e4m3fn", ...}; in metadata also the format's name alone. */
static wd_status check_format(const json_t *mark, const char *file, const char *layer, wd_err *err)
{
    static const char *const known[] = {"float8_e4m3fn", "float8_e5m2", "float8_e4m3fn_rowwise",
                                        "int8_tensorwise"};
    const char *format =
        json_string_value(json_is_object(mark) ? json_object_get(mark, "format") : mark);
    if (json_is_true(json_object_get(mark, "convrot")))
        return wd_fail(err, WD_UNSUPPORTED,
                       "%s: layer \"%s\" is quantised with ConvRot, which is not read; "
                       "docs/models.md lists the forms that are",
                       file, layer);
    for (size_t i = 0; format && i < sizeof known / sizeof *known; i++)
        if (!strcmp(format, known[i])) return WD_OK;
    return wd_fail(err, WD_UNSUPPORTED,
                   "%s: layer \"%s\" is quantised as \"%.*s\", which is not read; docs/models.md "
                   "lists the forms that are",
                   file, layer, WD_TERMINAL_SAFE(format ? format : "?", 60));
}

/* A tensor x.comfy_quant has the JSON of layer x as bytes. */
static wd_status check_mark(const wd_safetensors_entry *e, size_t base, wd_err *err)
{
    char layer[NAME_MAX_BYTES];
    json_t *json;
    const size_t bytes = wd_tensor_bytes(&e->tensor);
    if (e->name[base] != '.') return WD_OK; /* scaled_fp8 has no contents that matter */
    snprintf(layer, sizeof layer, "%.*s", (int)base, e->name);
    if (e->tensor.dtype != WD_U8 || bytes > MARK_BYTES_MAX)
        return wd_fail(
            err, WD_BAD_FORMAT,
            "%s: tensor \"%s\": expected at most %d bytes of JSON, found %zu bytes of %s", e->file,
            e->name, MARK_BYTES_MAX, bytes, wd_dtype_file_name(e->tensor.dtype));
    if (wd_json_parse_mapped(&json, e->tensor.data, bytes, e->file, err) != WD_OK)
        return wd_fail_in(err, "tensor \"%s\"", e->name);
    const wd_status status = check_format(json, e->file, layer, err);
    json_decref(json);
    return status;
}

/* The metadata of a file; *marked is set if it names layers. */
static wd_status check_metadata(bool *marked, const wd_safetensors_file *file, wd_err *err)
{
    static const char key[] = "_quantization_metadata";
    const char *layer, *text = json_string_value(json_object_get(file->metadata, key));
    json_t *json, *value;
    wd_status status = WD_OK;
    if (!text) return WD_OK;
    WD_TRY(wd_json_parse(&json, text, strlen(text), file->path, err));
    json_t *layers = json_object_get(json, "layers");
    if (!json_is_object(layers))
        status = wd_fail(err, WD_BAD_FORMAT, "%s: metadata \"%s\" has no object \"layers\"",
                         file->path, key);
    json_object_foreach(layers, layer, value)
    {
        char plain[NAME_MAX_BYTES];
        snprintf(plain, sizeof plain, "%.*s", WD_TERMINAL_SAFE(layer, NAME_MAX_BYTES - 1));
        if (status == WD_OK) status = check_format(value, file->path, plain, err);
        *marked = true;
    }
    json_decref(json);
    return status;
}

/* ---- scales ---- */

/* How many scales there are for each row, from the shapes. */
static wd_status shape_scales(wd_scales *out, const wd_safetensors_entry *weight,
                              const wd_safetensors_entry *scale, wd_err *err)
{
    char shape[128], weight_shape[128];
    const wd_tensor *w = &weight->tensor, *s = &scale->tensor;
    const int64_t rows = w->ndim ? w->dim[0] : 1, count = wd_tensor_count(s);
    *out = (wd_scales){.data = s->data, .dtype = s->dtype, .rows = 1, .columns = 1};
    if (count == 1) return WD_OK;
    const bool by_row = s->ndim >= 1 && s->dim[0] == rows && count > 0;
    if (by_row && count == rows && w->ndim >= 2) {
        out->rows = rows;
        return WD_OK;
    }
    if (by_row && s->ndim == 3 && s->dim[2] == 1 && w->ndim == 2 && w->dim[1] % s->dim[1] == 0) {
        out->rows = rows;
        out->columns = s->dim[1];
        return WD_OK;
    }
    const bool squares = s->ndim == 2 && w->ndim == 2 && s->dim[0] == (rows + 127) / 128 &&
                         s->dim[1] == (w->dim[1] + 127) / 128;
    return wd_fail(err, WD_UNSUPPORTED,
                   "%s: tensor \"%s\" has shape %s%s: expected one scale, one for each row, or "
                   "[rows, parts of a row, 1] for \"%s\" of shape %s; scales of other blocks are "
                   "not read: take a file of the model that is not quantised, or is scaled fp8 or "
                   "GGUF",
                   scale->file, scale->name, wd_dims_text(shape, sizeof shape, s->dim, s->ndim),
                   squares ? ", a scale for each block of 128 x 128" : "", weight->name,
                   wd_dims_text(weight_shape, sizeof weight_shape, w->dim, w->ndim));
}

static wd_status check_finite(const wd_safetensors_entry *scale, wd_err *err)
{
    const wd_tensor *t = &scale->tensor;
    const int64_t count = wd_tensor_count(t);
    for (int64_t i = 0; i < count; i++) {
        const float value = wd_float_at(t->data, t->dtype, i);
        if (!isfinite(value))
            return wd_fail(err, WD_BAD_FORMAT,
                           "%s: tensor \"%s\": scale %" PRId64 " is %g, expected a finite number "
                           "(damaged)",
                           scale->file, scale->name, i, (double)value);
    }
    return WD_OK;
}

wd_status wd__safetensors_pair(wd_safetensors *set, const wd_safetensors_entry *scale, size_t base,
                               wd_err *err)
{
    char name[NAME_MAX_BYTES];
    const wd_dtype dtype = scale->tensor.dtype;
    snprintf(name, sizeof name, "%.*s.weight", (int)base, scale->name);
    const wd_safetensors_entry *found = wd_safetensors_find(set, name);
    if (!found)
        return wd_fail(err, WD_BAD_FORMAT, "%s: tensor \"%s\" is a scale, but there is no \"%s\"",
                       scale->file, scale->name, name);
    if (dtype != WD_F32 && dtype != WD_F16 && dtype != WD_BF16)
        return wd_fail(err, WD_UNSUPPORTED,
                       "%s: tensor \"%s\": expected scales in F32, F16 or BF16, found %s (as nvfp4 "
                       "and mxfp8 have them, which are not read)",
                       scale->file, scale->name, wd_dtype_file_name(dtype));
    wd_safetensors_entry *weight = &set->entry[found - set->entry];
    if (!wd_dtype_is_quantised(weight->tensor.dtype) || wd_dtype_block(weight->tensor.dtype) > 1)
        return wd_fail(err, WD_UNSUPPORTED,
                       "%s: tensor \"%s\" has scales, but is %s: expected F8_E4M3, F8_E5M2 or I8",
                       weight->file, weight->name, wd_dtype_file_name(weight->tensor.dtype));
    if (weight->scaled)
        return wd_fail(err, WD_BAD_FORMAT, "%s: tensor \"%s\" has scales twice: \"%s\" and \"%s\"",
                       weight->file, weight->name, weight->scale->name, scale->name);
    WD_TRY(check_finite(scale, err));
    weight->scaled = true;
    weight->scale = scale;
    return shape_scales(&weight->tensor.scales, weight, scale, err);
}

/* Moves scales to set->scale, and drops what is no weight. *marked is set if the file says that it
 * is scaled. */
static wd_status split(wd_safetensors *set, int64_t *scales, bool *marked, wd_err *err)
{
    int64_t kept = 0;
    void *block;
    WD_TRY(wd_alloc(&block, (size_t)set->count, sizeof *set->scale, "a list of scales", err));
    set->scale = block;
    for (int64_t i = 0; i < set->count; i++) {
        const wd_safetensors_entry *e = &set->entry[i];
        size_t base = 0;
        const char *form = NULL;
        const role is = role_of(e->name, &base, &form);
        if (is == FOREIGN)
            return wd_fail(
                err, WD_UNSUPPORTED,
                "%s: tensor \"%s\" is of weights in %s, which are not read: take a file of the "
                "model that is not quantised, or is scaled fp8 or GGUF; docs/models.md lists the "
                "forms that are read",
                e->file, e->name, form);
        if (is == MARK) WD_TRY(check_mark(e, base, err));
        *marked = *marked || is == MARK || is == SCALE;
        if (is == SCALE) set->scale[(*scales)++] = *e;
        if (is == WEIGHT) set->entry[kept++] = *e;
    }
    set->count = kept;
    return WD_OK;
}

static wd_status check_weights(wd_safetensors *set, bool marked, wd_err *err)
{
    for (int64_t i = 0; i < set->count; i++) {
        wd_safetensors_entry *e = &set->entry[i];
        const wd_dtype dtype = e->tensor.dtype;
        if (!wd_dtype_is_quantised(dtype) || e->scaled) continue;
        const bool needs = marked || dtype == WD_I8;
        if (needs && wd_dtype_block(dtype) == 1)
            return wd_fail(
                err, WD_BAD_FORMAT,
                "%s: tensor \"%s\" is quantised (%s), and its scale is missing: expected "
                "a tensor that is named as it, with \"_scale\" behind (damaged, or of a "
                "form that is not read)",
                e->file, e->name, wd_dtype_file_name(dtype));
        e->scaled = true;
    }
    return WD_OK;
}

/* The length of what names of tensors of the same module begin with: "x." for x.weight and x.bias,
 * and all of another tensor's name. */
static size_t module_length(const char *name)
{
    static const char *const ends[] = {"weight", "bias"};
    const size_t length = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t end = strlen(ends[i]);
        if (length > end + 1 && name[length - end - 1] == '.' &&
            !strcmp(name + length - end, ends[i]))
            return length - end;
    }
    return length;
}

/* Whether `name` belongs to the module of the quantised tensor `of`, and is no tensor that modules
 * have. */
static bool is_company(const char *name, const char *of, size_t length)
{
    if (!of[length]) return name[length] == '.' || name[length] == '_';
    return strcmp(name + length, "weight") && strcmp(name + length, "bias");
}

/* A tensor of the same module as a quantised weight may be a scale under a name that is not known,
 * without which the weight's numbers would be wrong. Names are sorted, so that those of a module
 * follow one another. */
static wd_status check_company(const wd_safetensors *set, wd_err *err)
{
    for (int64_t i = 0; i < set->count; i++) {
        const wd_safetensors_entry *e = &set->entry[i];
        if (!wd_dtype_is_quantised(e->tensor.dtype) || wd_dtype_block(e->tensor.dtype) > 1)
            continue;
        const size_t length = module_length(e->name);
        int64_t at = i;
        while (at > 0 && !strncmp(set->entry[at - 1].name, e->name, length)) at--;
        for (; at < set->count && !strncmp(set->entry[at].name, e->name, length); at++) {
            const wd_safetensors_entry *other = &set->entry[at];
            if (at == i || !is_company(other->name, e->name, length)) continue;
            return wd_fail(
                err, WD_UNSUPPORTED,
                "%s: tensor \"%s\" belongs to the quantised (%s) tensor \"%s\", and is "
                "no scale under a name that is known (weight_scale, scale_weight, "
                "weight_scale_inv): without it the weight would be wrong; docs/models.md "
                "lists the forms that are read",
                other->file, other->name, wd_dtype_file_name(e->tensor.dtype), e->name);
        }
    }
    return WD_OK;
}

wd_status wd_safetensors_pair_scales(wd_safetensors *set, wd_err *err)
{
    int64_t scales = 0;
    bool marked = false;
    for (int64_t i = 0; i < set->files; i++) WD_TRY(check_metadata(&marked, &set->file[i], err));
    WD_TRY(split(set, &scales, &marked, err));
    for (int64_t i = 0; i < scales; i++) {
        size_t base = 0;
        wd__safetensors_is_scale(set->scale[i].name, &base);
        WD_TRY(wd__safetensors_pair(set, &set->scale[i], base, err));
    }
    /* messages use these, and names that a set was given go when it is renamed */
    for (int64_t i = 0; i < scales; i++) set->scale[i].name = set->scale[i].stored;
    WD_TRY(check_weights(set, marked, err));
    return check_company(set, err);
}
