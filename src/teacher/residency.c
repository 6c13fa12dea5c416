/* Residencies: see teacher/residency.h. */
#include "teacher/residency.h"

#include "core/require.h"

void wd_residency_begin(wd_residency *residency, wd_sweep_experts sweep, wd_sweep_experts next)
{
    if (residency->vtable->begin) residency->vtable->begin(residency, sweep, next);
}

static void require_stage(const wd_residency *residency, int expert, int stage)
{
    WD_REQUIRE(expert >= 0 && expert < residency->experts && stage >= 0 &&
                   stage < residency->stages,
               "stage %d of expert %d, of %d stages and %d experts", stage, expert,
               residency->stages, residency->experts);
}

wd_status wd_residency_acquire(wd_residency *residency, wd_dit_stage *out, int expert, int stage,
                               wd_queue *queue, wd_err *err)
{
    require_stage(residency, expert, stage);
    residency->acquires++;
    return residency->vtable->acquire(residency, out, expert, stage, queue, err);
}

void wd_residency_release(wd_residency *residency, int expert, int stage, wd_queue *queue)
{
    require_stage(residency, expert, stage);
    residency->vtable->release(residency, expert, stage, queue);
}

void wd_residency_close(wd_residency *residency)
{
    if (residency) residency->vtable->close(residency);
}

/* ---- what all kinds share ---- */

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
