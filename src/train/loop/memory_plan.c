/* The memory plan: see train/loop/memory_plan.h. */
#include "train/loop/memory_plan.h"

#include <string.h>

#include "core/memory.h"
#include "train/loop/stepper_impl.h"
#include "train/loop/validation.h"
#include "train/output/checkpoint.h"

enum { SAMPLE_STEPS = 2 }; /* of the sampler: the others take what these take */

void wd_memory_plan_add(wd_memory_plan *plan, const char *name, wd_memory_phase phase, int place,
                        size_t bytes)
{
    if (!bytes) return;
    int i = 0;
    while (i < plan->items && (plan->item[i].phase != phase || plan->item[i].place != place ||
                               strcmp(plan->item[i].name, name)))
        i++;
    if (i == WD_MEMORY_ITEMS_MAX) i--; /* the last one takes what has no line of its own */
    if (i == plan->items)
        plan->item[plan->items++] = (wd_memory_item){.name = name, .phase = phase, .place = place};
    plan->item[i].bytes += bytes;
}

typedef struct parts {
    wd_memory_plan *plan;
    wd_memory_phase phase;
    int place;
} parts;

static void add_part(void *context, const char *what, size_t bytes)
{
    const parts *to = context;
    if (to->plan->parts < WD_MEMORY_PARTS_MAX)
        to->plan->part[to->plan->parts++] =
            (wd_memory_item){.name = what, .phase = to->phase, .place = to->place, .bytes = bytes};
}

void wd_memory_plan_add_parts(wd_memory_plan *plan, wd_memory_phase phase, int place,
                              wd_device *dry)
{
    wd_device_each_peak(dry, add_part, &(parts){plan, phase, place});
}

static const wd_memory_item *find(const wd_memory_item *item, int items, const char *name,
                                  int place)
{
    const wd_memory_item *found = NULL;
    for (int i = 0; i < items; i++)
        if (item[i].place == place && !strcmp(item[i].name, name) &&
            (!found || item[i].bytes > found->bytes))
            found = &item[i];
    return found;
}

const wd_memory_item *wd_memory_plan_find(const wd_memory_plan *plan, const char *name, int place)
{
    const wd_memory_item *found = find(plan->item, plan->items, name, place);
    return found ? found : find(plan->part, plan->parts, name, place);
}

/* Which phases have the training's memory beside their own. */
static const struct {
    const char *name;
    bool trains;
} phases[WD_MEMORY_PHASES] = {
    [WD_MEMORY_PROGRAM] = {"always", false},       [WD_MEMORY_TOKENS] = {"tokenizing", false},
    [WD_MEMORY_TEXT] = {"encoding", false},        [WD_MEMORY_CHOOSING] = {"choosing", false},
    [WD_MEMORY_OPENING] = {"opening", false},      [WD_MEMORY_TRAINING] = {"training", true},
    [WD_MEMORY_SAVING] = {"saving", true},         [WD_MEMORY_SAMPLING] = {"sampling", true},
    [WD_MEMORY_VALIDATING] = {"validating", true},
};

const char *wd_memory_phase_name(wd_memory_phase phase)
{
    return phases[phase].name;
}

/* Of the phases from `first` on. */
static size_t peak_from(const wd_memory_plan *plan, int place, int first)
{
    size_t bytes[WD_MEMORY_PHASES] = {0}, peak = 0;
    for (int i = 0; i < plan->items; i++)
        if (plan->item[i].place == place) bytes[plan->item[i].phase] += plan->item[i].bytes;
    for (int p = first; p < WD_MEMORY_PHASES; p++) {
        bool adds_training = phases[p].trains && p != WD_MEMORY_TRAINING;
        size_t sum = bytes[p] + (adds_training ? bytes[WD_MEMORY_TRAINING] : 0);
        if (sum > peak) peak = sum;
    }
    return bytes[WD_MEMORY_PROGRAM] + peak;
}

size_t wd_memory_plan_peak(const wd_memory_plan *plan, int place)
{
    return peak_from(plan, place, WD_MEMORY_TOKENS);
}

size_t wd_memory_plan_training_peak(const wd_memory_plan *plan, int place)
{
    return peak_from(plan, place, WD_MEMORY_TRAINING);
}

/* ---- a stepper, dry ---- */

/* Where the memory of one device is added: the plan, and the device's place in it. */
typedef struct account {
    wd_memory_plan *plan;
    int place;
} account;

