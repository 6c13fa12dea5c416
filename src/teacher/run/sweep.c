/* The sweep: see teacher/run/sweep.h. */
#include "teacher/run/sweep.h"

#include <inttypes.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "teacher/plan/placement_bytes.h"
#include "teacher/plan/stage_layout.h"
#include "teacher/run/activations.h"

enum { EXPERTS_MAX = WD_PLACED_EXPERTS_MAX };

/* A micro-batch of an expert. */
typedef struct micro_batch {
    int64_t first, samples; /* range of `order` */
    wd_event *delivered;    /* its velocities are there, on the head's device; NULL: another rank
                             * has the head */
} micro_batch;

struct wd_sweep {
    wd_sweep_options options;
    wd_residency *residency;
    const wd_placement *placement; /* the residency's */
    wd_sweep_schedule schedule;    /* of the sweep that is launched */
    int rank;
    wd_activations activations[WD_PLACED_DEVICES_MAX]; /* of this rank's devices */
    wd_activation_transfer sent[WD_PLACED_DEVICES_MAX],
        received[WD_PLACED_DEVICES_MAX]; /* from and to them */
    wd_queue *latents_queue;             /* of the sweep that is launched */
    wd_event *ready;       /* on latents_queue: the states of a micro-batch are there */
    int batches_max;       /* of each expert */
    wd_dit_stage *weights; /* [stages]: those that are acquired */
    int64_t *order;        /* states sorted by expert, padded to a multiple of the size step */
    int64_t sweeps_kept;   /* sweeps whose events are kept: from one sweep that a state is in to its
                            * next, and one more */
    micro_batch *batches;  /* [sweeps_kept, experts, batches_max] */
    int64_t sweeps;
    bool announced; /* the window of the next run is announced */
};

static int expert_of(const wd_sweep *sweep, float timestep)
{
    return sweep->placement->experts == 2 && timestep < sweep->options.boundary_timestep;
}

bool wd_sweep_is_shared(const wd_sweep *sweep)
{
    return sweep->placement->ranks > 1 && !sweep->placement->each;
}

const wd_sweep_options *wd_sweep_options_of(const wd_sweep *sweep)
{
    return &sweep->options;
}

/* ---- the window ---- */

/* A micro-batch of the sweep that is launched. */
static micro_batch *batch_at(const wd_sweep *sweep, int expert, int batch)
{
    const int64_t kept = sweep->sweeps % sweep->sweeps_kept;
    return &sweep->batches[(kept * EXPERTS_MAX + expert) * sweep->batches_max + batch];
}

/* Sorts the states of a window by expert, and cuts them into micro-batches, of which each expert's
 * last may be smaller. Where the number of an expert's states is no multiple of the step, the last
 * state is computed more than once: another small micro-batch would take longer. */
static wd_sweep_work cut(wd_sweep *sweep, const wd_window *window)
{
    const int64_t most = sweep->options.micro_batch, step = wd_dit_samples_step(most);
    wd_sweep_work work = {{0}};
    for (int64_t n = 0, e = 0; e < EXPERTS_MAX; e++) {
        const int64_t first = n;
        for (int64_t i = 0; i < window->count; i++)
            if (expert_of(sweep, window->timestep[i]) == e) sweep->order[n++] = i;
        while ((n - first) % step) sweep->order[n] = sweep->order[n - 1], n++;
        for (int64_t at = first; at < n; at += most) {
            WD_REQUIRE(work.batches[e] < sweep->batches_max,
                       "a sweep has room for %d micro-batches", sweep->batches_max);
            micro_batch *batch = batch_at(sweep, (int)e, work.batches[e]++);
            batch->first = at;
            batch->samples = n - at < most ? n - at : most;
        }
    }
    return work;
}

/* ---- entries of the schedule ---- */

/* Whether a device copies latents and velocities to and from where windows are. A processor's
 * copies see its own pool only. */
