/* Sizes of a teacher's stages: see teacher/teacher_size.h. What is added up here is what
 * teacher/stage_layout.c lays out, and the residencies allocate. */
#include "teacher/teacher_size.h"

#include "core/checked.h"
#include "core/require.h"

enum { ALIGN = 64 };

_Static_assert(WD_PLACED_STAGES_MAX == WD_DIT_LAYERS_MAX + 2, "every configuration has its places");

static size_t bytes_as(const wd_tensor_spec *spec, wd_dtype dtype)
{
    size_t count = 1;
    for (int i = 0; i < spec->ndim; i++) count *= (size_t)spec->dim[i];
    return count * wd_dtype_bytes(dtype);
}

/* The dtype that the file has a tensor in; false: the file has none. */
static bool file_dtype(wd_dtype *out, const wd_tensor_spec *spec, const wd_teacher_files *files)
{
    *out = spec->keep_f32 ? WD_F32 : files->dtype;
    if (!files->weights) return !spec->may_miss;
    const wd_safetensors_entry *entry = wd_safetensors_find(files->weights, spec->name);
    if (entry) *out = entry->tensor.dtype;
    return entry;
}

static void add_tensor(wd_stage_size *size, const wd_tensor_spec *spec, wd_dtype file,
                       wd_dtype storage)
{
    wd_dtype stored = wd_spec_dtype(spec, storage);
    size_t file_bytes = bytes_as(spec, file);
    size_t bytes = bytes_as(spec, stored), stored_bytes = wd_round_up(bytes, ALIGN);
    wd_dtype computed = stored == WD_F16 ? WD_F32 : stored;
    size->device += stored_bytes;
    size->padding += stored_bytes - bytes;
    size->file += file_bytes;
    size->reading += wd_round_up(file_bytes, ALIGN);
    if (storage == WD_F16) size->widened += wd_round_up(bytes_as(spec, computed), ALIGN);
    if (file == stored) return;
    size->host += stored_bytes;
    size->converting += wd_round_up(file_bytes, ALIGN);
    if (file_bytes > size->casting) size->casting = file_bytes;
}

wd_status wd_teacher_size_of(wd_teacher_size *out, const wd_dit_config *config, int experts,
                             const wd_teacher_files *files, wd_dtype storage, wd_err *err)
{
    wd_tensor_table table;
    *out = (wd_teacher_size){.experts = experts, .stages = wd_dit_stages(config)};
    WD_REQUIRE(out->stages <= WD_PLACED_STAGES_MAX, "a teacher of %d stages", out->stages);
    WD_TRY(wd_dit_table_open(&table, config, err));
    for (int e = 0; e < experts; e++)
        for (int s = 0; s < out->stages; s++) {
            int64_t first = wd_dit_stage_first(config, s);
            for (int i = 0; i < wd_dit_stage_slots(config, s); i++) {
                wd_dtype file;
                const wd_tensor_spec *spec = &table.spec[first + i];
                if (file_dtype(&file, spec, &files[e]))
                    add_tensor(&out->stage[e][s], spec, file, storage);
            }
        }
    wd_dit_table_close(&table);
    return WD_OK;
}
