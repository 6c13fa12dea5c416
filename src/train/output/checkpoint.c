/* Checkpoint folders: see checkpoint.h.
 *
 * A write goes through one staging buffer, tensor by tensor, so it costs no memory worth naming.
 * Its order: .tmp folder with state.safetensors (itself a temporary file until it is whole and
 * synced), state.json, checksums.xxh128; folder synced; renamed; parent synced. */
#include "train/output/checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/text.h"
#include "io/json/json.h"
#include "train/output/checkpoint_folder.h"
#include "train/output/replace_folder.h"

static const char state_name[] = "state.safetensors";
static const char json_name[] = "state.json";
static const char sums_name[] = "checksums.xxh128";

enum {
    STAGING_BYTES = 1 << 20,
    NAME_MAX_BYTES = WD_TENSOR_NAME_MAX + 40, /* prefixes included */
    SUMS_BYTES_MAX = 1 << 16
};

/* More than any run takes: numbers of samples stay far within int64_t. */
static const int64_t steps_max = (int64_t)1 << 40;

/* The buffers that a checkpoint holds of a network, in the order of the file: not its gradients.
 * The weights are the first. */
static const struct {
    wd_params_buffer buffer;
    const char *prefix;
} parts[] = {{WD_PARAMS_P, "p"},
             {WD_PARAMS_M, "m"},
             {WD_PARAMS_V, "v"},
             {WD_PARAMS_SLOW, "slow"},
             {WD_PARAMS_EMA, "ema"}};

enum { PARTS = sizeof parts / sizeof *parts };

/* ---- writing ---- */

/* One tensor that is written: its name in the file, and where its values are. */
typedef struct stored {
    char name[NAME_MAX_BYTES];
    wd_tensor tensor;
    wd_params *params; /* whose tensor it is; NULL: it is one of the caller's others */
    int part;          /* its buffer, an index of `parts` */
} stored;

static void tensor_name(char out[NAME_MAX_BYTES], const wd_params *params, int part, int64_t line)
{
    snprintf(out, NAME_MAX_BYTES, "%s%s.%s", params->names->prefix, parts[part].prefix,
             params->table.spec[line].name);
}

/* Whether a network has these values: weights it has, if only as passes take them. */
static bool has_buffer(const wd_params *params, wd_params_buffer buffer)
{
    return buffer == WD_PARAMS_P || params->buffer[buffer];
}

/* Table line `line` of a buffer that the network has, where it is whole. */
static wd_tensor tensor_of(const wd_params *params, wd_params_buffer buffer, int64_t line)
{
    if (!params->buffer[buffer]) return wd_params_weight(params, line);
    return wd_params_whole_tensor(params, buffer, line);
}

static int64_t list_network(stored *out, wd_params *params)
{
    int64_t n = 0;
    for (int part = 0; part < PARTS; part++) {
        if (!has_buffer(params, parts[part].buffer)) continue;
        for (int64_t line = 0; line < params->table.count; line++) {
            wd_tensor tensor = tensor_of(params, parts[part].buffer, line);
            if (!wd_tensor_count(&tensor)) continue;
            out[n].params = params;
            out[n].part = part;
            tensor_name(out[n].name, params, part, line);
            out[n++].tensor = tensor;
        }
    }
    return n;
}

/* Returns how many there are. */
static int64_t list_tensors(stored *out, const wd_checkpoint_tensors *tensors)
{
    int64_t n = 0;
    for (int k = 0; k < tensors->networks; k++) n += list_network(out + n, tensors->params[k]);
    for (int64_t i = 0; i < tensors->others; i++) {
        snprintf(out[n].name, sizeof out[n].name, "%s", tensors->other[i].name);
        out[n].params = NULL;
        out[n++].tensor = tensors->other[i].tensor;
    }
    return n;
}

static wd_status put_tensor(wd_safetensors_writer *writer, const wd_tensor *tensor, char *staging,
                            wd_queue *queue, wd_err *err)
{
    size_t bytes = wd_tensor_bytes(tensor);
    for (size_t done = 0; done < bytes;) {
        size_t piece = bytes - done < STAGING_BYTES ? bytes - done : STAGING_BYTES;
        wd_queue_copy_and_wait(queue, staging, (const char *)tensor->data + done, piece);
        WD_TRY(wd_safetensors_put(writer, staging, piece, err));
        done += piece;
    }
    return WD_OK;
}

