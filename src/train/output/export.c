/* The student's pipeline folder: see export.h. */
#include "train/output/export.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"
#include "core/memory.h"
#include "io/file/file.h"
#include "io/json/json.h"
#include "model/files/pipeline_card.h"
#include "model/sampling/schedule.h"
#include "train/output/comfyui.h"
#include "train/output/replace_folder.h"

/* In transformer/config.json: who wrote it. Only such a transformer is ever replaced. */
static const char mark[] = "WanDistiller student";

enum { STAGING_FLOATS = 1 << 18 };

wd_export_options wd_export_defaults(void)
{
    return (wd_export_options){.dtype = WD_F32,
                               .buffer = WD_PARAMS_EMA,
                               .components = WD_EXPORT_LINK,
                               .shard_bytes_max = 5000000000u,
                               .flow_shift = 3,
                               .sampling_steps = 20,
                               .height = 512,
                               .width = 512,
                               .text_tokens = 512,
                               .guidance_scale = {5, 5},
                               .teacher_name = "a Wan pipeline",
                               .prompt = "red apple, blue background"};
}

/* ---- transformer ---- */

/* The names of the transformer's files of weights begin with this. */
static const char weights_stem[] = "diffusion_pytorch_model";

/* Where the tensors go: shard[line], -1 for a line without elements. */
typedef struct shards {
    int *shard;
    int count;
    uint64_t bytes_total;
} shards;

static size_t stored_bytes(const wd_tensor_spec *spec, wd_dtype dtype)
{
    size_t count = 1;
    for (int i = 0; i < spec->ndim; i++) count *= (size_t)spec->dim[i];
    return count * wd_dtype_bytes(wd_spec_dtype(spec, dtype));
}

static wd_status cut_shards(shards *out, const wd_tensor_table *table,
                            const wd_export_options *options, wd_err *err)
{
    *out = (shards){0};
    WD_TRY(wd_alloc((void **)&out->shard, (size_t)table->count, sizeof *out->shard, "shards", err));
    uint64_t filled = 0;
    out->count = 1;
    for (int64_t line = 0; line < table->count; line++) {
        size_t bytes = stored_bytes(&table->spec[line], options->dtype);
        if (filled && filled + bytes > options->shard_bytes_max) {
            out->count++;
            filled = 0;
        }
        filled += bytes;
        out->bytes_total += bytes;
        out->shard[line] = bytes ? out->count - 1 : -1;
    }
    return WD_OK;
}

/* The tensors of a shard, in the order of the file. Returns how many. */
static int64_t list_shard(wd_safetensors_item *items, const wd_tensor_table *table,
                          const shards *cut, int shard, const wd_export_options *options)
{
    int64_t n = 0;
    for (int64_t line = 0; line < table->count; line++) {
        const wd_tensor_spec *spec = &table->spec[line];
        if (cut->shard[line] != shard) continue;
        items[n] = (wd_safetensors_item){
            .name = spec->name, .dtype = wd_spec_dtype(spec, options->dtype), .ndim = spec->ndim};
        memcpy(items[n++].dim, spec->dim, sizeof spec->dim);
    }
    return n;
}

static const char *const shard_metadata[] = {"format", "pt", NULL};

static void shard_name(char out[64], const shards *cut, int shard)
{
    if (cut->count == 1)
        snprintf(out, 64, "%s.safetensors", weights_stem);
    else
        snprintf(out, 64, "%s-%05d-of-%05d.safetensors", weights_stem, shard + 1, cut->count);
}

/* `values` floats become `count` values of `dtype`, in place. */
static void narrow(float *values, int64_t count, wd_dtype dtype)
{
    if (dtype == WD_F32) return;
    uint16_t *out = (uint16_t *)values;
    for (int64_t i = 0; i < count; i++) {
        float v;
        memcpy(&v, (char *)values + (size_t)i * sizeof v, sizeof v);
        uint16_t bits = dtype == WD_BF16 ? wd_f32_to_bf16(v) : wd_f32_to_f16(v);
        memcpy(out + i, &bits, sizeof bits);
    }
}

