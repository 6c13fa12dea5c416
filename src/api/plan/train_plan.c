/* The plan of a run: see api/plan/train_plan.h. */
#include "api/plan/train_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/options/teacher_choice.h"
#include "api/plan/optimizer_place.h"
#include "api/plan/plan_print.h"
#include "api/plan/sheets.h"
#include "api/plan/target_reuse.h"
#include "api/plan/train_cluster.h"
#include "api/plan/validation_plan.h"
#include "api/setup/memory_report.h"
#include "core/memory.h"
#include "dev/ops.h"
#include "teacher/plan/stage_layout.h"
#include "train/network/optimizer.h"

/* ---- the requested strategy ---- */

static wd_status choose_strategy(wd_train_plan *p, const wd_train_setup *s, wd_err *err)
{
    const wd_train_options *o = &s->options;
    const char *name = o->teacher_device_strategy;
    if (!name && o->teacher_device_map) name = "custom";
    if (!name && o->teacher_rank >= 0) name = "gpu0";
    WD_TRY(wd_strategy_of(&p->asked, name ? name : wd_strategy_name(WD_STRATEGY_auto), err));
    const bool is_alone = p->devices->count == 1 && !p->devices->processor;
    if (is_alone) p->asked = wd_teacher_choice_on_processor(p->asked);
    return WD_OK;
}

/* ---- sizes ---- */

/* Without a teacher its stages take neither memory nor time. */
static void size_of_none(wd_train_plan *p, const wd_train_setup *s)
{
    p->merged_bytes = 0;
    p->input.size = (wd_teacher_size){.experts = wd_teacher_experts(&s->teacher),
                                      .stages = wd_dit_stages(&s->teacher.dit)};
}

static wd_status need_nothing(wd_sweep_need *out, const wd_sweep_options *options,
                              wd_device *target, wd_err *err)
{
    (void)options, (void)target, (void)err;
    *out = (wd_sweep_need){0};
    return WD_OK;
}

static wd_status size_from_files(wd_train_plan *p, const wd_train_setup *s, wd_err *err)
{
    wd_status status = WD_OK;
    const int experts = wd_teacher_experts(&s->teacher);
    const wd_dtype storage = s->trainer.stepper.teacher_dtype;
    const wd_teacher_files published = {.dtype = WD_F32, .quantised = s->teacher.overlay.quantised};
    wd_teacher_files files[WD_PLACED_EXPERTS_MAX] = {published, published};
    wd_safetensors *weights[WD_PLACED_EXPERTS_MAX] = {NULL, NULL};
    p->merged_bytes = 0;
    for (int e = 0; e < experts && *s->teacher.path && status == WD_OK; e++) {
        status = wd_pipeline_open_weights(&weights[e], &s->teacher,
                                          e ? WD_COMPONENT_TRANSFORMER_2 : WD_COMPONENT_TRANSFORMER,
                                          err);
        files[e].weights = weights[e];
        if (status == WD_OK) p->merged_bytes += wd_overlay_bytes_to_write(weights[e]);
    }
    if (weights[0])
        snprintf(p->weights_file, sizeof p->weights_file, "%s",
                 wd_safetensors_at(weights[0], 0)->file);
    if (status == WD_OK)
        status = wd_teacher_size_of(&p->input.size, &s->teacher.dit, experts, files, storage, err);
    for (int e = 0; e < experts; e++) wd_safetensors_close(weights[e]);
    return status;
}

/* ---- open ---- */

/* The bytes that every rank receives after the reduction of gradients: their sums, or, with
 * --shard_optimizer, new weights and the parts of the norm (train/network/shard.h). */
static double gathered_bytes(const wd_stepper_options *m, const wd_memory_plan *without_teacher)
{
    const double weights = (double)without_teacher->student_weights;
    if (!m->shard_optimizer) return weights * (double)wd_dtype_bytes(m->gradients);
    const double sums = weights / WD_SUM_CHUNK * sizeof(double);
    if (m->student_dtype == WD_F32) return weights * sizeof(float) + sums;
    return weights * 2 + (double)without_teacher->student_islands * sizeof(float) + sums;
}

