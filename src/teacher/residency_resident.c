/* The `resident` residency: all stages stay on the computing device.
 *
 * Data flow: mapped file -> (in place | copied and cast into one block per stage) -> views at
 * acquire; what is only for storage (F16, quantised tensors) acquire widens into a buffer, which
 * the queue's order makes safe to use again.
 *
 * Why in place: a checkpoint in the compute dtype then costs no memory of ours and no start-up, and
 * all processes of a host share its pages. What a processor needs converted, the ranks of a host
 * share as well. */
#include "teacher/residency_kinds.h"

#include <assert.h>
#include <string.h>

#include "core/memory.h"
#include "teacher/host_copy.h"

enum { EXPERTS_MAX = WD_PLACED_EXPERTS_MAX };

typedef struct resident {
    wd_residency base;
    wd_device *device;
    wd_component component[EXPERTS_MAX];
    wd_safetensors *weights[EXPERTS_MAX];
    wd_stage_layout *layout[EXPERTS_MAX]; /* [stages] */
    wd_dit_stage *stored[EXPERTS_MAX];    /* [stages] */
    void **block[EXPERTS_MAX];            /* [stages], NULL: all in place, or in the host's copy */
    wd_host_copy copy;
    void *wide; /* NULL: nothing is widened */
    wd_progress_part loading;
} resident;

static wd_status resident_acquire(wd_residency *self, wd_dit_stage *out, int expert, int stage,
                                  wd_queue *queue, wd_err *err)
{
    (void)err;
    resident *r = (resident *)self;
    *out = r->stored[expert][stage];
    if (r->wide) wd_stage_widen(out, &r->layout[expert][stage], r->wide, queue);
    return WD_OK;
}

static void resident_release(wd_residency *self, int expert, int stage, wd_queue *queue)
{
    (void)self, (void)expert, (void)stage, (void)queue;
}

static void resident_close(wd_residency *self)
{
    resident *r = (resident *)self;
    for (int e = 0; e < EXPERTS_MAX; e++) {
        for (int s = 0; r->block[e] && s < r->base.stages; s++)
            wd_device_free(r->device, r->block[e][s]);
        wd_free(r->block[e]);
        wd_free(r->stored[e]);
        wd_free(r->layout[e]);
        wd_safetensors_close(r->weights[e]);
    }
    wd_device_free(r->device, r->wide);
    wd_host_copy_close(&r->copy);
    wd_free(r);
}

static const wd_residency_vtable resident_vtable = {
    .acquire = resident_acquire,
    .release = resident_release,
    .close = resident_close,
};

static wd_component component_of(int expert)
{
    return expert ? WD_COMPONENT_TRANSFORMER_2 : WD_COMPONENT_TRANSFORMER;
}

static wd_status bring_stage(resident *r, int expert, int stage, const wd_stage_layout *layout,
                             wd_queue *queue, wd_err *err)
{
    void *staging = NULL, *block = NULL;
    if (wd_host_copy_is_shared(&r->copy)) {
        block = wd_host_copy_block(&r->copy, expert, stage);
        wd_stage_view(&r->stored[expert][stage], layout, block);
        if (!wd_host_copy_fills(&r->copy, expert, stage)) return WD_OK;
    } else if (layout->block_bytes) {
        WD_TRY(wd_device_alloc(&block, r->device, layout->block_bytes, "teacher weights", err));
        r->block[expert][stage] = block;
    }
    if (layout->staging_bytes)
        WD_TRY(wd_device_alloc(&staging, r->device, layout->staging_bytes,
                               "teacher weights being converted", err));
    wd_stage_bring(&r->stored[expert][stage], layout, block, staging, queue);
    wd_queue_wait(queue);
    wd_device_free(r->device, staging);
    return WD_OK;
}

static bool has_any(const wd_residency_part *part, int expert, int stages)
{
    for (int s = 0; s < stages; s++)
        if (wd_residency_part_has(part, expert, s)) return true;
    return false;
}

