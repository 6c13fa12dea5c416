/* The memory that a sweep needs on a device, measured by running a stage of each kind dry: see
 * teacher/sweep_need.h. All blocks are alike, so that one stands for all of them. */
#include "teacher/sweep_need.h"

#include "teacher/activations.h"
#include "teacher/residency_kinds.h"

static void run_kind(wd_activations *s, wd_stage_kind kind, int64_t samples,
                     const wd_dit_stage *stage)
{
    wd_activation_place *place = &s->place[0];
    wd_activations_begin(s, kind);
    if (kind == WD_STAGE_EMBED) wd_activations_enter(s, place, samples, stage);
    if (kind == WD_STAGE_BLOCK) wd_activations_run_block(s, place, samples, stage);
    for (int64_t i = 0; kind == WD_STAGE_EMBED && i < samples; i++)
        wd_activations_enter_state(s, place, i, stage);
    for (int64_t i = 0; kind == WD_STAGE_HEAD && i < samples; i++)
        wd_activations_leave_state(s, place, i, 0, stage);
}

/* One stage of a kind on a dry device, in all sizes that micro-batches have. */
static wd_status measure_kind(wd_sweep_need *need, double *flops, wd_stage_kind kind,
                              const wd_sweep_options *o, wd_residency *weights, wd_device *dry,
                              wd_err *err)
{
    wd_status status;
    wd_queue *queue = NULL;
    wd_activations activations = {0};
    wd_sweep_part part = {.places = 1};
    wd_dit_stage stage;
    part.kind[kind] = true;
    const int number = kind == WD_STAGE_HEAD ? weights->stages - 1 : (int)kind;
    WD_TRY_OUT(wd_queue_open(&queue, dry, err));
    WD_TRY_OUT(wd_activations_open(&activations, o, &part, 0, queue, err));
    WD_TRY_OUT(wd_residency_acquire(weights, &stage, 0, number, queue, err));
    activations.arena.peak = activations.mark;
    for (int64_t size = o->micro_batch; size > 0; size -= wd_sweep_size_step(o->micro_batch)) {
        double sum = wd_queue_total(queue).flops;
        run_kind(&activations, kind, size, &stage);
        if (size == o->micro_batch) *flops = (wd_queue_total(queue).flops - sum) / (double)size;
    }
    wd_placed_most(&need->scratch[kind], activations.arena.peak - activations.mark);
    wd_placed_most(&need->workspace[kind], wd_queue_workspace_bytes(queue));
out:
    wd_activations_close(&activations);
    wd_queue_close(queue);
    return status;
}

/* Measures the memory that is there before any stage runs. */
static wd_status measure_memory(wd_sweep_need *need, const wd_sweep_options *o, wd_device *dry,
                                wd_err *err)
{
    wd_queue *queue;
    size_t used[3];
    WD_TRY(wd_queue_open(&queue, dry, err));
    wd_status status = WD_OK;
    for (int i = 0; i < 3 && status == WD_OK; i++) {
        wd_activations activations;
        const wd_sweep_part part = {.kind = {[WD_STAGE_EMBED] = i == 1, [WD_STAGE_HEAD] = i == 2}};
        status = wd_activations_open(&activations, o, &part, 0, queue, err);
        if (status != WD_OK) break;
        used[i] = activations.arena.used;
        if (!i) need->tables = wd_device_bytes(dry);
        wd_activations_close(&activations);
    }
    wd_queue_close(queue);
    if (status != WD_OK) return status;
    need->entry = used[1] - used[0];
    need->exit = used[2] - used[0];
    need->place = wd_sweep_place_bytes(o);
    return WD_OK;
}

static wd_status measure(wd_sweep_need *need, double flops[WD_STAGE_KINDS],
                         const wd_sweep_options *o, bool gaps, wd_device *dry, wd_err *err)
{
    wd_residency *weights;
    WD_TRY(wd_residency_open_dry(&weights, &o->config, 1, o->dtype, gaps, err));
    wd_status status = WD_OK;
    for (int k = 0; k < WD_STAGE_KINDS && status == WD_OK; k++)
        status = measure_kind(need, &flops[k], (wd_stage_kind)k, o, weights, dry, err);
    wd_residency_close(weights);
    return status;
}

/* Closes `dry`. */
static wd_status need_on(wd_sweep_need *out, double flops[WD_STAGE_KINDS],
                         const wd_sweep_options *options, wd_device *dry, wd_err *err)
{
    const wd_sweep_options o = wd_sweep_fitted(options);
    *out = (wd_sweep_need){.granule = wd_device_traits(dry)->granule};
    wd_status status = measure_memory(out, &o, dry, err);
    for (int gaps = 0; gaps < 2 && status == WD_OK; gaps++)
        status = measure(out, flops, &o, gaps, dry, err);
    if (status == WD_OK) status = wd_device_check_planned(dry, err);
    wd_device_close(dry);
    return status;
}

wd_status wd_sweep_need_of(wd_sweep_need *out, double flops[WD_STAGE_KINDS],
                           const wd_sweep_options *options, wd_device *target, wd_err *err)
{
    wd_device *dry;
    WD_TRY(wd_device_open_dry(&dry, target, err));
    return need_on(out, flops, options, dry, err);
}

wd_status wd_sweep_rehearse(wd_sweep_need *out, const wd_sweep_options *options, wd_device *target,
                            wd_err *err)
{
    wd_device *dry;
    double flops[WD_STAGE_KINDS];
    WD_TRY(wd_device_open_rehearsed(&dry, target, err));
    return need_on(out, flops, options, dry, err);
}