static void add_block(void *context, const char *what, size_t bytes)
{
    const account *to = context;
    wd_memory_plan_add(to->plan, what, WD_MEMORY_TRAINING, to->place, bytes);
}

static void no_text(void *context, void *out, int64_t prompt, wd_dtype dtype)
{
    (void)context, (void)out, (void)prompt, (void)dtype;
}

/* A step's micro-batch and update, for its FLOPs; addresses are made up anyway. */
static void run_student(wd_memory_plan *out, wd_stepper *m)
{
    const wd_stepper_options *o = &m->options;
    const wd_batch batch = {.samples = o->batch,
                            .latents = m->loss,
                            .timestep = m->loss,
                            .text = m->loss,
                            .target = m->loss,
                            .weight = m->loss};
    double before = wd_queue_total(m->queue).flops;
    o->recipe->train(m, &batch);
    out->student_flops_per_sample =
        (wd_queue_total(m->queue).flops - before) / (double)o->batch + m->source->flops_per_sample;
    out->student_weights = m->params[0]->count;
    out->student_islands = m->params[0]->islands_count;
    for (int k = 0; k < m->networks; k++) wd_network_step(m->network[k], 0, 0);
}

/* The dry devices' queue that stands for `queue`; NULL: none does. */
static wd_queue *twin(const wd_devices *dry, const wd_devices *devices, const wd_queue *queue)
{
    for (int d = 0; d < devices->count; d++)
        if (devices->teacher[d] == queue) return dry->teacher[d];
    return NULL;
}

/* The peaks of host memory and of all devices are what is held now. */
static void restart_peaks(const wd_devices *devices)
{
    wd_memory_restart_peak();
    for (int d = 0; d < devices->count; d++) wd_device_restart_peak(devices->device[d]);
}

/* Adds what was held on each device at its peak and is not held now. */
static void add_device_peaks(wd_memory_plan *out, const char *name, wd_memory_phase phase,
                             wd_devices *devices)
{
    for (int d = 0; d < devices->count; d++) {
        wd_device *device = devices->device[d];
        const int place = wd_memory_place(devices, d);
        wd_memory_plan_add(out, name, phase, place,
                           wd_device_bytes_peak(device) - wd_device_bytes(device));
        wd_memory_plan_add_parts(out, phase, place, device);
    }
}

/* Draws one sheet. What it leaves for the next ones, and how much more there was on the way. */
static wd_status plan_samples(wd_memory_plan *out, wd_stepper *stepper,
                              const wd_samples_options *options, wd_devices *devices,
                              wd_queue *decoder, wd_err *err)
{
    wd_status status;
    wd_samples *samples = NULL;
    wd_samples_options dry = *options;
    const int64_t before = wd_memory_held();
    dry.steps = SAMPLE_STEPS;
    dry.decoder = decoder;
    WD_TRY_OUT(wd__samples_open(&samples, &dry, stepper, err));
    restart_peaks(devices);
    WD_TRY_OUT(wd__samples_write(samples, 0, err));
    wd_memory_plan_add(out, "sample noise and pictures", WD_MEMORY_TRAINING, WD_MEMORY_HOST,
                       (size_t)(wd_memory_held() - before));
    wd_memory_plan_add(out, "samples on the way", WD_MEMORY_SAMPLING, WD_MEMORY_HOST,
                       (size_t)(wd_memory_peak() - wd_memory_held()));
    out->sheet = wd__samples_last_work(samples);
    if (!stepper->options.trajectory.student_steps) /* else it makes its own number of steps */
        out->sheet.student *= (double)options->steps / SAMPLE_STEPS;
    add_device_peaks(out, "sampler and VAE", WD_MEMORY_SAMPLING, devices);
out:
    wd__samples_close(samples);
    return status;
}

/* Makes the states, and validates once. */
static wd_status plan_validation(wd_memory_plan *out, wd_stepper *stepper, wd_devices *devices,
                                 wd_err *err)
{
    wd_status status;
    bool measured;
    wd_validation *validation = NULL;
    wd_validation_result result;
    const int64_t before = wd_memory_held();
    WD_TRY_OUT(wd__validation_open(&validation, stepper->options.validation, stepper, err));
    wd_memory_plan_add(out, "validation states", WD_MEMORY_TRAINING, WD_MEMORY_HOST,
                       (size_t)(wd_memory_held() - before));
    restart_peaks(devices);
    WD_TRY_OUT(wd__validation_prepare(validation, NULL, "", err));
    WD_TRY_OUT(wd__validation_measure(&result, &measured, validation, err));
    wd_memory_plan_add(out, "validation on the way", WD_MEMORY_VALIDATING, WD_MEMORY_HOST,
                       (size_t)(wd_memory_peak() - wd_memory_held()));
    out->validation_flops = wd__validation_flops(validation);
    add_device_peaks(out, "validation batch", WD_MEMORY_VALIDATING, devices);
out:
    wd__validation_close(validation);
    return status;
}

