/* The memory that a sweep needs on a device, measured by running a stage of each kind dry: see
 * teacher/run/sweep_need.h. All blocks are alike, so that one stands for all of them. */
#include "teacher/run/sweep_need.h"

#include "teacher/plan/stage_layout.h"
#include "teacher/run/activations.h"

static void run_kind(wd_activations *s, wd_stage_kind kind, int64_t samples,
                     const wd_dit_stage *stage)
{
    wd_activation_place *place = &s->place[0];
    if (kind == WD_STAGE_BLOCK) {
        wd_activations_run_block(s, place, samples, stage);
    } else if (kind == WD_STAGE_HEAD) {
        wd_activations_leave(s, place, samples, 0, stage);
    } else {
        const wd_activations_input input = wd_activations_begin_enter(s);
        wd_activations_enter(s, place, &input, samples, stage);
    }
}

/* Runs a stage of a kind in all sizes that micro-batches have. Returns its FLOPs for one state. */
static double run_sizes(wd_activations *s, wd_stage_kind kind, const wd_dit_stage *stage)
{
    const int64_t most = s->options->micro_batch;
    double flops = 0;
    for (int64_t size = most; size > 0; size -= wd_dit_samples_step(most)) {
        const double before = wd_queue_total(s->queue).flops;
        run_kind(s, kind, size, stage);
        if (size == most) flops = (wd_queue_total(s->queue).flops - before) / (double)size;
    }
    return flops;
}

/* A device that has all kinds of stages, and one micro-batch. Weights are used where they are
 * mapped, with `in_place`, or lie in a block, where products over adjacent ones are computed as
 * one. */
static wd_status measure(wd_sweep_need *need, const wd_sweep_options *o, bool in_place,
                         wd_device *dry, wd_err *err)
{
    const wd_teacher_files files = {.dtype = o->dtype};
    wd_status status;
    wd_tensor_table table = {0};
    wd_queue *queue = NULL;
    wd_activations activations = {0};
    const wd_sweep_part all = {.embeds = true, .places = 1};
    const size_t before = wd_device_bytes(dry);
    WD_TRY_OUT(wd_dit_table_open(&table, &o->config, err));
    WD_TRY_OUT(wd_queue_open(&queue, dry, err));
    WD_TRY_OUT(wd_activations_open(&activations, o, &all, 0, queue, err));
    need->tables = wd_device_bytes(dry) - before;
    for (int k = 0; k < WD_STAGE_KINDS; k++) {
        const int stage = k == WD_STAGE_HEAD ? wd_dit_stages(&o->config) - 1 : k;
        wd_stage_layout layout;
        wd_dit_stage weights;
        WD_TRY_OUT(
            wd_stage_lay_out(&layout, &o->config, &table, &files, stage, o->dtype, in_place, err));
        wd_stage_view(&weights, &layout, WD_STAGE_NOWHERE);
        need->flops[k] = run_sizes(&activations, (wd_stage_kind)k, &weights);
    }
    need->place = wd_sweep_place_bytes(o);
    wd_placed_most(&need->scratch, activations.arena.peak - need->place);
    wd_placed_most(&need->workspace, wd_queue_workspace_bytes(queue));
out:
    wd_activations_close(&activations);
    wd_queue_close(queue);
    wd_dit_table_close(&table);
    return status;
}

wd_status wd_sweep_need_of(wd_sweep_need *out, const wd_sweep_options *options, wd_device *target,
                           wd_sweep_open_dry_fn *open_dry, wd_err *err)
{
    wd_status status = WD_OK;
    wd_device *dry;
    wd_sweep_options o = *options;
    o.micro_batch = wd_sweep_fitted(o.micro_batch, o.window_max);
    WD_TRY(open_dry(&dry, target, err));
    *out = (wd_sweep_need){.granule = wd_device_traits(dry)->granule};
    for (int in_place = 0; in_place < 2 && status == WD_OK; in_place++)
        status = measure(out, &o, in_place, dry, err);
    if (status == WD_OK) status = wd_device_check_planned(dry, err);
    wd_device_close(dry);
    return status;
}

wd_status wd_sweep_plan_need(wd_sweep_need *out, const wd_sweep_options *options, wd_device *target,
                             wd_err *err)
{
    return wd_sweep_need_of(out, options, target, wd_device_open_dry, err);
}