static bool copies_itself(const wd_sweep *sweep, const wd_activations *a)
{
    return !wd_device_traits(a->device)->reads_host || a->queue == sweep->latents_queue;
}

/* Work launched on `queue` from now on is done after the work of latents_queue so far. */
static void follow_latents(wd_sweep *sweep, wd_queue *queue)
{
    wd_event_record(sweep->ready, sweep->latents_queue);
    wd_event_wait_on(queue, sweep->ready);
}

static void enter(wd_sweep *sweep, wd_activations *a, wd_activation_place *place,
                  const micro_batch *batch, const wd_window *window)
{
    const wd_sweep_options *o = &sweep->options;
    const int64_t *state = sweep->order + batch->first, count = wd_sweep_latent_count(o);
    const bool pulls = copies_itself(sweep, a);
    if (window->begin) window->begin(window->context, state, batch->samples);
    if (pulls) follow_latents(sweep, a->queue);
    const wd_activations_input input = wd__activations_begin_enter(a);
    for (int64_t i = 0; i < batch->samples; i++) {
        input.timestep[i] = window->timestep[state[i]];
        char *text = input.text + (size_t)i * wd_sweep_text_bytes(o);
        o->text(o->text_context, text, window->prompt[state[i]], o->dtype);
        wd_queue_copy(pulls ? a->queue : sweep->latents_queue, input.latents + i * count,
                      window->latents + state[i] * count, wd_sweep_latent_bytes(o));
    }
    if (!pulls) follow_latents(sweep, a->queue);
    wd__activations_enter(a, place, &input, batch->samples, &sweep->weights[0]);
}

static void leave(wd_sweep *sweep, wd_activations *a, wd_activation_place *place, int expert,
                  const micro_batch *batch, const wd_window *window)
{
    const wd_dit_stage *weights = &sweep->weights[sweep->placement->stages - 1];
    const int64_t *state = sweep->order + batch->first;
    const int64_t count = wd_sweep_latent_count(&sweep->options);
    const bool pushes = copies_itself(sweep, a);
    const float *velocity = wd__activations_leave(a, place, batch->samples, expert, weights);
    for (int64_t i = 0; i < batch->samples; i++) {
        wd_queue_copy(pushes ? a->queue : sweep->latents_queue, window->velocity + state[i] * count,
                      velocity + i * count, wd_sweep_latent_bytes(&sweep->options));
        if (window->delivered) window->delivered[state[i]] = batch->delivered;
    }
    if (!pushes) {
        wd_event_record(sweep->ready, sweep->latents_queue);
        wd_event_wait(sweep->ready); /* the velocities' memory is free again */
    }
    wd_event_record(batch->delivered, a->queue);
}

/* Launches an entry of a device of this rank; `batch` NULL: it is of weights. */
static wd_status launch_here(wd_sweep *sweep, const wd_sweep_entry *e, const micro_batch *batch,
                             const wd_window *window, wd_err *err)
{
    const wd_placement *p = sweep->placement;
    const int local = wd_placed_local(p, e->device), to = wd_placed_local(p, e->to);
    const wd_stage_kind kind = wd_stage_kind_of(e->stage, p->stages);
    wd_activations *a = &sweep->activations[local];
    wd_activation_place *place = batch ? &a->place[e->place] : NULL;
    wd_dit_stage *weights = &sweep->weights[e->stage];
    switch (e->kind) {
    case WD_ENTRY_ACQUIRE:
        return wd_residency_acquire(sweep->residency, weights, e->expert, e->stage, a->queue, err);
    case WD_ENTRY_RELEASE:
        wd_residency_release(sweep->residency, e->expert, e->stage, a->queue);
        break;
    case WD_ENTRY_ENTER:
        enter(sweep, a, place, batch, window);
        break;
    case WD_ENTRY_RUN:
        wd__activations_run_block(a, place, batch->samples, weights);
        break;
    case WD_ENTRY_LEAVE:
        leave(sweep, a, place, e->expert, batch, window);
        break;
    case WD_ENTRY_COPY:
        wd__activations_copy(&sweep->activations[to], &sweep->activations[to].place[e->to_place], a,
                             place, batch->samples, kind);
        break;
    case WD_ENTRY_SEND:
        wd__activation_transfer_send(&sweep->sent[local], a, place, batch->samples, kind,
                                     wd_placed_rank(p, e->to));
        break;
    case WD_ENTRY_RECEIVE:
        wd__activation_transfer_receive(
            &sweep->received[local], a, place, batch->samples, kind,
            wd_placed_rank(p, p->place[e->expert][e->stage - 1].device));
        break;
    }
    return WD_OK;
}

