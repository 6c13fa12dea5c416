/* The memory plan: see distill/plan.h. */
#include "distill/plan.h"

#include <string.h>

#include "core/memory.h"

void wd_plan_add(wd_plan *plan, const char *name, wd_plan_phase phase, size_t bytes)
{
    if (!bytes) return;
    int i = 0;
    while (i < plan->items && (plan->item[i].phase != phase || strcmp(plan->item[i].name, name)))
        i++;
    if (i == WD_PLAN_ITEMS_MAX) i--; /* the last one takes what has no line of its own */
    if (i == plan->items) plan->item[plan->items++] = (wd_plan_item){.name = name, .phase = phase};
    plan->item[i].bytes += bytes;
}

size_t wd_plan_peak(const wd_plan *plan)
{
    size_t bytes[WD_PLAN_PHASES] = {0};
    for (int i = 0; i < plan->items; i++) bytes[plan->item[i].phase] += plan->item[i].bytes;
    size_t opening = bytes[WD_PLAN_ALWAYS] + bytes[WD_PLAN_OPENING];
    size_t sampling = bytes[WD_PLAN_ALWAYS] + bytes[WD_PLAN_SAMPLING];
    size_t peak = opening > sampling ? opening : sampling;
    return peak > bytes[WD_PLAN_TEXT] ? peak : bytes[WD_PLAN_TEXT];
}

static void add_block(void *context, const char *what, size_t bytes)
{
    wd_plan_add(context, what, WD_PLAN_ALWAYS, bytes);
}

static void no_text(void *context, void *out, int64_t prompt, wd_dtype dtype)
{
    (void)context, (void)out, (void)prompt, (void)dtype;
}

/* Steps until every slot has begun and a step's micro-batches have run: all a run ever needs. */
static wd_status run_dry(wd_plan *out, wd_machine *machine, wd_err *err)
{
    const wd_machine_options *o = &machine->options;
    double before = wd_queue_total(machine->queue).flops;
    WD_TRY(wd_objective_prepare(machine->objective, 1, err));
    int64_t targets = machine->objective->targets;
    double after = wd_queue_total(machine->queue).flops;
    out->teacher_flops_per_target = (after - before) / (double)targets;
    WD_TRY(wd_machine_step(machine, 0, 0.0, err));
    double step = wd_queue_total(machine->queue).flops - after -
                  (double)(machine->objective->targets - targets) * out->teacher_flops_per_target;
    out->student_flops_per_sample = step / (double)(o->batch * o->accumulation);
    return WD_OK;
}

wd_status wd_plan_machine(wd_plan *out, const wd_machine_options *options, wd_device *target,
                          wd_err *err)
{
    wd_status status;
    wd_device *device = NULL;
    wd_queue *queue = NULL;
    wd_residency *residency = NULL;
    wd_machine machine = {0};
    wd_machine_options dry = *options;
    dry.text = no_text;
    WD_TRY_OUT(wd_device_open_dry(&device, target, err));
    WD_TRY_OUT(wd_queue_open(&queue, device, err));
    WD_TRY_OUT(wd_residency_open_resident(&residency, options->teacher, NULL,
                                          options->teacher_dtype, queue, err));
    wd_plan_add(out, "teacher weights being converted", WD_PLAN_OPENING,
                wd_device_bytes_peak(device) - wd_device_bytes(device));
    out->mapped_bytes = residency->mapped_bytes;
    WD_TRY_OUT(wd_machine_open(&machine, &dry,
                               &(wd_machine_teacher){residency, NULL, &queue, queue}, queue, err));
    WD_TRY_OUT(run_dry(out, &machine, err));
    wd_device_each_block(device, add_block, out);
    wd_plan_add(out, "workspace", WD_PLAN_ALWAYS, wd_queue_workspace_bytes(queue));
out:
    wd_machine_close(&machine);
    wd_residency_close(residency);
    wd_queue_close(queue);
    wd_device_close(device);
    return status;
}
