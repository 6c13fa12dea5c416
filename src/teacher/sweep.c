/* The sweep: see teacher/sweep.h. */
#include "teacher/sweep.h"

#include <inttypes.h>
#include <string.h>

#include "core/memory.h"
#include "core/require.h"
#include "teacher/crossing.h"
#include "teacher/residency_kinds.h"

enum { TOKENS_PER_PASS = 2048, EXPERTS_MAX = WD_PLACED_EXPERTS_MAX };

/* One micro-batch on its way through the stages. */
typedef struct micro_batch {
    int64_t first, samples; /* range of `order` */
    int device;             /* where it is */
    wd_station_slot *slot;  /* and in which place there */
} micro_batch;

/* One expert's share of a sweep. */
typedef struct share {
    int expert, batches;
    wd_event **delivered; /* [batches] */
    const wd_window *window;
} share;

struct wd_sweep {
    wd_sweep_options options;
    wd_residency *residency;
    wd_placement placement;
    int rank;
    wd_station station[WD_PLACED_DEVICES_MAX];                         /* of this rank's devices */
    wd_crossing out[WD_PLACED_DEVICES_MAX], in[WD_PLACED_DEVICES_MAX]; /* from and to them */
    wd_queue *home;  /* of the sweep that is launched */
    wd_event *ready; /* on a queue of home's device: the states of a micro-batch are there */
    wd_device *ready_on;
    int64_t state_count; /* elements of one state's latents */
    int64_t padded_max;  /* places in `order` */
    int batches_max;
    micro_batch *batch;    /* [batches_max] */
    wd_dit_stage *weights; /* [stages]: of the leg */
    int64_t *order;        /* [padded_max] states sorted by expert */
    int64_t told_apart;    /* sweeps, whose ends are: a state's, and those up to its next */
    wd_event **delivered;  /* [told_apart, experts, batches_max], of the exits' devices */
    int64_t sweeps;
    bool announced;              /* the window of the next run is */
    unsigned next;               /* bit e: the run after it has states of expert e */
    int coming[2 * EXPERTS_MAX]; /* experts of the sweep that is launched, then of the next one */
    int comings;
};

int64_t wd_sweep_micro_batch(const wd_dit_config *config, int64_t frames, int64_t height,
                             int64_t width)
{
    const wd_dit_shape one = {.samples = 1, .frames = frames, .height = height, .width = width};
    int64_t samples = TOKENS_PER_PASS / wd_dit_tokens(config, &one);
    return samples > 0 ? samples : 1;
}

wd_sweep_options wd_sweep_fitted(const wd_sweep_options *options)
{
    wd_sweep_options o = *options;
    WD_REQUIRE(o.micro_batch > 0 && o.window_max > 0,
               "a sweep of windows of %" PRId64 " states in micro-batches of %" PRId64,
               o.window_max, o.micro_batch);
    if (o.micro_batch > o.window_max) o.micro_batch = o.window_max;
    while (o.micro_batch % wd_sweep_size_step(o.micro_batch)) o.micro_batch--;
    return o;
}

int64_t wd_sweep_micro_fitted(const wd_sweep_options *options)
{
    return wd_sweep_fitted(options).micro_batch;
}

int wd_sweep_batches(const wd_sweep_options *options)
{
    const wd_sweep_options o = wd_sweep_fitted(options);
    int64_t step = wd_sweep_size_step(o.micro_batch);
    int64_t padded = (o.window_max + step - 1) / step * step;
    return (int)((padded + o.micro_batch - 1) / o.micro_batch);
}

static int expert_of(const wd_sweep *sweep, float timestep)
{
    return sweep->placement.experts == 2 && timestep < sweep->options.boundary_timestep;
}

/* Whether this rank computes a stage. */
static bool is_here(const wd_sweep *sweep, int expert, int stage)
{
    return wd_placed_here(&sweep->placement, &sweep->placement.place[expert][stage], sweep->rank);
}

/* Of a device of this rank. */
static wd_station *station_at(wd_sweep *sweep, int device)
{
    return &sweep->station[wd_placed_local(&sweep->placement, device)];
}

static wd_station *station_of(wd_sweep *sweep, int expert, int stage)
{
    return station_at(sweep, sweep->placement.place[expert][stage].device);
}

bool wd_sweep_is_shared(const wd_sweep *sweep)
{
    return sweep->placement.ranks > 1 && !sweep->placement.each;
}

int64_t wd_sweep_micro_batch_of(const wd_sweep *sweep)
{
    return sweep->options.micro_batch;
}

