/* Sets of safetensors files: see io/tensors/safetensors.h.
 *
 * A set has the entries of all its files in one array sorted by name. An index names the shard of
 * each tensor; the headers of the shards must agree with it. A further file may replace some of a
 * set's tensors. */
#include "io/tensors/safetensors.h"

#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/text.h"
#include "io/file/file.h"
#include "io/file/hub.h"
#include "io/json/json.h"
#include "io/tensors/safetensors_impl.h"

static const char index_suffix[] = ".safetensors.index.json", file_suffix[] = ".safetensors";

/* ---- opening ---- */

static int by_name(const void *a, const void *b)
{
    const wd_safetensors_entry *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static wd_status sort(wd_safetensors *set, wd_err *err)
{
    qsort(set->entry, (size_t)set->count, sizeof *set->entry, by_name);
    for (int64_t i = 1; i < set->count; i++) {
        const wd_safetensors_entry *e = &set->entry[i];
        if (strcmp(e->name, e[-1].name)) continue;
        if (!strcmp(e->file, e[-1].file))
            return wd_fail(err, WD_BAD_FORMAT,
                           "%s: tensors \"%s\" and \"%s\" are two names of \"%s\": expected one of "
                           "them",
                           e->file, e[-1].stored, e->stored, e->name);
        return wd_fail(err, WD_BAD_FORMAT, "tensor \"%s\" is in both %s and %s", e->name,
                       e[-1].file, e->file);
    }
    return WD_OK;
}

/* Gathers the entries of the open files. */
static wd_status merge(wd_safetensors *set, wd_err *err)
{
    void *block;
    int64_t count = 0;
    for (int64_t i = 0; i < set->files; i++) count += set->file[i].count;
    WD_TRY(wd_alloc(&block, (size_t)count, sizeof *set->entry, "a list of tensors", err));
    set->entry = block;
    for (int64_t i = 0; i < set->files; i++) {
        size_t bytes = (size_t)set->file[i].count * sizeof *set->entry;
        if (bytes) memcpy(set->entry + set->count, set->file[i].entry, bytes);
        set->count += set->file[i].count;
    }
    return sort(set, err);
}

/* Lists the distinct shards of a weight_map: the caller frees the list with wd_free; the names in
 * it are borrowed and sorted. */
static wd_status list_shards(const char ***names, int64_t *count, json_t *weight_map,
                             const char *index_path, wd_err *err)
{
    const char *tensor;
    json_t *value;
    void *block;
    int64_t n = 0, distinct = 0;
    WD_TRY(wd_alloc(&block, json_object_size(weight_map), sizeof **names, "a list of shards", err));
    const char **list = block;
    json_object_foreach(weight_map, tensor, value)
    {
        const char *shard = json_string_value(value);
        const char *wrong = NULL;
        if (!shard)
            wrong = "is not a string";
        else if (wd_terminal_safe_bytes(shard, strlen(shard), INT_MAX) < (int)strlen(shard))
            wrong = "has a control character";
        else if (strchr(shard, '/') || !strcmp(shard, ".."))
            wrong = "is not a plain file name";
        else if (!wd_ends_with(shard, file_suffix))
            wrong = "is not a .safetensors file";
        if (wrong) {
            wd_free(block);
            return wd_fail(err, WD_BAD_FORMAT, "%s: shard \"%.*s\" of tensor \"%.*s\" %s",
                           index_path, WD_TERMINAL_SAFE(shard ? shard : "?", 200),
                           WD_TERMINAL_SAFE(tensor, 200), wrong);
        }
        list[n++] = shard;
    }
    qsort(list, (size_t)n, sizeof *list, by_text);
    for (int64_t i = 0; i < n; i++) {
        if (i == 0 || strcmp(list[i], list[i - 1])) list[distinct++] = list[i];
    }
    *names = list;
    *count = distinct;
    return WD_OK;
}

/* Every tensor of the weight_map must be in the shard that it names. */
static wd_status check_weight_map(const wd_safetensors *set, json_t *weight_map,
                                  const char *index_path, wd_err *err)
{
    const char *tensor;
    json_t *value;
    json_object_foreach(weight_map, tensor, value)
    {
        const wd_safetensors_entry *entry = wd_safetensors_find(set, tensor);
        const char *shard = json_string_value(value);
        if (!entry)
            return wd_fail(err, WD_NOT_FOUND, "%s: tensor \"%.*s\" is missing in shard \"%.*s\"",
                           index_path, WD_TERMINAL_SAFE(tensor, 200), WD_TERMINAL_SAFE(shard, 200));
        if (strcmp(wd_path_name(entry->file), shard))
            return wd_fail(err, WD_BAD_FORMAT,
                           "%s: tensor \"%s\" is said to be in \"%.*s\", but is in %s", index_path,
                           entry->name, WD_TERMINAL_SAFE(shard, 200), entry->file);
    }
    return WD_OK;
}

static wd_status open_index(wd_safetensors *set, const char *path, wd_err *err)
{
    json_t *index = NULL;
    const char **shards = NULL;
    char shard_path[WD_PATH_MAX];
    int64_t count = 0;
    void *block;
    wd_status status;
    WD_TRY_OUT(wd_json_load(&index, path, err));
    json_t *weight_map = json_object_get(index, "weight_map");
    if (!json_is_object(weight_map) || json_object_size(weight_map) == 0) {
        status = wd_fail(err, WD_BAD_FORMAT,
                         "%s: \"weight_map\" is missing, empty or not an object", path);
        goto out;
    }
    WD_TRY_OUT(list_shards(&shards, &count, weight_map, path, err));
    WD_TRY_OUT(wd_alloc(&block, (size_t)count, sizeof *set->file, "a list of files", err));
    set->file = block;
    for (int64_t i = 0; i < count; i++) {
        WD_TRY_OUT(wd_path_beside(shard_path, path, shards[i], err));
        status = wd__safetensors_file_open(&set->file[i], shard_path, err);
        if (status == WD_NOT_FOUND)
            wd_fail_in(err, "%s: shard %.*s is missing", path, WD_TERMINAL_SAFE(shards[i], 200));
        if (status != WD_OK) goto out;
        set->files++;
    }
    WD_TRY_OUT(merge(set, err));
    WD_TRY_OUT(check_weight_map(set, weight_map, path, err));
out:
    wd_free(shards);
    json_decref(index);
    return status;
}

static wd_status open_single(wd_safetensors *set, const char *path, wd_err *err)
{
    void *block;
    WD_TRY(wd_alloc(&block, 1, sizeof *set->file, "a list of files", err));
    set->file = block;
    WD_TRY(wd__safetensors_file_open(&set->file[0], path, err));
    set->files = 1;
    return merge(set, err);
}

wd_status wd_safetensors_open(wd_safetensors **out, const char *path, wd_err *err)
{
    void *block;
    WD_TRY(wd_alloc(&block, 1, sizeof(wd_safetensors), "a set of tensors", err));
    wd_safetensors *set = block;
    wd_status status =
        wd_ends_with(path, ".json") ? open_index(set, path, err) : open_single(set, path, err);
    if (status != WD_OK) {
        wd_safetensors_close(set);
        return status;
    }
    *out = set;
    return WD_OK;
}

bool wd_safetensors_is_shard(const char *path)
{
    enum { TAIL = sizeof "-00001-of-00014.safetensors" - 1 };
    const size_t length = strlen(path);
    int end = 0, shards = 0;
    if (length < TAIL) return false;
    sscanf(path + length - TAIL, "-%*5d-of-%5d.safetensors%n", &shards, &end);
    return end == TAIL && shards > 1;
}

/* Shards are there, and the index that says which tensor is in which of them is not. */
static wd_status no_index(const char *folder, const char *stem, const char *shard, wd_err *err)
{
    char path[WD_PATH_MAX], name[256], advice[WD_PATH_MAX];
    snprintf(name, sizeof name, "%s%s", stem, index_suffix);
    WD_TRY(wd_path_join(path, folder, name, err));
    return wd_fail(
        err, WD_NOT_FOUND,
        "%s: is missing, the index of shards such as \"%s\" there: download it from where "
        "they are published%s",
        path, shard, wd_hub_advice(advice, sizeof advice, path, NULL));
}

/* Fails with the names of the missing files, and names what exists instead: a variant, or weights
 * in another format. */
static wd_status not_found(const char *folder, const char *stem, wd_err *err)
{
    char found[256] = "", shard[256] = "";
    size_t length = strlen(stem);
    DIR *dir = opendir(folder);
    struct dirent *item;
    while (dir && (item = readdir(dir))) {
        const char *name = item->d_name;
        bool variant = !strncmp(name, stem, length) && name[length] == '.';
        if (!strncmp(name, stem, length) && name[length] == '-' && wd_safetensors_is_shard(name))
            snprintf(shard, sizeof shard, "%s", name);
        bool other = wd_ends_with(name, file_suffix) || wd_ends_with(name, ".bin") ||
                     wd_ends_with(name, ".pt") || wd_ends_with(name, ".pth") ||
                     wd_ends_with(name, ".gguf");
        if (variant || other) snprintf(found, sizeof found, "%s", name);
        if (variant) break;
    }
    if (dir) closedir(dir);
    if (*shard) return no_index(folder, stem, shard, err);
    return wd_fail(err, WD_NOT_FOUND, "%s: has neither %s%s nor %s%s%s%s%s%s", folder, stem,
                   index_suffix, stem, file_suffix,
                   found[0] ? "; it has \""
                   : dir    ? ""
                            : " (there is no such folder)",
                   found,
                   found[0] ? "\", which is not used: only safetensors of the main variant is" : "",
                   found[0] ? " (rename it, or convert it)" : "");
}

wd_status wd_safetensors_open_stem(wd_safetensors **out, const char *folder, const char *stem,
                                   wd_err *err)
{
    char path[WD_PATH_MAX], name[256];
    const char *const suffixes[] = {index_suffix, file_suffix};
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "%s%s", stem, suffixes[i]);
        WD_TRY(wd_path_join(path, folder, name, err));
        /* A dangling link is not skipped, so that open reports it. */
        if (!access(path, F_OK) || readlink(path, name, 1) > 0)
            return wd_safetensors_open(out, path, err);
    }
    return not_found(folder, stem, err);
}

