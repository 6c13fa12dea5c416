/* The tree of `inspect`: see model/convert/inspect.h. Only headers and configurations are read. */
#include "model/convert/inspect.h"

#include <stdio.h>
#include <string.h>

#include "core/log.h"
#include "core/memory.h"
#include "io/json/json.h"
#include "model/dit/dit_file.h"
#include "model/files/component_file.h"
#include "model/files/pipeline.h"
#include "model/text/umt5.h"
#include "model/vae/vae.h"

typedef struct tally {
    int64_t tensors, parameters;
    int64_t bytes, bytes_bf16, bytes_f32; /* as stored, loaded as bf16, loaded as fp32 */
} tally;

static void add(tally *to, const wd_tensor *tensor, const wd_tensor_spec *spec)
{
    int64_t count = wd_tensor_count(tensor);
    wd_dtype bf16 = spec ? wd_spec_dtype(spec, WD_BF16) : WD_BF16;
    to->tensors++;
    to->parameters += count;
    to->bytes += (int64_t)wd_tensor_bytes(tensor);
    to->bytes_bf16 += count * (int64_t)wd_dtype_bytes(bf16);
    to->bytes_f32 += count * (int64_t)wd_dtype_bytes(WD_F32);
}

static wd_status no_memory(wd_err *err)
{
    return wd_fail(err, WD_OUT_OF_MEMORY, "no memory for the description of a model");
}

/* Puts a new value into an object; a NULL value means that there was no memory. */
static wd_status put(json_t *object, const char *key, json_t *value, wd_err *err)
{
    return value && json_object_set_new(object, key, value) == 0 ? WD_OK : no_memory(err);
}

static wd_status put_int(json_t *object, const char *key, int64_t value, wd_err *err)
{
    return put(object, key, json_integer(value), err);
}

static wd_status put_tally(json_t *object, const tally *t, wd_err *err)
{
    WD_TRY(put_int(object, "tensors", t->tensors, err));
    WD_TRY(put_int(object, "parameters", t->parameters, err));
    return put_int(object, "bytes", t->bytes, err);
}

/* Appends { name, tensors, parameters, bytes } to an array. */
static wd_status append_stage(json_t *stages, const char *name, const tally *t, wd_err *err)
{
    json_t *stage = json_pack("{ss}", "name", name);
    if (!stage || json_array_append_new(stages, stage)) return no_memory(err);
    return put_tally(stage, t, err);
}

/* The name of a stage of a component's table. */
static void stage_name(char out[64], wd_component component, int stage, int stages)
{
    bool vae = component == WD_COMPONENT_VAE, text = component == WD_COMPONENT_TEXT_ENCODER;
    if (vae)
        snprintf(out, 64, "%s", stage == 0 ? "decoder" : "encoder");
    else if (stage == 0)
        snprintf(out, 64, "embedding");
    else if (stage == stages - 1)
        snprintf(out, 64, "%s", text ? "final norm" : "head");
    else
        snprintf(out, 64, "%s %d", text ? "layer" : "block", stage - 1);
}

/* Whether a tensor repeats another one under a second name. */
static bool is_repeated(const wd_safetensors *set, const char *name)
{
    return !strcmp(name, "encoder.embed_tokens.weight") &&
           wd_safetensors_find(set, "shared.weight");
}

/* Puts the sums over a set's tensors, by dtype and in total. `table`, if not NULL, selects the
 * tensors. */