/* Launches this rank's part of an entry. */
static wd_status launch(wd_sweep *sweep, const wd_sweep_entry *e, const wd_window *window,
                        wd_err *err)
{
    const wd_placement *p = sweep->placement;
    const micro_batch *batch = e->batch < 0 ? NULL : batch_at(sweep, e->expert, e->batch);
    if (wd_placed_here(p, e->device, sweep->rank))
        WD_TRY(launch_here(sweep, e, batch, window, err));
    if (e->kind == WD_ENTRY_LEAVE && window->end)
        window->end(window->context, sweep->order + batch->first, batch->samples,
                    wd_placed_rank(p, e->device));
    return WD_OK;
}

/* ---- the sweep ---- */

static wd_sweep_experts experts_of(const wd_sweep *sweep, const wd_window_ahead *window)
{
    wd_sweep_experts experts = {0};
    for (int64_t i = 0; window && i < window->count; i++) {
        const unsigned expert = 1u << expert_of(sweep, window->timestep[i]);
        experts.all |= expert;
        if (i >= window->first && i < window->end) experts.own |= expert;
    }
    return experts;
}

void wd_sweep_announce(wd_sweep *sweep, const wd_window_ahead *window, const wd_window_ahead *next)
{
    wd__residency_begin(sweep->residency, experts_of(sweep, window), experts_of(sweep, next));
    sweep->announced = window->end > window->first;
}

void wd_sweep_forget_next(wd_sweep *sweep)
{
    const wd_sweep_experts none = {0};
    wd__residency_begin(sweep->residency, none, none);
}

wd_status wd_sweep_run(wd_sweep *sweep, const wd_window *window, wd_err *err)
{
    WD_REQUIRE(window->count > 0 && window->count <= sweep->options.window_max,
               "a sweep of at most %" PRId64 " states was given %" PRId64,
               sweep->options.window_max, window->count);
    sweep->latents_queue = window->queue;
    if (!sweep->announced) {
        const wd_window_ahead whole = {window->timestep, window->count, 0, window->count};
        wd_sweep_forget_next(sweep);
        wd_sweep_announce(sweep, &whole, NULL);
    }
    sweep->announced = false;
    sweep->sweeps++;
    const wd_sweep_work work = cut(sweep, window);
    wd_sweep_schedule_make(&sweep->schedule, &work);
    for (int i = 0; i < sweep->schedule.count; i++) {
        WD_TRY(launch(sweep, &sweep->schedule.entry[i], window, err));
        if (window->launched) window->launched(window->context, i + 1, sweep->schedule.count);
    }
    for (int e = 0; e < EXPERTS_MAX; e++)
        for (int b = 0; !window->delivered && b < work.batches[e]; b++)
            if (batch_at(sweep, e, b)->delivered)
                wd_event_wait_on(window->queue, batch_at(sweep, e, b)->delivered);
    return WD_OK;
}

