/* Sizes of a teacher's stages: see teacher/teacher_size.h. They are those of the layouts that
 * residencies allocate (teacher/stage_layout.h). */
#include "teacher/teacher_size.h"

#include "core/require.h"

_Static_assert(WD_PLACED_STAGES_MAX == WD_DIT_LAYERS_MAX + 2, "every configuration has its places");

wd_status wd_teacher_size_of(wd_teacher_size *out, const wd_dit_config *config, int experts,
                             const wd_teacher_files *files, wd_dtype storage, wd_err *err)
{
    wd_tensor_table table;
    wd_stage_layout layout;
    wd_status status = WD_OK;
    *out = (wd_teacher_size){.experts = experts, .stages = wd_dit_stages(config)};
    WD_REQUIRE(out->stages <= WD_PLACED_STAGES_MAX, "a teacher of %d stages", out->stages);
    WD_TRY(wd_dit_table_open(&table, config, err));
    for (int i = 0; i < experts * out->stages && status == WD_OK; i++) {
        const int e = i / out->stages, s = i % out->stages;
        status = wd_stage_lay_out(&layout, config, &table, &files[e], s, storage, false, err);
        out->stage[e][s] = layout.size;
    }
    wd_dit_table_close(&table);
    return status;
}
