/* The teacher's components in the student's folder: see train/output/components.h. */
#include "train/output/components.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"
#include "core/memory.h"
#include "io/tensors/safetensors.h"
#include "model/convert/convert.h"
#include "train/output/replace_folder.h"

enum { COPIED_BYTES_MAX = 64 << 20, NAMES_MAX = 8 };

/* The components that are taken beside the transformer, where the teacher has them. */
static const struct {
    wd_component component;
    bool has_weights;
    const char *file[NAMES_MAX];
} taken[] = {
    {WD_COMPONENT_VAE, true, {"config.json", "diffusion_pytorch_model.safetensors.index.json"}},
    {WD_COMPONENT_TEXT_ENCODER,
     true,
     {"config.json", "generation_config.json", "model.safetensors.index.json"}},
    {WD_COMPONENT_TOKENIZER,
     false,
     {"tokenizer_config.json", "spiece.model", "tokenizer.json", "special_tokens_map.json",
      "added_tokens.json"}},
};

enum { TAKEN = sizeof taken / sizeof *taken };

/* One component on its way into the student; `to` is NULL where it is only checked. */
typedef struct job {
    const wd_pipeline *teacher;
    const char *to;
    const char *model; /* folder that symbolic links must not leave */
    char from[WD_PATH_MAX];
    wd_export_components how;
    uint64_t *bytes; /* where files are counted that would be written on `device`; NULL: nowhere */
    dev_t device;
} job;

/* ---- where a file may lie ---- */

static bool lies_in(const char *path, const char *folder)
{
    const size_t n = strlen(folder);
    return !strncmp(path, folder, n) && path[n] == '/';
}

/* .../models--ORG--NAME/snapshots/COMMIT becomes .../models--ORG--NAME/blobs; false: `snapshot` is
 * no such folder. */
static bool find_blobs(char out[PATH_MAX], const char *snapshot)
{
    static const char below[] = "/snapshots", blobs[] = "/blobs", prefix[] = "models--";
    snprintf(out, PATH_MAX, "%s", snapshot);
    char *end = strrchr(out, '/');
    if (!end) return false;
    *end = '\0';
    const size_t n = strlen(out), m = sizeof below - 1;
    if (n < m || strcmp(out + n - m, below)) return false;
    out[n - m] = '\0';
    const char *repository = strrchr(out, '/');
    if (!repository || strncmp(repository + 1, prefix, sizeof prefix - 1)) return false;
    strcpy(out + n - m, blobs); /* shorter than what stood there */
    return true;
}

