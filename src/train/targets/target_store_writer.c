/* Writing stores of targets: see train/targets/target_store.h.
 *
 * Data flow: targets -> a file's worth of them in host memory -> a file. The folder is made, and
 * targets.json written, when the first file is. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/file_space.h"
#include "core/log.h"
#include "core/memory.h"
#include "io/tensors/safetensors.h"
#include "io/text/prompts.h"
#include "train/targets/target_store_impl.h"

struct wd_target_writer {
    wd_store_options options;
    wd_trajectory_options trajectory;
    int64_t state_count;
    int64_t first, count, capacity; /* targets in memory: number of the first, how many, room */
    bool ready;                     /* the folder is */
    bool ended;                     /* there was no space: no more is stored */
    uint16_t *targets;              /* [capacity, 2, state_count] bf16 */
    int64_t *prompt;                /* [capacity], as all that follows */
    float *sigma, *timestep;
    uint8_t *checksum; /* [capacity, 8] */
};

double wd_target_store_size(const wd_store_shape *shape, double targets)
{
    const double each = 2.0 * 2.0 * (double)wd_store_state_count(shape);
    return targets * (each + sizeof(int64_t) + 2 * sizeof(float) + WD_STORE_CHECKSUM_BYTES);
}

/* ---- the folder ---- */

static int is_foreign(const struct dirent *entry)
{
    return strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") &&
           strcmp(entry->d_name, "text"); /* of prompts' embeddings, which are made first */
}

wd_status wd_target_store_check_folder(const char *folder, bool resumed, wd_err *err)
{
    char path[WD_PATH_MAX];
    wd_folder_list list = {0};
    WD_TRY(wd_path_join(path, folder, WD_STORE_MANIFEST, err));
    if (wd_path_exists(path)) {
        if (resumed) return WD_OK; /* what it says is compared before anything is written */
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "--save_targets %s: it has the targets of another run, which stay as they "
                       "are: give another folder, train from them with --targets, or continue that "
                       "run with --resume; if it left no checkpoint, delete the folder",
                       folder);
    }
    if (resumed)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "--save_targets %s: expected the targets of the run that is resumed, found "
                       "no %s there: give the folder with which the run was begun",
                       folder, WD_STORE_MANIFEST);
    WD_TRY(wd_folder_list_open(&list, folder, is_foreign, NULL, err));
    const int others = list.count;
    wd_folder_list_close(&list);
    if (!others) return WD_OK;
    return wd_fail(err, WD_INVALID_ARGUMENT,
                   "--save_targets %s: expected a new or an empty folder, found %d other files in "
                   "it: give another folder",
                   folder, others);
}

/* *out = what targets.json says. */
static wd_status make_manifest(json_t **out, const wd_target_writer *w, wd_err *err)
{
    json_t *trajectory;
    const wd_store_shape *shape = &w->options.shape;
    WD_TRY(wd__store_trajectory_json(&trajectory, &w->trajectory, err));
    *out =
        json_pack("{s:s, s:[I, I, I], s:s, s:o, s:O?}", "format", WD_STORE_FORMAT, "latents",
                  (json_int_t)shape->channels, (json_int_t)shape->height, (json_int_t)shape->width,
                  "dtype", "bf16", "trajectory", trajectory, "run", w->options.run);
    return *out ? WD_OK : wd_fail(err, WD_OUT_OF_MEMORY, "no memory for %s", WD_STORE_MANIFEST);
}

/* Of a run that is resumed: the store is of the same targets. */
static wd_status compare_manifest(const char *path, const json_t *now, wd_err *err)
{
    json_t *then;
    WD_TRY(wd_json_load(&then, path, err));
    const bool same = json_equal(then, now);
    json_decref(then);
    if (same) return WD_OK;
    return wd_fail(err, WD_MISMATCH,
                   "%s: expected the targets of the run that is resumed, found those of another "
                   "one, which stay as they are: give --save_targets the folder with which the run "
                   "was begun",
                   path);
}

wd_status wd_target_store_check_resumed(const wd_store_options *options,
                                        const wd_trajectory_options *trajectory, wd_err *err)
{
    const wd_target_writer w = {.options = *options, .trajectory = *trajectory};
    char path[WD_PATH_MAX];
    json_t *manifest;
    WD_TRY(wd_path_join(path, options->folder, WD_STORE_MANIFEST, err));
    WD_TRY(make_manifest(&manifest, &w, err));
    const wd_status status = compare_manifest(path, manifest, err);
    json_decref(manifest);
    return status;
}