static wd_status put_tensor(wd_safetensors_writer *writer, const wd_params *params, int64_t line,
                            const wd_export_options *options, float *staging, wd_queue *queue,
                            wd_err *err)
{
    wd_tensor tensor = wd_params_whole_tensor(params, options->buffer, line);
    wd_dtype dtype = wd_spec_dtype(&params->table.spec[line], options->dtype);
    int64_t count = wd_tensor_count(&tensor);
    for (int64_t done = 0; done < count;) {
        int64_t piece = count - done < STAGING_FLOATS ? count - done : STAGING_FLOATS;
        wd_queue_copy_and_wait(queue, staging, (const float *)tensor.data + done,
                               (size_t)piece * sizeof(float));
        narrow(staging, piece, dtype);
        WD_TRY(wd_safetensors_put(writer, staging, (size_t)piece * wd_dtype_bytes(dtype), err));
        done += piece;
    }
    return WD_OK;
}

static wd_status write_shard(const char *folder, const wd_params *params, const shards *cut,
                             int shard, const wd_export_options *options, float *staging,
                             wd_queue *queue, wd_err *err)
{
    char name[64], path[WD_PATH_MAX];
    wd_safetensors_writer *writer = NULL;
    wd_safetensors_item *items = NULL;
    wd_status status = WD_OK;
    shard_name(name, cut, shard);
    WD_TRY(wd_path_join(path, folder, name, err));
    WD_TRY(wd_alloc((void **)&items, (size_t)params->table.count, sizeof *items, "shard", err));
    const int64_t n = list_shard(items, &params->table, cut, shard, options);
    WD_TRY_OUT(wd_safetensors_create(&writer, path, items, n, shard_metadata, err));
    for (int64_t line = 0; line < params->table.count; line++) {
        if (cut->shard[line] != shard) continue;
        WD_TRY_OUT(put_tensor(writer, params, line, options, staging, queue, err));
    }
    status = wd_safetensors_finish(writer, err);
    writer = NULL;
out:
    wd_safetensors_abandon(writer);
    wd_free(items);
    return status;
}

static wd_status write_index(const char *folder, const wd_params *params, const shards *cut,
                             wd_err *err)
{
    char path[WD_PATH_MAX], name[64];
    WD_TRY(wd_path_join(path, folder, "diffusion_pytorch_model.safetensors.index.json", err));
    json_t *map = json_object();
    for (int64_t line = 0; line < params->table.count; line++) {
        if (cut->shard[line] < 0) continue;
        shard_name(name, cut, cut->shard[line]);
        json_object_set_new(map, params->table.spec[line].name, json_string(name));
    }
    json_t *index = json_pack("{s:{s:I}, s:o}", "metadata", "total_size",
                              (json_int_t)cut->bytes_total, "weight_map", map);
    if (!index) return wd_fail(err, WD_OUT_OF_MEMORY, "%s: no memory to write it", path);
    wd_status status = wd_json_save(index, path, err);
    json_decref(index);
    return status;
}

static wd_status write_config(const char *folder, const wd_params *params,
                              const wd_export_options *options, wd_err *err)
{
    char path[WD_PATH_MAX], made_of[512];
    WD_TRY(wd_path_join(path, folder, "config.json", err));
    json_t *config = wd_dit_config_json(&params->config);
    snprintf(made_of, sizeof made_of, "%s of %s", mark, options->teacher_name);
    if (!config || json_object_set_new(config, "_name_or_path", wd_json_string(made_of))) {
        json_decref(config);
        return wd_fail(err, WD_OUT_OF_MEMORY, "%s: no memory to write it", path);
    }
    wd_status status = wd_json_save(config, path, err);
    json_decref(config);
    return status;
}

