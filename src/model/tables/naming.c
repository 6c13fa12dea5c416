/* Names in files: see model/tables/naming.h. */
#include "model/tables/naming.h"

#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "model/tables/names.h"

enum {
    FULL_NAME_MAX = WD_TENSOR_NAME_MAX + WD_NAMING_PREFIX_MAX,
    PREFIXES_MAX = 4,
    PROBES_MAX = 2
};

/* The prefixes that files of a component put before names, and tensors that every such file has, by
 * their diffusers names. All-in-one checkpoints of ComfyUI have the last prefixes;
 * stable-diffusion.cpp writes "text_encoders.t5xxl.transformer." also for UMT5. */
static const struct {
    const char *prefix[PREFIXES_MAX], *probe[PROBES_MAX];
} known[] = {
    [WD_COMPONENT_TRANSFORMER] = {{"", "model.diffusion_model.", "diffusion_model.",
                                   "transformer."},
                                  {"scale_shift_table", "patch_embedding.weight"}},
    [WD_COMPONENT_TEXT_ENCODER] = {{"", "text_encoders.umt5xxl.transformer.",
                                    "text_encoders.t5xxl.transformer.", "text_encoder."},
                                   {"encoder.final_layer_norm.weight",
                                    "encoder.block.0.layer.0.layer_norm.weight"}},
    [WD_COMPONENT_VAE] = {{"", "vae.", "first_stage_model."},
                          {"decoder.conv_in.weight", "decoder.conv_out.weight"}},
};

static bool to_original(char *out, size_t bytes, const wd_naming *n, const char *name)
{
    if (n->component == WD_COMPONENT_TEXT_ENCODER)
        return wd__names_umt5_to_original(out, bytes, name);
    if (n->component == WD_COMPONENT_VAE)
        return wd__names_vae_to_original(out, bytes, name, &n->vae);
    return wd_names_to_original(out, bytes, name);
}

const wd_safetensors_entry *wd_naming_find(const wd_naming *n, const wd_safetensors *set,
                                           const char *diffusers_name)
{
    char other[WD_TENSOR_NAME_MAX], name[FULL_NAME_MAX];
    if (n->llama) {
        if (!wd__names_umt5_to_llama(other, sizeof other, diffusers_name)) return NULL;
        diffusers_name = other;
    } else if (n->original) {
        if (!to_original(other, sizeof other, n, diffusers_name)) return NULL;
        diffusers_name = other;
    }
    snprintf(name, sizeof name, "%s%s", n->prefix, diffusers_name);
    return wd_safetensors_find(set, name);
}

/* A VAE without a configuration: whether its levels have lists of their own, as those of the 2.2
 * layout have. */
static void guess_layout(wd_naming *n, const wd_safetensors *set)
{
    n->vae.num_res_blocks = 2;
    n->vae.is_residual = true;
    n->vae.is_residual =
        wd_naming_find(n, set, "decoder.up_blocks.0.resnets.0.conv1.weight") != NULL;
}

static wd_component kind_of(wd_component component)
{
    return component == WD_COMPONENT_TRANSFORMER_2 ? WD_COMPONENT_TRANSFORMER : component;
}

/* Whether the set has the probes behind n->prefix, in any style; fills the style. */
static bool try_prefix(wd_naming *n, const wd_safetensors *set, const wd_vae_config *vae)
{
    const int styles = n->component == WD_COMPONENT_TEXT_ENCODER ? 3 : 2;
    for (int style = 0; style < styles; style++) {
        n->original = style == 1;
        n->llama = style == 2;
        bool all = true;
        for (int k = 0; k < PROBES_MAX; k++)
            all = all && wd_naming_find(n, set, known[n->component].probe[k]);
        if (!all) continue;
        if (n->component == WD_COMPONENT_VAE && !vae && n->original) guess_layout(n, set);
        return true;
    }
    return false;
}

/* How many characters the names of all tensors begin with together: of sorted names the first and
 * the last tell it. */
static size_t shared_length(const wd_safetensors *set)
{
    const int64_t count = wd_safetensors_count(set);
    size_t length = 0;
    if (!count) return 0;
    const char *first = wd_safetensors_at(set, 0)->name;
    const char *last = wd_safetensors_at(set, count - 1)->name;
    while (first[length] && first[length] == last[length]) length++;
    return length < WD_NAMING_PREFIX_MAX ? length : WD_NAMING_PREFIX_MAX - 1;
}

