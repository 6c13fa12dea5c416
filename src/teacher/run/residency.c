/* Residencies: see teacher/run/residency.h. */
#include "teacher/run/residency.h"

#include "core/error.h"
#include "core/memory.h"
#include "teacher/run/residency_part.h"

struct wd_residency {
    wd_residency_info info;
    wd_residency_part *part[WD_PLACED_DEVICES_MAX][WD_HOMES]; /* NULL: no stage is there */
};

const wd_residency_info *wd_residency_info_of(const wd_residency *residency)
{
    return &residency->info;
}

int wd_teacher_experts(const wd_pipeline *pipeline)
{
    return pipeline->boundary_ratio > 0 && pipeline->has[WD_COMPONENT_TRANSFORMER_2] ? 2 : 1;
}

wd_dtype wd_teacher_compute_dtype(wd_dtype storage)
{
    return storage == WD_BF16 ? WD_BF16 : WD_F32;
}

/* ---- open and close ---- */

/* Opens a part like `like`, which has the ranks of the job as its sharers, and no device yet, if it
 * has a stage. */
static wd_status open_part(wd_residency *r, wd_residency_part_options like, int device,
                           wd_home home, wd_queue *const *queues, wd_err *err)
{
    const wd_placement *p = &r->info.placement;
    const int first = like.sharers && !p->each ? like.sharers->rank * p->devices : 0;
    like.stages = (wd_placed_stages){p, home, first + device};
    if (!wd_placed_stages_next(&like.stages, &(int){0}, &(int){-1})) return WD_OK;
    like.queue = queues[device];
    if (!p->each) like.sharers = NULL;
    WD_TRY(wd__residency_part_open(&r->part[device][home], &like, err));
    r->info.mapped_bytes += r->part[device][home]->mapped_bytes;
    r->info.host_bytes += r->part[device][home]->host_bytes;
    return WD_OK;
}

static bool is_dry(wd_queue *const *queues, int devices)
{
    for (int d = 0; d < devices; d++)
        if (queues[d]) return wd_device_is_dry(wd_queue_device(queues[d]));
    return false;
}

/* A job that is to stop has not loaded all weights. All ranks leave off if one of them does. */
static wd_status check_stop(wd_comm *comm, bool dry, wd_err *err)
{
    const int ranks = comm ? comm->ranks : 1, own = comm ? comm->rank : 0;
    bool stops[ranks], any = false;
    stops[own] = !dry && wd_stop_requested();
    if (comm) wd_comm_allgather_small(comm, stops, sizeof *stops);
    for (int i = 0; i < ranks; i++) any |= stops[i];
    if (!any) return WD_OK;
    return wd_fail(err, WD_INTERRUPTED, "stopped on request while weights were being loaded");
}

static wd_status open_all(wd_residency **out, const wd_placement *placement,
                          const wd_residency_part_options *like, wd_queue *const *queues,
                          wd_err *err)
{
    wd_status status = WD_OK;
    wd_residency *r;
    const int devices = placement->devices ? placement->devices : WD_PLACED_DEVICES_MAX;
    WD_TRY(wd_alloc((void **)&r, 1, sizeof *r, "a residency", err));
    r->info.placement = *placement;
    for (int d = 0; d < devices; d++)
        for (int h = 0; h < WD_HOMES; h++)
            WD_TRY_OUT(open_part(r, *like, d, (wd_home)h, queues, err));
    WD_TRY_OUT(check_stop(like->sharers, is_dry(queues, placement->devices), err));
    *out = r;
out:
    if (status != WD_OK) wd_residency_close(r);
    return status;
}

wd_status wd_residency_open_placed(wd_residency **out, const wd_pipeline *pipeline,
                                   const wd_placement *placement, wd_dtype storage,
                                   wd_queue *const *queues, wd_queue *processor, wd_comm *comm,
                                   wd_err *err)
{
    const wd_residency_part_options like = {
        .pipeline = pipeline, .storage = storage, .processor = processor, .sharers = comm};
    return open_all(out, placement, &like, queues, err);
}

wd_status wd_residency_open_resident(wd_residency **out, const wd_pipeline *pipeline,
                                     const wd_component *only, wd_dtype storage, wd_queue *queue,
                                     wd_err *err)
{
    const wd_residency_part_options like = {.pipeline = pipeline, .only = only, .storage = storage};
    const wd_placement placement = {.experts = only ? 1 : wd_teacher_experts(pipeline),
                                    .stages = wd_dit_stages(&pipeline->dit),
                                    .devices = 1};
    return open_all(out, &placement, &like, &queue, err);
}

void wd_residency_close(wd_residency *residency)
{
    if (!residency) return;
    for (int d = 0; d < WD_PLACED_DEVICES_MAX; d++)
        for (int h = 0; h < WD_HOMES; h++) wd__residency_part_close(residency->part[d][h]);
    wd_free(residency);
}

/* ---- use ---- */

void wd__residency_begin(wd_residency *residency, wd_sweep_experts sweep, wd_sweep_experts next)
{
    for (int d = 0; d < WD_PLACED_DEVICES_MAX; d++)
        for (int h = 0; h < WD_HOMES; h++)
            if (residency->part[d][h]) wd__residency_part_begin(residency->part[d][h], sweep, next);
}

static wd_residency_part *part_of(const wd_residency *r, int expert, int stage)
{
    const wd_placement *p = &r->info.placement;
    WD_REQUIRE(expert >= 0 && expert < p->experts && stage >= 0 && stage < p->stages,
               "stage %d of expert %d, of %d stages and %d experts", stage, expert, p->stages,
               p->experts);
    const wd_stage_placement *place = &p->place[expert][stage];
    return r->part[wd_placed_local(p, place->device)][place->home];
}

wd_status wd_residency_acquire(wd_residency *residency, wd_dit_stage *out, int expert, int stage,
                               wd_queue *queue, wd_err *err)
{
    return wd__residency_part_acquire(part_of(residency, expert, stage), out, expert, stage, queue,
                                      err);
}

void wd_residency_release(wd_residency *residency, int expert, int stage, wd_queue *queue)
{
    wd__residency_part_release(part_of(residency, expert, stage), expert, stage, queue);
}