wd_status wd_sweep_run_for_all(wd_sweep *sweep, const wd_window *window, float *host, wd_err *err)
{
    wd_comm *comm = sweep->options.comm;
    const wd_placement *p = sweep->placement;
    const size_t bytes = (size_t)window->count * wd_sweep_latent_bytes(&sweep->options);
    WD_TRY(wd_sweep_run(sweep, window, err));
    if (!wd_sweep_is_shared(sweep) || wd_device_is_dry(wd_queue_device(window->queue)))
        return WD_OK;
    const int expert = expert_of(sweep, window->timestep[0]);
    const int owner = wd_placed_rank(p, p->place[expert][p->stages - 1].device);
    size_t at[comm->ranks + 1];
    for (int r = 0; r <= comm->ranks; r++) at[r] = r > owner ? bytes : 0;
    if (sweep->rank == owner) wd_queue_copy_and_wait(window->queue, host, window->velocity, bytes);
    wd_comm_wait(comm, wd_comm_gather_all(comm, WD_LANE_CONTROL, host, at, NULL));
    if (sweep->rank != owner) wd_queue_copy_and_wait(window->queue, window->velocity, host, bytes);
    return WD_OK;
}

/* ---- open and close ---- */

static wd_status open_device(wd_sweep *sweep, int local, const wd_sweep_device *part,
                             wd_queue *queue, wd_err *err)
{
    wd_activations *a = &sweep->activations[local];
    wd_comm *comm = sweep->options.comm;
    wd_cluster_device on = {0};
    WD_TRY(wd_sweep_need_of(&on.need, &sweep->options, wd_queue_device(queue),
                            wd_device_open_rehearsed, err));
    WD_TRY(wd_device_check_kernels(err));
    WD_TRY(wd__activations_open(a, &sweep->options, part,
                                wd_placed_activations(part, &on.need) - on.need.tables, queue,
                                err));
    WD_TRY(wd_queue_reserve_workspace(queue, wd_placed_workspace(part, &on), err));
    if (part->sends) WD_TRY(wd__activation_transfer_open(&sweep->sent[local], comm, a, err));
    if (part->receives) WD_TRY(wd__activation_transfer_open(&sweep->received[local], comm, a, err));
    return WD_OK;
}

static wd_status open_devices(wd_sweep *sweep, wd_queue *const *queues, wd_err *err)
{
    const wd_placement *p = sweep->placement;
    const int own = p->devices ? p->devices : WD_PLACED_DEVICES_MAX;
    const int first = wd_sweep_is_shared(sweep) ? sweep->rank * own : 0;
    const int all = wd_sweep_is_shared(sweep) ? p->ranks * own : own;
    WD_TRY(wd_sweep_schedule_open(&sweep->schedule, all, p, sweep->batches_max, err));
    for (int d = 0; d < own; d++) {
        const wd_sweep_device *part = &sweep->schedule.of_device[first + d];
        if (part->places) WD_TRY(open_device(sweep, d, part, queues[d], err));
    }
    return WD_OK;
}

static int64_t batches_of(const wd_sweep *sweep)
{
    return sweep->sweeps_kept * EXPERTS_MAX * sweep->batches_max;
}

/* Opens the events of micro-batches whose heads are of this rank. */
static wd_status open_events(wd_sweep *sweep, wd_err *err)
{
    const wd_placement *p = sweep->placement;
    for (int64_t i = 0; i < batches_of(sweep); i++) {
        const int e = (int)(i / sweep->batches_max % EXPERTS_MAX);
        if (e >= p->experts) continue;
        const int head = p->place[e][p->stages - 1].device;
        if (!wd_placed_here(p, head, sweep->rank)) continue;
        wd_device *device = sweep->activations[wd_placed_local(p, head)].device;
        WD_TRY(wd_event_open(&sweep->batches[i].delivered, device, err));
    }
    return WD_OK;
}

static wd_status open_host(wd_sweep *sweep, wd_err *err)
{
    const wd_sweep_options *o = &sweep->options;
    const char *what = "teacher sweep";
    const size_t padding = EXPERTS_MAX * (size_t)(wd_dit_samples_step(o->micro_batch) - 1);
    const size_t states = (size_t)o->window_max + padding,
                 stages = (size_t)sweep->placement->stages;
    WD_TRY(wd_alloc((void **)&sweep->batches, (size_t)batches_of(sweep), sizeof *sweep->batches,
                    what, err));
    WD_TRY(wd_alloc((void **)&sweep->weights, stages, sizeof *sweep->weights, what, err));
    return wd_alloc((void **)&sweep->order, states, sizeof *sweep->order, what, err);
}