bool wd_naming_detect(wd_naming *out, const wd_safetensors *set, wd_component component,
                      const wd_vae_config *vae)
{
    wd_naming n = {.component = kind_of(component)};
    if (vae) n.vae = *vae;
    for (int i = 0; i < PREFIXES_MAX && known[n.component].prefix[i]; i++) {
        snprintf(n.prefix, sizeof n.prefix, "%s", known[n.component].prefix[i]);
        if (!try_prefix(&n, set, vae)) continue;
        *out = n;
        return true;
    }
    for (size_t length = shared_length(set); length; length--) {
        const char *name = wd_safetensors_at(set, 0)->name;
        if (name[length - 1] != '.') continue;
        snprintf(n.prefix, sizeof n.prefix, "%.*s", (int)length, name);
        if (!try_prefix(&n, set, vae)) continue;
        *out = n;
        return true;
    }
    return false;
}

const char *wd_naming_hint(char *out, size_t bytes, const wd_safetensors *set,
                           wd_component component)
{
    wd_naming n = {.component = kind_of(component)};
    const char *shortest = NULL; /* that of the model itself, not of one of its blocks */
    *out = '\0';
    for (int64_t i = 0; i < wd_safetensors_count(set); i++) {
        const char *name = wd_safetensors_at(set, i)->name;
        for (int style = 0; style < 2; style++) {
            char probe[WD_TENSOR_NAME_MAX];
            snprintf(probe, sizeof probe, "%s", known[n.component].probe[0]);
            if (style && !to_original(probe, sizeof probe, &n, known[n.component].probe[0]))
                continue;
            const size_t length = strlen(name), end = strlen(probe);
            if (length <= end || name[length - end - 1] != '.' ||
                strcmp(name + length - end, probe))
                continue;
            if (!shortest || length < strlen(shortest)) shortest = name;
        }
    }
    if (shortest)
        snprintf(out, bytes,
                 ". It has \"%s\": a prefix is taken off where all tensors of the file have it; "
                 "save the others elsewhere",
                 shortest);
    return out;
}

/* The name without the marks of wrappers. */
static void unwrap(char *out, const char *name)
{
    static const char *const marks[] = {"_orig_mod.", "_fsdp_wrapped_module.",
                                        "_checkpoint_wrapped_module."};
    while (*name) {
        size_t skip = 0;
        for (size_t i = 0; i < sizeof marks / sizeof *marks && !skip; i++)
            if (!strncmp(name, marks[i], strlen(marks[i]))) skip = strlen(marks[i]);
        if (!skip) *out++ = *name++;
        name += skip;
    }
    *out = '\0';
}

wd_status wd_naming_unwrap(wd_safetensors *set, wd_err *err)
{
    const int64_t count = wd_safetensors_count(set);
    void *names = NULL, *text = NULL;
    size_t bytes = 0;
    bool any = false;
    wd_status status;
    for (int64_t i = 0; i < count; i++) {
        const char *name = wd_safetensors_at(set, i)->name;
        bytes += strlen(name) + 1;
        any = any || strstr(name, "_orig_mod.") || strstr(name, "_wrapped_module.");
    }
    if (!any) return WD_OK;
    WD_TRY_OUT(wd_alloc(&names, (size_t)count, sizeof(char *), "tensor names", err));
    WD_TRY_OUT(wd_alloc(&text, bytes, 1, "tensor names", err));
    char *next = text;
    for (int64_t i = 0; i < count; i++) {
        unwrap(next, wd_safetensors_at(set, i)->name);
        ((const char **)names)[i] = next;
        next += strlen(next) + 1;
    }
    status = wd_safetensors_rename(set, names, err);
out:
    wd_free(text);
    wd_free(names);
    return status;
}

wd_status wd_naming_apply(const wd_naming *n, wd_safetensors *set, const wd_tensor_table *table,
                          wd_err *err)
{
    void *block;
    WD_TRY(
        wd_alloc(&block, (size_t)wd_safetensors_count(set), sizeof(char *), "tensor names", err));
    const char **names = block;
    for (int64_t i = 0; i < table->count; i++) {
        const wd_safetensors_entry *e = wd_naming_find(n, set, table->spec[i].name);
        if (!e) continue;
        const int64_t at = e - wd_safetensors_at(set, 0);
        names[at] = table->spec[i].name;
        wd_safetensors_take_shape(set, at, &table->spec[i]);
    }
    const wd_status status = wd_safetensors_rename(set, names, err);
    wd_free(block);
    return status;
}