static wd_status write_transformer(const char *folder, const wd_params *params,
                                   const wd_export_options *options, wd_queue *queue, wd_err *err)
{
    shards cut = {0};
    float *staging = NULL;
    wd_status status = WD_OK;
    WD_TRY_OUT(wd_folder_make(folder, err));
    WD_TRY_OUT(wd_alloc((void **)&staging, STAGING_FLOATS, sizeof *staging, "export staging", err));
    WD_TRY_OUT(cut_shards(&cut, &params->table, options, err));
    WD_TRY_OUT(write_config(folder, params, options, err));
    for (int shard = 0; shard < cut.count; shard++) {
        WD_TRY_OUT(write_shard(folder, params, &cut, shard, options, staging, queue, err));
    }
    if (cut.count > 1) WD_TRY_OUT(write_index(folder, params, &cut, err));
    status = wd__folder_sync(folder, err);
out:
    wd_free(cut.shard);
    wd_free(staging);
    return status;
}

wd_status wd_export_weights_size(uint64_t *bytes, const wd_dit_config *config,
                                 const wd_export_options *options, wd_err *err)
{
    shards cut = {0};
    wd_tensor_table table = {0};
    wd_safetensors_item *items = NULL;
    uint64_t sum = 0, file;
    wd_status status;
    WD_TRY_OUT(wd_dit_table_open(&table, config, err));
    WD_TRY_OUT(cut_shards(&cut, &table, options, err));
    WD_TRY_OUT(wd_alloc((void **)&items, (size_t)table.count, sizeof *items, "shard", err));
    for (int shard = 0; shard < cut.count; shard++) {
        const int64_t n = list_shard(items, &table, &cut, shard, options);
        WD_TRY_OUT(wd_safetensors_file_size(&file, items, n, shard_metadata, err));
        sum += file;
    }
    *bytes = sum;
out:
    wd_free(items);
    wd_free(cut.shard);
    wd_dit_table_close(&table);
    return status;
}

/* ---- what is made from the teacher's files ---- */

/* A copy of the teacher's scheduler with another shift: UniPC calls it flow_shift, Euler shift. */
static wd_status copy_scheduler(json_t **out, const wd_pipeline *teacher, double flow_shift,
                                wd_err *err)
{
    json_t *config;
    WD_TRY(wd_pipeline_config(&config, teacher, WD_COMPONENT_SCHEDULER, err));
    const char *key = teacher->scheduler.kind == WD_SCHEDULER_UNIPC ? "flow_shift" : "shift";
    if (json_object_set_new(config, key, json_real(flow_shift))) {
        json_decref(config);
        return wd_fail(err, WD_OUT_OF_MEMORY, "no memory to copy the scheduler's configuration");
    }
    *out = config;
    return WD_OK;
}

/* wd_scheduler_of_few_steps as diffusers reads it. */
static wd_status make_chord_scheduler(json_t **out, const wd_export_options *options, wd_err *err)
{
    const wd_scheduler_config c =
        wd_scheduler_of_few_steps(options->student_steps, options->flow_shift);
    json_t *steps = json_array(), *config;
    bool failed = !steps;
    for (int64_t i = 0; i < options->student_steps && !failed; i++)
        failed = json_array_append_new(steps, json_integer((json_int_t)i));
    config = json_pack("{s:s, s:I, s:s, s:b, s:f, s:I, s:o}", "_class_name",
                       wd_scheduler_class_name(c.kind), "num_train_timesteps",
                       (json_int_t)c.num_train_timesteps, "prediction_type", "flow_prediction",
                       "use_flow_sigmas", 1, "flow_shift", c.flow_shift, "solver_order",
                       (json_int_t)c.solver_order, "disable_corrector", steps);
    if (config && !failed) {
        *out = config;
        return WD_OK;
    }
    json_decref(config);
    return wd_fail(err, WD_OUT_OF_MEMORY, "no memory for the scheduler's configuration");
}

/* The teacher's model_index.json; of a teacher with single files, or of such alone, with entries
 * [library, class] for these. */