static wd_status put_weights(json_t *to, const wd_safetensors *set, const wd_tensor_table *table,
                             wd_component component, wd_err *err)
{
    tally all = {0}, dtype[WD_DTYPE_COUNT] = {0}, stage = {0};
    json_t *stages = json_array(), *dtypes = json_object(), *memory;
    int64_t count = table ? table->count : wd_safetensors_count(set);
    char name[64];
    wd_status status = WD_OK;
    for (int64_t i = 0; i < count; i++) {
        const wd_tensor_spec *spec = table ? &table->spec[i] : NULL;
        const wd_safetensors_entry *e =
            spec ? wd_safetensors_find(set, spec->name) : wd_safetensors_at(set, i);
        if (e && !(spec && is_repeated(set, spec->name))) {
            add(&all, &e->tensor, spec);
            add(&dtype[e->tensor.dtype], &e->tensor, spec);
            add(&stage, &e->tensor, spec);
        }
        if (!spec || (i + 1 < count && spec[1].stage == spec->stage)) continue;
        stage_name(name, component, spec->stage, table->stages);
        WD_TRY_OUT(append_stage(stages, name, &stage, err));
        stage = (tally){0};
    }
    for (int d = 0; d < WD_DTYPE_COUNT; d++) {
        if (!dtype[d].tensors) continue;
        json_t *one = json_object();
        WD_TRY_OUT(put(dtypes, wd_dtype_file_name((wd_dtype)d), one, err));
        WD_TRY_OUT(put_tally(one, &dtype[d], err));
    }
    WD_TRY_OUT(put_int(to, "files", wd_safetensors_file_count(set), err));
    WD_TRY_OUT(put_int(to, "tensors", all.tensors, err));
    WD_TRY_OUT(put_int(to, "parameters", all.parameters, err));
    WD_TRY_OUT(put_int(to, "bytes_on_disk", (int64_t)wd_safetensors_file_bytes(set), err));
    WD_TRY_OUT(put(to, "dtypes", json_incref(dtypes), err));
    memory = json_pack("{sIsIsI}", "stored", (json_int_t)all.bytes, "bfloat16",
                       (json_int_t)all.bytes_bf16, "float32", (json_int_t)all.bytes_f32);
    if (table)
        WD_TRY_OUT(put(to, "bytes_in_memory", memory, err));
    else
        json_decref(memory);
    if (table) WD_TRY_OUT(put(to, "stages", json_incref(stages), err));
out:
    json_decref(stages);
    json_decref(dtypes);
    return status;
}

/* The component's configuration, where it lies if that is elsewhere, and its LoRAs. */
static wd_status put_config(json_t *to, const wd_pipeline *p, wd_component c, wd_err *err)
{
    json_t *config;
    if (*p->part[c]) WD_TRY(put(to, "path", wd_json_string(p->part[c]), err));
    const char *loras = c <= WD_COMPONENT_TRANSFORMER_2 ? p->lora[c] : NULL;
    if (loras) WD_TRY(put(to, "loras", wd_json_string(loras), err));
    WD_TRY(wd_pipeline_config(&config, p, c, err));
    return put(to, "config", config, err);
}

static wd_status put_component(json_t *components, const wd_pipeline *p, wd_component c,
                               wd_err *err)
{
    wd_tensor_table table;
    wd_safetensors *set = NULL;
    json_t *to = json_object();
    WD_TRY(put(components, wd_component_name(c), to, err));
    WD_TRY(put(to, "class", wd_json_string(p->class_name[c]), err));
    WD_TRY(put_config(to, p, c, err));
    if (c > WD_COMPONENT_VAE) return WD_OK;
    WD_TRY(wd_pipeline_table_open(&table, p, c, err));
    wd_status status = wd_pipeline_open_weights(&set, p, c, err);
    if (status == WD_OK) status = put_weights(to, set, &table, c, err);
    wd_safetensors_close(set);
    wd_pipeline_table_close(&table, c);
    return status;
}

static wd_status put_pipeline(json_t *tree, const wd_pipeline *p, wd_err *err)
{
    int64_t parameters = 0, bytes = 0;
    const char *name;
    json_t *components = json_object(), *component;
    WD_TRY(put(tree, "path", wd_json_string(p->path), err));
    WD_TRY(put(tree, "kind", json_string(p->bare ? "component" : "pipeline"), err));
    WD_TRY(put(tree, "class", json_string(p->bare ? "" : "WanPipeline"), err));
    WD_TRY(put(tree, "components", components, err));
    for (int c = 0; c < WD_COMPONENT_COUNT; c++) {
        if (p->listed[c]) WD_TRY(wd_pipeline_require(p, (wd_component)c, err));
        if (p->has[c]) WD_TRY(put_component(components, p, (wd_component)c, err));
    }
    json_object_foreach(components, name, component)
    {
        parameters += json_integer_value(json_object_get(component, "parameters"));
        bytes += json_integer_value(json_object_get(component, "bytes_on_disk"));
    }
    WD_TRY(put_int(tree, "parameters", parameters, err));
    WD_TRY(put_int(tree, "bytes_on_disk", bytes, err));
    if (p->bare) return WD_OK;
    WD_TRY(put_int(tree, "prompt_tokens", p->text_tokens, err));
    WD_TRY(put_int(tree, "default_height", p->default_height, err));
    WD_TRY(put_int(tree, "default_width", p->default_width, err));
    WD_TRY(put_int(tree, "size_multiple", wd_pipeline_size_multiple(p), err));
    WD_TRY(put(tree, "boundary_ratio",
               p->boundary_ratio > 0 ? json_real(p->boundary_ratio) : json_null(), err));
    return put(tree, "expand_timesteps", json_boolean(p->expand_timesteps), err);
}

