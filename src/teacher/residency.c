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
