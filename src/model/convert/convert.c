/* Conversion between layouts: see model/convert/convert.h. */
#include "model/convert/convert.h"

#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "core/memory.h"
#include "io/file/file.h"
#include "model/convert/convert_lines.h"
#include "model/dit/dit_file.h"
#include "model/files/component_file.h"
#include "model/files/overlay.h"
#include "model/tables/names.h"
#include "wandistiller_status.h"

enum { HEAD_DIM = 128, CLIENTS_TEXT_TOKENS = 512 };

/* The stem of diffusers' file names of a transformer's weights, shards and index. */
static const char weights_stem[] = "diffusion_pytorch_model";

/* What a transformer becomes. */
typedef enum form { DIFFUSERS, ORIGINAL, GGUF } form;

/* Lists all tensors of `file` with their new names. The caller frees *lines with wd_free. */
static wd_status plan_lines(wd_convert_line **lines, int64_t *count, const wd_dit_file *file,
                            form to, const wd_dtype *dtype, wd_err *err)
{
    const wd_dtype asked = dtype ? *dtype : WD_DTYPE_COUNT;
    wd_tensor_table table;
    void *block;
    wd_status status;
    *count = 0;
    WD_TRY(wd_dit_table_open(&table, &file->config, err));
    WD_TRY_OUT(wd_alloc(&block, (size_t)table.count, sizeof **lines, "a list of tensors", err));
    *lines = block;
    for (int64_t i = 0; i < table.count; i++) {
        const wd_tensor_spec *spec = &table.spec[i];
        const wd_safetensors_entry *from = wd_dit_file_find(file, spec->name);
        if (!from) continue; /* may_miss: required tensors were checked */
        const wd_dtype stored = from->tensor.dtype;
        wd_convert_line *l = &(*lines)[(*count)++];
        l->from = from;
        l->dtype = to == GGUF ? wd_convert_gguf_dtype(spec, stored, asked)
                              : wd_convert_safetensors_dtype(spec, stored, asked);
        if (to == DIFFUSERS)
            memcpy(l->name, spec->name, sizeof l->name);
        else
            wd_names_to_original(l->name, sizeof l->name, spec->name);
    }
out:
    wd_dit_table_close(&table);
    return status;
}

/* All tensors of a component's table that the set has, under their diffusers names. */
static wd_status list_lines(wd_convert_line **lines, int64_t *count, const wd_safetensors *set,
                            const wd_tensor_table *table, wd_err *err)
{
    void *block;
    *count = 0;
    WD_TRY(wd_alloc(&block, (size_t)table->count, sizeof **lines, "a list of tensors", err));
    *lines = block;
    for (int64_t i = 0; i < table->count; i++) {
        const wd_safetensors_entry *from = wd_safetensors_find(set, table->spec[i].name);
        if (!from) continue;
        wd_convert_line *l = &(*lines)[(*count)++];
        l->from = from;
        l->dtype =
            wd_convert_safetensors_dtype(&table->spec[i], from->tensor.dtype, WD_DTYPE_COUNT);
        memcpy(l->name, table->spec[i].name, sizeof l->name);
    }
    return WD_OK;
}

/* stable-diffusion.cpp knows a Wan model by its number of blocks, ends with an error at any but 30
 * and 40, and gives it the width of the published model of so many (WanRunner in wan.hpp). */
