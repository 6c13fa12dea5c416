/* Checks of a component's weights against its tensor table: see wd_pipeline_open_weights. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/log.h"
#include "core/memory.h"
#include "io/tensors/safetensors.h"
#include "model/files/component_file.h"
#include "model/files/pipeline.h"
#include "model/tables/dit_table.h"
#include "model/tables/naming.h"
#include "model/text/umt5.h"
#include "model/vae/vae.h"

wd_status wd_pipeline_table_open(wd_tensor_table *out, const wd_pipeline *p, wd_component component,
                                 wd_err *err)
{
    if (component > WD_COMPONENT_VAE)
        return wd_fail(err, WD_INVALID_ARGUMENT, "a %s has no weights",
                       wd_component_name(component));
    WD_TRY(wd_pipeline_require(p, component, err));
    if (component == WD_COMPONENT_TEXT_ENCODER) return wd_umt5_table_open(out, &p->umt5, err);
    if (component == WD_COMPONENT_VAE) return wd_vae_table_open(out, &p->vae, err);
    return wd_dit_table_open(out, &p->dit, err);
}

void wd_pipeline_table_close(wd_tensor_table *table, wd_component component)
{
    if (component == WD_COMPONENT_TEXT_ENCODER)
        wd_umt5_table_close(table);
    else if (component == WD_COMPONENT_VAE)
        wd_vae_table_close(table);
    else
        wd_dit_table_close(table);
}

/* The LoRAs of a component; NULL: none. */
static const char *loras_of(const wd_pipeline *p, wd_component c)
{
    return c == WD_COMPONENT_TRANSFORMER || c == WD_COMPONENT_TRANSFORMER_2 ? p->lora[c] : NULL;
}

/* Whether some of a component's tensors are made of those that its files have. */
static bool is_changed(const wd_pipeline *p, wd_component c)
{
    const bool expert = c == WD_COMPONENT_TRANSFORMER || c == WD_COMPONENT_TRANSFORMER_2;
    return loras_of(p, c) || (expert && p->overlay.quantised != WD_F32);
}

static bool has_attention_bias(const wd_safetensors *set, int64_t block)
{
    char name[128];
    snprintf(name, sizeof name,
             "encoder.block.%" PRId64 ".layer.0.SelfAttention.relative_attention_bias.weight",
             block);
    return wd_safetensors_find(set, name);
}

/* Every block of UMT5 has a relative attention bias, of T5 the first one only. People have
 * T5-XXL's file, which is as large as UMT5-XXL's, for other models. */
static wd_status check_is_umt5(const wd_safetensors *set, int64_t blocks, const char *path,
                               wd_err *err)
{
    if (blocks < 2 || !has_attention_bias(set, 0)) return WD_OK;
    for (int64_t i = 1; i < blocks; i++)
        if (has_attention_bias(set, i)) return WD_OK;
    return wd_fail(err, WD_BAD_FORMAT,
                   "%s: this text encoder is T5, for only its first block has a relative attention "
                   "bias; Wan's is UMT5-XXL, such as umt5_xxl_fp16.safetensors",
                   path);
}

/* The component's weights as its files have them. */
static wd_status open_files(wd_safetensors **out, const wd_pipeline *pipeline,
                            wd_component component, const wd_tensor_table *table, wd_err *err)
{
    char folder[WD_PATH_MAX];
    wd_safetensors *set = NULL;
    wd_naming naming = {.prefix = ""};
    wd_status status;
    bool text = component == WD_COMPONENT_TEXT_ENCODER;
    WD_TRY(wd_pipeline_folder(folder, pipeline, component, err));
    WD_TRY(wd_component_file_open(&set, folder, component, err));
    if (wd_naming_detect(&naming, set, component, &pipeline->vae))
        WD_TRY_OUT(wd_naming_apply(&naming, set, table, err));
    WD_TRY_OUT(wd_extra_check(set, table, &naming, component, pipeline->ignores_unknown, err));
    if (text) WD_TRY_OUT(check_is_umt5(set, pipeline->umt5.layers, folder, err));
    WD_TRY_OUT(wd_component_file_check(
        set, table, err)); /* later, so that the error names another architecture */
    if (text && !wd_safetensors_find(set, "shared.weight") &&
        !wd_safetensors_find(set, "encoder.embed_tokens.weight")) {
        status =
            wd_fail(err, WD_NOT_FOUND,
                    "%s: neither tensor \"shared.weight\" nor \"encoder.embed_tokens.weight\" is "
                    "there",
                    folder);
        goto out;
    }
    *out = set;
    set = NULL;
out:
    wd_safetensors_close(set);
    return status;
}

