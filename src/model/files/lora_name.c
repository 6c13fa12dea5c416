/* Names in LoRA files: see model/files/lora_name.h. */
#include "model/files/lora_name.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "model/tables/names.h"

enum { SPELLINGS = 4, KEY_MAX = 2 * WD_TENSOR_NAME_MAX };

/* In front of modules: of DDP, PEFT, DiffSynth, ComfyUI, diffusers, VideoX-Fun (two underscores),
 * kohya and musubi, LyCORIS. */
static const char *const prefixes[] = {
    "module.",          "base_model.model.", "pipe.dit.",   "model.diffusion_model.",
    "diffusion_model.", "transformer.",      "lora_unet__", "lora_unet_",
    "lycoris_",
};

/* What torch.compile puts before the names within a module that it has compiled. */
static const char compiled[] = "_orig_mod.";

static const struct {
    const char *text;
    wd_lora_part part;
} suffixes[] = {
    {".lora_A.weight", WD_LORA_DOWN},    {".lora_A.default.weight", WD_LORA_DOWN},
    {".lora_down.weight", WD_LORA_DOWN}, {".lora.down.weight", WD_LORA_DOWN},
    {".lora_B.weight", WD_LORA_UP},      {".lora_B.default.weight", WD_LORA_UP},
    {".lora_up.weight", WD_LORA_UP},     {".lora.up.weight", WD_LORA_UP},
    {".alpha", WD_LORA_ALPHA},           {".diff", WD_LORA_DIFF},
    {".diff_b", WD_LORA_DIFF_B},         {".diff_m", WD_LORA_DIFF},
};

/* Parts of keys that say what cannot be merged into a text-to-video transformer. */
static const struct {
    const char *part, *what;
} others[] = {
    {"k_img", "an image-to-video model"},
    {"v_img", "an image-to-video model"},
    {"img_emb", "an image-to-video model"},
    {"image_embedder", "an image-to-video model"},
    {"add_k_proj", "an image-to-video model"},
    {"add_v_proj", "an image-to-video model"},
    {"norm_added_k", "an image-to-video model"},
    {"vace_", "a VACE model"},
    {"face_adapter", "an animation model"},
    {"motion_encoder", "an animation model"},
    {"lora_te", "a text encoder"},
    {"text_encoder", "a text encoder"},
    {"dora_scale", "a DoRA"},
    {"lora_magnitude_vector", "a DoRA"},
    {"hada_w", "a LoHa"},
    {"lokr_w", "a LoKr"},
    {"lora_mid", "a LoRA with three factors"},
};

/* ---- the modules ---- */

