/* Components by themselves: see model/files/component_file.h. */
#include "model/files/component_file.h"

#include <ctype.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/text.h"
#include "io/file/file.h"
#include "io/json/json.h"
#include "model/files/preset.h"
#include "model/tables/names.h"
#include "model/tables/naming.h"

/* The safetensors file that holds the same as a torch file of that component. */
static const char *const twins[] = {
    [WD_COMPONENT_TRANSFORMER] =
        "split_files/diffusion_models/ of Comfy-Org/Wan_2.1_ComfyUI_repackaged or "
        "Comfy-Org/Wan_2.2_ComfyUI_Repackaged",
    [WD_COMPONENT_TRANSFORMER_2] =
        "split_files/diffusion_models/ of Comfy-Org/Wan_2.2_ComfyUI_Repackaged",
    [WD_COMPONENT_TEXT_ENCODER] = "split_files/text_encoders/umt5_xxl_fp16.safetensors of "
                                  "Comfy-Org/Wan_2.1_ComfyUI_repackaged",
    [WD_COMPONENT_VAE] = "split_files/vae/wan_2.1_vae.safetensors of "
                         "Comfy-Org/Wan_2.1_ComfyUI_repackaged, or wan2.2_vae.safetensors of "
                         "Comfy-Org/Wan_2.2_ComfyUI_Repackaged",
};

bool wd__name_contains(const char *text, const char *part)
{
    const size_t length = strlen(part);
    for (; *text; text++) {
        size_t i = 0;
        while (i < length && tolower((unsigned char)text[i]) == part[i]) i++;
        if (i == length) return true;
    }
    return false;
}

/* Files are known by what they begin with: a torch file is a zip archive, or an old pickle. */
static wd_status refuse_other_formats(const char *path, wd_component component, wd_err *err)
{
    static const char *const torch[] = {".pth", ".pt", ".bin", ".ckpt"};
    char begin[4] = "";
    bool is_torch = false;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hang us */
    const ssize_t read_bytes = fd < 0 ? 0 : pread(fd, begin, sizeof begin, 0);
    const size_t got = read_bytes > 0 ? (size_t)read_bytes : 0;
    if (fd >= 0) close(fd);
    if (got && wd_ends_with(path, ".gguf") && (got < sizeof begin || memcmp(begin, "GGUF", 4)))
        return wd_fail(err, WD_BAD_FORMAT,
                       "%s: is named as a GGUF file, but does not begin with \"GGUF\" (damaged, or "
                       "a download that failed?)",
                       path);
    for (size_t i = 0; i < sizeof torch / sizeof *torch; i++)
        is_torch = is_torch || wd_ends_with(path, torch[i]);
    if (is_torch || (got == sizeof begin && !memcmp(begin, "PK\3\4", 4)))
        return wd_fail(err, WD_UNSUPPORTED,
                       "%s: is a torch file, which can run code when it is read and is therefore "
                       "refused; use its safetensors twin, %s",
                       path, twins[component]);
    return WD_OK;
}

static wd_status open_set(wd_safetensors **out, const char *path, wd_component component,
                          wd_err *err)
{
    const bool text = component == WD_COMPONENT_TEXT_ENCODER;
    if (wd_path_is_folder(path))
        return wd_safetensors_open_stem(out, path, text ? "model" : "diffusion_pytorch_model", err);
    WD_TRY(refuse_other_formats(path, component, err));
    if (wd_safetensors_is_shard(path))
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "%s: is one shard of several: give their index, the file that ends with "
                       ".safetensors.index.json beside them, or their folder",
                       path);
    return wd_safetensors_open(out, path, err);
}

/* What a GGUF file says that it is. */
static wd_status check_architecture(const wd_safetensors *set, const char *path,
                                    wd_component component, wd_err *err)
{
    /* gguf-connector writes "pig" for every model */
    static const char *const of_text[] = {"t5", "t5encoder", "umt5", "pig", NULL};
    static const char *const of_wan[] = {"wan", "pig", NULL};
    const char *said = wd_safetensors_metadata(set, "general.architecture");
    const char *const *known = component == WD_COMPONENT_TEXT_ENCODER ? of_text : of_wan;
    for (; said && *known; known++)
        if (!strcmp(said, *known)) return WD_OK;
    if (!said) return WD_OK;
    return wd_fail(err, WD_UNSUPPORTED,
                   "%s: its general.architecture is \"%.*s\", expected %s for a %s", path,
                   wd_terminal_safe_bytes(said, strlen(said), 60), said,
                   component == WD_COMPONENT_TEXT_ENCODER ? "t5encoder, t5, umt5" : "wan",
                   wd_component_name(component));
}