/* Sets the copies of gradients. With several ranks that have no peers they are copied to host
 * memory, and the results from there. With --shard_optimizer a rank also copies its share of the
 * sums to the device, and its share of new weights to host memory. */
static void fill_copies(wd_planner_gradients *g, const wd_stepper_options *m)
{
    const double ranks = wd_stepper_ranks(m);
    if (!m->comm || m->comm->peers || (ranks == 1 && !m->deterministic_reduce)) return;
    const double sums =
        m->deterministic_reduce ? g->reduced_bytes / (double)m->accumulation : g->reduced_bytes;
    g->out_bytes = g->reduced_bytes;
    g->in_bytes = g->gathered_bytes;
    if (!m->shard_optimizer) return;
    g->out_bytes += g->gathered_bytes / ranks;
    g->in_bytes += sums / ranks;
}

static void fill_gradients(wd_planner_gradients *g, const wd_stepper_options *m,
                           const wd_memory_plan *without_teacher)
{
    /* gradients are final in the backward pass of the last micro-batch, or of each one */
    const double rounds = m->deterministic_reduce ? (double)m->accumulation : 1;
    g->reduced_bytes =
        rounds * (double)without_teacher->student_weights * (double)wd_dtype_bytes(m->gradients);
    g->gathered_bytes = gathered_bytes(m, without_teacher);
    fill_copies(g, m);
    g->direct = m->comm && m->comm->peers;
    g->gathered_flat = m->comm && !m->comm->in_blocks;
    g->reduced_flat = g->gathered_flat || m->deterministic_reduce;
    g->final_share = WD_BACKWARD_SHARE * rounds / (double)m->accumulation;
}

/* Sets what the student's steps take, of input.student. */
static void fill_student(wd_train_plan *p, const wd_train_setup *s)
{
    const wd_stepper_options m = wd_stepper_in_phase_of_most_targets(&s->trainer.stepper);
    const wd_memory_plan *without_teacher = p->without_teacher;
    const double weights = (double)without_teacher->student_weights;
    const double share = m.shard_optimizer ? weights / wd_stepper_ranks(&m) : weights;
    wd_planner_student *to = &p->input.student;
    *to = (wd_planner_student){.step_targets = wd_stepper_step_targets(&m),
                               .steps_ahead =
                                   wd_stepper_steps_ahead(&m, without_teacher->student_weights),
                               .step_flops = (double)(m.batch * m.accumulation) *
                                             without_teacher->student_flops_per_sample,
                               .step_bytes = wd_stepper_step_bytes(&m),
                               .back_bytes = wd_stepper_back_bytes(&m)};
    const bool ema_alone = m.place == WD_STATE_EMA_ON_HOST;
    if (m.place == WD_STATE_ON_DEVICE || (ema_alone && !m.ema)) return;
    const wd_optimizer_traffic moved =
        wd_optimizer_host_traffic(m.student_dtype, m.gradients, weights,
                                  (double)without_teacher->student_islands, share, ema_alone);
    to->step_bytes += moved.in;
    to->back_bytes += moved.out;
    to->update_weights = share;
    to->update_bytes = moved.in + moved.out;
    to->update_waits = wd_stepper_update_waits(&m);
    to->update_of_ema = ema_alone;
}

static void fill_input(wd_train_plan *p, const wd_train_setup *s)
{
    const wd_stepper_options busiest = wd_stepper_in_phase_of_most_targets(&s->trainer.stepper);
    const wd_stepper_options *m = &busiest;
    const wd_train_options *o = &s->options;
    const wd_memory_plan *without_teacher = p->without_teacher;
    wd_planner_input *in = &p->input;
    p->step_samples = (double)(m->batch * m->accumulation) * wd_train_ranks(s);
    in->sweep = wd_stepper_sweep_options(m);
    in->cluster.teacher = wd_precision_of(in->sweep.dtype);
    in->cluster.student = wd_precision_of(m->student_dtype);
    in->devices.need = s->no_teacher ? need_nothing : wd_sweep_plan_need;
    in->request.teacher_rank = o->teacher_rank > 0 ? (int)o->teacher_rank : 0;
    in->request.buffers = (int)o->teacher_prefetch + 1;
    in->rounds.trajectories = m->trajectory.slots;
    fill_student(p, s);
    fill_gradients(&in->gradients, m, without_teacher);
}

