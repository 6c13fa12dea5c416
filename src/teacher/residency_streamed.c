/* The `streamed` residency: weights live in host memory or in the checkpoint's files, and come to
 * the computing device stage by stage, each sweep anew: see teacher/residency_streamed_impl.h for
 * the way. What is only for storage (F16, quantised tensors) acquire widens, as the `resident`
 * residency does. */
#include "core/memory.h"
#include "core/require.h"
#include "teacher/residency_streamed_impl.h"

enum { EXPERTS_MAX = WD_PLACED_EXPERTS_MAX };

static void streamed_begin(wd_residency *self, wd_sweep_experts sweep, wd_sweep_experts next)
{
    wd_streamed *r = (wd_streamed *)self;
    if (r->dry) return;
    if (!r->host_reader) { /* which others need does not matter */
        sweep.all = sweep.own;
        next.all = next.own;
    }
    r->experts = sweep.own;
    wd_stage_order_add(r->order, sweep, next);
    wd_slots_drop_unwanted(r);
}

/* A dry run sees addresses, those of a slot for such stages: nothing is brought. */
static void view_dry(wd_dit_stage *out, const wd_streamed *r, int expert, int stage)
{
    const wd_slot *s = r->slot;
    while (s->kind != wd_stage_kind_of(stage, r->base.stages)) s++;
    wd_stage_view(out, &r->layout[expert][stage], s->block);
}

static wd_status streamed_acquire(wd_residency *self, wd_dit_stage *out, int expert, int stage,
                                  wd_queue *queue, wd_err *err)
{
    wd_streamed *r = (wd_streamed *)self;
    wd_slot *s = NULL;
    if (wd_device_is_dry(wd_queue_device(queue))) {
        view_dry(out, r, expert, stage);
    } else {
        WD_REQUIRE(r->experts >> expert & 1, "the sweep was not announced for expert %d", expert);
        WD_TRY(wd_slot_take(&s, r, expert, stage, err));
        wd_event_wait_on(queue, s->arrived);
        *out = s->view;
    }
    if (r->wide) wd_stage_widen(out, &r->layout[expert][stage], r->wide, queue);
    return WD_OK;
}

static void streamed_release(wd_residency *self, int expert, int stage, wd_queue *queue)
{
    if (wd_device_is_dry(wd_queue_device(queue))) return;
    wd_slot_give_back((wd_streamed *)self, expert, stage, queue);
}

static bool is_shared(const wd_streamed *r)
{
    return wd_host_copy_is_shared(&r->copy);
}

static void streamed_close(wd_residency *self)
{
    wd_streamed *r = (wd_streamed *)self;
    wd_streamed_end(r);
    if (r->copies) wd_queue_wait(r->copies);
    wd_streamed_close_disk(r);
    wd_stage_order_close(r->order);
    wd_queue_close(r->copies);
    wd_slots_close(r);
    wd_device_free(r->device, r->wide);
    for (int e = 0; e < EXPERTS_MAX; e++) {
        for (int s = 0; r->block[e] && !is_shared(r) && s < r->base.stages; s++)
            wd_streamed_give_host(r, r->block[e][s]);
        wd_free(r->block[e]);
        wd_free(r->layout[e]);
        wd_safetensors_close(r->weights[e]);
    }
    if (r->copy.memory && r->registered)
        wd_host_unregister(r->device, wd_shared_data(r->copy.memory));
    wd_host_copy_close(&r->copy);
    wd_device_free(r->device, r->casting);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    wd_free(r);
}

static const wd_residency_vtable streamed_vtable = {
    .begin = streamed_begin,
    .acquire = streamed_acquire,
    .release = streamed_release,
    .close = streamed_close,
};

/* ---- opening ---- */

