/* Residencies of one part of a teacher, and of a placement: these are made of parts
 * (teacher/residency_part.h), one for each device of this rank and home of weights that has stages.
 */
#include "teacher/residency_kinds.h"

#include "core/memory.h"
#include "teacher/residency_part.h"

/* ---- one part ---- */

static wd_status open_on(wd_residency **out, const wd_pipeline *pipeline, const wd_component *only,
                         wd_dtype storage, wd_queue *queue, wd_err *err)
{
    const wd_residency_part_options o = {.pipeline = pipeline,
                                         .only = only,
                                         .home = WD_HOME_DEVICE,
                                         .storage = storage,
                                         .device = wd_queue_device(queue),
                                         .filler = queue};
    return wd_residency_part_open(out, &o, err);
}

wd_status wd_residency_open_resident(wd_residency **out, const wd_pipeline *pipeline,
                                     wd_dtype storage, wd_queue *queue, wd_err *err)
{
    return open_on(out, pipeline, NULL, storage, queue, err);
}

wd_status wd_residency_open_component(wd_residency **out, const wd_pipeline *pipeline,
                                      wd_component component, wd_dtype storage, wd_queue *queue,
                                      wd_err *err)
{
    return open_on(out, pipeline, &component, storage, queue, err);
}

/* ---- all parts of a placement ---- */

typedef struct placed {
    wd_residency base;
    wd_placement placement;
    wd_residency *part[WD_PLACED_DEVICES_MAX][WD_HOMES]; /* NULL: no stage is there */
} placed;

static wd_residency *part_of(wd_residency *self, int expert, int stage)
{
    placed *p = (placed *)self;
    const wd_place *place = &p->placement.place[expert][stage];
    return p->part[wd_placed_local(&p->placement, place->device)][place->home];
}

static void placed_begin(wd_residency *self, wd_sweep_experts sweep, wd_sweep_experts next)
{
    placed *p = (placed *)self;
    for (int d = 0; d < WD_PLACED_DEVICES_MAX; d++)
        for (int h = 0; h < WD_HOMES; h++)
            if (p->part[d][h]) wd_residency_begin(p->part[d][h], sweep, next);
}

static wd_status placed_acquire(wd_residency *self, wd_dit_stage *out, int expert, int stage,
                                wd_queue *queue, wd_err *err)
{
    return wd_residency_acquire(part_of(self, expert, stage), out, expert, stage, queue, err);
}

static void placed_release(wd_residency *self, int expert, int stage, wd_queue *queue)
{
    wd_residency_release(part_of(self, expert, stage), expert, stage, queue);
}

static void placed_close(wd_residency *self)
{
    placed *p = (placed *)self;
    for (int d = 0; d < WD_PLACED_DEVICES_MAX; d++)
        for (int h = 0; h < WD_HOMES; h++) wd_residency_close(p->part[d][h]);
    wd_free(p);
}

static const wd_residency_vtable placed_vtable = {
    .begin = placed_begin,
    .acquire = placed_acquire,
    .release = placed_release,
    .close = placed_close,
};

static bool has_stages(const wd_residency_part *part)
{
    for (int e = 0; e < part->placement->experts; e++)
        for (int s = 0; s < part->placement->stages; s++)
            if (wd_residency_part_has(part, e, s)) return true;
    return false;
}

static wd_status open_part(wd_residency **out, placed *p, const wd_residency_part *part,
                           const wd_pipeline *pipeline, wd_dtype storage, wd_queue *queue,
                           wd_queue *processor, wd_err *err)
{
    const wd_residency_part_options o = {.pipeline = pipeline,
                                         .part = part,
                                         .home = part->home,
                                         .storage = storage,
                                         .device = wd_queue_device(queue),
                                         .filler = part->home == WD_HOME_DEVICE ? queue : processor,
                                         .slots = p->placement.slots};
    WD_TRY(wd_residency_part_open(out, &o, err));
    p->base.mapped_bytes += (*out)->mapped_bytes;
    p->base.host_bytes += (*out)->host_bytes;
    return WD_OK;
}

wd_status wd_residency_open_placed(wd_residency **out, const wd_pipeline *pipeline,
                                   const wd_placement *placement, wd_dtype storage,
                                   wd_queue *const *queues, wd_queue *processor, wd_comm *comm,
                                   wd_err *err)
{
    placed *p;
    const int devices = placement->devices ? placement->devices : WD_PLACED_DEVICES_MAX;
    const int first = comm && !placement->each ? comm->rank * placement->devices : 0;
    WD_TRY(wd_alloc((void **)&p, 1, sizeof *p, "a residency", err));
    p->base = (wd_residency){
        .vtable = &placed_vtable, .experts = placement->experts, .stages = placement->stages};
    p->placement = *placement;
    for (int d = 0; d < devices; d++)
        for (int h = 0; h < WD_HOMES; h++) {
            const wd_residency_part part = {.placement = placement,
                                            .home = (wd_home)h,
                                            .device = first + d,
                                            .sharers = placement->each ? comm : NULL};
            if (!has_stages(&part)) continue;
            const wd_status status =
                open_part(&p->part[d][h], p, &part, pipeline, storage, queues[d], processor, err);
            if (status == WD_OK) continue;
            placed_close(&p->base);
            return status;
        }
    *out = &p->base;
    return WD_OK;
}
