/* Parts of a teacher: see teacher/residency_part.h. */
#include "teacher/residency_part.h"

int wd_teacher_experts(const wd_pipeline *pipeline)
{
    return pipeline->boundary_ratio > 0 && pipeline->has[WD_COMPONENT_TRANSFORMER_2] ? 2 : 1;
}

bool wd_residency_part_has(const wd_residency_part *part, int expert, int stage)
{
    if (!part) return true;
    const wd_place *place = &part->placement->place[expert][stage];
    return place->home == part->home && place->device == part->device;
}

wd_progress_part wd_residency_loading(const wd_residency *residency, const wd_residency_part *part)
{
    int64_t stages = 0;
    for (int e = 0; e < residency->experts; e++)
        for (int s = 0; s < residency->stages; s++) stages += wd_residency_part_has(part, e, s);
    return wd_progress_begin("loading weights", "part", 0, stages);
}

wd_dtype wd_teacher_compute_dtype(wd_dtype storage)
{
    return storage == WD_BF16 ? WD_BF16 : WD_F32;
}