/* Writes the prompts as a file that --data_path can read. */
static wd_status write_prompts(const wd_target_writer *w, wd_err *err)
{
    char path[WD_PATH_MAX];
    WD_TRY(wd_path_join(path, w->options.folder, WD_STORE_PROMPTS, err));
    return wd_prompts_write(path, w->options.prompt, w->trajectory.prompts, err);
}

static int is_ours(const struct dirent *entry)
{
    return wd__store_is_file(entry) || !strcmp(entry->d_name, WD_STORE_PROMPTS);
}

/* Nothing that has come into the folder since the run began is replaced. */
static wd_status make_folder(const wd_target_writer *w, const char *path, const json_t *manifest,
                             wd_err *err)
{
    const char *folder = w->options.folder;
    wd_folder_list list;
    WD_TRY(wd_folder_make(folder, err));
    WD_TRY(wd_folder_list_open(&list, folder, is_ours, NULL, err));
    const int taken = list.count;
    wd_folder_list_close(&list);
    if (taken)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "--save_targets %s: another run has begun to write targets there meanwhile: "
                       "give each run a folder of its own",
                       folder);
    WD_TRY(write_prompts(w, err));
    return wd_json_save(manifest, path, err);
}

/* Removes the files from target w->first on, and finds out whether the store reaches up to it. */
static wd_status cut_files(wd_target_writer *w, wd_err *err)
{
    char path[WD_PATH_MAX];
    wd_target_store *store;
    wd_folder_list list;
    WD_TRY(wd_folder_list_open(&list, w->options.folder, wd__store_is_file, wd__store_file_order,
                               err));
    for (int i = 0; i < list.count; i++)
        if (wd__store_file_first(list.entry[i]->d_name) >= w->first &&
            wd_path_join(path, w->options.folder, list.entry[i]->d_name, NULL) == WD_OK)
            wd_file_abandon(path);
    wd_folder_list_close(&list);
    if (!w->first) return WD_OK;
    WD_TRY(wd_target_store_open(&store, w->options.folder, err));
    const int64_t count = wd_target_store_count(store);
    wd_target_store_close(store);
    w->ended = count != w->first;
    if (w->ended)
        wd_log(WD_LOG_WARNING,
               "%s: it ends before target %" PRId64
               ", with which this run goes on: no more targets "
               "are stored there",
               w->options.folder, w->first);
    return WD_OK;
}

static wd_status prepare(wd_target_writer *w, wd_err *err)
{
    wd_status status;
    char path[WD_PATH_MAX];
    json_t *manifest = NULL;
    WD_TRY(wd_path_join(path, w->options.folder, WD_STORE_MANIFEST, err));
    WD_TRY(make_manifest(&manifest, w, err));
    if (!w->first && !wd_path_exists(path))
        WD_TRY_OUT(make_folder(w, path, manifest, err));
    else
        WD_TRY_OUT(compare_manifest(path, manifest, err));
    status = cut_files(w, err);
    w->ready = status == WD_OK;
out:
    json_decref(manifest);
    return status;
}

/* ---- files ---- */

static wd_status write_file(const wd_target_writer *w, wd_err *err)
{
    wd_status status;
    wd_safetensors_writer *writer;
    char name[WD_STORE_NAME_MAX], path[WD_PATH_MAX];
    const wd_store_shape *shape = &w->options.shape;
    const int64_t n = w->count;
    const wd_safetensors_item item[] = {
        {"prompt", WD_I64, 1, {n}},
        {"sigma", WD_F32, 1, {n}},
        {"timestep", WD_F32, 1, {n}},
        {"targets", WD_BF16, 5, {n, 2, shape->channels, shape->height, shape->width}},
        {"checksum", WD_U8, 2, {n, WD_STORE_CHECKSUM_BYTES}}};
    const char *const metadata[] = {"format", WD_STORE_FORMAT, NULL};
    const size_t count = (size_t)n, state = (size_t)w->state_count;
    wd__store_file_name(name, w->first);
    WD_TRY(wd_path_join(path, w->options.folder, name, err));
    WD_TRY(wd_safetensors_create_unnamed(&writer, path, item, 5, metadata, err));
    WD_TRY_OUT(wd_safetensors_put(writer, w->prompt, count * sizeof *w->prompt, err));
    WD_TRY_OUT(wd_safetensors_put(writer, w->sigma, count * sizeof *w->sigma, err));
    WD_TRY_OUT(wd_safetensors_put(writer, w->timestep, count * sizeof *w->timestep, err));
    WD_TRY_OUT(wd_safetensors_put(writer, w->targets, 2 * count * state * sizeof *w->targets, err));
    WD_TRY_OUT(wd_safetensors_put(writer, w->checksum, count * WD_STORE_CHECKSUM_BYTES, err));
    return wd_safetensors_finish(writer, err);
out:
    wd_safetensors_abandon(writer);
    return status;
}

