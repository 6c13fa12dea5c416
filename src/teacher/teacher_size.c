/* Sizes of a teacher's stages: see teacher/teacher_size.h. They are sums of what
 * teacher/stage_layout.h says of each tensor, as layouts are, which residencies allocate. */
#include "teacher/teacher_size.h"

#include "core/require.h"
#include "teacher/host_copy.h"

_Static_assert(WD_PLACED_STAGES_MAX == WD_DIT_LAYERS_MAX + 2, "every configuration has its places");

/* Adds a part of a stage, as it is kept on a device that does not read host memory, and on one that
 * does. */
static void add_part(wd_stage_size *size, wd_kept_tensor device, wd_kept_tensor host)
{
    size->device += device.room;
    size->file += device.file;
    size->reading += device.reading;
    size->widened += device.widened;
    size->host += host.room;
    size->converting += device.converting;
    wd_placed_most(&size->casting, device.staging);
    wd_placed_most(&size->host_casting, host.staging);
}

/* Adds a tensor as the file has it, if it has it. Where there are no files yet those that will come
 * are taken to be aligned. */
static void add_tensor(wd_stage_size *size, const wd_tensor_spec *spec,
                       const wd_teacher_files *files, wd_dtype storage)
{
    const wd_stage_keeping device = {.storage = storage}, host = wd_host_keeping(storage);
    wd_dtype dtype = spec->keep_f32 ? WD_F32 : files->dtype;
    bool unaligned = false;
    const wd_safetensors_entry *entry =
        files->weights ? wd_safetensors_find(files->weights, spec->name) : NULL;
    if (files->weights ? !entry : spec->may_miss) return;
    if (entry) {
        dtype = entry->tensor.dtype;
        unaligned = entry->unaligned;
    }
    const bool quantises = !entry && wd_overlay_quantises(spec, dtype, files->quantised);
    if (quantises) dtype = files->quantised;
    add_part(size, wd_stage_keep(spec, dtype, unaligned, device),
             wd_stage_keep(spec, dtype, unaligned, host));
    const wd_safetensors_entry by_row = {
        .tensor = {.dtype = WD_F32, .ndim = 2, .dim = {spec->dim[0], 1}}};
    const wd_safetensors_entry *scale = entry ? entry->scale : quantises ? &by_row : NULL;
    if (!scale) return;
    add_part(size, wd_stage_keep_scales(scale, device), wd_stage_keep_scales(scale, host));
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
            for (int i = 0; i < wd_dit_stage_slots(config, s); i++)
                add_tensor(&out->stage[e][s], &table.spec[first + i], &files[e], storage);
        }
    wd_dit_table_close(&table);
    return WD_OK;
}