static int by_name(const void *a, const void *b)
{
    const wd_lora_module *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* The name without `end`; false: it ends otherwise. */
static bool cut(char out[WD_TENSOR_NAME_MAX], const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    if (n <= m || n - m >= WD_TENSOR_NAME_MAX || strcmp(name + n - m, end)) return false;
    memcpy(out, name, n - m);
    out[n - m] = '\0';
    return true;
}

static void underscore(char *name)
{
    for (; *name; name++)
        if (*name == '.') *name = '_';
}

/* The names of the module whose tensor has the diffusers name `tensor`, which ends with `end`.
 * Returns how many; "" as `end` means that the tensor is all of the module. */
static int spell(char out[SPELLINGS][WD_TENSOR_NAME_MAX], const char *tensor, const char *end)
{
    char original[WD_TENSOR_NAME_MAX];
    int count = 0;
    if (!cut(out[count], tensor, end)) return 0;
    count++;
    if (wd_names_to_original(original, sizeof original, tensor) && cut(out[count], original, end) &&
        strcmp(out[count], out[0]))
        count++;
    for (int i = 0, dotted = count; i < dotted; i++) {
        memcpy(out[count], out[i], WD_TENSOR_NAME_MAX);
        underscore(out[count]);
        count += strcmp(out[count], out[i]) != 0;
    }
    return count;
}

static wd_lora_module *find(const wd_lora_modules *modules, const char *name)
{
    wd_lora_module key;
    if (strlen(name) >= sizeof key.name) return NULL;
    strcpy(key.name, name);
    return bsearch(&key, modules->module, (size_t)modules->count, sizeof key, by_name);
}

/* Adds the modules that have a weight, or that are one tensor. */
static void add_modules(wd_lora_modules *m, const wd_tensor_table *table)
{
    char names[SPELLINGS][WD_TENSOR_NAME_MAX], stem[WD_TENSOR_NAME_MAX];
    for (int64_t i = 0; i < table->count; i++) {
        const char *tensor = table->spec[i].name;
        if (cut(stem, tensor, ".bias")) continue;
        const int count = spell(names, tensor, cut(stem, tensor, ".weight") ? ".weight" : "");
        for (int k = 0; k < count; k++) {
            wd_lora_module *module = &m->module[m->count++];
            *module = (wd_lora_module){.weight = i, .bias = -1};
            memcpy(module->name, names[k], sizeof module->name);
        }
    }
    qsort(m->module, (size_t)m->count, sizeof *m->module, by_name);
}

wd_status wd__lora_modules_open(wd_lora_modules *out, const wd_tensor_table *table, wd_err *err)
{
    char names[SPELLINGS][WD_TENSOR_NAME_MAX];
    void *block;
    *out = (wd_lora_modules){0};
    WD_TRY(wd_alloc(&block, (size_t)table->count, SPELLINGS * sizeof(wd_lora_module),
                    "names of modules", err));
    out->module = block;
    add_modules(out, table);
    for (int64_t i = 0; i < table->count; i++) {
        const int count = spell(names, table->spec[i].name, ".bias");
        for (int k = 0; k < count; k++) {
            wd_lora_module *module = find(out, names[k]);
            if (module) module->bias = i;
        }
    }
    return WD_OK;
}

void wd__lora_modules_close(wd_lora_modules *modules)
{
    wd_free(modules->module);
    *modules = (wd_lora_modules){0};
}

/* ---- keys ---- */

/* The key without the marks of torch.compile; NULL: it is longer than any name. */
static const char *without_marks(char out[KEY_MAX], const char *key)
{
    size_t used = 0;
    while (*key) {
        if (!strncmp(key, compiled, sizeof compiled - 1)) {
            key += sizeof compiled - 1;
            continue;
        }
        if (used + 1 == KEY_MAX) return NULL;
        out[used++] = *key++;
    }
    out[used] = '\0';
    return out;
}

/* LightX2V writes the change of "blocks.0.modulation" as "blocks.0.diff_m". */
static const wd_lora_module *find_modulation(const wd_lora_modules *modules, const char *name)
{
    static const char *const ends[] = {".modulation", "_modulation"};
    char full[WD_TENSOR_NAME_MAX + 16];
    const wd_lora_module *found = NULL;
    for (size_t i = 0; i < sizeof ends / sizeof *ends && !found; i++) {
        snprintf(full, sizeof full, "%s%s", name, ends[i]);
        found = find(modules, full);
    }
    return found;
}

static const char *skip_prefixes(const char *key)
{
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        const size_t length = strlen(prefixes[i]);
        if (!strncmp(key, prefixes[i], length)) key += length;
    }
    return key;
}

wd_status wd__lora_resolve(const wd_lora_module **module, wd_lora_part *part,
                           const wd_lora_modules *modules, const char *key, const char *where,
                           wd_err *err)
{
    char name[WD_TENSOR_NAME_MAX], clean[KEY_MAX];
    const char *own = without_marks(clean, key), *suffix = "";
    bool known = false;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strstr(key, others[i].part))
            return wd_fail(err, WD_UNSUPPORTED,
                           "%s: tensor \"%s\" belongs to %s; expected a LoRA for the transformer "
                           "of a text-to-video model",
                           where, key, others[i].what);
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes && !known && own; i++) {
        suffix = suffixes[i].text;
        known = cut(name, skip_prefixes(own), suffix);
        *part = suffixes[i].part;
    }
    if (!known)
        return wd_fail(err, WD_UNSUPPORTED,
                       "%s: tensor \"%s\" is no part of a LoRA that is known: expected a name that "
                       "ends with lora_A.weight and lora_B.weight, lora_down.weight and "
                       "lora_up.weight, alpha, diff, diff_b or diff_m",
                       where, key);
    *module = strcmp(suffix, ".diff_m") ? find(modules, name) : find_modulation(modules, name);
    if (*module) return WD_OK;
    return wd_fail(err, WD_MISMATCH,
                   "%s: tensor \"%s\": this transformer has no module \"%s\"; expected names such "
                   "as transformer.blocks.0.attn1.to_q, diffusion_model.blocks.0.self_attn.q or "
                   "lora_unet_blocks_0_self_attn_q",
                   where, key, name);
}