void wd_safetensors_close(wd_safetensors *set)
{
    if (!set) return;
    for (int64_t i = 0; i < set->files; i++) wd__safetensors_file_close(&set->file[i]);
    wd_free(set->file);
    wd_free(set->names);
    wd_free(set->entry);
    wd_free(set->scale);
    wd_free(set->expected_scale);
    wd_free(set);
}

/* ---- what a set has ---- */

int64_t wd_safetensors_count(const wd_safetensors *set)
{
    return set->count;
}

const wd_safetensors_entry *wd_safetensors_at(const wd_safetensors *set, int64_t i)
{
    return &set->entry[i];
}

const wd_safetensors_entry *wd_safetensors_find(const wd_safetensors *set, const char *name)
{
    wd_safetensors_entry key = {.name = name};
    if (!set->count) return NULL;
    return bsearch(&key, set->entry, (size_t)set->count, sizeof key, by_name);
}

wd_status wd_safetensors_rename(wd_safetensors *set, const char *const *names, wd_err *err)
{
    size_t bytes = 0;
    void *block;
    for (int64_t i = 0; i < set->count; i++)
        bytes += strlen(names[i] ? names[i] : set->entry[i].name) + 1;
    WD_TRY(wd_alloc(&block, bytes, 1, "tensor names", err));
    char *next = block;
    for (int64_t i = 0; i < set->count; i++) {
        const char *name = names[i] ? names[i] : set->entry[i].name;
        const size_t length = strlen(name) + 1;
        memcpy(next, name, length);
        set->entry[i].name = next;
        next += length;
    }
    wd_free(set->names);
    set->names = block;
    return sort(set, err);
}