int64_t wd_sweep_window_max(const wd_sweep *sweep)
{
    return sweep->options.window_max;
}

/* ---- the window ---- */

/* Sorts its states by expert. Where an expert's make no whole number of steps, the last one is
 * computed more than once: that takes less time than a small micro-batch more. */
static void sort_window(int64_t count[EXPERTS_MAX], wd_sweep *sweep, const wd_window *window)
{
    int64_t n = 0, step = wd_sweep_size_step(sweep->options.micro_batch);
    for (int e = 0; e < EXPERTS_MAX; e++) {
        int64_t first = n;
        for (int64_t i = 0; i < window->count; i++)
            if (expert_of(sweep, window->timestep[i]) == e) sweep->order[n++] = i;
        while ((n - first) % step) sweep->order[n] = sweep->order[n - 1], n++;
        count[e] = n - first;
    }
}

/* Cuts [first, first + count) of `order` into micro-batches, of which the last may be smaller. */
static int cut(wd_sweep *sweep, int64_t first, int64_t count)
{
    int n = 0;
    for (int64_t done = 0; done < count; n++) {
        const int64_t left = count - done, most = sweep->options.micro_batch;
        const int64_t size = left < most ? left : most;
        WD_REQUIRE(n < sweep->batches_max, "a sweep has room for %d micro-batches",
                   sweep->batches_max);
        sweep->batch[n] = (micro_batch){.first = first + done, .samples = size, .device = -1};
        done += size;
    }
    return n;
}

/* ---- a micro-batch's way ---- */

/* The latents of a state come into the entry's buffer. */
static void bring_latents(wd_sweep *sweep, wd_station *s, const float *latents)
{
    const size_t bytes = (size_t)sweep->state_count * sizeof(float);
    bool pulls = !wd_device_traits(s->device)->reads_host || s->queue == sweep->home;
    if (pulls) {
        wd_queue_copy(s->queue, s->latents, latents, bytes);
        return;
    }
    wd_queue_copy(sweep->home, s->latents, latents, bytes); /* a processor's see its own pool */
    wd_event_record(sweep->ready, sweep->home);
    wd_event_wait_on(s->queue, sweep->ready);
}

/* Its states go through the embedding. */
static void enter(wd_sweep *sweep, wd_station *s, const micro_batch *batch, const share *of,
                  const wd_dit_stage *weights)
{
    const wd_sweep_options *o = &sweep->options;
    const wd_window *window = of->window;
    const int64_t *state = sweep->order + batch->first;
    const size_t text = (size_t)(o->text_tokens * o->config.text_dim) * wd_dtype_bytes(o->dtype);
    if (window->begin) window->begin(window->context, state, batch->samples);
    wd_event_record(sweep->ready, sweep->home);
    wd_event_wait_on(s->queue, sweep->ready);
    const wd_station_entry entry = wd_station_await_entry(s);
    for (int64_t i = 0; i < batch->samples; i++) {
        entry.timestep[i] = window->timestep[state[i]];
        o->text(o->text_context, entry.text + (size_t)i * text, window->prompt[state[i]], o->dtype);
    }
    wd_station_enter(s, batch->slot, batch->samples, weights);
    for (int64_t i = 0; i < batch->samples; i++) {
        bring_latents(sweep, s, window->latents + state[i] * sweep->state_count);
        wd_station_enter_state(s, batch->slot, i, weights);
    }
    wd_station_entered(s);
}

/* The exit's velocity of a state goes home. */
static void bring_velocity(wd_sweep *sweep, wd_station *s, float *velocity)
{
    const size_t bytes = (size_t)sweep->state_count * sizeof(float);
    const bool pushes = !wd_device_traits(s->device)->reads_host || s->queue == sweep->home;
    wd_queue_copy(pushes ? s->queue : sweep->home, velocity, s->velocity, bytes);
    if (pushes) return;
    wd_event_record(sweep->ready, sweep->home);
    wd_event_wait(sweep->ready); /* the buffer is free again */
}

/* Its states go through the head. */
static void leave(wd_sweep *sweep, wd_station *s, const micro_batch *batch, const share *of,
                  const wd_dit_stage *weights)
{
    const wd_window *window = of->window;
    const int64_t *state = sweep->order + batch->first;
    wd_event *delivered = of->delivered[batch - sweep->batch];
    for (int64_t i = 0; i < batch->samples; i++) {
        wd_station_exit_state(s, batch->slot, i, of->expert, weights);
        bring_velocity(sweep, s, window->velocity + state[i] * sweep->state_count);
        if (window->delivered) window->delivered[state[i]] = delivered;
    }
    wd_event_record(batch->slot->left, s->queue);
    wd_event_record(delivered, s->queue);
}

