/* See api/train_plan.h. */
#include "api/train_plan.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/host.h"
#include "core/log.h"
#include "core/memory.h"
#include "teacher/rates.h"
#include "teacher/teacher_size.h"

/* Where nothing is known of the disk that the teacher lies on. */
static const double DISK_BYTES_PER_S = 2e9;

/* ---- what was asked for ---- */

static wd_status choose_strategy(wd_train_plan *p, const wd_train_options *o, wd_err *err)
{
    const int others = p->devices->count - 1;
    const char *name = o->teacher_device_strategy;
    if (!name && o->teacher_device_map) name = "custom";
    if (!name && o->teacher_rank >= 0) name = "gpu0";
    if (name) return wd_strategy_of(&p->asked, name, err);
    p->asked = !others ? WD_STRATEGY_cpu : others == 1 ? WD_STRATEGY_gpu : WD_STRATEGY_auto;
    p->reason = !others       ? "there is no device but the processor"
                : others == 1 ? "there is one device"
                              : "there are several devices";
    return WD_OK;
}

/* ---- sizes ---- */

static wd_status size_from_files(wd_train_plan *p, const wd_train_setup *s, wd_err *err)
{
    wd_status status = WD_OK;
    const int experts = wd_teacher_experts(&s->teacher);
    const wd_dtype storage = s->trainer.machine.teacher_dtype;
    wd_teacher_files files[WD_PLACED_EXPERTS_MAX] = {{NULL, WD_F32}, {NULL, WD_F32}};
    wd_safetensors *weights[WD_PLACED_EXPERTS_MAX] = {NULL, NULL};
    for (int e = 0; e < experts && *s->teacher.path && status == WD_OK; e++) {
        status = wd_pipeline_open_weights(&weights[e], &s->teacher,
                                          e ? WD_COMPONENT_TRANSFORMER_2 : WD_COMPONENT_TRANSFORMER,
                                          err);
        files[e].weights = weights[e];
    }
    if (weights[0])
        snprintf(p->weights_file, sizeof p->weights_file, "%s",
                 wd_safetensors_at(weights[0], 0)->file);
    if (status == WD_OK)
        status = wd_teacher_size_of(&p->input.size, &s->teacher.dit, experts, files, storage, err);
    for (int e = 0; e < experts; e++) wd_safetensors_close(weights[e]);
    return status;
}

/* ---- rates ---- */

/* FLOP/s that nobody has stated. */
static wd_status measure_compute(double *flops_per_s, const wd_train_plan *p, int device,
                                 wd_err *err)
{
    const wd_sweep_options *o = &p->input.sweep;
    const wd_dit_shape one = {.samples = 1, .frames = 1, .height = o->height, .width = o->width};
    return wd_rate_of_products(flops_per_s, p->devices->teacher[device], o->dtype,
                               2 * wd_dit_tokens(&o->config, &one), wd_dit_width(&o->config),
                               o->config.ffn_dim, err);
}

/* What is stated, else as in `like`, whose links are these and whose products are of the same dtype
 * if `same`; else measured. */
static wd_status find_device_rates(wd_train_plan *p, int i, const wd_site *like, bool same,
                                   wd_err *err)
{
    const wd_devices *d = p->devices;
    wd_site_device *to = &p->input.site.device[i];
    const wd_device_spec *spec = i < d->list.count ? &d->list.device[i] : NULL;
    to->flops_per_s = spec ? spec->flops_per_s : d->list.processor_flops_per_s;
    if (!(to->flops_per_s > 0) && same) to->flops_per_s = like->device[i].flops_per_s;
    if (!(to->flops_per_s > 0)) WD_TRY(measure_compute(&to->flops_per_s, p, i, err));
    to->link_bytes_per_s = to->reads_host ? INFINITY
                           : like         ? like->device[i].link_bytes_per_s
                                          : spec->link_bytes_per_s;
    if (!(to->link_bytes_per_s > 0))
        WD_TRY(wd_rate_of_link(&to->link_bytes_per_s, d->teacher[i], err));
    wd_device_restart_peak(d->device[i]); /* what measuring took is no part of the plan */
    return WD_OK;
}

static wd_status find_rates(wd_train_plan *p, const wd_train_plan *like, wd_err *err)
{
    wd_site *site = &p->input.site;
    const bool same = like && like->input.sweep.dtype == p->input.sweep.dtype;
    for (int i = 0; i < p->devices->count; i++)
        WD_TRY(find_device_rates(p, i, like ? &like->input.site : NULL, same, err));
    site->disk_bytes_per_s = like ? like->input.site.disk_bytes_per_s : DISK_BYTES_PER_S;
    if (like || !*p->weights_file) return WD_OK;
    return wd_rate_of_disk(&site->disk_bytes_per_s, p->weights_file, err);
}

/* ---- budgets ---- */

static wd_status find_budgets(wd_train_plan *p, const wd_train_setup *s, wd_err *err)
{
    const wd_devices *d = p->devices;
    wd_site *site = &p->input.site;
    wd_machine_options machine = s->trainer.machine;
    if (!machine.window) machine.window = machine.trajectory.slots;
    if (!machine.micro_batch) machine.micro_batch = 1;
    p->beside = p->text;
    WD_TRY(wd_plan_machine(&p->beside, &machine, &s->trainer.samples, d, NULL, err));
    site->devices = d->count;
    for (int i = 0; i < d->count; i++) {
        wd_site_device *to = &site->device[i];
        p->input.target[i] = d->device[i];
        to->reads_host = i == d->processor;
        to->bytes = to->reads_host ? SIZE_MAX : wd_device_bytes_max(d->device[i]);
        to->taken = to->reads_host ? 0 : wd_plan_training_peak(&p->beside, i);
        if (i == 0 && to->reads_host) to->workspace = p->beside.student_workspace;
    }
    site->host_taken = wd_plan_training_peak(&p->beside, WD_PLAN_HOST);
    site->host_bytes = p->host_budget;
    return WD_OK;
}