/* Brings the networks' buffers together, but for the first `done` of them; then passes find the
 * weights again. */
static void collect_rest(const wd_checkpoint_tensors *tensors, int done, wd_queue *queue)
{
    int n = 0;
    for (int k = 0; k < tensors->networks; k++)
        for (int part = 0; part < PARTS; part++)
            if (has_buffer(tensors->params[k], parts[part].buffer) && n++ >= done)
                wd_params_collect(tensors->params[k], parts[part].buffer, queue);
    for (int k = 0; k < tensors->networks; k++) wd_params_release(tensors->params[k], queue);
}

void wd_checkpoint_assist(const wd_checkpoint_tensors *tensors, wd_queue *queue)
{
    collect_rest(tensors, 0, queue);
}

static int64_t tensors_max(const wd_checkpoint_tensors *tensors)
{
    int64_t count = tensors->others;
    for (int k = 0; k < tensors->networks; k++) count += PARTS * tensors->params[k]->table.count;
    return count;
}

size_t wd_checkpoint_write_bytes(const wd_checkpoint_tensors *tensors)
{
    const size_t each = sizeof(stored) + sizeof(wd_safetensors_item);
    return STAGING_BYTES + WD_SAFETENSORS_BUFFER_BYTES + (size_t)tensors_max(tensors) * each;
}

/* The lists of a file's tensors: *count of each. The caller frees both with wd_free, also after a
 * failure. */
static wd_status list_file(stored **list, wd_safetensors_item **items, int64_t *count,
                           const wd_checkpoint_tensors *tensors, wd_err *err)
{
    const size_t most = (size_t)tensors_max(tensors);
    WD_TRY(wd_alloc((void **)list, most, sizeof **list, "checkpoint", err));
    WD_TRY(wd_alloc((void **)items, most, sizeof **items, "checkpoint", err));
    *count = list_tensors(*list, tensors);
    for (int64_t i = 0; i < *count; i++) {
        const stored *s = &(*list)[i];
        (*items)[i] = (wd_safetensors_item){
            .name = s->name, .dtype = s->tensor.dtype, .ndim = s->tensor.ndim};
        memcpy((*items)[i].dim, s->tensor.dim, sizeof s->tensor.dim);
    }
    return WD_OK;
}

/* Where the bytes of a stored tensor are counted. */
static uint64_t *count_of(wd_checkpoint_space *space, const stored *s)
{
    if (!s->params) return &space->other;
    if (!(s->params->kinds & WD_PARAMS_TRAINED)) return &space->snapshot;
    switch (parts[s->part].buffer) {
    case WD_PARAMS_P:
        return &space->weights;
    case WD_PARAMS_EMA:
        return &space->ema;
    default:
        return &space->moments;
    }
}

wd_status wd_checkpoint_space_of(wd_checkpoint_space *out, const wd_checkpoint_tensors *tensors,
                                 wd_err *err)
{
    wd_safetensors_item *items = NULL;
    stored *list = NULL;
    int64_t count = 0;
    wd_checkpoint_space space = {0};
    wd_status status;
    WD_TRY_OUT(list_file(&list, &items, &count, tensors, err));
    for (int64_t i = 0; i < count; i++)
        *count_of(&space, &list[i]) += wd_tensor_bytes(&list[i].tensor);
    WD_TRY_OUT(wd_safetensors_file_size(&space.file, items, count, NULL, err));
    *out = space;
out:
    wd_free(items);
    wd_free(list);
    return status;
}

/* *collected = how many of the networks' buffers it has brought together, whatever it returns. */
static wd_status write_tensors(const char *path, const wd_checkpoint_tensors *tensors,
                               int *collected, wd_queue *queue, wd_err *err)
{
    wd_safetensors_writer *writer = NULL;
    wd_safetensors_item *items = NULL;
    stored *list = NULL;
    char *staging = NULL;
    wd_status status = WD_OK;
    int64_t count = 0;
    WD_TRY_OUT(list_file(&list, &items, &count, tensors, err));
    WD_TRY_OUT(wd_alloc((void **)&staging, STAGING_BYTES, 1, "checkpoint staging", err));
    WD_TRY_OUT(wd_safetensors_create(&writer, path, items, count, NULL, err));
    for (int64_t i = 0; i < count; i++) {
        wd_params *params = list[i].params;
        if (params &&
            (i == 0 || params != list[i - 1].params || list[i].part != list[i - 1].part)) {
            wd_params_collect(params, parts[list[i].part].buffer, queue);
            (*collected)++;
        }
        WD_TRY_OUT(put_tensor(writer, &list[i].tensor, staging, queue, err));
    }
    status = wd_safetensors_finish(writer, err);
    writer = NULL;
out:
    wd_safetensors_abandon(writer);
    wd_free(staging);
    wd_free(items);
    wd_free(list);
    return status;
}

