/* Other layouts of folders: see model/files/pipeline_impl.h. */
#include "model/files/pipeline_impl.h"

#include <stdio.h>
#include <string.h>

#include "core/log.h"
#include "core/text.h"
#include "io/file/file.h"
#include "io/json/json.h"
#include "model/files/component_file.h"

static int is_single_file(const struct dirent *entry)
{
    const char *name = entry->d_name;
    return name[0] != '.' && (wd_ends_with(name, ".safetensors") || wd_ends_with(name, ".gguf"));
}

static int is_torch(const struct dirent *entry)
{
    return wd_ends_with(entry->d_name, ".pth");
}

static wd_status refuse_several(const char *folder, const wd_folder_list *list, const char *options,
                                wd_err *err)
{
    char names[512] = "";
    size_t used = 0;
    for (int i = 0; i < list->count; i++)
        used = wd_append_text(names, sizeof names, used, "%s%s", i ? ", " : "",
                              list->entry[i]->d_name);
    return wd_fail(err, WD_INVALID_ARGUMENT, "%s: several files may be meant (%s): say which by %s",
                   folder, names, options);
}

/* One transformer, or two whose names say which expert they are. */
static wd_status pick_experts(wd_pipeline *p, const char *folder, const wd_folder_list *list,
                              wd_err *err)
{
    char *part = p->part[WD_COMPONENT_TRANSFORMER], *second = p->part[WD_COMPONENT_TRANSFORMER_2];
    if (!list->count) return WD_OK;
    const char *name = list->entry[0]->d_name;
    if (list->count == 1) return wd_path_join(part, folder, name, err);
    const char *other = list->entry[1]->d_name;
    const bool swapped = wd__name_contains(name, "low_noise");
    const char *high = swapped ? other : name, *low = swapped ? name : other;
    if (list->count > 2 || !wd__name_contains(high, "high_noise") ||
        !wd__name_contains(low, "low_noise"))
        return refuse_several(folder, list, "--transformer (and --transformer_2)", err);
    WD_TRY(wd_path_join(part, folder, high, err));
    return wd_path_join(second, folder, low, err);
}

/* The only file, or the only one whose name has `word` in it. */
static wd_status pick_one(wd_pipeline *p, wd_component c, const char *folder, const char *word,
                          bool must_say, const wd_folder_list *list, wd_err *err)
{
    char option[64];
    int found = -1, saying = 0;
    for (int i = 0; i < list->count; i++) {
        if (!wd__name_contains(list->entry[i]->d_name, word)) continue;
        found = i;
        saying++;
    }
    if (list->count == 1 && !must_say) found = 0, saying = 1;
    if (!list->count || (must_say && !saying)) return WD_OK;
    if (saying == 1) return wd_path_join(p->part[c], folder, list->entry[found]->d_name, err);
    snprintf(option, sizeof option, "--%s", wd_component_name(c));
    return refuse_several(folder, list, option, err);
}

/* ---- ComfyUI ---- */

/* Path of the first of two folders in `root` that is there; false: neither is. */
static bool find_folder(char out[WD_PATH_MAX], const char *root, const char *a, const char *b)
{
    if (wd_path_join(out, root, a, NULL) == WD_OK && wd_path_is_folder(out)) return true;
    return wd_path_join(out, root, b, NULL) == WD_OK && wd_path_is_folder(out);
}

static wd_status read_comfyui(wd_pipeline *p, const char *root, const bool *given, wd_err *err)
{
    static const struct {
        wd_component component;
        const char *folder[2], *word;
    } rows[] = {
        {WD_COMPONENT_TRANSFORMER, {"diffusion_models", "unet"}, ""},
        {WD_COMPONENT_TEXT_ENCODER, {"text_encoders", "clip"}, "umt5"},
        {WD_COMPONENT_VAE, {"vae", "vae"}, "wan"},
    };
    char folder[WD_PATH_MAX];
    for (int i = 0; i < 3; i++) {
        const wd_component c = rows[i].component;
        wd_folder_list list;
        const bool skip = given[c] || (!i && given[WD_COMPONENT_TRANSFORMER_2]);
        if (skip || !find_folder(folder, root, rows[i].folder[0], rows[i].folder[1])) continue;
        WD_TRY(wd_folder_list_open(&list, folder, is_single_file, alphasort, err));
        const wd_status status = i ? pick_one(p, c, folder, rows[i].word, false, &list, err)
                                   : pick_experts(p, folder, &list, err);
        wd_folder_list_close(&list);
        if (status != WD_OK) return status;
    }
    return WD_OK;
}

/* ---- Wan's own repositories ---- */

