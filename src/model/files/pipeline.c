/* Pipeline folders, what a pipeline must have, and its tokenizer: see model/files/pipeline.h. */
#include "model/files/pipeline.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/text.h"
#include "io/file/hub.h"
#include "io/json/json.h"
#include "io/tensors/gguf.h"
#include "model/files/pipeline_card.h"
#include "model/files/pipeline_impl.h"
#include "model/files/preset.h"
#include "model/tables/config_read.h"

enum { SIZE_MULTIPLE_DEFAULT = 8, CLASS_MAX = 63 };

static const struct {
    const char *folder, *config;
    const char *classes[2]; /* supported ones; the reader of schedulers has its own list */
} components[WD_COMPONENT_COUNT] = {
    [WD_COMPONENT_TRANSFORMER] = {"transformer", "config.json", {"WanTransformer3DModel"}},
    [WD_COMPONENT_TRANSFORMER_2] = {"transformer_2", "config.json", {"WanTransformer3DModel"}},
    [WD_COMPONENT_TEXT_ENCODER] = {"text_encoder", "config.json", {"UMT5EncoderModel"}},
    [WD_COMPONENT_VAE] = {"vae", "config.json", {"AutoencoderKLWan"}},
    [WD_COMPONENT_TOKENIZER] = {"tokenizer",
                                "tokenizer_config.json",
                                {"T5Tokenizer", "T5TokenizerFast"}},
    [WD_COMPONENT_SCHEDULER] = {"scheduler", "scheduler_config.json", {NULL}},
};

const char *wd_component_name(wd_component component)
{
    return components[component].folder;
}

wd_status wd_pipeline_folder(char out[WD_PATH_MAX], const wd_pipeline *pipeline,
                             wd_component component, wd_err *err)
{
    const char *below = pipeline->bare ? "" : wd_component_name(component);
    if (*pipeline->part[component]) return wd_path_join(out, "", pipeline->part[component], err);
    return wd_path_join(out, pipeline->path, below, err);
}

wd_status wd_pipeline_config_path(char out[WD_PATH_MAX], const wd_pipeline *p, wd_component c,
                                  wd_err *err)
{
    char folder[WD_PATH_MAX];
    WD_TRY(wd_pipeline_folder(folder, p, c, err));
    return wd_path_join(out, folder, components[c].config, err);
}

/* ---- reading a folder ---- */

/* Reads the class of a component in model_index.json: an array [library, class]. Nulls or an absent
 * key mean that there is no such component. */
static wd_status read_listed(wd_pipeline *p, wd_component c, const json_t *index, const char *where,
                             wd_err *err)
{
    const json_t *entry = json_object_get(index, components[c].folder);
    if (!entry || json_is_null(entry)) return WD_OK;
    const json_t *name = json_array_get(entry, 1);
    if (json_array_size(entry) != 2 || !(json_is_null(name) || json_is_string(name)))
        return wd_fail(err, WD_BAD_FORMAT, "%s: \"%s\": expected [library, class]", where,
                       components[c].folder);
    if (json_is_null(name)) return WD_OK;
    const char *text = json_string_value(name);
    bool known = !components[c].classes[0];
    for (int i = 0; i < 2; i++)
        known = known || (components[c].classes[i] && !strcmp(text, components[c].classes[i]));
    if (!known)
        return wd_fail(err, WD_UNSUPPORTED, "%s: \"%s\": expected %s, found %.*s%s", where,
                       components[c].folder, components[c].classes[0], WD_TERMINAL_SAFE(text, 60),
                       wd_config_class_hint(text));
    snprintf(p->class_name[c], sizeof p->class_name[c], "%s", text);
    p->listed[c] = true;
    return WD_OK;
}