static void warn_of_depth(const char *name, const wd_dit_config *c)
{
    static const struct {
        int64_t layers, width, ffn;
    } known[] = {{30, 1536, 8960}, {30, 3072, 14336}, {40, 5120, 13824}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (c->layers == known[i].layers && wd_dit_width(c) == known[i].width &&
            c->ffn_dim == known[i].ffn)
            return;
    wd_log(WD_LOG_WARNING,
           "%s: not for stable-diffusion.cpp, which ends at any Wan model but those of a published "
           "size: 30 blocks of width 1536 (feed-forward 8960), 40 of 5120 (13824); this one has "
           "%lld of %lld (%lld)",
           name, (long long)c->layers, (long long)wd_dit_width(c), (long long)c->ffn_dim);
}

/* ComfyUI reads depth, width, feed-forward width and channels from the tensors' shapes, and takes
 * the rest for what Wan's own models have (comfy/model_detection.py, comfy/ldm/wan/model.py): with
 * other heads it would paint noise, with other widths it does not load the file. The text it gives
 * has 512 rows at least, zeros behind the prompt (comfy/text_encoders/wan.py), as has that of
 * stable-diffusion.cpp: a student that learnt with fewer zeros paints other pictures. */
void wd_convert_warn_of_clients(const char *name, const wd_dit_config *c, int64_t text_tokens)
{
    const struct {
        const char *what;
        int64_t assumed, found;
    } rule[] = {
        {"heads of size", HEAD_DIM, c->head_dim},  {"text of width", 4096, c->text_dim},
        {"a time embedding of", 256, c->freq_dim}, {"patches of height", 2, c->patch[1]},
        {"patches of width", 2, c->patch[2]},
    };
    for (size_t i = 0; i < sizeof rule / sizeof *rule; i++)
        if (rule[i].found != rule[i].assumed)
            wd_log(WD_LOG_WARNING,
                   "%s: not for ComfyUI, which takes every Wan model to have %s %lld; this one has "
                   "%lld",
                   name, rule[i].what, (long long)rule[i].assumed, (long long)rule[i].found);
    warn_of_depth(name, c);
    if (text_tokens != CLIENTS_TEXT_TOKENS)
        wd_log(WD_LOG_WARNING,
               "%s: ComfyUI and stable-diffusion.cpp give every Wan model text of %d tokens; this "
               "one was made for %lld, so it paints other pictures there: train with "
               "--max_sequence_length %d",
               name, CLIENTS_TEXT_TOKENS, (long long)text_tokens, CLIENTS_TEXT_TOKENS);
}

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Warns where matrices do not get the asked dtype, since their rows are no whole blocks. */
static void warn_of_rows(const char *path, const wd_convert_line *lines, int64_t count,
                         wd_dtype asked)
{
    int64_t matrices = 0, others = 0, first = -1;
    for (int64_t i = 0; i < count; i++) {
        const wd_tensor *t = &lines[i].from->tensor;
        if (t->ndim != 2 || strncmp(lines[i].name, "blocks.", strlen("blocks."))) continue;
        matrices++;
        if (lines[i].dtype == asked) continue;
        if (!others++) first = i;
    }
    if (others)
        wd_log(
            WD_LOG_WARNING,
            "%s: %lld of %lld matrices are not %s, such as \"%s\", which is %s: its rows of %lld "
            "values are no multiple of %lld",
            path, (long long)others, (long long)matrices, wd_dtype_option_name(asked),
            lines[first].name, wd_dtype_option_name(lines[first].dtype),
            (long long)lines[first].from->tensor.dim[1], (long long)wd_dtype_block(asked));
}

/* ---- existing files ---- */

wd_status wd_convert_refuse_replacing(const char *path, wd_err *err)
{
    return wd_fail(err, WD_INVALID_ARGUMENT,
                   "%s: is there already, and convert replaces nothing: remove it, or choose "
                   "another --out",
                   path);
}

/* What a conversion that was killed has left is of none. */
static int is_of_a_model(const struct dirent *entry)
{
    const size_t length = strlen(entry->d_name);
    if (length > 4 && !strcmp(entry->d_name + length - 4, ".tmp")) return 0;
    return !strcmp(entry->d_name, "config.json") ||
           !strncmp(entry->d_name, weights_stem, sizeof weights_stem - 1);
}

/* Checks that the folder has no configuration, no weights, no shards of another model, and no
 * index, which readers would prefer to the new file. */
static wd_status check_no_model(const char *folder, wd_err *err)
{
    wd_folder_list list;
    char path[WD_PATH_MAX];
    wd_file_remove_abandoned(folder, weights_stem);
    WD_TRY(wd_folder_list_open(&list, folder, is_of_a_model, alphasort, err));
    wd_status status = WD_OK;
    if (list.count) status = wd_path_join(path, folder, list.entry[0]->d_name, err);
    if (list.count && status == WD_OK) status = wd_convert_refuse_replacing(path, err);
    wd_folder_list_close(&list);
    return status;
}

static wd_status to_one_file(const char *path, const wd_pipeline *pipeline, wd_component component,
                             form to, const wd_dtype *dtype, wd_err *err)
{
    wd_safetensors *set = NULL;
    wd_convert_line *lines = NULL;
    int64_t count;
    char *config = NULL;
    wd_status status;
    if (component != WD_COMPONENT_TRANSFORMER && component != WD_COMPONENT_TRANSFORMER_2)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "only a transformer is converted, not the component %s",
                       wd_component_name(component));
    if (wd_path_exists(path)) return wd_convert_refuse_replacing(path, err);
    WD_TRY_OUT(wd_pipeline_open_weights(&set, pipeline, component, err));
    const wd_dit_file file = {.set = set, .naming = {.prefix = ""}, .config = pipeline->dit};
    WD_TRY_OUT(plan_lines(&lines, &count, &file, to, dtype, err));
    wd_convert_warn_of_clients(name_of(path), &pipeline->dit, pipeline->text_tokens);
    if (dtype && wd_dtype_is_quantised(*dtype)) warn_of_rows(path, lines, count, *dtype);
    json_t *json = wd_dit_config_json(&pipeline->dit);
    config = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    if (!config) {
        status = wd_fail(err, WD_OUT_OF_MEMORY, "%s: no memory for its configuration", path);
        goto out;
    }
    const char *const metadata[] = {"format", "pt", WD_DIT_FILE_CONFIG_KEY, config, NULL};
    status = to == GGUF ? wd__convert_write_gguf(path, lines, count, config, err)
                        : wd__convert_write_safetensors(path, lines, count, metadata, err);
out:
    free(config); /* allocated by jansson */
    wd_free(lines);
    wd_safetensors_close(set);
    return status;
}