wd_status wd_pipeline_open_weights(wd_safetensors **out, const wd_pipeline *pipeline,
                                   wd_component component, wd_err *err)
{
    const char *loras = loras_of(pipeline, component);
    wd_safetensors *set = NULL;
    wd_tensor_table table = {0};
    wd_status status;
    WD_TRY(wd_pipeline_table_open(&table, pipeline, component, err));
    WD_TRY_OUT(open_files(&set, pipeline, component, &table, err));
    if (is_changed(pipeline, component)) {
        WD_TRY_OUT(wd_overlay_apply(set, loras, &table, &pipeline->overlay, err));
        WD_TRY_OUT(wd_component_file_check(set, &table, err));
    }
    *out = set;
    set = NULL;
out:
    wd_pipeline_table_close(&table, component);
    wd_safetensors_close(set);
    return status;
}

static wd_status make_expert(const wd_pipeline *p, wd_component c, wd_err *err)
{
    const char *loras = loras_of(p, c);
    const wd_dtype quantised = p->overlay.quantised;
    uint64_t bytes;
    wd_safetensors *set = NULL;
    wd_tensor_table table = {0};
    wd_status status;
    if (!is_changed(p, c) || !p->has[c]) return WD_OK;
    WD_TRY(wd_pipeline_table_open(&table, p, c, err));
    WD_TRY_OUT(open_files(&set, p, c, &table, err));
    WD_TRY_OUT(wd_overlay_write(&bytes, set, loras, &table, &p->overlay, err));
    if (bytes)
        wd_log(WD_LOG_INFO, "%s: %s%s%s%s; %.3g MB written to %s", wd_component_name(c),
               loras ? "merged with " : "", loras ? loras : "",
               quantised == WD_F32 ? ""
               : loras             ? ", quantised to "
                                   : "quantised to ",
               quantised == WD_F32 ? "" : wd_dtype_option_name(quantised), (double)bytes * 1e-6,
               p->overlay.folder);
out:
    wd_pipeline_table_close(&table, c);
    wd_safetensors_close(set);
    return status;
}

wd_status wd_pipeline_make_overlay(const wd_pipeline *pipeline, wd_err *err)
{
    WD_TRY(make_expert(pipeline, WD_COMPONENT_TRANSFORMER, err));
    return make_expert(pipeline, WD_COMPONENT_TRANSFORMER_2, err);
}

wd_status wd_pipeline_weights_key(char out[WD_LORA_KEY_MAX], const wd_pipeline *p, wd_component c,
                                  const char *more, wd_err *err)
{
    const char *loras = loras_of(p, c);
    char base[WD_LORA_KEY_MAX], text[128];
    wd_safetensors *set = NULL;
    wd_tensor_table table = {0};
    wd_status status;
    WD_TRY(wd_pipeline_table_open(&table, p, c, err));
    WD_TRY_OUT(open_files(&set, p, c, &table, err));
    const bool quantises = is_changed(p, c) && p->overlay.quantised != WD_F32;
    snprintf(text, sizeof text, "%.64s%s%s", more, quantises ? " quantised " : "",
             quantises ? wd_dtype_option_name(p->overlay.quantised) : "");
    wd_safetensors_key(base, set, text);
    if (loras)
        status = wd__lora_key(out, loras, &table, base, err);
    else
        memcpy(out, base, sizeof base);
out:
    wd_pipeline_table_close(&table, c);
    wd_safetensors_close(set);
    return status;
}

wd_status wd_pipeline_check_weights(const wd_pipeline *p, wd_component component, wd_err *err)
{
    wd_safetensors *set = NULL;
    const bool two = component == WD_COMPONENT_TRANSFORMER && p->boundary_ratio > 0 &&
                     p->has[WD_COMPONENT_TRANSFORMER_2];
    WD_TRY(wd_pipeline_open_weights(&set, p, component, err));
    wd_safetensors_close(set);
    return two ? wd_pipeline_check_weights(p, WD_COMPONENT_TRANSFORMER_2, err) : WD_OK;
}
