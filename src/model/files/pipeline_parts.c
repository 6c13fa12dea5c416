/* Pipelines whose components lie here and there: see model/files/pipeline.h.
 *
 * First the folder is read, where there is one; then the parts take the places of what it has; then
 * a preset says what is still missing. */
#include <stdio.h>
#include <string.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/text.h"
#include "io/file/hub.h"
#include "io/json/json.h"
#include "io/tensors/gguf.h"
#include "model/dit/dit_file.h"
#include "model/files/component_file.h"
#include "model/files/pipeline.h"
#include "model/files/pipeline_impl.h"
#include "model/files/preset.h"

static const char *const class_of_part[WD_COMPONENT_COUNT] = {
    [WD_COMPONENT_TRANSFORMER] = "WanTransformer3DModel",
    [WD_COMPONENT_TRANSFORMER_2] = "WanTransformer3DModel",
    [WD_COMPONENT_TEXT_ENCODER] = "UMT5EncoderModel",
    [WD_COMPONENT_VAE] = "AutoencoderKLWan",
    [WD_COMPONENT_TOKENIZER] = "T5TokenizerFast",
};

static void take_part(wd_pipeline *p, wd_component c, bool made)
{
    p->has[c] = p->listed[c] = true;
    p->made[c] = made;
    snprintf(p->class_name[c], sizeof p->class_name[c], "%s", class_of_part[c]);
}

static wd_status read_transformer_set(wd_pipeline *p, wd_component c, const wd_safetensors *set,
                                      wd_err *err)
{
    wd_dit_file file;
    WD_TRY(wd_dit_file_read(&file, set, err));
    if (!file.heads_known)
        return wd_fail(err, WD_UNSUPPORTED,
                       "%s: its width of %lld is not a multiple of 128, so its number of heads "
                       "cannot be told; put a config.json of diffusers beside it",
                       p->part[c], (long long)wd_dit_width(&file.config));
    return wd__pipeline_take_dit(p, c, &file.config, p->part[c], err);
}

/* The configuration follows from the tensors. */
static wd_status read_set(wd_pipeline *p, wd_component c, wd_err *err)
{
    wd_safetensors *set;
    wd_status status;
    WD_TRY(wd_component_file_open(&set, p->part[c], c, err));
    if (c == WD_COMPONENT_TEXT_ENCODER)
        status = wd_component_file_umt5_config(&p->umt5, set, err);
    else if (c == WD_COMPONENT_VAE)
        status = wd_component_file_vae_config(&p->vae, set, err);
    else
        status = read_transformer_set(p, c, set, err);
    wd_safetensors_close(set);
    if (status == WD_OK) take_part(p, c, true);
    return status;
}

/* Whether the folder p->part[c] has a configuration of diffusers or transformers for that
 * component; `path` gets its path. */
static wd_status has_config(bool *out, char path[WD_PATH_MAX], const wd_pipeline *p, wd_component c,
                            wd_err *err)
{
    json_t *json;
    WD_TRY(wd_path_join(path, p->part[c], "config.json", err));
    *out = wd_path_exists(path);
    if (!*out) return WD_OK;
    WD_TRY(wd_json_load(&json, path, err));
    const wd_component found =
        wd__pipeline_component_of(json_string_value(json_object_get(json, "_class_name")),
                                  json_string_value(json_object_get(json, "model_type")));
    *out = found == c || (found == WD_COMPONENT_TRANSFORMER && c == WD_COMPONENT_TRANSFORMER_2);
    json_decref(json);
    return WD_OK;
}

static wd_status read_tokenizer_part(wd_pipeline *p, wd_err *err)
{
    const wd_component c = WD_COMPONENT_TOKENIZER;
    char path[WD_PATH_MAX];
    const bool folder = wd_path_is_folder(p->part[c]);
    if (folder) {
        WD_TRY(wd_path_join(path, p->part[c], "tokenizer_config.json", err));
        if (wd_path_exists(path)) WD_TRY(wd__pipeline_read_component(p, c, path, err));
    }
    take_part(p, c, !folder);
    return WD_OK;
}