wd_status wd_component_file_open(wd_safetensors **out, const char *path, wd_component component,
                                 wd_err *err)
{
    wd_safetensors *set;
    wd_status status;
    WD_TRY(open_set(&set, path, component, err));
    WD_TRY_OUT(check_architecture(set, path, component, err));
    WD_TRY_OUT(wd_naming_unwrap(set, err));
    WD_TRY_OUT(wd_safetensors_pair_scales(set, err));
    if (!wd_safetensors_count(set))
        WD_TRY_OUT(wd_fail(err, WD_UNSUPPORTED, "%s: has no tensors; expected those of a %s", path,
                           wd_component_name(component)));
    *out = set;
    return WD_OK;
out:
    wd_safetensors_close(set);
    return status;
}

wd_status wd_component_file_check(const wd_safetensors *set, const wd_tensor_table *table,
                                  wd_err *err)
{
    wd_tensor found;
    for (int64_t i = 0; i < table->count; i++) {
        const wd_tensor_spec *spec = &table->spec[i];
        if (spec->may_miss && !wd_safetensors_find(set, spec->name)) continue;
        WD_TRY(wd_safetensors_expect(&found, set, spec, err));
    }
    return WD_OK;
}

/* Which expert a file is for, by its name; "": it does not say. */
static const char *expert_by_name(const char *path)
{
    const char *name = wd_path_name(path);
    const bool high = wd__name_contains(name, "high_noise") || wd__name_contains(name, "highnoise");
    const bool low = wd__name_contains(name, "low_noise") || wd__name_contains(name, "lownoise");
    return high == low ? "" : high ? "high" : "low";
}

void wd__component_file_warn_of_expert(const char *path, wd_component component, bool alone)
{
    const bool second = component == WD_COMPONENT_TRANSFORMER_2;
    const char *expert = expert_by_name(path);
    if (!strcmp(expert, second ? "high" : "low"))
        wd_log(WD_LOG_WARNING,
               "%s: by its name this is the %s-noise expert, and it is given as the other one: "
               "--transformer is for high noise, --transformer_2 for low noise",
               path, expert);
    else if (alone && *expert == 'h')
        wd_log(WD_LOG_WARNING,
               "%s: by its name this is the high-noise expert of two, and no --transformer_2 is "
               "given: it is taken for a whole model",
               path);
}

void wd__loras_warn_of_expert(const char *loras, wd_component component)
{
    const bool second = component == WD_COMPONENT_TRANSFORMER_2;
    char path[WD_PATH_MAX];
    for (const char *at = loras; *at; at += *at == ',') {
        const size_t length = strcspn(at, ",");
        snprintf(path, sizeof path, "%.*s", (int)length, at);
        at += length;
        const char *expert = expert_by_name(path);
        if (!strcmp(expert, second ? "high" : "low"))
            wd_log(WD_LOG_WARNING,
                   "%s: by its name this LoRA is for the %s-noise expert, and it is given for the "
                   "other one: --teacher_lora is for high noise, --teacher_lora_2 for low noise",
                   path, expert);
    }
}

/* ---- configurations ---- */

/* The file of the set's first tensor, by which messages name the set. */
static const char *where_is(const wd_safetensors *set)
{
    return wd_safetensors_at(set, 0)->file;
}

static wd_status not_of(const wd_safetensors *set, wd_component component, const char *what,
                        const char *diffusers, const char *original, wd_err *err)
{
    char hint[2 * WD_PATH_MAX];
    return wd_fail(err, WD_UNSUPPORTED,
                   "%s: no %s: expected tensors such as \"%s\" (diffusers' names) or \"%s\" (the "
                   "original's)%s",
                   where_is(set), what, diffusers, original,
                   wd_naming_hint(hint, sizeof hint, set, component));
}

/* Extent `i` of a tensor that must have `ndim` of them. */
static wd_status extent(int64_t *out, const wd_naming *naming, const wd_safetensors *set,
                        const char *name, int ndim, int i, wd_err *err)
{
    const wd_safetensors_entry *e = wd_naming_find(naming, set, name);
    if (!e)
        return wd_fail(err, WD_NOT_FOUND, "%s: tensor \"%s\" (by its diffusers name) is missing",
                       where_is(set), name);
    if (e->tensor.ndim != ndim)
        return wd_fail(err, WD_MISMATCH, "%s: tensor \"%s\": expected %d dimensions, found %d",
                       e->file, e->name, ndim, e->tensor.ndim);
    *out = e->tensor.dim[i];
    return WD_OK;
}

