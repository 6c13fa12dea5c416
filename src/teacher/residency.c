/* Residencies: see teacher/residency.h. */
#include "teacher/residency.h"

#include <assert.h>

void wd_residency_begin(wd_residency *residency, wd_sweep_experts sweep, unsigned next)
{
    if (residency->vtable->begin) residency->vtable->begin(residency, sweep, next);
}

void wd_residency_prefetch(wd_residency *residency, int expert, int stage)
{
    assert(expert < residency->experts && stage < residency->stages);
    residency->vtable->prefetch(residency, expert, stage);
}

wd_status wd_residency_acquire(wd_residency *residency, wd_dit_stage *out, int expert, int stage,
                               wd_queue *queue, wd_err *err)
{
    assert(expert < residency->experts && stage < residency->stages);
    residency->acquires++;
    return residency->vtable->acquire(residency, out, expert, stage, queue, err);
}

void wd_residency_release(wd_residency *residency, int expert, int stage, wd_queue *queue)
{
    residency->vtable->release(residency, expert, stage, queue);
}

void wd_residency_close(wd_residency *residency)
{
    if (residency) residency->vtable->close(residency);
}
