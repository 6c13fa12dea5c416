/* Tensors of a set that lie in another file: see wd_safetensors_overlay. */
#include <inttypes.h>

#include "core/memory.h"
#include "io/tensors/safetensors_impl.h"

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
        if (wd_safetensors_is_scale(file->entry[i].name, &base))
            WD_TRY(wd_safetensors_pair(set, &file->entry[i], base, err));
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
    WD_TRY(wd_safetensors_file_open(file, path, err));
    set->files++;
    for (int64_t i = 0; i < file->count; i++)
        if (!wd_safetensors_is_scale(file->entry[i].name, &base))
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