int64_t wd_safetensors_file_count(const wd_safetensors *set)
{
    return set->files;
}

const char *wd_safetensors_file_at(const wd_safetensors *set, int64_t i)
{
    return set->file[i].path;
}

uint64_t wd_safetensors_file_bytes(const wd_safetensors *set)
{
    uint64_t bytes = 0;
    for (int64_t i = 0; i < set->files; i++) bytes += set->file[i].bytes;
    return bytes;
}

const char *wd_safetensors_metadata(const wd_safetensors *set, const char *key)
{
    return set->files ? json_string_value(json_object_get(set->file[0].metadata, key)) : NULL;
}

/* ---- the shapes that a model expects ---- */

/* Whether `t` has the shape with dimensions that follow one another as one, and with or without
 * dimensions of 1. */
static bool is_merged(const wd_tensor *t, const wd_tensor_spec *spec)
{
    int d = 0;
    for (int i = 0; i < t->ndim; i++) {
        int64_t product = 1;
        while (product < t->dim[i] && d < spec->ndim)
            if (__builtin_mul_overflow(product, spec->dim[d++], &product)) return false;
        if (product != t->dim[i]) return false;
    }
    while (d < spec->ndim)
        if (spec->dim[d++] != 1) return false;
    return true;
}

static bool same_shape(const wd_safetensors_entry *e, const wd_tensor_spec *spec)
{
    const wd_tensor *t = &e->tensor;
    if (e->merges_dims) return is_merged(t, spec);
    return t->ndim == spec->ndim &&
           !memcmp(t->dim, spec->dim, (size_t)spec->ndim * sizeof *spec->dim);
}