static wd_status read_index(wd_pipeline *p, const char *where, wd_err *err)
{
    static const char *const foreign[] = {"image_encoder", "image_processor"};
    json_t *index = NULL;
    const char *name = "";
    wd_status status;
    WD_TRY(wd_json_load(&index, where, err));
    const wd_json_reader r = {index, where};
    WD_TRY_OUT(wd_json_text(&name, r, "_class_name", WD_JSON_REQUIRED, err));
    if (strcmp(name, "WanPipeline")) {
        status = wd_fail(err, WD_UNSUPPORTED,
                         "%s: expected a WanPipeline (text to video), found a %.*s%s", where,
                         WD_TERMINAL_SAFE(name, 60), wd_config_class_hint(name));
        goto out;
    }
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        const json_t *class = json_array_get(json_object_get(index, foreign[i]), 1);
        if (!json_is_string(class)) continue;
        status = wd_fail(err, WD_UNSUPPORTED,
                         "%s: has an \"%s\" (%.*s): image-to-video models are not supported", where,
                         foreign[i], WD_TERMINAL_SAFE(json_string_value(class), 60));
        goto out;
    }
    for (int c = 0; c < WD_COMPONENT_COUNT; c++)
        WD_TRY_OUT(read_listed(p, (wd_component)c, index, where, err));
    WD_TRY_OUT(wd_json_float(&p->boundary_ratio, r, "boundary_ratio", WD_JSON_OPTIONAL, err));
    WD_TRY_OUT(wd_json_bool(&p->expand_timesteps, r, "expand_timesteps", WD_JSON_OPTIONAL, err));
    WD_TRY_OUT(wd__pipeline_sampling_read(p, r, err));
    WD_TRY_OUT(wd__pipeline_size_read(&p->default_height, &p->default_width, r, err));
    if (p->boundary_ratio < 0 || p->boundary_ratio > 1) {
        status = wd_fail(err, WD_BAD_FORMAT, "%s: \"boundary_ratio\" is %g, expected 0 to 1", where,
                         p->boundary_ratio);
    } else if (p->boundary_ratio > 0 && !p->listed[WD_COMPONENT_TRANSFORMER_2]) {
        status = wd_fail(err, WD_MISMATCH,
                         "%s: \"boundary_ratio\" is %g, but there is no \"transformer_2\"", where,
                         p->boundary_ratio);
    } else if (p->boundary_ratio == 0 && p->listed[WD_COMPONENT_TRANSFORMER_2]) {
        wd_log(WD_LOG_WARNING, "%s: without \"boundary_ratio\" transformer_2 is never used", where);
    }
out:
    json_decref(index);
    return status;
}

/* Takes the class from a component's own file, for folders without model_index.json. */
static void take_class(wd_pipeline *p, wd_component c, const json_t *json)
{
    const json_t *name = json_object_get(json, "_class_name");
    if (!name) name = json_array_get(json_object_get(json, "architectures"), 0);
    if (!name) name = json_object_get(json, "tokenizer_class");
    if (json_is_string(name) && !p->class_name[c][0])
        snprintf(p->class_name[c], sizeof p->class_name[c], "%.*s",
                 WD_TERMINAL_SAFE(json_string_value(name), CLASS_MAX));
}

/* Names the first key in which an expert's configuration differs from that of the other one. */
static wd_status refuse_second(const wd_dit_config *first, const wd_dit_config *second,
                               bool is_second, const char *where, wd_err *err)
{
    json_t *a = wd_dit_config_json(first), *b = wd_dit_config_json(second), *value;
    const char *key;
    wd_status status = wd_fail(err, WD_OUT_OF_MEMORY, "%s: no memory to compare it", where);
    json_object_foreach(b, key, value)
    {
        const json_t *expected = json_object_get(a, key);
        if (json_equal(expected, value)) continue;
        char *text[2] = {json_dumps(expected, JSON_ENCODE_ANY), json_dumps(value, JSON_ENCODE_ANY)};
        if (text[0] && text[1])
            status = wd_fail(err, WD_MISMATCH,
                             "%s: \"%s\": expected %s, as the %s transformer has it, found %s: "
                             "both experts must have one shape",
                             where, key, text[0], is_second ? "first" : "second", text[1]);
        free(text[0]);
        free(text[1]);
        break;
    }
    json_decref(a);
    json_decref(b);
    return status;
}

wd_status wd__pipeline_take_dit(wd_pipeline *p, wd_component c, const wd_dit_config *config,
                                const char *where, wd_err *err)
{
    const bool second = c == WD_COMPONENT_TRANSFORMER_2;
    const wd_component other = second ? WD_COMPONENT_TRANSFORMER : WD_COMPONENT_TRANSFORMER_2;
    if (config->in_channels != config->out_channels)
        return wd_fail(err, WD_UNSUPPORTED,
                       "%s: %" PRId64 " channels in, %" PRId64
                       " out: an image-to-video or control model, not a text-to-video one",
                       where, config->in_channels, config->out_channels);
    if (p->has[other] && !wd_dit_config_same(&p->dit, config))
        return refuse_second(&p->dit, config, second, where, err);
    p->dit = *config;
    return WD_OK;
}

static wd_status read_transformer(wd_pipeline *p, wd_component c, const json_t *json,
                                  const char *where, wd_err *err)
{
    wd_dit_config config;
    WD_TRY(wd_dit_config_read(&config, json, where, err));
    WD_TRY(wd__pipeline_take_dit(p, c, &config, where, err));
    return wd__pipeline_size_read(&p->default_height, &p->default_width,
                                  (wd_json_reader){json, where}, err);
}