wd_status wd__train_plan_choose(wd_train_plan *plan, wd_err *err)
{
    WD_TRY(wd_planner_open(&plan->planner, &plan->input, err));
    return wd_planner_plan(&plan->chosen, plan->planner, plan->asked, err);
}

wd_status wd__train_plan_again(wd_train_plan *out, const wd_train_plan *plan, wd_train_setup *setup,
                               wd_err *err)
{
    *out = *plan;
    out->planner = NULL;
    WD_TRY(wd__train_cluster_plan_again(out, setup, &setup->trainer.samples, err));
    fill_student(out, setup);
    WD_TRY(wd__train_plan_choose(out, err));
    return wd__sheets_choose(out, setup, err);
}

/* Sets window and micro-batch of the stepper to those of the chosen plan. */
static void follow(wd_stepper_options *stepper, const wd_strategy_plan *chosen)
{
    stepper->window = chosen->window;
    stepper->micro_batch = chosen->micro_batch;
}

/* Whether a device has too little memory even without the teacher, wherever sheets are decoded:
 * then no strategy fits. */
static bool is_hopeless(const wd_train_plan *p)
{
    const wd_devices *d = p->devices;
    const int ways = p->input.decoding.processor_may ? 2 : 1;
    int hopeless = 0;
    for (int k = 0; k < ways; k++)
        for (int i = 0; i < d->count; i++)
            if (i != d->processor && wd_memory_plan_peak(&p->without_teacher[k], i) >
                                         wd_device_bytes_max(d->device[i])) {
                hopeless++;
                break;
            }
    return hopeless == ways;
}

/* Opens a plan. `like`: a plan whose measurements are used again; NULL: there is none. A plan that
 * is made only to see whether it fits gives up where it cannot: to play it would take long for a
 * batch of thousands. */
static wd_status open_plan(wd_train_plan *p, wd_train_setup *s, const wd_train_plan *like,
                           bool gives_up, wd_err *err)
{
    wd_stepper_options *m = &s->trainer.stepper;
    p->no_teacher = s->no_teacher;
    WD_TRY(choose_strategy(p, s, err));
    WD_TRY(wd__train_cluster_budgets(p, s, like, err));
    if (gives_up && is_hopeless(p))
        return wd_fail(err, WD_DOES_NOT_FIT, "the student alone needs more memory than there is");
    if (s->no_teacher)
        size_of_none(p, s);
    else
        WD_TRY(size_from_files(p, s, err));
    fill_input(p, s);
    const wd_stepper_options busiest = wd_stepper_in_phase_of_most_targets(m);
    WD_TRY(wd_trajectory_experts(&p->expert, &p->input.rounds.count, &busiest.trajectory,
                                 p->input.sweep.boundary_timestep, err));
    p->input.rounds.expert = p->expert;
    if (p->map.given) p->input.request.custom = &p->map.placement;
    WD_TRY(wd__train_cluster_rates(p, s, like, err));
    WD_TRY(wd__train_plan_choose(p, err));
    follow(m, &p->chosen);
    return WD_OK;
}

static wd_status finish_open(wd_train_plan *p, wd_train_setup *setup, const wd_train_plan *like,
                             bool gives_up, wd_err *err)
{
    const wd_status status = open_plan(p, setup, like, gives_up, err);
    if (status != WD_OK) wd_train_plan_close(p);
    return status;
}

wd_status wd_train_plan_open(wd_train_plan *out, wd_train_setup *setup, wd_devices *devices,
                             const wd_teacher_map *map, const wd_memory_plan *text, wd_err *err)
{
    *out = (wd_train_plan){.devices = devices, .map = *map, .text = *text};
    if (devices->processor == 0) { /* host memory is that of the student's device */
        wd__state_put(WD_STATE_ON_DEVICE, &setup->options, &setup->trainer.stepper);
    }
    return finish_open(out, setup, NULL, false, err);
}