static wd_status put_tensors(json_t *tree, const wd_safetensors *set, wd_err *err)
{
    json_t *list = json_array();
    WD_TRY(put(tree, "tensor_list", list, err));
    for (int64_t i = 0; i < wd_safetensors_count(set); i++) {
        const wd_safetensors_entry *e = wd_safetensors_at(set, i);
        json_t *shape = json_array();
        for (int d = 0; shape && d < e->tensor.ndim; d++)
            json_array_append_new(shape, json_integer(e->tensor.dim[d]));
        json_t *line = json_pack("{ssssso}", "name", e->name, "dtype",
                                 wd_dtype_file_name(e->tensor.dtype), "shape", shape);
        if (!line || json_array_append_new(list, line)) return no_memory(err);
    }
    return put_weights(tree, set, NULL, WD_COMPONENT_COUNT, err);
}

/* ---- a file of one component ---- */

static const struct {
    const char *kind, *class_name;
} files[] = {
    [WD_COMPONENT_TRANSFORMER] = {"transformer file", "WanTransformer3DModel"},
    [WD_COMPONENT_TEXT_ENCODER] = {"text encoder file", "UMT5EncoderModel"},
    [WD_COMPONENT_VAE] = {"VAE file", "AutoencoderKLWan"},
};

/* The component whose file it is by its names; WD_COMPONENT_COUNT: none, or a shard of one. */
static wd_status detect(wd_component *out, const char *path, wd_err *err)
{
    static const wd_component order[] = {WD_COMPONENT_TRANSFORMER, WD_COMPONENT_TEXT_ENCODER,
                                         WD_COMPONENT_VAE};
    wd_safetensors *set;
    wd_naming naming;
    *out = WD_COMPONENT_COUNT;
    if (wd_safetensors_is_shard(path)) return WD_OK;
    WD_TRY(wd_safetensors_open(&set, path, err));
    const wd_status status = wd_naming_unwrap(set, err);
    for (int i = 0; i < 3 && status == WD_OK && *out == WD_COMPONENT_COUNT; i++)
        if (wd_naming_detect(&naming, set, order[i], NULL)) *out = order[i];
    wd_safetensors_close(set);
    return status;
}

/* The file's configuration, naming and table, which is the caller's to wd_pipeline_table_close. */
static wd_status read_part(json_t **config, wd_naming *naming, wd_tensor_table *table,
                           const wd_safetensors *set, wd_component c, wd_err *err)
{
    static const char *const unknown[] = {"num_attention_heads", "attention_head_dim"};
    wd_dit_file file;
    wd_umt5_config umt5;
    wd_vae_config vae;
    if (c == WD_COMPONENT_TEXT_ENCODER) {
        WD_TRY(wd_component_file_umt5_config(&umt5, set, err));
        *config = wd_umt5_config_json(&umt5);
        wd_naming_detect(naming, set, c, NULL);
        return wd_umt5_table_open(table, &umt5, err);
    }
    if (c == WD_COMPONENT_VAE) {
        WD_TRY(wd_component_file_vae_config(&vae, set, err));
        *config = wd_vae_config_json(&vae);
        wd_naming_detect(naming, set, c, &vae);
        return wd_vae_table_open(table, &vae, err);
    }
    WD_TRY(wd_dit_file_read(&file, set, err));
    *config = wd_dit_config_json(&file.config);
    *naming = file.naming;
    for (int i = 0; i < 2 && *config && !file.heads_known; i++)
        WD_TRY(put(*config, unknown[i], json_null(), err));
    return wd_dit_table_open(table, &file.config, err);
}