static wd_status read_tokenizer(wd_pipeline *p, const json_t *json, const char *where, wd_err *err)
{
    double length = WD_PIPELINE_TEXT_TOKENS_MAX;
    WD_TRY(wd_json_float(&length, (wd_json_reader){json, where}, "model_max_length",
                         WD_JSON_OPTIONAL, err));
    if (length < 1)
        return wd_fail(err, WD_BAD_FORMAT, "%s: \"model_max_length\" is %g", where, length);
    p->text_tokens = WD_PIPELINE_TEXT_TOKENS_MAX;
    if (length < WD_PIPELINE_TEXT_TOKENS_MAX) p->text_tokens = (int64_t)length;
    return WD_OK;
}

wd_status wd__pipeline_read_component(wd_pipeline *p, wd_component c, const char *where,
                                      wd_err *err)
{
    json_t *json = NULL;
    wd_status status;
    WD_TRY(wd_json_load(&json, where, err));
    take_class(p, c, json);
    switch (c) {
    case WD_COMPONENT_TRANSFORMER:
    case WD_COMPONENT_TRANSFORMER_2:
        status = read_transformer(p, c, json, where, err);
        break;
    case WD_COMPONENT_TEXT_ENCODER:
        status = wd_umt5_config_read(&p->umt5, json, where, err);
        break;
    case WD_COMPONENT_VAE:
        status = wd_vae_config_read(&p->vae, json, where, err);
        break;
    case WD_COMPONENT_TOKENIZER:
        status = read_tokenizer(p, json, where, err);
        break;
    default:
        status = wd_scheduler_config_read(&p->scheduler, json, where, err);
        break;
    }
    json_decref(json);
    return status;
}

/* Checks that the sizes of the components agree. */
static wd_status check_widths(const wd_pipeline *p, wd_err *err)
{
    bool dit = p->has[WD_COMPONENT_TRANSFORMER] || p->has[WD_COMPONENT_TRANSFORMER_2];
    if (dit && p->has[WD_COMPONENT_TEXT_ENCODER] && p->umt5.d_model != p->dit.text_dim)
        return wd_fail(err, WD_MISMATCH,
                       "%s: text_encoder has \"d_model\" %" PRId64
                       ", transformer \"text_dim\" %" PRId64,
                       p->path, p->umt5.d_model, p->dit.text_dim);
    if (dit && p->has[WD_COMPONENT_VAE] && p->vae.z_dim != p->dit.in_channels)
        return wd_fail(err, WD_MISMATCH,
                       "%s: vae has \"z_dim\" %" PRId64 ", transformer \"in_channels\" %" PRId64,
                       p->path, p->vae.z_dim, p->dit.in_channels);
    return WD_OK;
}

wd_component wd__pipeline_component_of(const char *class_name, const char *model_type)
{
    if (model_type && !strcmp(model_type, "umt5")) return WD_COMPONENT_TEXT_ENCODER;
    for (int c = 0; c < WD_COMPONENT_COUNT; c++) {
        const char *name = components[c].classes[0];
        if (class_name && name && !strcmp(class_name, name)) return (wd_component)c;
    }
    return WD_COMPONENT_COUNT;
}

/* Opens a folder without components in subfolders: it may be the folder of a component itself. */
static wd_status open_bare(wd_pipeline *p, wd_err *err)
{
    static const wd_component own_name[] = {WD_COMPONENT_TOKENIZER, WD_COMPONENT_SCHEDULER};
    char path[WD_PATH_MAX];
    const char *hint =
        "expected a diffusers pipeline folder, of Wan's repositories one whose name ends in "
        "-Diffusers";
    json_t *json = NULL;
    p->bare = true;
    for (int i = 0; i < 2; i++) { /* the name of the configuration file tells the component */
        WD_TRY(wd_pipeline_config_path(path, p, own_name[i], err));
        p->has[own_name[i]] = wd_path_exists(path);
        if (p->has[own_name[i]]) return wd__pipeline_read_component(p, own_name[i], path, err);
    }
    WD_TRY(wd_path_join(path, p->path, "config.json", err));
    if (wd_path_exists(path)) {
        WD_TRY(wd_json_load(&json, path, err));
        const char *name = json_string_value(json_object_get(json, "_class_name"));
        wd_component c =
            wd__pipeline_component_of(name, json_string_value(json_object_get(json, "model_type")));
        if (name && !strcmp(name, "WanModel"))
            hint = "this is the original layout; use the repository whose name ends in -Diffusers";
        json_decref(json);
        if (c != WD_COMPONENT_COUNT) {
            p->has[c] = true;
            return wd__pipeline_read_component(p, c, path, err);
        }
    }
    return wd_fail(err, WD_NOT_FOUND,
                   "%s: has neither model_index.json nor a folder of a component (transformer, "
                   "text_encoder, vae, ...): %s",
                   p->path, hint);
}