/* The file that `path`, a path in the folder `model` of a teacher or of a component, leads to. */
static wd_status find_source(char out[PATH_MAX], const char *path, const char *model, wd_err *err)
{
    char root[PATH_MAX], blobs[PATH_MAX];
    struct stat info;
    if (!realpath(model, root))
        return wd_fail(err, WD_IO, "%s: cannot be read: %s", model, strerror(errno));
    if (!realpath(path, out) || stat(out, &info))
        return wd_fail(err, WD_IO, "%s: cannot be read: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return wd_fail(err, WD_IO, "%s: expected a file, found a folder, device or pipe", path);
    if (lies_in(out, root) || (find_blobs(blobs, root) && lies_in(out, blobs))) return WD_OK;
    return wd_fail(err, WD_INVALID_ARGUMENT,
                   "%s: is a symbolic link to %s, outside of the teacher's folder. The student's "
                   "folder gets its own copy of this file and is made to be published, so nothing "
                   "from elsewhere is taken: put the file itself in place of the link",
                   path, out);
}

/* ---- taking ---- */

static wd_status take_weights(const char *to, const char *source, wd_export_components how,
                              wd_err *err)
{
    struct stat info;
    if (how == WD_EXPORT_LINK && !link(source, to)) return WD_OK;
    if (stat(source, &info))
        return wd_fail(err, WD_IO, "%s: cannot be read: %s", source, strerror(errno));
    if (how == WD_EXPORT_COPY || info.st_size < COPIED_BYTES_MAX)
        return wd_file_copy(to, source, err);
    if (symlink(source, to))
        return wd_fail(err, WD_IO, "%s: cannot be linked to %s: %s", to, source, strerror(errno));
    wd_log(WD_LOG_WARNING,
           "%s is a symbolic link to %s, on another file system: the student needs the teacher's "
           "file there; to be rid of that, copy it",
           to, source);
    return WD_OK;
}

/* Adds the file that take_file would write; a link takes no space. */
static void count_file(const job *j, const char *source, bool is_weights)
{
    struct stat info;
    if (stat(source, &info)) return;
    const bool links = is_weights && j->how == WD_EXPORT_LINK &&
                       (info.st_dev == j->device || info.st_size >= COPIED_BYTES_MAX);
    if (!links) *j->bytes += (uint64_t)info.st_size;
}

static wd_status take_file(const job *j, const char *name, bool is_weights, wd_err *err)
{
    char path[WD_PATH_MAX], target[WD_PATH_MAX], source[PATH_MAX];
    WD_TRY(wd_path_join(path, j->from, name, err));
    WD_TRY(find_source(source, path, j->model, err));
    if (j->bytes) count_file(j, source, is_weights);
    if (!j->to) return WD_OK;
    WD_TRY(wd_path_join(target, j->to, name, err));
    if (is_weights) return take_weights(target, source, j->how, err);
    return wd_file_copy(target, source, err);
}

/* The files that the component's weights are read from. */
static wd_status take_all_weights(const job *j, wd_component component, wd_err *err)
{
    wd_safetensors *weights;
    wd_status status = WD_OK;
    WD_TRY(wd_pipeline_open_weights(&weights, j->teacher, component, err));
    for (int64_t i = 0; i < wd_safetensors_file_count(weights); i++)
        WD_TRY_OUT(take_file(j, wd_path_name(wd_safetensors_file_at(weights, i)), true, err));
out:
    wd_safetensors_close(weights);
    return status;
}

/* The tokenizer of a single file as transformers has it. */
static wd_status make_tokenizer(const job *j, wd_err *err)
{
    char path[WD_PATH_MAX], *model;
    size_t bytes;
    json_t *config = NULL;
    WD_TRY(wd_pipeline_spiece(&model, &bytes, j->teacher, err));
    wd_status status = WD_OK;
    if (j->bytes) *j->bytes += bytes;
    if (j->to) {
        WD_TRY_OUT(wd_path_join(path, j->to, "spiece.model", err));
        WD_TRY_OUT(wd_file_write(path, model, bytes, err));
        WD_TRY_OUT(wd_path_join(path, j->to, "tokenizer_config.json", err));
        WD_TRY_OUT(wd_pipeline_config(&config, j->teacher, WD_COMPONENT_TOKENIZER, err));
        WD_TRY_OUT(wd_json_save(config, path, err));
    }
out:
    json_decref(config);
    wd_free(model);
    return status;
}

/* Adds the weights of a component that wd_convert_component would write. */
static wd_status count_weights(const job *j, wd_component component, wd_err *err)
{
    wd_safetensors *weights;
    WD_TRY(wd_pipeline_open_weights(&weights, j->teacher, component, err));
    for (int64_t i = 0; i < wd_safetensors_count(weights); i++) {
        const wd_safetensors_entry *entry = wd_safetensors_at(weights, i);
        const wd_dtype dtype = entry->tensor.dtype;
        const size_t bytes = wd_tensor_bytes(&entry->tensor);
        const bool widens = wd_dtype_is_quantised(dtype); /* to bfloat16, or to F32 */
        *j->bytes += widens ? (uint64_t)wd_tensor_count(&entry->tensor) * sizeof(float) : bytes;
    }
    wd_safetensors_close(weights);
    return WD_OK;
}

/* A component that is a single file is written as diffusers has it: no link can rename tensors. */
static wd_status make_component(const job *j, wd_component component, wd_err *err)
{
    if (component == WD_COMPONENT_TOKENIZER) return make_tokenizer(j, err);
    if (j->bytes) return count_weights(j, component, err);
    if (!j->to) return wd_pipeline_check_weights(j->teacher, component, err);
    return wd_convert_component(j->to, j->teacher, component, err);
}

static wd_status take_component(job *j, int which, wd_err *err)
{
    const wd_component component = taken[which].component;
    char path[WD_PATH_MAX];
    WD_TRY(wd_pipeline_require(j->teacher, component, err));
    if (j->teacher->made[component]) return make_component(j, component, err);
    WD_TRY(wd_pipeline_folder(j->from, j->teacher, component, err));
    j->model = *j->teacher->part[component] ? j->from : j->teacher->path;
    for (int i = 0; i < NAMES_MAX && taken[which].file[i]; i++) {
        WD_TRY(wd_path_join(path, j->from, taken[which].file[i], err));
        if (wd_path_exists(path)) WD_TRY(take_file(j, taken[which].file[i], false, err));
    }
    return taken[which].has_weights ? take_all_weights(j, component, err) : WD_OK;
}

wd_status wd_components_check(const wd_pipeline *teacher, wd_err *err)
{
    job j = {.teacher = teacher};
    for (int i = 0; i < TAKEN; i++) WD_TRY(take_component(&j, i, err));
    return WD_OK;
}

wd_status wd_components_size(uint64_t *bytes, const wd_pipeline *teacher, wd_export_components how,
                             dev_t device, wd_err *err)
{
    uint64_t sum = 0;
    job j = {.teacher = teacher, .how = how, .bytes = &sum, .device = device};
    for (int i = 0; i < TAKEN; i++) WD_TRY(take_component(&j, i, err));
    *bytes = sum;
    return WD_OK;
}

wd_status wd_components_take(const char *to, const wd_pipeline *teacher, wd_export_components how,
                             wd_err *err)
{
    char folder[WD_PATH_MAX];
    job j = {.teacher = teacher, .to = folder, .how = how};
    for (int i = 0; i < TAKEN; i++) {
        WD_TRY(wd_path_join(folder, to, wd_component_name(taken[i].component), err));
        WD_TRY(wd_folder_make(folder, err));
        WD_TRY(take_component(&j, i, err));
        WD_TRY(wd__folder_sync(folder, err));
    }
    return WD_OK;
}