static void set_shape(wd_tensor *t, const wd_tensor_spec *spec)
{
    t->ndim = spec->ndim;
    memcpy(t->dim, spec->dim, sizeof t->dim);
}

void wd_safetensors_take_shape(wd_safetensors *set, int64_t i, const wd_tensor_spec *spec)
{
    wd_safetensors_entry *e = &set->entry[i];
    if (same_shape(e, spec)) set_shape(&e->tensor, spec);
}

wd_status wd_safetensors_expect(wd_tensor *out, const wd_safetensors *set,
                                const wd_tensor_spec *spec, wd_err *err)
{
    char expected[128], found[128];
    const wd_safetensors_entry *entry = wd_safetensors_find(set, spec->name);
    wd_dims_text(expected, sizeof expected, spec->dim, spec->ndim);
    if (!entry)
        return wd_fail(err, WD_NOT_FOUND,
                       "%s%s: tensor \"%s\" is missing, expected with shape %s; the checkpoint is "
                       "incomplete or of another architecture",
                       set->file[0].path, set->files > 1 ? " and its other shards" : "", spec->name,
                       expected);
    const wd_tensor *tensor = &entry->tensor;
    const char *name = entry->stored;
    if (!same_shape(entry, spec))
        return wd_fail(err, WD_MISMATCH, "%s: tensor \"%s\": expected shape %s, found %s",
                       entry->file, name, expected,
                       wd_dims_text(found, sizeof found, tensor->dim, tensor->ndim));
    if (tensor->dtype != WD_F32 && tensor->dtype != WD_F16 && tensor->dtype != WD_BF16 &&
        !entry->scaled)
        return wd_fail(err, WD_UNSUPPORTED,
                       "%s: tensor \"%s\": expected dtype F32, F16 or BF16, found %s", entry->file,
                       name, wd_dtype_file_name(tensor->dtype));
    *out = *tensor;
    set_shape(out, spec);
    return WD_OK;
}

/* ---- pages in memory ---- */

void wd_safetensors_will_need(const wd_safetensors_entry *entry)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)entry->tensor.data;
    uintptr_t end = begin + wd_tensor_bytes(&entry->tensor);
    begin -= begin % page; /* the first page is needed as a whole */
    if (end > begin) madvise((void *)begin, end - begin, MADV_WILLNEED);
}