wd_status wd_train_plan_count_program(wd_train_plan *plan, wd_train_setup *setup, wd_err *err)
{
    WD_TRY(wd__train_cluster_count_program(plan, setup, err));
    wd_planner_close(plan->planner);
    plan->planner = NULL;
    WD_TRY(wd__train_plan_choose(plan, err));
    const wd_asked_sheets asked = wd__sheets_asked(setup);
    WD_TRY(wd__optimizer_place_choose(plan, setup, err));
    WD_TRY(wd__target_reuse_choose(plan, setup, asked, err));
    follow(&setup->trainer.stepper, &plan->chosen);
    wd__validation_plan_choose(plan, setup);
    return WD_OK;
}

wd_status wd__train_plan_open_like(wd_train_plan *out, wd_train_setup *setup,
                                   const wd_train_plan *like, wd_err *err)
{
    *out = (wd_train_plan){.devices = like->devices, .map = like->map, .text = like->text};
    return finish_open(out, setup, like, true, err);
}

wd_status wd__train_plan_open_whole(wd_train_plan *out, wd_train_setup *setup,
                                    const wd_train_plan *like, wd_err *err)
{
    *out = (wd_train_plan){.devices = like->devices, .map = like->map, .text = like->text};
    return finish_open(out, setup, like, false, err);
}

void wd_train_plan_close(wd_train_plan *plan)
{
    wd_planner_close(plan->planner);
    wd_free(plan->expert);
    plan->planner = NULL;
    plan->expert = NULL;
}

/* ---- other options ---- */

void wd__train_variant_begin(wd_train_variant *out, const wd_train_setup *setup)
{
    out->setup = *setup;
    wd_stepper_options *m = &out->setup.trainer.stepper;
    m->window = setup->options.teacher_window;
    m->micro_batch = setup->options.teacher_micro_batch;
    m->text_context = NULL; /* a plan computes no text */
}

bool wd__train_variant_fits(wd_train_variant *variant, const wd_train_plan *like)
{
    const wd_status status = wd__train_plan_open_like(&variant->plan, &variant->setup, like, NULL);
    wd_train_plan_close(&variant->plan);
    return status == WD_OK && variant->plan.chosen.fits;
}

/* ---- in words ---- */

const char *wd__train_plan_device(char out[32], const wd_train_plan *plan,
                                  const wd_strategy_plan *candidate, int device)
{
    const wd_placement *p = &candidate->placement;
    const char *name = plan->devices->name[wd_placed_local(p, device)];
    if (p->each || p->ranks <= 1)
        snprintf(out, 32, "%s", name);
    else
        snprintf(out, 32, "%s of rank %d", name, wd_placed_rank(p, device));
    return out;
}

const char *wd__train_plan_limit(char *out, size_t out_bytes, const wd_train_plan *plan,
                                 const wd_strategy_plan *candidate)
{
    static const char *const resource[] = {[WD_RESOURCE_COMPUTE] = "compute of ",
                                           [WD_RESOURCE_LINK] = "the link of ",
                                           [WD_RESOURCE_NETWORK] = "the network of ",
                                           [WD_RESOURCE_DISK] = "the disk"};
    char device[32] = "";
    const int d = candidate->timeline.limit_device;
    if (candidate->network_limits)
        snprintf(out, out_bytes, "the network");
    else if (candidate->update_limits)
        snprintf(out, out_bytes, "the host's update");
    else if (candidate->student_limits)
        snprintf(out, out_bytes, "compute of %s", plan->devices->name[0]);
    else
        snprintf(out, out_bytes, "%s%s", resource[candidate->timeline.limit],
                 d < 0 ? "" : wd__train_plan_device(device, plan, candidate, d));
    return out;
}

int wd_train_plan_decoder(const wd_train_plan *plan, const wd_strategy_plan *candidate)
{
    return candidate->decodes_on_processor ? plan->devices->processor : plan->map.vae;
}

double wd__train_plan_samples_per_s(const wd_train_plan *plan, const wd_strategy_plan *candidate)
{
    return plan->step_samples / candidate->step_seconds;
}

