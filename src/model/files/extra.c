/* Tensors that a table lacks: see model/files/extra.h. */
#include "model/files/extra.h"

#include <inttypes.h>
#include <string.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/text.h"
#include "model/files/component_file.h"
#include "model/tables/names.h"

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
