/* Transformers in one file: see model/dit/dit_file.h. */
#include "model/dit/dit_file.h"

#include <stdio.h>
#include <string.h>

#include "io/file/file.h"
#include "model/tables/names.h"

enum { HEAD_DIM_DEFAULT = 128 };

const wd_safetensors_entry *wd_dit_file_find(const wd_dit_file *file, const char *diffusers_name)
{
    return wd_naming_find(&file->naming, file->set, diffusers_name);
}

bool wd__dit_file_detect(wd_dit_file *file, const wd_safetensors *set)
{
    *file = (wd_dit_file){.set = set};
    return wd_naming_detect(&file->naming, set, WD_COMPONENT_TRANSFORMER, NULL);
}

/* Reads extent `i` of a tensor that must have `ndim` dimensions. */
static wd_status extent(int64_t *out, const wd_dit_file *file, const char *name, int ndim, int i,
                        wd_err *err)
{
    const wd_safetensors_entry *e = wd_dit_file_find(file, name);
    if (!e)
        return wd_fail(err, WD_NOT_FOUND, "%s: tensor \"%s\" (by its diffusers name) is missing",
                       wd_safetensors_at(file->set, 0)->file, name);
    if (e->tensor.ndim != ndim)
        return wd_fail(err, WD_MISMATCH, "%s: tensor \"%s\": expected %d dimensions, found %d",
                       e->file, e->name, ndim, e->tensor.ndim);
    *out = e->tensor.dim[i];
    return WD_OK;
}

/* Width, input channels and patch. In a GGUF file the patch embedding [D, C, f, h, w] may be [D C,
 * f, h, w]; what D is, its bias tells. */
static wd_status patch_of_shapes(int64_t *width, wd_dit_config *c, const wd_dit_file *file,
                                 wd_err *err)
{
    static const char patch[] = "patch_embedding.weight";
    const wd_safetensors_entry *e = wd_dit_file_find(file, patch);
    const bool merged = e && e->merges_dims && e->tensor.ndim == 4;
    const int ndim = merged ? 4 : 5;
    WD_TRY(extent(width, file, "patch_embedding.bias", 1, 0, err));
    WD_TRY(extent(&c->in_channels, file, patch, ndim, merged ? 0 : 1, err));
    for (int i = 0; i < 3; i++) WD_TRY(extent(&c->patch[i], file, patch, ndim, ndim - 3 + i, err));
    if (!merged) return WD_OK;
    if (!*width || c->in_channels % *width)
        return wd_fail(err, WD_MISMATCH,
                       "%s: tensor \"%s\" has %lld times the patch's values, which is no multiple "
                       "of the %lld values of its bias",
                       e->file, e->name, (long long)c->in_channels, (long long)*width);
    c->in_channels /= *width;
    return WD_OK;
}

static wd_status config_of_shapes(wd_dit_config *c, wd_dit_file *file, wd_err *err)
{
    int64_t width = 0, out = 0, volume;
    char name[WD_TENSOR_NAME_MAX];
    WD_TRY(patch_of_shapes(&width, c, file, err));
    WD_TRY(extent(&c->ffn_dim, file, "blocks.0.ffn.net.0.proj.weight", 2, 0, err));
    WD_TRY(
        extent(&c->freq_dim, file, "condition_embedder.time_embedder.linear_1.weight", 2, 1, err));
    WD_TRY(
        extent(&c->text_dim, file, "condition_embedder.text_embedder.linear_1.weight", 2, 1, err));
    WD_TRY(extent(&out, file, "proj_out.bias", 1, 0, err));
    do {
        snprintf(name, sizeof name, "blocks.%d.scale_shift_table", (int)c->layers);
    } while (wd_dit_file_find(file, name) && ++c->layers <= WD_DIT_LAYERS_MAX);
    if (c->layers > WD_DIT_LAYERS_MAX)
        return wd_fail(err, WD_UNSUPPORTED, "%s: has tensor \"%s\": expected at most %d blocks",
                       wd_safetensors_at(file->set, 0)->file, name, WD_DIT_LAYERS_MAX);
    if (__builtin_mul_overflow(c->patch[0], c->patch[1], &volume) ||
        __builtin_mul_overflow(volume, c->patch[2], &volume) || !volume || out % volume)
        return wd_fail(err, WD_MISMATCH,
                       "%s: %lld outputs per token do not fill patches of %lld x %lld x %lld",
                       wd_safetensors_at(file->set, 0)->file, (long long)out,
                       (long long)c->patch[0], (long long)c->patch[1], (long long)c->patch[2]);
    c->out_channels = out / volume;
    file->heads_known = width % HEAD_DIM_DEFAULT == 0;
    c->head_dim = file->heads_known ? HEAD_DIM_DEFAULT : width;
    c->heads = width / c->head_dim;
    c->cross_attn_norm = wd_dit_file_find(file, "blocks.0.norm2.weight") != NULL;
    c->rope_max_seq_len = 1024;
    c->eps = 1e-6;
    return WD_OK;
}