static wd_status read_part(wd_pipeline *p, wd_component c, bool is_start, wd_err *err)
{
    const wd_component second = WD_COMPONENT_TRANSFORMER_2;
    char path[WD_PATH_MAX];
    bool configured;
    if (!wd_path_exists(p->part[c]))
        return wd_fail(err, WD_NOT_FOUND, "--%s: %s: there is no such file or folder",
                       wd_component_name(c), p->part[c]);
    if (wd_path_is_folder(p->part[c])) { /* of a pipeline the folder of the component is meant */
        WD_TRY(wd_path_join(path, p->part[c], wd_component_name(c), err));
        if (wd_path_is_folder(path)) memcpy(p->part[c], path, sizeof path);
    }
    if (c == WD_COMPONENT_TOKENIZER) return read_tokenizer_part(p, err);
    if (c < WD_COMPONENT_TEXT_ENCODER && !is_start)
        wd__component_file_warn_of_expert(p->part[c], c, !*p->part[second] && !p->has[second]);
    if (!wd_path_is_folder(p->part[c])) return read_set(p, c, err);
    WD_TRY(has_config(&configured, path, p, c, err));
    if (!configured) return read_set(p, c, err);
    WD_TRY(wd__pipeline_read_component(p, c, path, err));
    take_part(p, c, false);
    return WD_OK;
}

/* Text encoders for ComfyUI have the tokenizer in them, as a tensor or as metadata of GGUF. */
static wd_status find_tokenizer(wd_pipeline *p, wd_err *err)
{
    const wd_component from = WD_COMPONENT_TEXT_ENCODER, to = WD_COMPONENT_TOKENIZER;
    wd_safetensors *set;
    wd_status status = WD_OK;
    if (p->has[to] || !p->made[from]) return WD_OK;
    WD_TRY(wd_component_file_open(&set, p->part[from], from, err));
    const bool found = wd_safetensors_find(set, "spiece_model") || wd_gguf_has_spiece(set);
    if (found) status = wd_path_join(p->part[to], "", wd_safetensors_file_at(set, 0), err);
    if (found && status == WD_OK) take_part(p, to, true);
    wd_safetensors_close(set);
    return status;
}

/* What no file says comes from a preset. */
static wd_status complete(wd_pipeline *p, const wd_pipeline_parts *parts, wd_err *err)
{
    const char *preset = parts->preset;
    const wd_component first = WD_COMPONENT_TRANSFORMER, second = WD_COMPONENT_TRANSFORMER_2;
    const char *taken;
    const bool lacks =
        !p->has[WD_COMPONENT_SCHEDULER] || (p->has[second] && p->boundary_ratio <= 0);
    if (!lacks && preset)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "%s and --teacher_preset both say what the scheduler is; give one of them",
                       p->path);
    if (!lacks || (!p->has[first] && !p->has[second])) return WD_OK;
    WD_TRY(wd__preset_complete(&taken, p, preset, err));
    if (taken && !parts->is_start)
        wd_log(WD_LOG_INFO, "%s: scheduler%s as %s has them%s", p->path,
               p->has[second] ? " and boundary between the experts" : "", taken,
               preset ? "" : ", whose sizes it has; --teacher_preset names another");
    if (*p->part[second] && p->boundary_ratio <= 0) p->listed[second] = false;
    return WD_OK;
}

/* Warns of what is legal, but seldom meant. */
static void warn_of_loras(const wd_pipeline *p, const wd_pipeline_parts *parts)
{
    static const wd_component expert[] = {WD_COMPONENT_TRANSFORMER, WD_COMPONENT_TRANSFORMER_2};
    if (!p->has[expert[0]] || !p->has[expert[1]]) return;
    for (int e = 0; e < 2; e++) {
        if (!p->lora[e]) continue;
        wd__loras_warn_of_expert(p->lora[e], expert[e]);
        if (p->lora[!e] || parts->one_expert) continue;
        wd_log(WD_LOG_WARNING,
               "--teacher_lora%s changes the %s-noise expert alone; the %s-noise expert stays as "
               "it is, without --teacher_lora%s",
               e ? "_2" : "", e ? "low" : "high", e ? "high" : "low", e ? "" : "_2");
    }
}