wd_status wd_sweep_open(wd_sweep **out, const wd_sweep_options *options, wd_residency *residency,
                        wd_queue *const *queues, wd_err *err)
{
    wd_status status;
    wd_sweep *sweep;
    WD_TRY(wd_alloc((void **)&sweep, 1, sizeof *sweep, "a sweep", err));
    sweep->options = *options;
    sweep->options.micro_batch = wd_sweep_fitted(options->micro_batch, options->window_max);
    sweep->residency = residency;
    sweep->placement = &wd_residency_info_of(residency)->placement;
    sweep->rank = options->comm && wd_sweep_is_shared(sweep) ? options->comm->rank : 0;
    sweep->batches_max = wd_sweep_batches(options);
    sweep->sweeps_kept = (options->sweeps_apart > 0 ? options->sweeps_apart : 1) + 1;
    wd_device *latents_device =
        options->latents_device ? options->latents_device : wd_queue_device(queues[0]);
    WD_TRY_OUT(wd_event_open(&sweep->ready, latents_device, err));
    WD_TRY_OUT(open_host(sweep, err));
    WD_TRY_OUT(open_devices(sweep, queues, err));
    WD_TRY_OUT(open_events(sweep, err));
    *out = sweep;
out:
    if (status != WD_OK) wd_sweep_close(sweep);
    return status;
}

wd_status wd_sweep_check_devices(const wd_sweep *sweep, wd_err *err)
{
    for (int d = 0; d < WD_PLACED_DEVICES_MAX; d++)
        if (sweep->activations[d].device)
            WD_TRY(wd_device_fault(sweep->activations[d].device, err));
    return WD_OK;
}

void wd_sweep_close(wd_sweep *sweep)
{
    if (!sweep) return;
    for (int d = 0; d < WD_PLACED_DEVICES_MAX; d++) {
        wd__activation_transfer_close(&sweep->sent[d]);
        wd__activation_transfer_close(&sweep->received[d]);
        wd__activations_close(&sweep->activations[d]);
    }
    for (int64_t i = 0; sweep->batches && i < batches_of(sweep); i++)
        wd_event_close(sweep->batches[i].delivered);
    wd_sweep_schedule_close(&sweep->schedule);
    wd_event_close(sweep->ready);
    wd_free(sweep->weights);
    wd_free(sweep->batches);
    wd_free(sweep->order);
    wd_free(sweep);
}

/* ---- the memory that a sweep needs ---- */

static void run_kind(wd_activations *s, wd_stage_kind kind, int64_t samples,
                     const wd_dit_stage *stage)
{
    wd_activation_place *place = &s->place[0];
    if (kind == WD_STAGE_BLOCK) {
        wd__activations_run_block(s, place, samples, stage);
    } else if (kind == WD_STAGE_HEAD) {
        wd__activations_leave(s, place, samples, 0, stage);
    } else {
        const wd_activations_input input = wd__activations_begin_enter(s);
        wd__activations_enter(s, place, &input, samples, stage);
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
    const wd_sweep_device all = {.embeds = true, .places = 1};
    const size_t before = wd_device_bytes(dry);
    WD_TRY_OUT(wd_dit_table_open(&table, &o->config, err));
    WD_TRY_OUT(wd_queue_open(&queue, dry, err));
    WD_TRY_OUT(wd__activations_open(&activations, o, &all, 0, queue, err));
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
    need->place = wd__sweep_place_bytes(o);
    wd_placed_most(&need->scratch, activations.arena.peak - need->place);
    wd_placed_most(&need->workspace, wd_queue_workspace_bytes(queue));
out:
    wd__activations_close(&activations);
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