wd_status wd_convert_to_original(const char *path, const wd_pipeline *pipeline,
                                 wd_component component, const wd_dtype *dtype, wd_err *err)
{
    return to_one_file(path, pipeline, component, ORIGINAL, dtype, err);
}

wd_status wd_convert_to_gguf(const char *path, const wd_pipeline *pipeline, wd_component component,
                             const wd_dtype *dtype, wd_err *err)
{
    return to_one_file(path, pipeline, component, GGUF, dtype, err);
}

wd_status wd_convert_component(const char *folder, const wd_pipeline *pipeline,
                               wd_component component, wd_err *err)
{
    static const char *const metadata[] = {"format", "pt", NULL};
    const bool text = component == WD_COMPONENT_TEXT_ENCODER;
    wd_safetensors *set = NULL;
    wd_tensor_table table = {0};
    wd_convert_line *lines = NULL;
    json_t *json = NULL;
    int64_t count;
    char path[WD_PATH_MAX];
    wd_status status;
    WD_TRY_OUT(wd_pipeline_table_open(&table, pipeline, component, err));
    WD_TRY_OUT(wd_pipeline_open_weights(&set, pipeline, component, err));
    WD_TRY_OUT(list_lines(&lines, &count, set, &table, err));
    WD_TRY_OUT(wd_path_join(
        path, folder, text ? "model.safetensors" : "diffusion_pytorch_model.safetensors", err));
    WD_TRY_OUT(wd__convert_write_safetensors(path, lines, count, metadata, err));
    WD_TRY_OUT(wd_path_join(path, folder, "config.json", err));
    WD_TRY_OUT(wd_pipeline_config(&json, pipeline, component, err));
    status = wd_json_save(json, path, err);
out:
    json_decref(json);
    wd_free(lines);
    wd_safetensors_close(set);
    wd_pipeline_table_close(&table, component);
    return status;
}

/* Checks the set's tensors, and gives them diffusers' names and shapes, and their values with the
 * LoRAs, if any. */
static wd_status apply_names(wd_dit_file *file, wd_safetensors *set, const char *loras,
                             const wd_overlay *place, bool ignores_unknown, wd_err *err)
{
    uint64_t bytes;
    wd_tensor_table table;
    wd_status status;
    WD_TRY(wd_dit_table_open(&table, &file->config, err));
    WD_TRY_OUT(wd_naming_apply(&file->naming, set, &table, err));
    WD_TRY_OUT(
        wd_extra_check(set, &table, &file->naming, WD_COMPONENT_TRANSFORMER, ignores_unknown, err));
    file->naming = (wd_naming){.prefix = ""};
    if (!loras) goto out;
    WD_TRY_OUT(wd_overlay_write(&bytes, set, loras, &table, place, err));
    status = wd_overlay_apply(set, loras, &table, place, err);
out:
    wd_dit_table_close(&table);
    return status;
}

wd_status wd_convert_to_diffusers(const char *folder, const char *path, const char *loras,
                                  const char *merged, const wd_dtype *dtype, bool ignores_unknown,
                                  wd_err *err)
{
    const wd_overlay place = {.folder = merged, .dtype = dtype ? *dtype : WD_DTYPE_COUNT};
    static const char *const metadata[] = {"format", "pt", NULL};
    wd_safetensors *set = NULL;
    wd_dit_file file;
    wd_convert_line *lines = NULL;
    json_t *json = NULL;
    int64_t count;
    char target[WD_PATH_MAX];
    wd_status status;
    if (wd_path_is_folder(path))
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "%s: is a folder, expected a safetensors file; a pipeline folder has its "
                       "transformer as diffusers wants it, in transformer/",
                       path);
    WD_TRY(check_no_model(folder, err));
    WD_TRY_OUT(wd_component_file_open(&set, path, WD_COMPONENT_TRANSFORMER, err));
    WD_TRY_OUT(wd_dit_file_read(&file, set, err));
    if (!file.heads_known) {
        status = wd_fail(err, WD_UNSUPPORTED,
                         "%s: its width of %lld is not a multiple of %d, so its number of heads "
                         "cannot be told; put a config.json beside it",
                         path, (long long)wd_dit_width(&file.config), HEAD_DIM);
        goto out;
    }
    WD_TRY_OUT(apply_names(&file, set, loras, &place, ignores_unknown, err));
    WD_TRY_OUT(plan_lines(&lines, &count, &file, DIFFUSERS, dtype, err));
    WD_TRY_OUT(wd_folder_make(folder, err));
    WD_TRY_OUT(wd_path_join(target, folder, "diffusion_pytorch_model.safetensors", err));
    WD_TRY_OUT(wd__convert_write_safetensors(target, lines, count, metadata, err));
    WD_TRY_OUT(wd_path_join(target, folder, "config.json", err));
    json = wd_dit_config_json(&file.config);
    status = json ? wd_json_save(json, target, err)
                  : wd_fail(err, WD_OUT_OF_MEMORY, "%s: no memory", target);
out:
    json_decref(json);
    wd_free(lines);
    wd_safetensors_close(set);
    return status;
}