/* The configuration beside the set's file whose `key` is `value`; NULL: there is none. */
static wd_status find_config(json_t **out, char path[WD_PATH_MAX], const wd_safetensors *set,
                             const char *key, const char *value, wd_err *err)
{
    *out = NULL;
    WD_TRY(wd_path_beside(path, where_is(set), "config.json", err));
    if (!wd_path_exists(path)) return WD_OK;
    WD_TRY(wd_json_load(out, path, err));
    const char *found = json_string_value(json_object_get(*out, key));
    if (found && !strcmp(found, value)) return WD_OK;
    json_decref(*out); /* it belongs to something else */
    *out = NULL;
    return WD_OK;
}

/* Sizes by the shapes; the rest is what every UMT5 has. */
static wd_status umt5_of_shapes(wd_umt5_config *c, const wd_safetensors *set,
                                const wd_naming *naming, wd_err *err)
{
    static const char layer[] = "encoder.block.0.layer.";
    char name[WD_TENSOR_NAME_MAX];
    const char *embedding = "shared.weight";
    int64_t inner = 0;
    if (!wd_naming_find(naming, set, embedding)) embedding = "encoder.embed_tokens.weight";
    *c = (wd_umt5_config){.max_distance = 128, .eps = 1e-6, .file_dtype = WD_F32};
    WD_TRY(extent(&c->vocab_size, naming, set, embedding, 2, 0, err));
    WD_TRY(extent(&c->d_model, naming, set, embedding, 2, 1, err));
    snprintf(name, sizeof name, "%s0.SelfAttention.q.weight", layer);
    WD_TRY(extent(&inner, naming, set, name, 2, 0, err));
    snprintf(name, sizeof name, "%s0.SelfAttention.relative_attention_bias.weight", layer);
    WD_TRY(extent(&c->buckets, naming, set, name, 2, 0, err));
    WD_TRY(extent(&c->heads, naming, set, name, 2, 1, err));
    snprintf(name, sizeof name, "%s1.DenseReluDense.wi_0.weight", layer);
    WD_TRY(extent(&c->d_ff, naming, set, name, 2, 0, err));
    do {
        snprintf(name, sizeof name, "encoder.block.%d.layer.0.layer_norm.weight", (int)c->layers);
    } while (wd_naming_find(naming, set, name) && ++c->layers < 1 << 16);
    if (c->heads < 1 || inner % c->heads)
        return wd_fail(err, WD_MISMATCH,
                       "%s: %lld rows of queries are not a multiple of the %lld heads that the "
                       "relative position bias has",
                       where_is(set), (long long)inner, (long long)c->heads);
    c->d_kv = inner / c->heads;
    const wd_dtype dtype = wd_naming_find(naming, set, embedding)->tensor.dtype;
    if (dtype == WD_F16 || dtype == WD_BF16) c->file_dtype = dtype;
    return WD_OK;
}

wd_status wd_component_file_umt5_config(wd_umt5_config *out, const wd_safetensors *set, wd_err *err)
{
    wd_umt5_config shapes;
    wd_naming naming;
    char path[WD_PATH_MAX];
    json_t *json;
    if (!wd_naming_detect(&naming, set, WD_COMPONENT_TEXT_ENCODER, NULL))
        return not_of(set, WD_COMPONENT_TEXT_ENCODER, "UMT5 text encoder",
                      "encoder.final_layer_norm.weight", "norm.weight", err);
    WD_TRY(find_config(&json, path, set, "model_type", "umt5", err));
    if (!json) {
        WD_TRY(umt5_of_shapes(&shapes, set, &naming, err));
        json = wd_umt5_config_json(&shapes); /* its reader knows what sizes are possible */
        if (!json) return wd_fail(err, WD_OUT_OF_MEMORY, "%s: no memory", where_is(set));
        snprintf(path, sizeof path, "%s", where_is(set));
    }
    const wd_status status = wd_umt5_config_read(out, json, path, err);
    json_decref(json);
    return status;
}