static wd_status write_all(wd_target_writer *w, wd_err *err)
{
    if (!w->ready) WD_TRY(prepare(w, err));
    return w->ended ? WD_OK : write_file(w, err);
}

wd_status wd__target_writer_flush(wd_target_writer *w, wd_err *err)
{
    wd_err why = {0};
    if (!w->count || w->ended) return WD_OK;
    wd_file_space_watch();
    const wd_status status = write_all(w, &why);
    if (status == WD_IO && wd_file_space_lacked()) {
        w->ended = true;
        wd_log(WD_LOG_WARNING,
               "%s; training goes on, but no more targets are stored: the store ends before target "
               "%" PRId64,
               why.message, w->first);
        return WD_OK;
    }
    if (status != WD_OK && err) *err = why;
    w->first += w->count;
    w->count = 0;
    return status;
}

wd_status wd__target_writer_put(wd_target_writer *w, const uint16_t *target, wd_err *err)
{
    const int64_t i = w->count, n = w->state_count;
    if (w->ended) return WD_OK;
    if (!wd__store_is_finite(target, 2 * n))
        return wd_fail(err, WD_NOT_FINITE,
                       "target %" PRId64 " of the teacher is not finite: its weights or its prompt "
                       "embeddings are damaged, or --teacher_dtype is too narrow for them, or the "
                       "student diverged, whose own steps lead to its states: lower --lr",
                       w->first + i);
    const wd_target_info info = wd__trajectory_target(&w->trajectory, w->first + i);
    memcpy(w->targets + 2 * i * n, target, 2 * (size_t)n * sizeof *target);
    w->sigma[i] = info.sigma;
    w->timestep[i] = info.timestep;
    w->prompt[i] = info.prompt;
    wd__store_checksum(w->checksum + i * WD_STORE_CHECKSUM_BYTES, target, n, info.sigma,
                       info.timestep, info.prompt);
    w->count++;
    return w->count < w->capacity ? WD_OK : wd__target_writer_flush(w, err);
}

/* ---- open and close ---- */

wd_status wd__target_writer_open(wd_target_writer **out, const wd_store_options *options,
                                 const wd_trajectory_options *trajectory, wd_err *err)
{
    wd_status status;
    wd_target_writer *w;
    const char *what = "targets to store";
    const int64_t state = wd_store_state_count(&options->shape);
    const int64_t bytes = 2 * state * (int64_t)sizeof(uint16_t), fit = WD_STORE_FILE_BYTES / bytes;
    const size_t capacity = fit < 1                       ? 1
                            : fit < WD_STORE_FILE_TARGETS ? (size_t)fit
                                                          : WD_STORE_FILE_TARGETS;
    WD_TRY(wd_alloc((void **)&w, 1, sizeof *w, what, err));
    *w = (wd_target_writer){.options = *options,
                            .trajectory = *trajectory,
                            .state_count = state,
                            .capacity = (int64_t)capacity};
    WD_TRY_OUT(wd_alloc((void **)&w->targets, capacity, (size_t)bytes, what, err));
    WD_TRY_OUT(wd_alloc((void **)&w->prompt, capacity, sizeof *w->prompt, what, err));
    WD_TRY_OUT(wd_alloc((void **)&w->sigma, capacity, sizeof *w->sigma, what, err));
    WD_TRY_OUT(wd_alloc((void **)&w->timestep, capacity, sizeof *w->timestep, what, err));
    WD_TRY_OUT(wd_alloc((void **)&w->checksum, capacity, WD_STORE_CHECKSUM_BYTES, what, err));
    *out = w;
out:
    if (status != WD_OK) wd__target_writer_close(w);
    return status;
}

void wd__target_writer_close(wd_target_writer *w)
{
    if (!w) return;
    void *blocks[] = {w->targets, w->prompt, w->sigma, w->timestep, w->checksum};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) wd_free(blocks[i]);
    wd_free(w);
}

void wd__target_writer_go_on(wd_target_writer *w, int64_t first)
{
    w->first = first;
    w->count = 0;
}