static wd_status write_state(const char *folder, int64_t step, const json_t *run, wd_err *err)
{
    char path[WD_PATH_MAX];
    WD_TRY(wd_path_join(path, folder, json_name, err));
    json_t *json = json_pack("{s:s, s:I, s:O}", "format", "wandistiller checkpoint 1", "step",
                             (json_int_t)step, "run", (json_t *)run);
    if (!json) return wd_fail(err, WD_OUT_OF_MEMORY, "%s: no memory to write it", path);
    wd_status status = wd_json_save(json, path, err);
    json_decref(json);
    return status;
}

static wd_status write_sums(const char *folder, wd_err *err)
{
    const char *const names[] = {state_name, json_name};
    char path[WD_PATH_MAX], hash[33], text[256];
    size_t used = 0;
    for (int i = 0; i < 2; i++) {
        WD_TRY(wd_path_join(path, folder, names[i], err));
        WD_TRY(wd_file_hash(hash, path, err));
        used = wd_append_text(text, sizeof text, used, "%s  %s\n", hash, names[i]);
    }
    WD_TRY(wd_path_join(path, folder, sums_name, err));
    return wd_file_write(path, text, used, err);
}

wd_status wd_checkpoint_write(const char *folder, int64_t step,
                              const wd_checkpoint_tensors *tensors, const json_t *run,
                              wd_queue *queue, wd_err *err)
{
    char path[WD_PATH_MAX], fresh[WD_PATH_MAX], state[WD_PATH_MAX];
    wd_status status;
    int collected = 0;
    *fresh = 0;
    WD_TRY_OUT(wd_checkpoint_folder_path(path, folder, "", step, err));
    WD_TRY_OUT(wd_folder_make(folder, err));
    WD_TRY_OUT(wd__checkpoint_folder_tidy(folder, err));
    WD_TRY_OUT(wd_checkpoint_folder_path(fresh, folder, WD_CHECKPOINT_UNFINISHED, step, err));
    WD_TRY_OUT(wd_path_join(state, fresh, state_name, err));
    WD_TRY_OUT(wd_folder_make(fresh, err));
    WD_TRY_OUT(write_tensors(state, tensors, &collected, queue, err));
    WD_TRY_OUT(write_state(fresh, step, run, err));
    WD_TRY_OUT(write_sums(fresh, err));
    WD_TRY_OUT(wd__folder_sync(fresh, err));
    WD_TRY_OUT(wd__folder_replace(path, fresh, err));
out:
    collect_rest(tensors, collected, queue);
    if (status != WD_OK) {
        if (*fresh) wd_folder_remove(fresh, NULL); /* what remains is removed by the next write */
        wd_fail_in(err, "checkpoint of step %" PRId64, step);
    }
    return status;
}

/* ---- opening ---- */

/* Reads checksums.xxh128, which has a line "hash  name" for each of the two files, and compares the
 * hashes with those of the files. */
static wd_status check_sums(const char *folder, wd_err *err)
{
    const char *const names[] = {state_name, json_name};
    char path[WD_PATH_MAX], expected[33], found[33], line[64];
    char *text = NULL;
    size_t bytes;
    wd_status status = WD_OK;
    WD_TRY(wd_path_join(path, folder, sums_name, err));
    WD_TRY(wd_file_read(&text, &bytes, path, SUMS_BYTES_MAX, err));
    for (int i = 0; i < 2; i++) {
        snprintf(line, sizeof line, "  %s\n", names[i]);
        const char *at = strstr(text, line);
        if (!at || at - text < 32) {
            status = wd_fail(err, WD_BAD_FORMAT, "%s: damaged: has no line for %s", path, names[i]);
            goto out;
        }
        snprintf(expected, sizeof expected, "%.32s", at - 32);
        WD_TRY_OUT(wd_path_join(path, folder, names[i], err));
        WD_TRY_OUT(wd_file_hash(found, path, err));
        if (strcmp(expected, found)) {
            status = wd_fail(err, WD_BAD_FORMAT, "%s: damaged: its hash is %s, but %s expects %s",
                             path, found, sums_name, expected);
            goto out;
        }
    }
out:
    wd_free(text);
    return status;
}