/* LoRAs change experts that must be there. */
static wd_status take_loras(wd_pipeline *p, const wd_pipeline_parts *parts, wd_err *err)
{
    static const wd_component expert[] = {WD_COMPONENT_TRANSFORMER, WD_COMPONENT_TRANSFORMER_2};
    p->overlay.dtype = WD_DTYPE_COUNT;
    for (int e = 0; e < 2; e++) {
        p->lora[e] = parts->lora[e];
        if (p->lora[e] && !p->has[expert[e]])
            return wd_fail(err, WD_INVALID_ARGUMENT,
                           "--teacher_lora%s: %s has no %s that it could change", e ? "_2" : "",
                           p->path, e ? "low-noise expert (transformer_2)" : "transformer");
    }
    warn_of_loras(p, parts);
    return WD_OK;
}

static wd_status open_all(wd_pipeline *p, const char *name, const wd_pipeline_parts *parts,
                          wd_err *err)
{
    bool given[WD_COMPONENT_COUNT] = {false}, found = false, any = false;
    for (int c = 0; c < WD_COMPONENT_COUNT; c++) given[c] = parts->part[c] != NULL;
    if (name) {
        WD_TRY(wd_hub_find(p->path, name, err));
        WD_TRY(wd__layout_find(&found, p, given, err));
        if (!found) WD_TRY(wd__pipeline_read_folder(p, err));
    }
    for (int c = 0; c < WD_COMPONENT_COUNT; c++) {
        if (given[c]) WD_TRY(wd_path_join(p->part[c], "", parts->part[c], err));
        if (!*p->part[c]) continue;
        if (!*p->path) memcpy(p->path, p->part[c], sizeof p->path);
        p->has[c] = false; /* what the folder has is replaced */
        any = true;
    }
    for (int c = 0; c < WD_COMPONENT_COUNT; c++)
        if (*p->part[c]) WD_TRY(read_part(p, (wd_component)c, parts->is_start, err));
    WD_TRY(find_tokenizer(p, err));
    if (any || parts->preset) WD_TRY(complete(p, parts, err));
    WD_TRY(take_loras(p, parts, err));
    return wd__pipeline_complete(p, err);
}

wd_status wd_pipeline_open_parts(wd_pipeline *out, const char *name, const wd_pipeline_parts *parts,
                                 wd_err *err)
{
    void *block;
    WD_TRY(wd_alloc(&block, 1, sizeof(wd_pipeline), "a pipeline", err));
    wd_pipeline *p = block;
    p->text_tokens = WD_PIPELINE_TEXT_TOKENS_MAX;
    p->ignores_unknown = parts->ignores_unknown;
    const wd_status status = open_all(p, name, parts, err);
    if (status == WD_OK) *out = *p;
    wd_free(p);
    return status;
}

wd_status wd_pipeline_open(wd_pipeline *out, const char *name, wd_err *err)
{
    static const wd_pipeline_parts none = {0};
    return wd_pipeline_open_parts(out, name, &none, err);
}

/* ---- what has no file ---- */

static json_t *make_config(const wd_pipeline *p, wd_component c)
{
    switch (c) {
    case WD_COMPONENT_TRANSFORMER:
    case WD_COMPONENT_TRANSFORMER_2:
        return wd_dit_config_json(&p->dit);
    case WD_COMPONENT_TEXT_ENCODER:
        return wd_umt5_config_json(&p->umt5);
    case WD_COMPONENT_VAE:
        return wd_vae_config_json(&p->vae);
    case WD_COMPONENT_SCHEDULER:
        return wd_scheduler_config_json(&p->scheduler);
    default:
        return json_pack("{s:s, s:I, s:s, s:s, s:s}", "tokenizer_class", class_of_part[c],
                         "model_max_length", (json_int_t)p->text_tokens, "eos_token", "</s>",
                         "pad_token", "<pad>", "unk_token", "<unk>");
    }
}