/* The micro-batch comes to the device of a stage, as far as this rank has part in it. */
static void arrive(wd_sweep *sweep, micro_batch *batch, const share *of, int stage)
{
    const wd_placement *p = &sweep->placement;
    const wd_stage_kind kind = wd_stage_kind_of(stage, p->stages);
    const int from = batch->device, device = p->place[of->expert][stage].device;
    if (from == device) return;
    const bool was_here = from >= 0 && wd_placed_rank(p, from) == sweep->rank;
    const bool is_here = wd_placed_rank(p, device) == sweep->rank;
    wd_station_slot *left = batch->slot;
    batch->device = device;
    if (is_here)
        batch->slot = wd_station_take_slot(station_at(sweep, device), of->expert,
                                           of->batches - 1 - (int)(batch - sweep->batch));
    if (was_here && is_here)
        wd_station_hop(station_at(sweep, device), batch->slot, station_at(sweep, from), left,
                       batch->samples, kind);
    else if (was_here)
        wd_crossing_leave(&sweep->out[wd_placed_local(p, from)], station_at(sweep, from), left,
                          batch->samples, kind, wd_placed_rank(p, device));
    else if (is_here && from >= 0)
        wd_crossing_come(&sweep->in[wd_placed_local(p, device)], station_at(sweep, device),
                         batch->slot, batch->samples, kind, wd_placed_rank(p, from));
}

/* All ranks that share the teacher are told when a micro-batch ends. */
static void end_batch(const wd_sweep *sweep, const micro_batch *batch, const share *of, int device)
{
    const wd_window *window = of->window;
    if (window->end)
        window->end(window->context, sweep->order + batch->first, batch->samples,
                    wd_placed_rank(&sweep->placement, device));
}

static void run_stage(wd_sweep *sweep, micro_batch *batch, const share *of, int stage)
{
    const wd_stage_kind kind = wd_stage_kind_of(stage, sweep->placement.stages);
    const wd_dit_stage *weights = &sweep->weights[stage];
    wd_station *s = station_of(sweep, of->expert, stage);
    arrive(sweep, batch, of, stage);
    if (!is_here(sweep, of->expert, stage)) return;
    wd_station_begin(s, kind);
    if (kind == WD_STAGE_EMBED)
        enter(sweep, s, batch, of, weights);
    else if (kind == WD_STAGE_BLOCK)
        wd_station_run_block(s, batch->slot, batch->samples, weights);
    else
        leave(sweep, s, batch, of, weights);
}

/* ---- an expert's way ---- */

/* Which experts' stages come, in this order. */
static void find_coming(wd_sweep *sweep, const int64_t count[EXPERTS_MAX])
{
    sweep->comings = 0;
    for (int e = 0; e < EXPERTS_MAX; e++)
        if (count[e]) sweep->coming[sweep->comings++] = e;
    for (int e = 0; e < EXPERTS_MAX; e++)
        if (sweep->next >> e & 1) sweep->coming[sweep->comings++] = e;
}

/* Asks for the streamed blocks that come next, from `stage` of the expert coming[at] on, and for
 * what else streams on the way to them. */
static void look_ahead(wd_sweep *sweep, int at, int stage)
{
    const wd_placement *p = &sweep->placement;
    int wanted = p->slots - 1;
    for (; at < sweep->comings; at++, stage = 0)
        for (const int e = sweep->coming[at]; wanted && stage < p->stages; stage++) {
            if (p->place[e][stage].home == WD_HOME_DEVICE || !is_here(sweep, e, stage)) continue;
            wd_residency_prefetch(sweep->residency, e, stage);
            wanted -= wd_stage_kind_of(stage, p->stages) == WD_STAGE_BLOCK;
        }
}

/* The expert coming[at]. */
static wd_status run_expert(wd_sweep *sweep, const share *of, int at, wd_err *err)
{
    const wd_placement *p = &sweep->placement;
    const int e = of->expert;
    for (int s = 0; s < p->stages;) {
        const wd_leg leg = wd_placement_leg(p, e, s);
        for (; s < leg.end; s++)
            if (is_here(sweep, e, s))
                WD_TRY(wd_residency_acquire(sweep->residency, &sweep->weights[s], e, s,
                                            station_of(sweep, e, s)->queue, err));
        look_ahead(sweep, at, leg.end);
        for (int b = 0; b < of->batches; b++) {
            for (int i = leg.first; i < leg.end; i++) run_stage(sweep, &sweep->batch[b], of, i);
            if (leg.end == p->stages)
                end_batch(sweep, &sweep->batch[b], of, p->place[e][p->stages - 1].device);
        }
        for (int i = leg.first; i < leg.end; i++)
            if (is_here(sweep, e, i))
                wd_residency_release(sweep->residency, e, i, station_of(sweep, e, i)->queue);
    }
    return WD_OK;
}