static wd_status read_index(json_t **out, const char *path, const wd_pipeline *teacher, wd_err *err)
{
    bool parts = false, failed = false;
    json_t *index = NULL;
    for (int c = 0; c < WD_COMPONENT_COUNT; c++) parts = parts || *teacher->part[c];
    if (!parts || wd_path_exists(path))
        WD_TRY(wd_json_load(&index, path, err));
    else
        index = json_pack("{s:s}", "_diffusers_version", "0.35.0");
    for (int c = 0; c < WD_COMPONENT_COUNT && index; c++) {
        const bool text = c == WD_COMPONENT_TEXT_ENCODER || c == WD_COMPONENT_TOKENIZER;
        if (!*teacher->part[c] && !teacher->made[c]) continue;
        json_t *entry =
            json_pack("[ss]", text ? "transformers" : "diffusers", teacher->class_name[c]);
        failed |= json_object_set_new(index, wd_component_name((wd_component)c), entry) != 0;
    }
    if (!index || failed) {
        json_decref(index);
        return wd_fail(err, WD_OUT_OF_MEMORY, "%s: no memory to make it", path);
    }
    *out = index;
    return WD_OK;
}

/* The teacher's model_index.json without its second expert: components are [library, class].
 * `chords`: the scheduler is make_chord_scheduler's. */
static wd_status make_model_index(json_t **out, const wd_pipeline *teacher, bool chords,
                                  wd_err *err)
{
    static const wd_component kept[] = {WD_COMPONENT_SCHEDULER, WD_COMPONENT_TEXT_ENCODER,
                                        WD_COMPONENT_TOKENIZER, WD_COMPONENT_TRANSFORMER,
                                        WD_COMPONENT_VAE};
    char path[WD_PATH_MAX];
    json_t *from = NULL, *index = NULL;
    wd_status status;
    WD_TRY(wd_path_join(path, teacher->path, "model_index.json", err));
    WD_TRY(read_index(&from, path, teacher, err));
    index = json_pack("{s:s, s:O*, s:n, s:b, s:[nn]}", "_class_name", "WanPipeline",
                      "_diffusers_version", json_object_get(from, "_diffusers_version"),
                      "boundary_ratio", "expand_timesteps", (int)teacher->expand_timesteps,
                      "transformer_2");
    if (chords)
        json_object_set_new(
            from, wd_component_name(WD_COMPONENT_SCHEDULER),
            json_pack("[ss]", "diffusers", wd_scheduler_class_name(WD_SCHEDULER_UNIPC)));
    bool failed = !index;
    for (size_t i = 0; i < sizeof kept / sizeof *kept && !failed; i++) {
        const char *name = wd_component_name(kept[i]);
        json_t *entry = json_object_get(from, name);
        if (!entry || json_is_null(entry)) {
            status = wd_fail(err, WD_BAD_FORMAT, "%s: has no entry \"%s\": [library, class]", path,
                             name);
            goto out;
        }
        failed = json_object_set(index, name, entry);
    }
    status = failed ? wd_fail(err, WD_OUT_OF_MEMORY, "%s: no memory to copy it", path) : WD_OK;
    if (status == WD_OK) *out = json_incref(index);
out:
    json_decref(index);
    json_decref(from);
    return status;
}

static wd_status save(json_t *json, const char *folder, const char *name, wd_err *err)
{
    char path[WD_PATH_MAX];
    wd_status status = wd_folder_make(folder, err);
    if (status == WD_OK) status = wd_path_join(path, folder, name, err);
    if (status == WD_OK) status = wd_json_save(json, path, err);
    json_decref(json);
    return status;
}

static wd_status write_scheduler(const char *folder, const wd_pipeline *teacher,
                                 const wd_export_options *options, wd_err *err)
{
    json_t *config = NULL;
    WD_TRY(options->student_steps ? make_chord_scheduler(&config, options, err)
                                  : copy_scheduler(&config, teacher, options->flow_shift, err));
    return save(config, folder, "scheduler_config.json", err);
}