static wd_status open_expert(resident *r, const wd_pipeline *pipeline,
                             const wd_residency_part *part, int expert, wd_err *err)
{
    if (!has_any(part, expert, r->base.stages)) return WD_OK;
    WD_TRY(wd_pipeline_open_weights(&r->weights[expert], pipeline, r->component[expert], err));
    WD_TRY(wd_alloc((void **)&r->stored[expert], (size_t)r->base.stages, sizeof(wd_dit_stage),
                    "a teacher's stages", err));
    WD_TRY(wd_alloc((void **)&r->layout[expert], (size_t)r->base.stages, sizeof(wd_stage_layout),
                    "a teacher's stages", err));
    return wd_alloc((void **)&r->block[expert], (size_t)r->base.stages, sizeof(void *),
                    "a teacher's blocks", err);
}

static wd_status bring_expert(resident *r, const wd_pipeline *pipeline,
                              const wd_residency_part *part, const wd_tensor_table *table,
                              int expert, wd_dtype storage, wd_queue *queue, size_t *widened_max,
                              wd_err *err)
{
    bool reads_host = wd_device_traits(r->device)->reads_host;
    const wd_stage_keeping keeping = {
        .storage = storage, .in_place = reads_host, .reads_host = reads_host};
    for (int s = 0; r->weights[expert] && s < r->base.stages; s++) {
        wd_stage_layout *layout = &r->layout[expert][s];
        if (!wd_residency_part_has(part, expert, s)) continue;
        WD_TRY(
            wd_stage_lay_out(layout, &pipeline->dit, table, r->weights[expert], s, keeping, err));
        if (layout->widened_bytes > *widened_max) *widened_max = layout->widened_bytes;
        r->base.mapped_bytes += layout->mapped_bytes;
        WD_TRY(bring_stage(r, expert, s, layout, queue, err));
        wd_progress_at(&r->loading, r->loading.now.done + 1);
    }
    return WD_OK;
}

static wd_status open_experts(wd_residency **out, const wd_pipeline *pipeline,
                              const wd_residency_part *part, const wd_component *component,
                              int experts, wd_dtype storage, wd_queue *queue, wd_err *err)
{
    wd_status status;
    wd_tensor_table table = {0};
    size_t widened_max = 0;
    resident *r;
    WD_TRY(wd_alloc((void **)&r, 1, sizeof *r, "a residency", err));
    r->base = (wd_residency){.vtable = &resident_vtable,
                             .name = "resident",
                             .experts = experts,
                             .stages = wd_dit_stages(&pipeline->dit)};
    r->device = wd_queue_device(queue);
    memcpy(r->component, component, (size_t)experts * sizeof *component);
    WD_TRY_OUT(wd_dit_table_open(&table, &pipeline->dit, err));
    for (int e = 0; e < experts; e++) WD_TRY_OUT(open_expert(r, pipeline, part, e, err));
    if (wd_device_traits(r->device)->reads_host)
        WD_TRY_OUT(wd_host_copy_open(&r->copy, part, &pipeline->dit, &table, r->weights,
                                     wd_host_keeping(storage), wd_device_is_dry(r->device), err));
    r->base.host_bytes = r->copy.share_bytes;
    if (!wd_device_is_dry(r->device)) r->loading = wd_residency_loading(&r->base, part);
    for (int e = 0; e < experts; e++)
        WD_TRY_OUT(bring_expert(r, pipeline, part, &table, e, storage, queue, &widened_max, err));
    if (!wd_device_is_dry(r->device)) wd_host_copy_seal(&r->copy);
    if (widened_max)
        WD_TRY_OUT(
            wd_device_alloc(&r->wide, r->device, widened_max, "widened teacher weights", err));
    *out = &r->base;
out:
    wd_dit_table_close(&table);
    if (status != WD_OK) resident_close(&r->base);
    return status;
}

wd_status wd_residency_open_resident(wd_residency **out, const wd_pipeline *pipeline,
                                     const wd_residency_part *part, wd_dtype storage,
                                     wd_queue *queue, wd_err *err)
{
    const wd_component component[EXPERTS_MAX] = {component_of(0), component_of(1)};
    return open_experts(out, pipeline, part, component, wd_teacher_experts(pipeline), storage,
                        queue, err);
}

wd_status wd_residency_open_component(wd_residency **out, const wd_pipeline *pipeline,
                                      wd_component component, wd_dtype storage, wd_queue *queue,
                                      wd_err *err)
{
    return open_experts(out, pipeline, NULL, &component, 1, storage, queue, err);
}