/* state.json of a checkpoint; *run is the caller's to json_decref. */
static wd_status read_state(int64_t *step, json_t **run, const char *path, wd_err *err)
{
    char name[WD_PATH_MAX];
    json_t *state = NULL;
    wd_status status = WD_OK;
    WD_TRY(wd_path_join(name, path, json_name, err));
    WD_TRY_OUT(wd_json_load(&state, name, err));
    wd_json_reader r = {state, name};
    const char *format = "";
    WD_TRY_OUT(wd_json_text(&format, r, "format", WD_JSON_REQUIRED, err));
    if (strcmp(format, "wandistiller checkpoint 1")) {
        status = wd_fail(err, WD_UNSUPPORTED,
                         "%s: format is \"%.*s\", this version reads \"wandistiller checkpoint 1\"",
                         name, WD_TERMINAL_SAFE(format, 60));
        goto out;
    }
    WD_TRY_OUT(wd_json_int(step, r, "step", 0, steps_max, WD_JSON_REQUIRED, err));
    json_t *object = json_object_get(state, "run");
    if (json_is_object(object))
        *run = json_incref(object);
    else
        status = wd_fail(err, WD_BAD_FORMAT, "%s: \"run\" is missing or not an object", name);
out:
    json_decref(state);
    return status;
}

static wd_status check_folder(const char *path, wd_err *err)
{
    struct stat info;
    const bool is_there = !stat(path, &info);
    if (!is_there && errno != ENOENT && errno != ENOTDIR)
        return wd_fail(err, WD_IO, "%s: cannot be read: %s", path, strerror(errno));
    if (is_there && S_ISDIR(info.st_mode)) return WD_OK;
    return wd_fail(err, WD_NOT_FOUND,
                   "%s: no such folder; a checkpoint is a folder such as "
                   "checkpoints/step-00000020",
                   path);
}

wd_status wd_checkpoint_hash(char out[33], const char *path, wd_err *err)
{
    char sums[WD_PATH_MAX];
    WD_TRY(wd_path_join(sums, path, sums_name, err));
    return wd_file_hash(out, sums, err);
}

wd_status wd_checkpoint_read_run(json_t **run, int64_t *step, const char *path, wd_err *err)
{
    int64_t unused;
    WD_TRY(check_folder(path, err));
    return read_state(step ? step : &unused, run, path, err);
}

wd_status wd_checkpoint_open(wd_checkpoint *out, const char *path, wd_err *err)
{
    wd_checkpoint checkpoint = {.step = -1};
    char name[WD_PATH_MAX];
    wd_status status;
    WD_TRY(check_folder(path, err));
    snprintf(checkpoint.path, sizeof checkpoint.path, "%s", path);
    WD_TRY_OUT(check_sums(path, err));
    WD_TRY_OUT(read_state(&checkpoint.step, &checkpoint.run, path, err));
    WD_TRY_OUT(wd_path_join(name, path, state_name, err));
    WD_TRY_OUT(wd_safetensors_open(&checkpoint.set, name, err));
out:
    if (status == WD_OK)
        *out = checkpoint;
    else
        wd_checkpoint_close(&checkpoint);
    return status;
}

void wd_checkpoint_close(wd_checkpoint *checkpoint)
{
    json_decref(checkpoint->run);
    wd_safetensors_close(checkpoint->set);
    *checkpoint = (wd_checkpoint){0};
}

/* ---- loading ---- */

/* Fills a weight in BF16 from one in F32, as earlier versions wrote those of snapshots. In the file
 * it need not be aligned. */