static wd_status write_model_index(const char *folder, const wd_pipeline *teacher,
                                   const wd_export_options *options, wd_err *err)
{
    json_t *index = NULL;
    WD_TRY(make_model_index(&index, teacher, options->student_steps > 0, err));
    json_t *entry =
        wd_pipeline_sampling_json(options->height, options->width, options->sampling_steps,
                                  options->text_tokens, options->trained_steps);
    if (json_object_set_new(index, wd_pipeline_sampling_key, entry)) {
        json_decref(index);
        return wd_fail(err, WD_OUT_OF_MEMORY, "no memory to write model_index.json");
    }
    return save(index, folder, "model_index.json", err);
}

/* ---- the whole ---- */

wd_status wd_export_is_student(bool *out, const char *folder, wd_err *err)
{
    char path[WD_PATH_MAX];
    json_t *config = NULL;
    *out = false;
    if (!wd_path_is_folder(folder)) return WD_OK;
    WD_TRY(wd_path_join(path, folder, "transformer/config.json", err));
    wd_status status = wd_json_load(&config, path, err);
    if (status == WD_OUT_OF_MEMORY || status == WD_IO) return status; /* it cannot be told */
    const char *made_of = json_string_value(json_object_get(config, "_name_or_path"));
    *out = status == WD_OK && made_of && !strncmp(made_of, mark, sizeof mark - 1);
    json_decref(config);
    return WD_OK;
}

void wd_export_warn_of_guidance(const char *name, double guidance_scale)
{
    if (guidance_scale > 1)
        wd_log(WD_LOG_WARNING,
               "%s: has guidance folded in; --guidance_scale %g guides a second time, 1 is its own",
               name, guidance_scale);
}

/* All that the folder is made of is there. */
static wd_status check_teacher(const wd_pipeline *teacher, wd_err *err)
{
    json_t *index;
    WD_TRY(wd_pipeline_require(teacher, WD_COMPONENT_SCHEDULER, err));
    WD_TRY(wd_components_check(teacher, err));
    WD_TRY(make_model_index(&index, teacher, false, err));
    json_decref(index);
    return WD_OK;
}

static wd_status check_output(const char *output, const wd_pipeline *teacher, wd_err *err)
{
    char path[WD_PATH_MAX], a[PATH_MAX], b[PATH_MAX];
    if (realpath(output, a) && realpath(teacher->path, b) && !strcmp(a, b)) {
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "%s is the teacher's folder; choose another --output_dir", output);
    }
    WD_TRY(wd_path_join(path, output, "transformer", err));
    if (!wd_path_exists(path)) return WD_OK;
    bool ours;
    WD_TRY(wd_export_is_student(&ours, output, err));
    if (ours) return WD_OK;
    return wd_fail(err, WD_INVALID_ARGUMENT,
                   "%s already holds a transformer that is not a student of this program; it is "
                   "not replaced: choose another --output_dir",
                   output);
}

wd_status wd_export_check(const char *output, const wd_pipeline *teacher, wd_err *err)
{
    WD_TRY(check_output(output, teacher, err));
    return check_teacher(teacher, err);
}

static wd_status write_all(const char *fresh, const wd_params *params, const wd_pipeline *teacher,
                           const wd_export_options *options, wd_queue *queue, wd_err *err)
{
    char path[WD_PATH_MAX];
    WD_TRY(wd_path_join(path, fresh, "transformer", err));
    WD_TRY(write_transformer(path, params, options, queue, err));
    WD_TRY(wd_path_join(path, fresh, "scheduler", err));
    WD_TRY(write_scheduler(path, teacher, options, err));
    WD_TRY(wd_components_take(fresh, teacher, options->components, err));
    WD_TRY(wd__student_write_card(fresh, params, options, err));
    return write_model_index(fresh, teacher, options, err);
}

static int is_entry(const struct dirent *entry)
{
    return strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..");
}

/* Files of a user, as far as names tell: weights of an earlier student are in files called so. */
static int is_not_weights(const struct dirent *entry)
{
    return is_entry(entry) && (entry->d_type == DT_DIR ||
                               strncmp(entry->d_name, weights_stem, sizeof weights_stem - 1));
}

enum { KEPT_DEPTH_MAX = 64 };

static wd_status keep(const char *fresh, const char *old, int depth, wd_err *err);