/* The teacher's weights: device memory while they are brought; host memory that stays. */
static wd_status plan_weights(wd_residency **out, wd_memory_plan *plan,
                              const wd_stepper_options *options, wd_devices *devices,
                              const wd_placement *placement, wd_err *err)
{
    WD_TRY(wd_residency_open_placed(out, options->teacher, placement, options->teacher_dtype,
                                    devices->teacher, devices->host, options->comm, err));
    for (int d = 0; d < devices->count; d++) {
        wd_device *device = devices->device[d];
        const int place = wd_memory_place(devices, d);
        wd_memory_plan_add(plan, "teacher weights, converted", WD_MEMORY_OPENING, place,
                           wd_device_bytes_peak(device));
        wd_memory_plan_add_parts(plan, WD_MEMORY_OPENING, place, device);
    }
    const bool shares = options->comm && options->comm->host_ranks > 1 && placement->each;
    wd_memory_plan_add(
        plan, shares ? "part of the host's teacher weights" : "teacher weights in host memory",
        WD_MEMORY_TRAINING, WD_MEMORY_HOST, wd_residency_info_of(*out)->host_bytes);
    plan->mapped_bytes = wd_residency_info_of(*out)->mapped_bytes;
    return WD_OK;
}

/* Adds what networks have in host memory; returns how much that is. */
static size_t add_networks_on_host(wd_memory_plan *out, const wd_stepper *m)
{
    size_t all = 0;
    for (int k = 0; k < m->networks; k++) {
        const wd_params *params = m->params[k];
        const size_t kept = wd_params_kept_bytes(params);
        if (kept)
            wd_memory_plan_add(out, params->names->kept_copy, WD_MEMORY_TRAINING, WD_MEMORY_HOST,
                               kept);
        all += kept;
        for (int i = 0; i < WD_PARAMS_BUFFERS; i++) {
            const wd_params_buffer buffer = (wd_params_buffer)i;
            if (!params->buffer[i] || !wd_params_is_on_host(params, buffer)) continue;
            const size_t bytes = wd_params_buffer_bytes(params, buffer);
            wd_memory_plan_add(out, params->names->buffer[i], WD_MEMORY_TRAINING, WD_MEMORY_HOST,
                               bytes);
            all += bytes;
        }
    }
    return all;
}

static void add_devices(wd_memory_plan *out, wd_devices *devices)
{
    for (int d = 0; d < devices->count; d++) {
        account to = {out, wd_memory_place(devices, d)};
        wd_device_each_block(devices->device[d], add_block, &to);
        out->workspace[d] = wd_queue_workspace_bytes(devices->teacher[d]);
        if (devices->teacher[d] == devices->student) continue;
        wd_memory_plan_add(out, "workspace of a queue", WD_MEMORY_TRAINING, to.place,
                           out->workspace[d]);
    }
    wd_memory_plan_add(out, "workspace of a queue", WD_MEMORY_TRAINING, wd_memory_place(devices, 0),
                       wd_queue_workspace_bytes(devices->student));
    if (devices->home == devices->student) return;
    wd_memory_plan_add(out, "workspace of a queue", WD_MEMORY_TRAINING, wd_memory_place(devices, 0),
                       wd_queue_workspace_bytes(devices->home));
}