static wd_status load_cast(const wd_tensor *to, const wd_tensor *from, wd_queue *queue, wd_err *err)
{
    enum { PIECE = STAGING_BYTES / sizeof(float) };
    void *block;
    const int64_t count = wd_tensor_count(from);
    WD_TRY(wd_alloc(&block, PIECE, sizeof(float) + sizeof(uint16_t), "checkpoint staging", err));
    float *given = block;
    uint16_t *values = (uint16_t *)(given + PIECE);
    for (int64_t at = 0; at < count; at += PIECE) {
        const int64_t n = count - at < PIECE ? count - at : PIECE;
        memcpy(given, (const char *)from->data + (size_t)at * sizeof *given,
               (size_t)n * sizeof *given);
        for (int64_t k = 0; k < n; k++) values[k] = wd_f32_to_bf16(given[k]);
        wd_queue_copy_and_wait(queue, (uint16_t *)to->data + at, values,
                               (size_t)n * sizeof *values);
    }
    wd_free(block);
    return WD_OK;
}

/* `may_cast`: values in F32 may become BF16. */
static wd_status load_tensor(const wd_checkpoint *checkpoint, const char *name, wd_tensor *to,
                             bool may_cast, wd_queue *queue, wd_err *err)
{
    const wd_safetensors_entry *entry = wd_safetensors_find(checkpoint->set, name);
    if (!entry) {
        return wd_fail(err, WD_MISMATCH,
                       "%s has no tensor \"%s\"; it was written by a run with other options",
                       checkpoint->path, name);
    }
    const wd_tensor *from = &entry->tensor;
    const bool casts = may_cast && from->dtype == WD_F32 && to->dtype == WD_BF16;
    if ((from->dtype != to->dtype && !casts) || from->ndim != to->ndim ||
        memcmp(from->dim, to->dim, (size_t)to->ndim * sizeof *to->dim)) {
        char found[128], expected[128];
        return wd_fail(err, WD_MISMATCH,
                       "%s: tensor \"%s\" is %s %s, but this run needs %s %s; it was written by a "
                       "run with other options",
                       checkpoint->path, name, wd_dtype_file_name(from->dtype),
                       wd_dims_text(found, sizeof found, from->dim, from->ndim),
                       wd_dtype_file_name(to->dtype),
                       wd_dims_text(expected, sizeof expected, to->dim, to->ndim));
    }
    if (casts) return load_cast(to, from, queue, err);
    wd_queue_copy_and_wait(queue, to->data, from->data, wd_tensor_bytes(to));
    return WD_OK;
}

/* Whether the checkpoint has a buffer of the network. */
static bool has_part(const wd_checkpoint *checkpoint, const wd_params *params, int part)
{
    char name[NAME_MAX_BYTES];
    tensor_name(name, params, part, 0);
    return wd_safetensors_find(checkpoint->set, name) != NULL;
}

static wd_status load_network(const wd_checkpoint *checkpoint, wd_params *params, wd_queue *queue,
                              wd_err *err)
{
    for (int part = 0; part < PARTS; part++) {
        const wd_params_buffer buffer = parts[part].buffer;
        if (!has_buffer(params, buffer)) continue;
        const bool lacks = !has_part(checkpoint, params, part);
        if (lacks && buffer == WD_PARAMS_SLOW) continue; /* they are zero, as at the start */
        const int from = lacks && buffer == WD_PARAMS_EMA ? 0 : part; /* an EMA starts as a copy */
        wd_params_clear_whole(params, buffer, queue);
        for (int64_t line = 0; line < params->table.count; line++) {
            wd_tensor to = tensor_of(params, buffer, line);
            if (!wd_tensor_count(&to)) continue;
            char name[NAME_MAX_BYTES];
            tensor_name(name, params, from, line);
            WD_TRY(load_tensor(checkpoint, name, &to, !params->buffer[buffer], queue, err));
        }
        wd_params_take(params, buffer, queue);
    }
    if (params->buffer[WD_PARAMS_P]) wd_params_show(params, WD_PARAMS_P, queue);
    return WD_OK;
}

wd_status wd_checkpoint_load(const wd_checkpoint *checkpoint, const wd_checkpoint_tensors *tensors,
                             wd_queue *queue, wd_err *err)
{
    wd_status status = WD_OK;
    for (int k = 0; k < tensors->networks; k++)
        WD_TRY_OUT(load_network(checkpoint, tensors->params[k], queue, err));
    for (int64_t i = 0; i < tensors->others; i++) {
        wd_tensor to = tensors->other[i].tensor;
        WD_TRY_OUT(load_tensor(checkpoint, tensors->other[i].name, &to, false, queue, err));
    }
out:
    wd_queue_wait(queue); /* the mapped file may be closed now */
    return status;
}