/* Fills a block with what `host` says, by the processor. */
static wd_status fill(const wd_stage_layout *host, void *block, wd_queue *processor, wd_err *err)
{
    wd_dit_stage view;
    void *staging = NULL;
    if (host->staging_bytes)
        WD_TRY(wd_alloc(&staging, host->staging_bytes, 1, "teacher weights converted", err));
    wd_stage_bring(&view, host, block, staging, processor);
    wd_queue_wait(processor);
    wd_free(staging);
    return WD_OK;
}

/* The stage's block in host memory, filled by the processor, which converts what the file has in
 * another dtype. It is laid out as on the device, so that one copy brings it there. */
static wd_status take_in(wd_streamed *r, const wd_pipeline *pipeline, const wd_tensor_table *table,
                         int expert, int stage, const wd_streamed_options *o, wd_err *err)
{
    wd_stage_layout *layout = &r->layout[expert][stage], host;
    void **block = &r->block[expert][stage];
    WD_TRY(wd_stage_lay_out(&host, &pipeline->dit, table, r->weights[expert], stage,
                            wd_offload_keeping(o->storage), err));
    WD_REQUIRE(host.block_bytes == layout->block_bytes,
               "stage %d is %zu bytes in host memory and %zu on the device", stage,
               host.block_bytes, layout->block_bytes);
    layout->staging_bytes = 0;
    if (is_shared(r))
        *block = wd_host_copy_block(&r->copy, expert, stage);
    else
        WD_TRY(wd_streamed_take_host(block, r, host.block_bytes, "teacher weights in host memory",
                                     err));
    if (r->dry || (is_shared(r) && !wd_host_copy_fills(&r->copy, expert, stage))) return WD_OK;
    return fill(&host, *block, o->processor, err);
}

/* The copy that a host's ranks have together, from which this rank's device copies. */
static wd_status open_copy(wd_streamed *r, const wd_pipeline *pipeline,
                           const wd_tensor_table *table, const wd_streamed_options *o, wd_err *err)
{
    WD_TRY(wd_host_copy_open(&r->copy, o->part, &pipeline->dit, table, r->weights,
                             wd_offload_keeping(o->storage), r->dry, err));
    r->base.host_bytes = r->copy.share_bytes;
    if (!r->copy.memory) return WD_OK;
    WD_TRY(wd_host_register(r->device, wd_shared_data(r->copy.memory), r->copy.bytes,
                            "teacher weights in host memory", err));
    r->registered = true;
    return WD_OK;
}

/* The numbers of stages, and the most that one of them needs. */
typedef struct needs {
    int stages[WD_STAGE_KINDS];
    size_t block[WD_STAGE_KINDS], reading, converting, casting, widened;
} needs;

static wd_status open_expert(wd_streamed *r, const wd_pipeline *pipeline, int expert, wd_err *err)
{
    size_t stages = (size_t)r->base.stages;
    const wd_component component = expert ? WD_COMPONENT_TRANSFORMER_2 : WD_COMPONENT_TRANSFORMER;
    WD_TRY(wd_pipeline_open_weights(&r->weights[expert], pipeline, component, err));
    WD_TRY(wd_alloc((void **)&r->layout[expert], stages, sizeof(wd_stage_layout), "stages", err));
    return wd_alloc((void **)&r->block[expert], stages, sizeof(void *), "stages", err);
}

static wd_status lay_out_expert(wd_streamed *r, needs *n, const wd_pipeline *pipeline,
                                const wd_tensor_table *table, int expert,
                                const wd_streamed_options *o, wd_err *err)
{
    const wd_stage_keeping keeping = {.storage = o->storage, .reads_host = r->reads_host};
    for (int s = 0; s < r->base.stages; s++) {
        wd_stage_layout *layout = &r->layout[expert][s];
        const wd_stage_kind kind = wd_stage_kind_of(s, r->base.stages);
        if (!wd_residency_part_has(o->part, expert, s)) continue;
        WD_TRY(
            wd_stage_lay_out(layout, &pipeline->dit, table, r->weights[expert], s, keeping, err));
        if (!r->from_disk) WD_TRY(take_in(r, pipeline, table, expert, s, o, err));
        wd_progress_at(&r->loading, r->loading.now.done + 1);
        n->stages[kind]++;
        wd_placed_most(&n->block[kind], layout->block_bytes);
        wd_placed_most(&n->reading, layout->reading_bytes);
        wd_placed_most(&n->converting, layout->converting_bytes);
        wd_placed_most(&n->casting, layout->staging_bytes);
        wd_placed_most(&n->widened, layout->widened_bytes);
    }
    return WD_OK;
}