static wd_status has_original_config(bool *out, const char *root, wd_err *err)
{
    char path[WD_PATH_MAX];
    json_t *json;
    *out = false;
    WD_TRY(wd_path_join(path, root, "config.json", err));
    if (!wd_path_exists(path)) return WD_OK;
    WD_TRY(wd_json_load(&json, path, err));
    const char *name = json_string_value(json_object_get(json, "_class_name"));
    *out = name && !strcmp(name, "WanModel");
    json_decref(json);
    return WD_OK;
}

static int is_weights(const struct dirent *entry)
{
    static const char stem[] = "diffusion_pytorch_model";
    return !strncmp(entry->d_name, stem, sizeof stem - 1);
}

static wd_status count_files(int *out, const char *root, int (*keep)(const struct dirent *),
                             wd_err *err)
{
    wd_folder_list list;
    WD_TRY(wd_folder_list_open(&list, root, keep, alphasort, err));
    *out = list.count;
    wd_folder_list_close(&list);
    return WD_OK;
}

/* VAE and text encoder are torch files there; a safetensors twin beside them is taken. */
static wd_status read_beside(wd_pipeline *p, const char *root, const bool *given, wd_err *err)
{
    static const struct {
        wd_component component;
        const char *word;
    } rows[] = {{WD_COMPONENT_TEXT_ENCODER, "t5"}, {WD_COMPONENT_VAE, "vae"}};
    wd_folder_list list;
    for (int i = 0; i < 2; i++) {
        const wd_component c = rows[i].component;
        if (given[c]) continue;
        WD_TRY(wd_folder_list_open(&list, root, is_weights, alphasort, err));
        const wd_status status = pick_one(p, c, root, rows[i].word, true, &list, err);
        wd_folder_list_close(&list);
        if (status != WD_OK) return status;
    }
    if (!given[WD_COMPONENT_TOKENIZER]) {
        char *path = p->part[WD_COMPONENT_TOKENIZER];
        WD_TRY(wd_path_join(path, root, "google/umt5-xxl", err));
        if (!wd_path_is_folder(path)) *path = '\0';
    }
    WD_TRY(wd_folder_list_open(&list, root, is_torch, alphasort, err));
    const bool lacks = !(given[WD_COMPONENT_VAE] || *p->part[WD_COMPONENT_VAE]) ||
                       !(given[WD_COMPONENT_TEXT_ENCODER] || *p->part[WD_COMPONENT_TEXT_ENCODER]);
    for (int i = 0; i < list.count && lacks; i++)
        wd_log(WD_LOG_WARNING,
               "%s/%s: is a torch file, which is not read: give the safetensors twin as --%s "
               "(docs/models.md says where it is)",
               root, list.entry[i]->d_name,
               wd__name_contains(list.entry[i]->d_name, "vae") ? "vae" : "text_encoder");
    wd_folder_list_close(&list);
    return WD_OK;
}

static wd_status read_original(bool *found, wd_pipeline *p, const char *root, const bool *given,
                               wd_err *err)
{
    const bool taken = given[WD_COMPONENT_TRANSFORMER] || given[WD_COMPONENT_TRANSFORMER_2];
    char high[WD_PATH_MAX], low[WD_PATH_MAX];
    int weights = 0;
    bool single;
    WD_TRY(wd_path_join(high, root, "high_noise_model", err));
    WD_TRY(wd_path_join(low, root, "low_noise_model", err));
    const bool two = wd_path_is_folder(high) && wd_path_is_folder(low);
    WD_TRY(has_original_config(&single, root, err));
    if (single) WD_TRY(count_files(&weights, root, is_weights, err));
    *found = two || weights;
    if (!*found) return WD_OK;
    if (!taken) {
        const wd_component first = WD_COMPONENT_TRANSFORMER, second = WD_COMPONENT_TRANSFORMER_2;
        WD_TRY(wd_path_join(p->part[first], "", two ? high : root, err));
        if (two) WD_TRY(wd_path_join(p->part[second], "", low, err));
    }
    return read_beside(p, root, given, err);
}

/* ---- either ---- */

wd_status wd__layout_find(bool *found, wd_pipeline *p, const bool given[WD_COMPONENT_COUNT],
                          wd_err *err)
{
    char path[WD_PATH_MAX], root[WD_PATH_MAX];
    *found = false;
    WD_TRY(wd_path_join(path, p->path, "model_index.json", err));
    if (wd_path_exists(path)) return WD_OK;
    WD_TRY(wd_path_join(path, p->path, "transformer", err));
    if (wd_path_is_folder(path)) return WD_OK;
    WD_TRY(wd_path_join(root, p->path, "split_files", err)); /* of Comfy-Org's repositories */
    if (!wd_path_is_folder(root)) WD_TRY(wd_path_join(root, "", p->path, err));
    *found = find_folder(path, root, "diffusion_models", "unet");
    if (*found) return read_comfyui(p, root, given, err);
    return read_original(found, p, root, given, err);
}
