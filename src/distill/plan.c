/* The memory plan: see distill/plan.h. */
#include "distill/plan.h"

#include <string.h>

#include "core/memory.h"
#include "student/checkpoint.h"

enum { SAMPLE_STEPS = 2 }; /* of the sampler: the others take what these take */

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

/* Which phases have the training's memory beside their own. */
static const struct {
    const char *name;
    bool trains;
} phases[WD_PLAN_PHASES] = {
    [WD_PLAN_PROGRAM] = {"always", false},    [WD_PLAN_TOKENS] = {"tokenizing", false},
    [WD_PLAN_TEXT] = {"encoding", false},     [WD_PLAN_TRAINING] = {"training", false},
    [WD_PLAN_OPENING] = {"opening", true},    [WD_PLAN_SAVING] = {"saving", true},
    [WD_PLAN_SAMPLING] = {"sampling", true},
};

const char *wd_plan_phase_name(wd_plan_phase phase) { return phases[phase].name; }

size_t wd_plan_peak(const wd_plan *plan)
{
    size_t bytes[WD_PLAN_PHASES] = {0}, peak = 0;
    for (int i = 0; i < plan->items; i++) bytes[plan->item[i].phase] += plan->item[i].bytes;
    for (int p = WD_PLAN_TOKENS; p < WD_PLAN_PHASES; p++) {
        size_t sum = bytes[p] + (phases[p].trains ? bytes[WD_PLAN_TRAINING] : 0);
        if (sum > peak) peak = sum;
    }
    return bytes[WD_PLAN_PROGRAM] + peak;
}

static void add_block(void *context, const char *what, size_t bytes)
{
    wd_plan_add(context, what, WD_PLAN_TRAINING, bytes);
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

/* Draws one sheet. What it leaves for the next ones, and how much more there was on the way. */
static wd_status plan_samples(wd_plan *out, wd_machine *machine, const wd_samples_options *options,
                              wd_err *err)
{
    wd_status status;
    wd_samples *samples = NULL;
    wd_samples_options dry = *options;
    wd_device *device = wd_queue_device(machine->queue);
    const int64_t before = wd_memory_held();
    dry.steps = SAMPLE_STEPS;
    WD_TRY_OUT(wd_samples_open(&samples, &dry, machine, err));
    wd_memory_restart_peak();
    wd_device_restart_peak(device);
    WD_TRY_OUT(wd_samples_write(samples, 0, err));
    wd_plan_add(out, "sample noise and pictures", WD_PLAN_TRAINING,
                (size_t)(wd_memory_held() - before));
    wd_plan_add(out, "samples on the way", WD_PLAN_SAMPLING,
                (size_t)(wd_memory_peak() - wd_memory_held()));
    wd_plan_add(out, "sampler and VAE", WD_PLAN_SAMPLING,
                wd_device_bytes_peak(device) - wd_device_bytes(device));
out:
    wd_samples_close(samples);
    return status;
}

wd_status wd_plan_machine(wd_plan *out, const wd_machine_options *options,
                          const wd_samples_options *samples, wd_device *target, wd_err *err)
{
    wd_status status;
    wd_device *device = NULL;
    wd_queue *queue = NULL;
    wd_residency *residency = NULL;
    wd_machine machine = {0};
    wd_machine_options dry = *options;
    int64_t before;
    dry.text = no_text;
    WD_TRY_OUT(wd_device_open_dry(&device, target, err));
    WD_TRY_OUT(wd_queue_open(&queue, device, err));
    before = wd_memory_held(); /* the run has its device and queue already */
    WD_TRY_OUT(wd_residency_open_resident(&residency, options->teacher, NULL,
                                          options->teacher_dtype, queue, err));
    wd_plan_add(out, "teacher weights being converted", WD_PLAN_OPENING,
                wd_device_bytes_peak(device) - wd_device_bytes(device));
    out->mapped_bytes = residency->mapped_bytes;
    WD_TRY_OUT(wd_machine_open(&machine, &dry,
                               &(wd_machine_teacher){residency, NULL, &queue, queue}, queue, err));
    WD_TRY_OUT(run_dry(out, &machine, err));
    wd_device_each_block(device, add_block, out);
    wd_plan_add(out, "tables and staging", WD_PLAN_TRAINING, (size_t)(wd_memory_held() - before));
    wd_plan_add(out, "checkpoint on its way to disk", WD_PLAN_SAVING,
                wd_checkpoint_write_bytes(&machine.params));
    if (samples->count) WD_TRY_OUT(plan_samples(out, &machine, samples, err));
    wd_plan_add(out, "workspace", WD_PLAN_TRAINING, wd_queue_workspace_bytes(queue));
out:
    wd_machine_close(&machine);
    wd_residency_close(residency);
    wd_queue_close(queue);
    wd_device_close(device);
    return status;
}