static wd_status open_slots(wd_streamed *r, const needs *n, int slots, wd_err *err)
{
    for (int k = 0; k < WD_STAGE_KINDS; k++)
        for (int i = 0; i < wd_placed_slots((wd_stage_kind)k, slots, n->stages[k]); i++)
            WD_TRY(wd_slot_open(r, (wd_stage_kind)k, n->block[k], err));
    if (n->widened)
        WD_TRY(wd_device_alloc(&r->wide, r->device, n->widened, "widened teacher weights", err));
    if (n->casting)
        WD_TRY(wd_device_alloc(&r->casting, r->device, n->casting,
                               "teacher weights being converted", err));
    return WD_OK;
}

/* The order of the stages of this part. */
static wd_status open_order(wd_streamed *r, const wd_streamed_options *o, wd_err *err)
{
    bool streams[WD_PLACED_EXPERTS_MAX * WD_PLACED_STAGES_MAX];
    const wd_comm *sharers = o->part && r->from_disk ? o->part->sharers : NULL;
    const bool reads = sharers && sharers->host_ranks > 1 && sharers->host_rank == 0;
    const int stages = r->base.stages;
    if (r->dry) return WD_OK;
    for (int e = 0; e < r->base.experts; e++)
        for (int s = 0; s < stages; s++)
            streams[e * stages + s] = wd_residency_part_has(o->part, e, s);
    return wd_stage_order_open(&r->order, r->base.experts, stages, streams, o->slots + 1, reads,
                               err);
}

wd_status wd_residency_open_streamed(wd_residency **out, const wd_pipeline *pipeline,
                                     const wd_streamed_options *options, wd_err *err)
{
    wd_status status;
    wd_tensor_table table = {0};
    needs n = {0};
    wd_streamed *r;
    WD_TRY(wd_alloc((void **)&r, 1, sizeof *r, "a residency", err));
    r->base = (wd_residency){.vtable = &streamed_vtable,
                             .name = options->from_disk ? "disk" : "offload",
                             .experts = wd_teacher_experts(pipeline),
                             .stages = wd_dit_stages(&pipeline->dit)};
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    r->device = options->device;
    r->from_disk = options->from_disk;
    r->dry = wd_device_is_dry(options->device);
    r->reads_host = wd_device_traits(options->device)->reads_host;
    WD_TRY_OUT(wd_queue_open(&r->copies, r->device, err));
    WD_TRY_OUT(wd_dit_table_open(&table, &pipeline->dit, err));
    for (int e = 0; e < r->base.experts; e++) WD_TRY_OUT(open_expert(r, pipeline, e, err));
    if (!r->from_disk) WD_TRY_OUT(open_copy(r, pipeline, &table, options, err));
    if (!r->dry && !r->from_disk) r->loading = wd_residency_loading(&r->base, options->part);
    for (int e = 0; e < r->base.experts; e++)
        WD_TRY_OUT(lay_out_expert(r, &n, pipeline, &table, e, options, err));
    if (!r->dry) wd_host_copy_seal(&r->copy);
    WD_TRY_OUT(open_slots(r, &n, options->slots, err));
    WD_TRY_OUT(open_order(r, options, err));
    if (r->from_disk) WD_TRY_OUT(wd_streamed_open_disk(r, n.reading, n.converting, options, err));
    if (!r->dry) WD_TRY_OUT(wd_streamed_start(r, err));
    *out = &r->base;
out:
    wd_dit_table_close(&table);
    if (status != WD_OK) streamed_close(&r->base);
    return status;
}