static wd_status keep_one(const char *fresh, const char *old, const char *name, int depth,
                          wd_err *err)
{
    char from[WD_PATH_MAX], to[WD_PATH_MAX];
    struct stat info;
    WD_TRY(wd_path_join(from, old, name, err));
    WD_TRY(wd_path_join(to, fresh, name, err));
    if (!lstat(from, &info) && S_ISDIR(info.st_mode)) {
        WD_TRY(wd_folder_make(to, err));
        WD_TRY(keep(to, from, depth + 1, err));
        (void)!chmod(to, info.st_mode & 07777);
        return WD_OK;
    }
    if (!lstat(to, &info) || !link(from, to)) return WD_OK;
    return wd_file_copy(to, from, err);
}

/* Puts what lies in the folder `old` and is not of the student into the folder `fresh`, too.
 * Folders are made anew, and files are linked: the old folder stays whole until it is replaced. */
static wd_status keep(const char *fresh, const char *old, int depth, wd_err *err)
{
    wd_folder_list list;
    wd_status status = WD_OK;
    if (depth > KEPT_DEPTH_MAX)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "%s: expected at most %d folders in one another beside the student's files; "
                       "move them away",
                       old, KEPT_DEPTH_MAX);
    WD_TRY(wd_folder_list_open(&list, old, depth ? is_entry : is_not_weights, alphasort, err));
    for (int i = 0; i < list.count; i++)
        WD_TRY_OUT(keep_one(fresh, old, list.entry[i]->d_name, depth, err));
out:
    wd_folder_list_close(&list);
    return status;
}

/* For the folder `old`, which is about to be replaced. A symbolic link in its place is replaced,
 * but not what it leads to. */
static wd_status keep_others(const char *fresh, const char *old, wd_err *err)
{
    struct stat info;
    return lstat(old, &info) || !S_ISDIR(info.st_mode) ? WD_OK : keep(fresh, old, 0, err);
}

static const char *const folders[] = {"vae", "text_encoder", "tokenizer", "scheduler",
                                      "transformer"};
enum { FOLDERS = sizeof folders / sizeof *folders };

static wd_status put_in_place(const char *output, const char *fresh, wd_err *err)
{
    static const char *const files[] = {"README.md", "model_index.json"};
    char from[WD_PATH_MAX], to[WD_PATH_MAX];
    for (int i = 0; i < FOLDERS; i++) {
        WD_TRY(wd_path_join(from, fresh, folders[i], err));
        WD_TRY(wd_path_join(to, output, folders[i], err));
        WD_TRY(keep_others(from, to, err));
    }
    WD_TRY(wd__student_remove_forms(output, err));
    for (int i = 0; i < FOLDERS; i++) {
        WD_TRY(wd_path_join(from, fresh, folders[i], err));
        WD_TRY(wd_path_join(to, output, folders[i], err));
        WD_TRY(wd__folder_replace(to, from, err));
    }
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        WD_TRY(wd_path_join(from, fresh, files[i], err));
        WD_TRY(wd_path_join(to, output, files[i], err));
        WD_TRY(wd_file_commit(from, to, err));
    }
    return WD_OK;
}

wd_status wd_export_student(const char *output, const wd_params *params, const wd_pipeline *teacher,
                            const wd_export_options *options, wd_queue *queue, wd_err *err)
{
    char fresh[WD_PATH_MAX];
    wd_status status;
    WD_TRY(check_output(output, teacher, err));
    WD_TRY(wd_path_join(fresh, output, ".tmp-student", err));
    WD_TRY(wd_folder_remove(fresh, err)); /* what a kill left */
    WD_TRY(wd_folder_make(fresh, err));
    WD_TRY_OUT(write_all(fresh, params, teacher, options, queue, err));
    WD_TRY_OUT(put_in_place(output, fresh, err));
out:
    if (status == WD_OK) return wd_folder_remove(fresh, err);
    wd_folder_remove(fresh, NULL);
    wd_fail_in(err, "student pipeline %s", output);
    return status;
}