void wd_safetensors_dont_need(const wd_safetensors_entry *entry)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)entry->tensor.data;
    uintptr_t end = begin + wd_tensor_bytes(&entry->tensor);
    begin += (page - begin % page) % page; /* the first page may have other tensors on it */
    end -= end % page;
    if (end > begin) madvise((void *)begin, end - begin, MADV_DONTNEED);
}

void wd__safetensors_will_skip(const wd_safetensors *set, bool skip)
{
    for (int64_t i = 0; i < set->files; i++)
        madvise(set->file[i].map, set->file[i].bytes, skip ? MADV_RANDOM : MADV_NORMAL);
}

/* ---- a file whose tensors replace some of the set ---- */

/* Replaces an entry of the set by that of the same name, which the set's name stays with. */
static wd_status replace(wd_safetensors *set, const wd_safetensors_entry *by, wd_err *err)
{
    const wd_safetensors_entry *found = wd_safetensors_find(set, by->name);
    if (!found)
        return wd_fail(err, WD_MISMATCH, "%s: tensor \"%s\" is not one of the %" PRId64 " of %s",
                       by->file, by->name, set->count, set->file[0].path);
    wd_safetensors_entry *entry = &set->entry[found - set->entry];
    const char *name = entry->name;
    *entry = *by;
    entry->name = name;
    return WD_OK;
}

/* The file's scales find their weights, and no quantised weight of the file is without one. */
static wd_status pair_scales(wd_safetensors *set, const wd_safetensors_file *file, wd_err *err)
{
    size_t base;
    for (int64_t i = 0; i < file->count; i++)
        if (wd__safetensors_is_scale(file->entry[i].name, &base))
            WD_TRY(wd__safetensors_pair(set, &file->entry[i], base, err));
    for (int64_t i = 0; i < file->count; i++) {
        const wd_safetensors_entry *e = &file->entry[i];
        if (!wd_dtype_is_quantised(e->tensor.dtype)) continue;
        if (!wd_safetensors_find(set, e->name)->scaled)
            return wd_fail(err, WD_BAD_FORMAT,
                           "%s: tensor \"%s\" is quantised (%s), and its scale is missing", e->file,
                           e->name, wd_dtype_file_name(e->tensor.dtype));
    }
    return WD_OK;
}

wd_status wd_safetensors_overlay(wd_safetensors *set, const char *path, wd_err *err)
{
    void *block = set->file;
    size_t base;
    WD_TRY(wd_resize(&block, (size_t)set->files + 1, sizeof *set->file, "a list of files", err));
    set->file = block;
    wd_safetensors_file *file = &set->file[set->files];
    WD_TRY(wd__safetensors_file_open(file, path, err));
    set->files++;
    for (int64_t i = 0; i < file->count; i++)
        if (!wd__safetensors_is_scale(file->entry[i].name, &base))
            WD_TRY(replace(set, &file->entry[i], err));
    return pair_scales(set, file, err);
}

wd_status wd_safetensors_expect_overlay(wd_safetensors *set, int64_t i, wd_dtype dtype, wd_err *err)
{
    wd_safetensors_entry *entry = &set->entry[i];
    wd_tensor *t = &entry->tensor;
    t->data = NULL;
    t->dtype = dtype;
    t->scales = (wd_scales){0};
    entry->scale = NULL;
    entry->unaligned = entry->scaled = false;
    if (!wd_dtype_is_quantised(dtype)) return WD_OK;
    if (!set->expected_scale) {
        void *block;
        WD_TRY(wd_alloc(&block, (size_t)set->count, sizeof *entry, "a list of scales", err));
        set->expected_scale = block;
    }
    wd_safetensors_entry *scale = &set->expected_scale[i];
    *scale = (wd_safetensors_entry){
        .name = entry->name,
        .file = entry->file,
        .tensor = {.dtype = WD_F32, .ndim = 2, .dim = {t->dim[0], 1}},
    };
    t->scales = (wd_scales){.dtype = WD_F32, .rows = t->dim[0], .columns = 1};
    entry->scale = scale;
    entry->scaled = true;
    return WD_OK;
}
