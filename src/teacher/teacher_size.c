/* Sizes of a teacher's stages: see teacher/teacher_size.h. They are those of the layouts that
 * residencies allocate (teacher/stage_layout.h). */
#include "teacher/teacher_size.h"

#include "core/require.h"

_Static_assert(WD_PLACED_STAGES_MAX == WD_DIT_LAYERS_MAX + 2, "every configuration has its places");

/* A stage as it is kept on a device that does not read host memory, and on one that does. */
static wd_status measure_stage(wd_stage_size *out, const wd_dit_config *config,
                               const wd_tensor_table *table, const wd_teacher_files *files,
                               int stage, wd_dtype storage, wd_err *err)
{
    wd_stage_layout device, host;
    WD_TRY(wd_stage_lay_out(&device, config, table, files, stage, storage, false, err));
    WD_TRY(wd_stage_lay_out(&host, config, table, files, stage, storage, true, err));
    *out = (wd_stage_size){.device = device.block_bytes,
                           .host = host.block_bytes,
                           .file = device.file_bytes,
                           .reading = device.reading_bytes,
                           .converting = device.converting_bytes,
                           .casting = device.staging_bytes,
                           .widened = device.widened_bytes};
    return WD_OK;
}

wd_status wd_teacher_size_of(wd_teacher_size *out, const wd_dit_config *config, int experts,
                             const wd_teacher_files *files, wd_dtype storage, wd_err *err)
{
    wd_tensor_table table;
    wd_status status = WD_OK;
    *out = (wd_teacher_size){.experts = experts, .stages = wd_dit_stages(config)};
    WD_REQUIRE(out->stages <= WD_PLACED_STAGES_MAX, "a teacher of %d stages", out->stages);
    WD_TRY(wd_dit_table_open(&table, config, err));
    for (int i = 0; i < experts * out->stages && status == WD_OK; i++) {
        const int e = i / out->stages, s = i % out->stages;
        status = measure_stage(&out->stage[e][s], config, &table, &files[e], s, storage, err);
    }
    wd_dit_table_close(&table);
    return status;
}