size_t wd__train_plan_peak(const wd_train_plan *plan, const wd_strategy_plan *candidate, int device)
{
    const wd_cluster *cluster = &plan->input.cluster;
    size_t most = 0;
    for (int d = device; d < candidate->bytes.devices; d += cluster->devices) {
        const size_t peak = wd_placed_peak(&candidate->bytes, d);
        if (peak > most) most = peak;
    }
    return most;
}

const char *wd__train_plan_lacks_to_encode(const wd_train_plan *plan)
{
    const wd_devices *d = plan->devices;
    const size_t ranks = (size_t)wd_cluster_host_ranks(&plan->input.cluster);
    wd_memory_plan text = plan->text;
    wd_memory_plan_add(&text, "program", WD_MEMORY_PROGRAM, WD_MEMORY_HOST, plan->program_bytes);
    for (int i = 0; i < d->count; i++)
        if (i != d->processor && wd_memory_plan_peak(&text, i) > wd_device_bytes_max(d->device[i]))
            return d->name[i];
    return ranks * wd_memory_plan_peak(&text, WD_MEMORY_HOST) > plan->host_budget ? "host memory"
                                                                                  : NULL;
}

/* The reason for the choice of this strategy. */
static const char *reason_text(char *out, size_t out_bytes, const wd_train_plan *plan,
                               const wd_strategy_plan *candidate)
{
    *out = 0;
    if (plan->asked == WD_STRATEGY_auto && !candidate->fits)
        snprintf(out, out_bytes, ", by auto as what misses least");
    else if (plan->asked == WD_STRATEGY_auto)
        snprintf(out, out_bytes, ", by auto as the fastest of %d that fit", candidate->rivals);
    return out;
}

bool wd_train_plan_cache_line(char *out, size_t out_bytes, const wd_strategy_plan *candidate)
{
    char mapped[32], left[32];
    if (candidate->objection || !candidate->uncached) return false;
    snprintf(
        out, out_bytes,
        "%s uses %s of weights where their files are mapped, and %s of host memory are left to "
        "keep them: they are read from disk in every sweep, which disk does ahead of time",
        wd_strategy_name(candidate->strategy),
        wd_bytes_text(mapped, sizeof mapped, candidate->bytes.mapped),
        wd_bytes_text(left, sizeof left, candidate->cache_bytes));
    return true;
}

bool wd_train_plan_merge_line(char *out, size_t out_bytes, const wd_train_plan *plan,
                              const wd_train_setup *setup)
{
    char bytes[32];
    const bool quantises = setup->teacher.overlay.quantised != WD_F32;
    if (!plan->merged_bytes) return false;
    snprintf(out, out_bytes,
             "%s: %s of %s weights will be written to %s once, which later runs find there",
             quantises ? "--teacher_dtype" : "LoRAs",
             wd_bytes_text(bytes, sizeof bytes, plan->merged_bytes),
             quantises ? "quantised" : "merged", setup->cache_dir);
    return true;
}

void wd_train_plan_line(char *out, size_t out_bytes, const wd_train_plan *plan,
                        const wd_strategy_plan *candidate)
{
    char limit[64], reason[96], ranks[64] = "";
    if (plan->input.cluster.ranks > 1)
        snprintf(ranks, sizeof ranks, " on %d ranks, %.3g samples/s", plan->input.cluster.ranks,
                 wd__train_plan_samples_per_s(plan, candidate));
    if (plan->no_teacher) {
        snprintf(out, out_bytes, "no teacher, stored targets: %.3g s per step%s, limited by %s",
                 candidate->step_seconds, ranks,
                 wd__train_plan_limit(limit, sizeof limit, plan, candidate));
        return;
    }
    snprintf(out, out_bytes,
             "teacher: %s%s, window %" PRId64 ", %" PRId64
             " at a time: %.3g s per step%s, limited by %s",
             wd_strategy_name(candidate->strategy),
             reason_text(reason, sizeof reason, plan, candidate), candidate->window,
             candidate->micro_batch, candidate->step_seconds, ranks,
             wd__train_plan_limit(limit, sizeof limit, plan, candidate));
}

/* ---- a plan as JSON ---- */

static const char *const home_name[] = {
    [WD_HOME_DEVICE] = "device", [WD_HOME_HOST] = "host memory", [WD_HOME_DISK] = "disk"};