static wd_status plan_phase(wd_memory_plan *out, const wd_stepper_options *options,
                            const wd_samples_options *samples, const wd_devices *devices,
                            const wd_placement *placement, wd_err *err)
{
    wd_status status;
    wd_devices dry = {0};
    wd_residency *residency = NULL;
    wd_stepper *stepper = NULL;
    wd_checkpoint_tensors tensors = {0};
    wd_stepper_options stepper_options = *options;
    wd_comm *comm = NULL;
    int64_t before;
    stepper_options.text = no_text;
    if (options->comm) WD_TRY_OUT(wd_comm_open_dry(&comm, options->comm, err));
    stepper_options.comm = comm;
    WD_TRY_OUT(wd__devices_open_dry(&dry, devices, err));
    before = wd_memory_held(); /* the run has its devices already */
    wd_memory_plan_only(true);
    if (placement)
        WD_TRY_OUT(plan_weights(&residency, out, &stepper_options, &dry, placement, err));
    const wd_stepper_teacher teacher = {residency, placement, dry.teacher, dry.home};
    WD_TRY_OUT(wd_stepper_open(&stepper, &stepper_options, &teacher, dry.student, err));
    run_student(out, stepper);
    if (placement) WD_TRY_OUT(wd_source_prepare(stepper->source, 1, err));
    WD_TRY_OUT(wd_source_begin_step(stepper->source, 0, 0, err)); /* a snapshot is in checkpoints */
    wd__stepper_list_networks(stepper, &tensors);
    tensors.other = wd_source_saved(stepper->source, &tensors.others);
    WD_TRY_OUT(wd_checkpoint_space_of(&out->checkpoint, &tensors, err));
    wd_memory_plan_add(out, "tables and staging", WD_MEMORY_TRAINING, WD_MEMORY_HOST,
                       (size_t)(wd_memory_held() - before) - add_networks_on_host(out, stepper));
    if (!comm || comm->rank == 0)
        wd_memory_plan_add(out, "checkpoint on its way to disk", WD_MEMORY_SAVING, WD_MEMORY_HOST,
                           wd_checkpoint_write_bytes(&tensors));
    if (samples->count)
        WD_TRY_OUT(
            plan_samples(out, stepper, samples, &dry, twin(&dry, devices, samples->decoder), err));
    if (options->validation && options->validation->prompts)
        WD_TRY_OUT(plan_validation(out, stepper, &dry, err));
    WD_TRY_OUT(wd_device_check_kernels(err));
    for (int d = 0; d < dry.count; d++) WD_TRY_OUT(wd_device_check_planned(dry.device[d], err));
    add_devices(out, &dry);
out:
    wd_memory_plan_only(false);
    wd_stepper_close(stepper);
    wd_residency_close(residency);
    wd_devices_close(&dry);
    wd_comm_close(comm);
    return status;
}

/* Of items, or parts, of one name, phase and place the larger one is kept. */
static void keep_larger(wd_memory_item *item, int *items, int items_max,
                        const wd_memory_item *other)
{
    int i = 0;
    while (i < *items && (item[i].phase != other->phase || item[i].place != other->place ||
                          strcmp(item[i].name, other->name)))
        i++;
    if (i == items_max) return;
    if (i == *items) item[(*items)++] = *other;
    if (other->bytes > item[i].bytes) item[i].bytes = other->bytes;
}

/* A run has what its phases have in turn: one frees its source before the next opens its own. */
wd_status wd_memory_plan_stepper(wd_memory_plan *out, const wd_stepper_options *options,
                                 const wd_samples_options *samples, const wd_devices *devices,
                                 const wd_placement *placement, wd_err *err)
{
    const int count = options->phases.count ? options->phases.count : 1;
    wd_memory_plan most = {0};
    for (int p = 0; p < count; p++) {
        wd_memory_plan one = {0};
        const wd_stepper_options o =
            wd__stepper_of_phase(options, &(wd_phase_begin){.phase = p}, options->steps);
        WD_TRY(plan_phase(&one, &o, samples, devices, placement, err));
        for (int i = 0; i < one.items; i++)
            keep_larger(most.item, &most.items, WD_MEMORY_ITEMS_MAX, &one.item[i]);
        for (int i = 0; i < one.parts; i++)
            keep_larger(most.part, &most.parts, WD_MEMORY_PARTS_MAX, &one.part[i]);
        if (p == 0 || one.sheet.student > out->sheet.student) out->sheet = one.sheet;
        if (p == 0 || one.validation_flops > out->validation_flops)
            out->validation_flops = one.validation_flops;
        if (one.checkpoint.file > out->checkpoint.file) out->checkpoint = one.checkpoint;
        out->mapped_bytes = one.mapped_bytes;
        memcpy(out->workspace, one.workspace, sizeof out->workspace);
        out->student_flops_per_sample = one.student_flops_per_sample;
        out->student_weights = one.student_weights;
        out->student_islands = one.student_islands;
    }
    for (int i = 0; i < most.items; i++) {
        const wd_memory_item *item = &most.item[i];
        wd_memory_plan_add(out, item->name, item->phase, item->place, item->bytes);
    }
    for (int i = 0; i < most.parts && out->parts < WD_MEMORY_PARTS_MAX; i++)
        out->part[out->parts++] = most.part[i];
    return WD_OK;
}