wd_status wd__pipeline_read_folder(wd_pipeline *p, wd_err *err)
{
    char path[WD_PATH_MAX];
    bool any = false;
    WD_TRY(wd_path_join(path, p->path, "model_index.json", err));
    bool index = wd_path_exists(path);
    if (index) WD_TRY(read_index(p, path, err));
    for (int c = 0; c < WD_COMPONENT_COUNT; c++) {
        WD_TRY(wd_pipeline_config_path(path, p, (wd_component)c, err));
        p->has[c] = (p->listed[c] || !index) && wd_path_exists(path);
        if (!p->has[c]) continue;
        any = true;
        WD_TRY(wd__pipeline_read_component(p, (wd_component)c, path, err));
    }
    return any || index ? WD_OK : open_bare(p, err);
}

wd_status wd__pipeline_complete(wd_pipeline *p, wd_err *err)
{
    WD_TRY(check_widths(p, err));
    WD_TRY(wd__pipeline_card_read(p, err));
    if (!p->default_height) p->default_height = p->default_width = WD_PIPELINE_DEFAULT_PIXELS;
    if (!p->default_steps) p->default_steps = WD_PIPELINE_DEFAULT_STEPS;
    if (p->trained_text_tokens) p->text_tokens = p->trained_text_tokens;
    wd__preset_advise(p);
    return WD_OK;
}

/* ---- what a pipeline must have ---- */

/* Of single files none is to blame for what was not given. */
static wd_status refuse_not_given(const wd_pipeline *p, wd_component component, const char *there,
                                  wd_err *err)
{
    const wd_component text = WD_COMPONENT_TEXT_ENCODER;
    const char *name = components[component].folder;
    if (component == WD_COMPONENT_TOKENIZER && p->made[text])
        return wd_fail(err, WD_NOT_FOUND,
                       "no tokenizer is given, and %s has none in it: give spiece.model of "
                       "google/umt5-xxl as --tokenizer",
                       p->part[text]);
    return wd_fail(err, WD_NOT_FOUND, "no %s is given (there is: %s): give it as --%s", name, there,
                   name);
}

wd_status wd_pipeline_require(const wd_pipeline *p, wd_component component, wd_err *err)
{
    if (p->has[component]) return WD_OK;
    char there[256] = "";
    size_t used = 0;
    for (int c = 0; c < WD_COMPONENT_COUNT; c++) {
        if (p->has[c])
            used = wd_append_text(there, sizeof there, used, "%s%s", used ? ", " : "",
                                  components[c].folder);
    }
    const bool scheduler = component == WD_COMPONENT_SCHEDULER;
    char advice[WD_PATH_MAX], file[64];
    if (!scheduler && wd_path_exists(p->path) && !wd_path_is_folder(p->path))
        return refuse_not_given(p, component, there, err);
    snprintf(file, sizeof file, "%s/%s", components[component].folder,
             components[component].config);
    return wd_fail(err, WD_NOT_FOUND, "%s: has no %s/%s%s%s; there is: %s%s%s", p->path,
                   components[component].folder, components[component].config,
                   p->listed[component] ? " (model_index.json names it: an incomplete download?)"
                                        : "",
                   p->listed[component] ? wd_hub_advice(advice, sizeof advice, p->path, file) : "",
                   there[0] ? there : "nothing",
                   scheduler ? ". For single files --teacher_preset says what the scheduler is"
                             : ". One that lies elsewhere is given as --",
                   scheduler ? "" : components[component].folder);
}

wd_status wd_pipeline_require_experts(const wd_pipeline *p, wd_err *err)
{
    const wd_component second = WD_COMPONENT_TRANSFORMER_2;
    WD_TRY(wd_pipeline_require(p, WD_COMPONENT_TRANSFORMER, err));
    if (p->listed[second] && p->boundary_ratio > 0) return wd_pipeline_require(p, second, err);
    if (p->listed[second] || !p->has[second]) return WD_OK;
    return wd_fail(err, WD_NOT_FOUND,
                   "%s: has transformer and transformer_2, but no model_index.json, which says "
                   "from which noise level on the second one is used (an incomplete download?); of "
                   "single files --teacher_preset says it",
                   p->path);
}

int64_t wd_pipeline_vae_scale(const wd_pipeline *p)
{
    return p->has[WD_COMPONENT_VAE] ? p->vae.scale_factor_spatial : SIZE_MULTIPLE_DEFAULT;
}

int64_t wd_pipeline_size_multiple(const wd_pipeline *p)
{
    const int64_t height = p->dit.patch[1], width = p->dit.patch[2];
    int64_t patch = 1;
    while (height && width && (patch % height || patch % width)) patch++; /* both are at most 64 */
    return wd_pipeline_vae_scale(p) * patch;
}