/* The event that says when micro-batches are there belongs to the device where windows are. */
wd_status wd_sweep_expect(wd_sweep *sweep, wd_queue *home, wd_err *err)
{
    sweep->home = home;
    if (sweep->ready_on == wd_queue_device(home)) return WD_OK;
    wd_event_close(sweep->ready);
    sweep->ready = NULL;
    sweep->ready_on = wd_queue_device(home);
    return wd_event_open(&sweep->ready, sweep->ready_on, err);
}

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
    const wd_sweep_experts after = experts_of(sweep, next);
    wd_residency_begin(sweep->residency, experts_of(sweep, window), after.all);
    sweep->announced = window->end > window->first;
    sweep->next = after.own;
}

wd_status wd_sweep_run(wd_sweep *sweep, const wd_window *window, wd_err *err)
{
    int64_t count[EXPERTS_MAX], first = 0;
    WD_REQUIRE(window->count > 0 && window->count <= sweep->options.window_max,
               "a sweep of at most %" PRId64 " states was given %" PRId64,
               sweep->options.window_max, window->count);
    WD_TRY(wd_sweep_expect(sweep, window->queue, err));
    if (!sweep->announced)
        wd_sweep_announce(
            sweep, &(wd_window_ahead){window->timestep, window->count, 0, window->count}, NULL);
    sweep->announced = false;
    sort_window(count, sweep, window);
    find_coming(sweep, count);
    wd_event **delivered =
        sweep->delivered + sweep->sweeps++ % sweep->told_apart * EXPERTS_MAX * sweep->batches_max;
    look_ahead(sweep, 0, 0);
    for (int e = 0, at = 0; e < EXPERTS_MAX; e++, delivered += sweep->batches_max) {
        if (!count[e]) continue;
        const share of = {.expert = e,
                          .batches = cut(sweep, first, count[e]),
                          .delivered = delivered,
                          .window = window};
        WD_TRY(run_expert(sweep, &of, at++, err));
        for (int b = 0; !window->delivered && b < of.batches; b++)
            if (delivered[b]) wd_event_wait_on(window->queue, delivered[b]);
        first += count[e];
    }
    return WD_OK;
}

/* ---- open and close ---- */

/* Everything stays on one device: the way of who says nothing of placement. Stages take the whole
 * window one after another, as a processor's do. */
static wd_placement all_on_one(const wd_residency *residency)
{
    return (wd_placement){.experts = residency->experts, .stages = residency->stages, .slots = 2};
}

static wd_status open_crossings(wd_sweep *sweep, int local, int device, wd_err *err)
{
    const wd_placed_crossings crossings = wd_placement_crossings(&sweep->placement, device);
    wd_station *station = &sweep->station[local];
    wd_comm *comm = sweep->options.comm;
    if (!wd_sweep_is_shared(sweep)) return WD_OK;
    if (crossings.out) WD_TRY(wd_crossing_open(&sweep->out[local], comm, station, err));
    if (crossings.in) WD_TRY(wd_crossing_open(&sweep->in[local], comm, station, err));
    return WD_OK;
}

static wd_status open_stations(wd_sweep *sweep, wd_queue *const *queues, wd_err *err)
{
    wd_site site = {.devices = WD_PLACED_DEVICES_MAX, .batches = sweep->batches_max};
    double flops[WD_STAGE_KINDS];
    const int each = sweep->placement.devices; /* of the ranks before this one are those before */
    const int first = wd_sweep_is_shared(sweep) ? sweep->rank * each : 0;
    const int own = each ? each : WD_PLACED_DEVICES_MAX;
    for (int d = 0; d < own; d++)
        if (wd_placement_sweep(&sweep->placement, &site, first + d).streams)
            site.device[(first + d) % site.devices].reads_host =
                wd_device_traits(wd_queue_device(queues[d]))->reads_host;
    for (int d = 0; d < own; d++) {
        const wd_placed_sweep part = wd_placement_sweep(&sweep->placement, &site, first + d);
        if (!part.streams) continue;
        wd_device *device = wd_queue_device(queues[d]);
        wd_sweep_need *need = &site.device[d].need;
        WD_TRY(wd_sweep_need_of(need, flops, &sweep->options, device, err));
        WD_TRY(wd_device_check_kernels(err));
        WD_TRY(wd_station_open(&sweep->station[d], &sweep->options, &part,
                               wd_placed_activations(&part, need) - need->tables, queues[d], err));
        WD_TRY(wd_queue_reserve_workspace(queues[d], wd_placed_workspace(&part, &site.device[d]),
                                          err));
        WD_TRY(open_crossings(sweep, d, first + d, err));
    }
    return WD_OK;
}