static wd_status put_part(json_t *tree, wd_safetensors *set, wd_component c, wd_err *err)
{
    wd_tensor_table table = {0};
    wd_naming naming;
    json_t *components = json_object(), *to = json_object(), *config = NULL;
    wd_status status;
    WD_TRY(put(tree, "components", components, err));
    WD_TRY(put(components, wd_component_name(c), to, err));
    WD_TRY(put(to, "class", json_string(files[c].class_name), err));
    WD_TRY_OUT(read_part(&config, &naming, &table, set, c, err));
    WD_TRY_OUT(put(to, "config", json_incref(config), err));
    WD_TRY_OUT(put(tree, "naming",
                   json_string(naming.llama      ? "llama.cpp"
                               : naming.original ? "original"
                                                 : "diffusers"),
                   err));
    WD_TRY_OUT(put(tree, "prefix", json_string(naming.prefix), err));
    WD_TRY_OUT(wd_naming_apply(&naming, set, &table, err));
    /* a file by itself is only described */
    WD_TRY_OUT(wd_extra_check(set, &table, &naming, c, true, err));
    WD_TRY_OUT(wd_component_file_check(set, &table, err));
    status = put_weights(to, set, &table, c, err);
out:
    json_decref(config);
    wd_pipeline_table_close(&table, c);
    return status;
}

static wd_status put_part_file(json_t *tree, const char *path, wd_component c, wd_err *err)
{
    wd_safetensors *set;
    WD_TRY(wd_component_file_open(&set, path, c, err));
    const wd_status status = put_part(tree, set, c, err);
    wd_safetensors_close(set);
    return status;
}

static wd_status put_plain_file(json_t *tree, const char *path, wd_err *err)
{
    wd_safetensors *set;
    WD_TRY(wd_safetensors_open(&set, path, err));
    const wd_status status = put_tensors(tree, set, err);
    wd_safetensors_close(set);
    return status;
}

/* Without a configuration beside it, a text encoder or VAE is taken for a published one. Of one
 * that is none the tensors are listed, which is what a user wants to see. */
static wd_status put_file(json_t *tree, const char *path, wd_err *err)
{
    static const char *const of_part[] = {"components", "naming", "prefix"};
    wd_component c;
    wd_err why = {0};
    WD_TRY(put(tree, "path", wd_json_string(path), err));
    WD_TRY(detect(&c, path, err));
    const bool is_part = c != WD_COMPONENT_COUNT;
    WD_TRY(put(tree, "kind", json_string(is_part ? files[c].kind : "file"), err));
    if (!is_part) return put_plain_file(tree, path, err);
    if (c == WD_COMPONENT_TRANSFORMER) return put_part_file(tree, path, c, err);
    const wd_status status = put_part_file(tree, path, c, &why);
    if (status != WD_MISMATCH && status != WD_NOT_FOUND) {
        if (status != WD_OK && err) *err = why;
        return status;
    }
    wd_log(WD_LOG_WARNING, "%s", why.message);
    for (size_t i = 0; i < sizeof of_part / sizeof *of_part; i++) json_object_del(tree, of_part[i]);
    return put_plain_file(tree, path, err);
}

wd_status wd_inspect_tree(json_t **out, const char *name, const wd_pipeline_parts *parts,
                          wd_err *err)
{
    static const wd_pipeline_parts none = {0};
    void *block = NULL;
    wd_status status;
    json_t *tree = json_object();
    if (!tree) return no_memory(err);
    if (!parts && wd_path_exists(name) && !wd_path_is_folder(name)) {
        status = put_file(tree, name, err);
    } else {
        status = wd_alloc(&block, 1, sizeof(wd_pipeline), "a pipeline", err);
        if (!parts) parts = &none;
        if (status == WD_OK) status = wd_pipeline_open_parts(block, name, parts, err);
        if (status == WD_OK) status = put_pipeline(tree, block, err);
        wd_free(block);
    }
    if (status == WD_OK)
        *out = tree;
    else
        json_decref(tree);
    return status;
}