wd_status wd_pipeline_config(json_t **out, const wd_pipeline *p, wd_component c, wd_err *err)
{
    char path[WD_PATH_MAX];
    if (!p->made[c]) {
        WD_TRY(wd_pipeline_config_path(path, p, c, err));
        if (c != WD_COMPONENT_TOKENIZER || wd_path_exists(path))
            return wd_json_load(out, path, err);
    }
    *out = make_config(p, c);
    if (*out) return WD_OK;
    return wd_fail(err, WD_OUT_OF_MEMORY, "no memory for the configuration of %s",
                   wd_component_name(c));
}

/* ---- the tokenizer, wherever it lies ---- */

enum { SPIECE_BYTES_MAX = 64 << 20 }; /* of UMT5 5 MB */

/* The tensor of a text encoder's file. */
static wd_status take_tensor(char **out, size_t *bytes, const char *path, wd_err *err)
{
    static const char name[] = "spiece_model";
    wd_safetensors *set;
    void *block;
    WD_TRY(wd_safetensors_open(&set, path, err));
    const wd_safetensors_entry *e = wd_safetensors_find(set, name);
    const size_t found = e ? wd_tensor_bytes(&e->tensor) : 0;
    wd_status status;
    if (!e || e->tensor.dtype != WD_U8 || e->tensor.ndim != 1 || found > SPIECE_BYTES_MAX) {
        status = wd_fail(err, WD_UNSUPPORTED,
                         "%s: expected a tensor \"%s\" of at most %d bytes (U8, one dimension), "
                         "which holds the tokenizer; give another file or folder as --tokenizer",
                         path, name, SPIECE_BYTES_MAX);
    } else {
        status = wd_alloc(&block, found + 1, 1, "a tokenizer's model", err);
        if (status == WD_OK) {
            if (found) memcpy(block, e->tensor.data, found);
            *out = block;
            *bytes = found;
        }
    }
    wd_safetensors_close(set);
    return status;
}

/* The metadata of a text encoder's file. */
static wd_status take_metadata(char **out, size_t *bytes, const char *path, wd_err *err)
{
    wd_safetensors *set;
    WD_TRY(wd_safetensors_open(&set, path, err));
    const wd_status status = wd_gguf_spiece(out, bytes, set, err);
    wd_safetensors_close(set);
    return status;
}

wd_status wd_pipeline_spiece(char **out, size_t *bytes, const wd_pipeline *p, wd_err *err)
{
    const char *path = p->part[WD_COMPONENT_TOKENIZER];
    if (wd_ends_with(path, ".safetensors")) return take_tensor(out, bytes, path, err);
    if (wd_ends_with(path, ".gguf")) return take_metadata(out, bytes, path, err);
    if (wd_ends_with(path, ".json"))
        return wd_fail(err, WD_UNSUPPORTED,
                       "%s: expected spiece.model, which is what this program reads; get that of "
                       "google/umt5-xxl",
                       path);
    return wd_file_read(out, bytes, path, SPIECE_BYTES_MAX, err);
}

wd_status wd_pipeline_tokenizer_open(wd_tokenizer **out, const wd_pipeline *p, wd_err *err)
{
    const wd_component c = WD_COMPONENT_TOKENIZER;
    char folder[WD_PATH_MAX];
    char *model;
    size_t bytes;
    WD_TRY(wd_pipeline_require(p, c, err));
    if (!p->made[c]) {
        WD_TRY(wd_pipeline_folder(folder, p, c, err));
        return wd_tokenizer_open(out, folder, err);
    }
    WD_TRY(wd_pipeline_spiece(&model, &bytes, p, err));
    const wd_status status = wd_tokenizer_open_model(out, model, bytes, p->part[c], err);
    wd_free(model);
    return status;
}