static int64_t events_of(const wd_sweep *sweep)
{
    return sweep->told_apart * EXPERTS_MAX * sweep->batches_max;
}

static wd_status open_events(wd_sweep *sweep, wd_err *err)
{
    const int64_t n = events_of(sweep);
    WD_TRY(wd_alloc((void **)&sweep->delivered, (size_t)n, sizeof *sweep->delivered,
                    "teacher sweep", err));
    for (int64_t i = 0; i < n; i++) {
        const int e = (int)(i / sweep->batches_max % EXPERTS_MAX);
        if (e >= sweep->placement.experts || !is_here(sweep, e, sweep->placement.stages - 1))
            continue;
        WD_TRY(wd_event_open(&sweep->delivered[i],
                             station_of(sweep, e, sweep->placement.stages - 1)->device, err));
    }
    return WD_OK;
}

static wd_status open_host(wd_sweep *sweep, wd_err *err)
{
    const char *what = "teacher sweep";
    WD_TRY(wd_alloc((void **)&sweep->batch, (size_t)sweep->batches_max, sizeof *sweep->batch, what,
                    err));
    WD_TRY(wd_alloc((void **)&sweep->weights, (size_t)sweep->placement.stages,
                    sizeof *sweep->weights, what, err));
    return wd_alloc((void **)&sweep->order, (size_t)sweep->padded_max, sizeof *sweep->order, what,
                    err);
}

wd_status wd_sweep_open(wd_sweep **out, const wd_sweep_options *options, wd_residency *residency,
                        const wd_placement *placement, wd_queue *const *queues, wd_err *err)
{
    wd_status status;
    wd_sweep *sweep;
    WD_TRY(wd_alloc((void **)&sweep, 1, sizeof *sweep, "a sweep", err));
    sweep->options = wd_sweep_fitted(options);
    sweep->residency = residency;
    sweep->placement = placement ? *placement : all_on_one(residency);
    WD_REQUIRE(sweep->placement.stages <= WD_PLACED_STAGES_MAX &&
                   sweep->placement.experts <= WD_PLACED_EXPERTS_MAX,
               "a sweep of %d experts, %d stages", sweep->placement.experts,
               sweep->placement.stages);
    sweep->rank = options->comm && wd_sweep_is_shared(sweep) ? options->comm->rank : 0;
    sweep->batches_max = wd_sweep_batches(options);
    sweep->told_apart = (options->sweeps_apart > 0 ? options->sweeps_apart : 1) + 1;
    int64_t step = wd_sweep_size_step(sweep->options.micro_batch);
    sweep->padded_max = options->window_max + EXPERTS_MAX * (step - 1);
    sweep->state_count =
        options->config.in_channels * options->frames * options->height * options->width;
    WD_TRY_OUT(open_host(sweep, err));
    WD_TRY_OUT(open_stations(sweep, queues, err));
    WD_TRY_OUT(open_events(sweep, err));
    *out = sweep;
out:
    if (status != WD_OK) wd_sweep_close(sweep);
    return status;
}

wd_status wd_sweep_check_devices(const wd_sweep *sweep, wd_err *err)
{
    for (int d = 0; d < WD_PLACED_DEVICES_MAX; d++)
        if (sweep->station[d].device) WD_TRY(wd_device_fault(sweep->station[d].device, err));
    return WD_OK;
}

void wd_sweep_close(wd_sweep *sweep)
{
    if (!sweep) return;
    for (int d = 0; d < WD_PLACED_DEVICES_MAX; d++) {
        wd_crossing_close(&sweep->out[d]);
        wd_crossing_close(&sweep->in[d]);
        wd_station_close(&sweep->station[d]);
    }
    for (int64_t i = 0; sweep->delivered && i < events_of(sweep); i++)
        wd_event_close(sweep->delivered[i]);
    wd_event_close(sweep->ready);
    wd_free(sweep->delivered);
    wd_free(sweep->weights);
    wd_free(sweep->batch);
    wd_free(sweep->order);
    wd_free(sweep);
}