/* Makes an array of runs of stages with equal places: {"expert": 0, "stages": [0, 41], "home": ...,
 * "device": ...}. */
static json_t *placement_json(const wd_train_plan *plan, const wd_strategy_plan *candidate)
{
    char name[32];
    const wd_placement *p = &candidate->placement;
    json_t *runs = json_array();
    for (int e = 0; e < p->experts; e++)
        for (int s = 0, last; s < p->stages; s = last + 1) {
            const wd_stage_placement *place = &p->place[e][s];
            for (last = s; last + 1 < p->stages; last++)
                if (p->place[e][last + 1].home != place->home ||
                    p->place[e][last + 1].device != place->device)
                    break;
            json_array_append_new(
                runs, json_pack("{s:i, s:[i,i], s:s, s:s}", "expert", e, "stages", s, last, "home",
                                home_name[place->home], "device",
                                wd__train_plan_device(name, plan, candidate, place->device)));
        }
    return runs;
}

static json_t *device_json(const wd_train_plan *plan, const wd_strategy_plan *candidate, int d)
{
    char name[32];
    const wd_placed_device *b = &candidate->bytes.device[d];
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "name",
                     wd__train_plan_device(name, plan, candidate, d), "weights",
                     (json_int_t)b->weights, "streaming", (json_int_t)b->streaming, "widening",
                     (json_int_t)b->widening, "activations", (json_int_t)b->activations,
                     "workspace", (json_int_t)b->workspace, "beside", (json_int_t)b->taken,
                     "opening", (json_int_t)b->opening, "peak",
                     (json_int_t)wd_placed_peak(&candidate->bytes, d), "missing",
                     (json_int_t)candidate->missing[d]);
}

/* The bytes per step. */
static json_t *moved_json(const wd_strategy_plan *candidate)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f}", "bytes_copied_per_step",
                     wd_planner_copied(candidate), "bytes_read_per_step",
                     candidate->step_bytes[WD_LINK_READ], "bytes_sent_per_step",
                     candidate->step_bytes_sent, "seconds_of_gradients", candidate->reduce_seconds,
                     "of_these_waited_for", candidate->exposed_seconds);
}

static json_t *host_json(const wd_train_plan *plan, const wd_strategy_plan *candidate)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I}", "host_weights",
                     (json_int_t)candidate->bytes.host.weights, "host_reading",
                     (json_int_t)candidate->bytes.host.reading, "host_mapped",
                     (json_int_t)candidate->bytes.mapped, "host_peak",
                     (json_int_t)wd_placed_host_peak(&candidate->bytes, &plan->input.cluster),
                     "host_missing", (json_int_t)candidate->host_missing);
}

json_t *wd_strategy_plan_json(const wd_train_plan *plan, const wd_strategy_plan *candidate)
{
    char limit[64];
    json_t *devices = json_array();
    const char *name = wd_strategy_name(candidate->strategy);
    if (candidate->objection)
        return json_pack("{s:s, s:b, s:o, s:o}", "strategy", name, "possible", 0, "because",
                         wd_json_string(candidate->objection), "devices", devices);
    for (int d = 0; d < candidate->bytes.devices; d++)
        json_array_append_new(devices, device_json(plan, candidate, d));
    json_t *json =
        json_pack("{s:s, s:b, s:b, s:b, s:I, s:I, s:f, s:f, s:s}", "strategy", name, "possible", 1,
                  "fits", candidate->fits, "each_rank", candidate->placement.each, "window",
                  (json_int_t)candidate->window, "micro_batch", (json_int_t)candidate->micro_batch,
                  "seconds_per_step", candidate->step_seconds, "samples_per_s",
                  wd__train_plan_samples_per_s(plan, candidate), "limited_by",
                  wd__train_plan_limit(limit, sizeof limit, plan, candidate));
    json_object_update_new(json, moved_json(candidate));
    json_object_update_new(json, host_json(plan, candidate));
    json_object_set_new(json, "links", wd__plan_links_json(plan, candidate));
    json_object_set_new(json, "devices", devices);
    json_object_set_new(json, "placement", placement_json(plan, candidate));
    return json;
}