/* What the run may have of host memory: what was said, or what is free and what it has already. */
static wd_status find_host_budget(wd_train_plan *p, const wd_train_setup *s, wd_err *err)
{
    if (s->options.host_memory)
        return wd_bytes_parse(&p->host_budget, "--host_memory", s->options.host_memory, err);
    const size_t now = wd_host_memory_own(), free = wd_host_memory_available();
    const size_t taken = now > s->bytes_before ? now - s->bytes_before : 0;
    p->host_budget = free < SIZE_MAX - taken ? free + taken : SIZE_MAX;
    return WD_OK;
}

/* ---- open ---- */

static void fill_input(wd_train_plan *p, const wd_train_setup *s)
{
    const wd_machine_options *m = &s->trainer.machine;
    wd_planner_input *in = &p->input;
    in->sweep = wd_machine_sweep_options(m);
    in->trajectories = m->trajectory.slots;
    in->teacher_rank = s->options.teacher_rank > 0 ? (int)s->options.teacher_rank : 0;
    in->slots = (int)s->options.teacher_prefetch + 1;
    in->student_device = 0;
    const double samples = (double)(m->batch * m->accumulation);
    in->step_targets = samples / (double)m->reuse;
    in->student_step_flops = samples * p->beside.student_flops_per_sample;
}

/* `like`: a plan whose measurements are good for this one, too; NULL: there is none. */
static wd_status open_plan(wd_train_plan *p, wd_train_setup *s, const wd_train_plan *like,
                           wd_err *err)
{
    wd_machine_options *m = &s->trainer.machine;
    WD_TRY(choose_strategy(p, &s->options, err));
    WD_TRY(find_host_budget(p, s, err));
    WD_TRY(find_budgets(p, s, err));
    WD_TRY(size_from_files(p, s, err));
    fill_input(p, s);
    WD_TRY(wd_trajectory_experts(&p->expert, &p->input.rounds, &m->trajectory,
                                 p->input.sweep.boundary_timestep, err));
    p->input.expert = p->expert;
    if (p->map.given) p->input.custom = &p->map.placement;
    WD_TRY(find_rates(p, like, err));
    WD_TRY(wd_planner_open(&p->planner, &p->input, err));
    if (p->asked == WD_STRATEGY_auto)
        WD_TRY(wd_planner_auto(&p->chosen, p->planner, err));
    else
        WD_TRY(wd_planner_need(&p->chosen, p->planner, p->asked, err));
    m->window = p->chosen.window;
    m->micro_batch = p->chosen.micro_batch;
    return WD_OK;
}

static wd_status finish_open(wd_train_plan *p, wd_train_setup *setup, const wd_train_plan *like,
                             wd_err *err)
{
    const wd_status status = open_plan(p, setup, like, err);
    if (status != WD_OK) wd_train_plan_close(p);
    return status;
}

wd_status wd_train_plan_open(wd_train_plan *out, wd_train_setup *setup, wd_devices *devices,
                             const wd_teacher_map *map, const wd_memory_plan *text, wd_err *err)
{
    *out = (wd_train_plan){.devices = devices, .map = *map, .text = *text};
    return finish_open(out, setup, NULL, err);
}

wd_status wd_train_plan_open_like(wd_train_plan *out, wd_train_setup *setup,
                                  const wd_train_plan *like, wd_err *err)
{
    *out = (wd_train_plan){.devices = like->devices, .map = like->map, .text = like->text};
    return finish_open(out, setup, like, err);
}

void wd_train_plan_close(wd_train_plan *plan)
{
    wd_planner_close(plan->planner);
    wd_free(plan->expert);
    plan->planner = NULL;
    plan->expert = NULL;
}

/* ---- in words ---- */

const char *wd_train_plan_limit(char *out, size_t out_bytes, const wd_train_plan *plan,
                                const wd_strategy_plan *of)
{
    static const char *const lane[] = {[WD_LANE_COMPUTE] = "compute of ",
                                       [WD_LANE_LINK] = "the link of ",
                                       [WD_LANE_DISK] = "the disk"};
    const int d = of->timeline.limit_device;
    if (of->student_limits)
        snprintf(out, out_bytes, "compute of %s", plan->devices->name[0]);
    else
        snprintf(out, out_bytes, "%s%s", lane[of->timeline.limit],
                 d < 0 ? "" : plan->devices->name[d]);
    return out;
}

/* Why it is this strategy. */
static const char *reason_text(char *out, size_t out_bytes, const wd_train_plan *plan,
                               const wd_strategy_plan *of)
{
    *out = 0;
    if (plan->asked == WD_STRATEGY_auto)
        snprintf(out, out_bytes, ", by auto as the fastest of %d that fit", of->rivals);
    else if (plan->reason)
        snprintf(out, out_bytes, ", for %s", plan->reason);
    return out;
}

void wd_train_plan_line(char *out, size_t out_bytes, const wd_train_plan *plan,
                        const wd_strategy_plan *of)
{
    char limit[64], reason[96];
    snprintf(
        out, out_bytes,
        "teacher: %s%s, window %" PRId64 ", %" PRId64 " at a time: %.3g s per step, limited by %s",
        wd_strategy_name(of->strategy), reason_text(reason, sizeof reason, plan, of), of->window,
        of->micro_batch, of->step_seconds, wd_train_plan_limit(limit, sizeof limit, plan, of));
}