wd_status wd_component_file_vae_config(wd_vae_config *out, const wd_safetensors *set, wd_err *err)
{
    wd_naming naming;
    char path[WD_PATH_MAX];
    json_t *json;
    int64_t channels = 0;
    WD_TRY(find_config(&json, path, set, "_class_name", "AutoencoderKLWan", err));
    if (json) {
        const wd_status status = wd_vae_config_read(out, json, path, err);
        json_decref(json);
        return status;
    }
    if (!wd_naming_detect(&naming, set, WD_COMPONENT_VAE, NULL))
        return not_of(set, WD_COMPONENT_VAE, "Wan VAE", "decoder.conv_in.weight",
                      "decoder.middle.0.residual.0.gamma", err);
    WD_TRY(extent(&channels, &naming, set, "post_quant_conv.bias", 1, 0, err));
    if (wd__preset_vae(out, channels, err) == WD_OK) return WD_OK;
    return wd_fail(err, WD_UNSUPPORTED,
                   "%s: a VAE of %lld latent channels: expected 16 (Wan 2.1) or 48 (Wan 2.2), or "
                   "a config.json of diffusers beside it",
                   where_is(set), (long long)channels);
}

/* ---- tensors that a table lacks ---- */

/* Tensors of text encoders that were saved with the decoder of their model, under the names of
 * transformers and of llama.cpp, or by ComfyUI, which adds CLIP's logit_scale to all of them. */
static bool is_unused_by_encoder(const char *name)
{
    return wd_begins_with(name, "decoder.") || wd_begins_with(name, "lm_head.") ||
           wd_begins_with(name, "dec.") || !strcmp(name, "logit_scale");
}

static bool is_harmless(const char *name, const wd_naming *naming, wd_component component)
{
    static const char *const buffers[] = {"freqs",    "freqs_cos",    "freqs_sin",
                                          "inv_freq", "_extra_state", "position_ids"};
    if (!wd_begins_with(name, naming->prefix)) return true; /* another part of an all-in-one file */
    name += strlen(naming->prefix);
    if (!strcmp(name, "spiece_model")) return true; /* the tokenizer of a text encoder's file */
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        if (wd_ends_with(name, buffers[i])) return true;
    return component == WD_COMPONENT_TEXT_ENCODER && is_unused_by_encoder(name);
}

static void mark_known(bool *known, const wd_safetensors *set, const wd_tensor_table *table,
                       const wd_naming *naming)
{
    for (int64_t i = 0; i < table->count; i++) {
        const char *name = table->spec[i].name;
        const wd_safetensors_entry *e = wd_safetensors_find(set, name);
        if (!e) e = wd_naming_find(naming, set, name);
        if (e) known[e - wd_safetensors_at(set, 0)] = true;
    }
}

/* Where tensors of the table are missing or have other shapes, that is the better reason. */
static wd_status check_unknown(const bool *known, const wd_safetensors *set,
                               const wd_tensor_table *table, const wd_naming *naming,
                               wd_component component, bool ignores, wd_err *err)
{
    const wd_safetensors_entry *first = NULL;
    int64_t extra = 0;
    for (int64_t i = 0; i < wd_safetensors_count(set); i++) {
        const wd_safetensors_entry *e = wd_safetensors_at(set, i);
        if (known[i]) continue;
        const char *architecture = wd_names_foreign(e->name);
        if (architecture)
            return wd_fail(err, WD_UNSUPPORTED,
                           "%s: tensor \"%s\" belongs to %s; expected a text-to-video model",
                           e->file, e->name, architecture);
        if (is_harmless(e->name, naming, component)) continue;
        if (!extra++) first = e;
    }
    if (!extra) return WD_OK;
    if (!ignores) WD_TRY(wd_component_file_check(set, table, err));
    const char *plural = extra == 1 ? "" : "s";
    if (!ignores)
        return wd_fail(err, WD_MISMATCH,
                       "%s: has %" PRId64 " tensor%s that no %s of Wan has, the first is \"%s\": "
                       "this is another model, which computes something else; "
                       "--ignore_unknown_tensors leaves them out",
                       first->file, extra, plural, wd_component_name(component), first->name);
    wd_log_once(WD_LOG_WARNING, "%s: %" PRId64 " tensors are not used, the first is \"%s\"",
                first->file, extra, first->name);
    return WD_OK;
}

wd_status wd_extra_check(const wd_safetensors *set, const wd_tensor_table *table,
                         const wd_naming *naming, wd_component component, bool ignores, wd_err *err)
{
    void *block;
    WD_TRY(
        wd_alloc(&block, (size_t)wd_safetensors_count(set), sizeof(bool), "a list of names", err));
    mark_known(block, set, table, naming);
    const wd_status status = check_unknown(block, set, table, naming, component, ignores, err);
    wd_free(block);
    return status;
}