/* Finds the configuration in the file's metadata, or in a config.json in its folder; *out NULL:
 * there is none. */
static wd_status find_config(json_t **out, const wd_dit_file *file, const char *where, wd_err *err)
{
    char path[WD_PATH_MAX];
    const char *text = wd_safetensors_metadata(file->set, WD_DIT_FILE_CONFIG_KEY);
    *out = NULL;
    if (text) return wd_json_parse(out, text, strlen(text), where, err);
    WD_TRY(wd_path_beside(path, where, "config.json", err));
    if (!wd_path_exists(path)) return WD_OK;
    WD_TRY(wd_json_load(out, path, err));
    const char *name = json_string_value(json_object_get(*out, "_class_name"));
    if (name && !strcmp(name, "WanTransformer3DModel")) return WD_OK;
    json_decref(*out); /* it is the configuration of another component */
    *out = NULL;
    return WD_OK;
}

static wd_status read_config(wd_dit_file *file, wd_err *err)
{
    json_t *json;
    wd_dit_config shapes = {0};
    const char *where = wd_safetensors_at(file->set, 0)->file;
    WD_TRY(find_config(&json, file, where, err));
    file->heads_known = true;
    if (!json) {
        WD_TRY(config_of_shapes(&shapes, file, err));
        json = wd_dit_config_json(&shapes); /* the reader of configurations checks the sizes */
        if (!json) return wd_fail(err, WD_OUT_OF_MEMORY, "%s: no memory", where);
    }
    wd_status status = wd_dit_config_read(&file->config, json, where, err);
    json_decref(json);
    return status;
}

static wd_status check_tensors(const wd_dit_file *file, wd_err *err)
{
    wd_tensor_table table;
    wd_tensor found;
    wd_status status = WD_OK;
    WD_TRY(wd_dit_table_open(&table, &file->config, err));
    for (int64_t i = 0; i < table.count; i++) {
        wd_tensor_spec spec = table.spec[i];
        const wd_safetensors_entry *e = wd_dit_file_find(file, spec.name);
        if (!e && spec.may_miss) continue;
        if (e) snprintf(spec.name, sizeof spec.name, "%s", e->name);
        WD_TRY_OUT(wd_safetensors_expect(&found, file->set, &spec, err));
    }
out:
    wd_dit_table_close(&table);
    return status;
}

wd_status wd_dit_file_read(wd_dit_file *out, const wd_safetensors *set, wd_err *err)
{
    wd_dit_file file;
    if (!wd_safetensors_count(set))
        return wd_fail(err, WD_UNSUPPORTED, "a file without tensors is no Wan transformer");
    for (int64_t i = 0; i < wd_safetensors_count(set); i++) {
        const wd_safetensors_entry *e = wd_safetensors_at(set, i);
        const char *architecture = wd_names_foreign(e->name);
        if (architecture)
            return wd_fail(err, WD_UNSUPPORTED,
                           "%s: tensor \"%s\" belongs to %s; expected a text-to-video model",
                           e->file, e->name, architecture);
    }
    char hint[2 * WD_PATH_MAX];
    if (!wd__dit_file_detect(&file, set))
        return wd_fail(err, WD_UNSUPPORTED,
                       "%s: no Wan transformer: expected tensors \"patch_embedding.weight\" and "
                       "\"scale_shift_table\" (diffusers' names) or \"head.modulation\" (the "
                       "original's)%s",
                       wd_safetensors_at(set, 0)->file,
                       wd_naming_hint(hint, sizeof hint, set, WD_COMPONENT_TRANSFORMER));
    WD_TRY(read_config(&file, err));
    WD_TRY(check_tensors(&file, err));
    *out = file;
    return WD_OK;
}
