/* Options of sweeps, and their schedules: see teacher/plan/sweep_schedule.h. */
#include "teacher/plan/sweep_schedule.h"

#include <inttypes.h>

#include "core/error.h"
#include "core/memory.h"

/* ---- options of a sweep, and its micro-batches ---- */

enum { TOKENS_PER_PASS = 2048 };

wd_sweep_options wd_sweep_options_for(const wd_pipeline *pipeline, wd_dtype dtype)
{
    const double timesteps = (double)pipeline->scheduler.num_train_timesteps;
    return (wd_sweep_options){.config = pipeline->dit,
                              .dtype = dtype,
                              .frames = 1,
                              .boundary_timestep = pipeline->boundary_ratio * timesteps};
}

int64_t wd_sweep_micro_batch(const wd_dit_config *config, int64_t frames, int64_t height,
                             int64_t width)
{
    const wd_dit_shape one = {.samples = 1, .frames = frames, .height = height, .width = width};
    int64_t samples = TOKENS_PER_PASS / wd_dit_tokens(config, &one);
    return samples > 0 ? samples : 1;
}

int64_t wd_sweep_fitted(int64_t micro_batch, int64_t window_max)
{
    WD_REQUIRE(micro_batch > 0 && window_max > 0,
               "a sweep of windows of %" PRId64 " states in micro-batches of %" PRId64, window_max,
               micro_batch);
    int64_t micro = micro_batch < window_max ? micro_batch : window_max;
    while (micro % wd_dit_samples_step(micro)) micro--;
    return micro;
}

int wd_sweep_batches(const wd_sweep_options *options)
{
    const int64_t micro = wd_sweep_fitted(options->micro_batch, options->window_max);
    const int64_t step = wd_dit_samples_step(micro);
    const int64_t padded = (options->window_max + step - 1) / step * step;
    return (int)((padded + micro - 1) / micro);
}

int wd_sweep_streams(const wd_sweep_options *options)
{
    return options->guidance_scale[0] > 1 ? 2 : 1;
}

wd_dit_context wd_sweep_dit_context(const wd_sweep_options *o, int64_t samples, bool negative)
{
    return (wd_dit_context){
        .config = &o->config,
        .shape = {.samples = samples,
                  .texts = negative ? 1 : samples,
                  .frames = o->frames,
                  .height = o->height,
                  .width = o->width,
                  .text_tokens = o->text_tokens,
                  .text_repeat = o->text_repeat},
        .dtype = o->dtype,
    };
}

size_t wd_sweep_packed_bytes(const wd_sweep_options *options, int64_t samples, wd_stage_kind next)
{
    size_t bytes = 0;
    for (int u = 0; u < wd_sweep_streams(options); u++) {
        const wd_dit_context context = wd_sweep_dit_context(options, samples, u);
        const wd_dit_stream_bytes sizes = wd_dit_stream_sizes(&context);
        const size_t tensor[] = {sizes.x, sizes.temb, sizes.tp, sizes.ctx};
        for (int i = 0; i < wd_sweep_stream_tensors(next); i++) bytes += tensor[i];
    }
    return bytes;
}

/* ---- segments ---- */

static bool takes_by_batch(const wd_placement *p, int device)
{
    return p->by_batch >> wd_placed_local(p, device) & 1;
}

static bool goes_by_batch(const wd_placement *p, wd_stage_placement place)
{
    return place.home == WD_HOME_DEVICE && takes_by_batch(p, place.device);
}

/* Whether a window that stayed where it was embedded would only wait there. */
static bool embeds_on_the_way(const wd_placement *p, const wd_stage_placement *place, int first)
{
    return first == 0 && (place[0].device != place[1].device || goes_by_batch(p, place[1]));
}

/* Whether a window that has reached the last blocks, from stage `from` on, would only wait there
 * for the head. It does for a processor's head, which would keep several devices waiting, and where
 * stages are widened, one at a time. */
static bool head_follows(const wd_placement *p, const wd_stage_placement *place, int from)
{
    const int device = place[from].device, head = place[p->stages - 1].device;
    if (!takes_by_batch(p, device)) return false;
    if (place[from].home != WD_HOME_DEVICE) return place[from - 1].device != device;
    return head == place[p->stages - 2].device || takes_by_batch(p, head);
}

wd_segment wd_sweep_segment(const wd_placement *placement, int expert, int first)
{
    const wd_stage_placement *place = placement->place[expert];
    const int head = placement->stages - 1;
    const int from = first + embeds_on_the_way(placement, place, first);
    wd_segment segment = {first, from + 1};
    if (goes_by_batch(placement, place[from]))
        while (segment.end < head && goes_by_batch(placement, place[segment.end])) segment.end++;
    if (segment.end == head && head_follows(placement, place, from)) segment.end++;
    return segment;
}

/* ---- entries ---- */

typedef struct maker {
    const wd_placement *placement;
    const wd_sweep_work *work;
    const wd_sweep_device *of_device; /* [devices]; NULL: all places are 0 */
    int *turn;                        /* [devices]: the place that is taken next */
    int base[WD_CLUSTER_DEVICES_MAX]; /* the place of an expert's micro-batch 0; those of the others
                                       * follow it */
    wd_sweep_entry_fn *fn;
    void *context;
} maker;

static void add(const maker *m, wd_sweep_entry entry)
{
    m->fn(m->context, &entry);
}

static void add_weights(const maker *m, wd_sweep_entry_kind kind, int expert, int stage)
{
    const int device = m->placement->place[expert][stage].device;
    add(m, (wd_sweep_entry){kind, expert, stage, -1, device, -1, -1, -1});
}

static bool arrives(const wd_stage_placement *place, int stage)
{
    return stage == 0 || place[stage - 1].device != place[stage].device;
}

/* Each micro-batch of an expert takes one place on every device that it comes to within a segment,
 * the micro-batches one after another. */
static void take_places(maker *m, const wd_stage_placement *place, wd_segment segment, int batches)
{
    for (int s = segment.first; s < segment.end; s++) {
        const int d = place[s].device;
        bool taken = false;
        if (!arrives(place, s) || !m->of_device) continue;
        for (int k = segment.first; k < s; k++) taken |= arrives(place, k) && place[k].device == d;
        if (taken) continue;
        m->base[d] = m->turn[d];
        m->turn[d] = (m->turn[d] + batches) % m->of_device[d].places;
    }
}

static int place_of(const maker *m, int device, int base, int batch)
{
    return m->of_device ? (base + batch) % m->of_device[device].places : 0;
}

/* The place that a micro-batch takes on a device within this segment. */
static int new_place(const maker *m, int device, int batch)
{
    return place_of(m, device, m->base[device], batch);
}

/* A micro-batch goes to the device of a stage. */
static void go_on(const maker *m, int expert, int stage, int batch, int from_place)
{
    const wd_placement *p = m->placement;
    const int from = p->place[expert][stage - 1].device, to = p->place[expert][stage].device;
    const int place = new_place(m, to, batch);
    if (wd_placed_rank(p, from) == wd_placed_rank(p, to)) {
        add(m, (wd_sweep_entry){WD_ENTRY_COPY, expert, stage, batch, from, from_place, to, place});
        return;
    }
    add(m, (wd_sweep_entry){WD_ENTRY_SEND, expert, stage, batch, from, from_place, to, -1});
    add(m, (wd_sweep_entry){WD_ENTRY_RECEIVE, expert, stage, batch, to, place, -1, -1});
}

/* A micro-batch goes through the stages of a segment; `at`: its place where it is now. */
static void go_through(const maker *m, int expert, wd_segment segment, int batch, int at)
{
    static const wd_sweep_entry_kind kinds[WD_STAGE_KINDS] = {
        [WD_STAGE_EMBED] = WD_ENTRY_ENTER,
        [WD_STAGE_BLOCK] = WD_ENTRY_RUN,
        [WD_STAGE_HEAD] = WD_ENTRY_LEAVE,
    };
    const wd_stage_placement *place = m->placement->place[expert];
    for (int s = segment.first; s < segment.end; s++) {
        const wd_sweep_entry_kind kind = kinds[wd_stage_kind_of(s, m->placement->stages)];
        if (s && arrives(place, s)) go_on(m, expert, s, batch, at);
        if (arrives(place, s)) at = new_place(m, place[s].device, batch);
        add(m, (wd_sweep_entry){kind, expert, s, batch, place[s].device, at, -1, -1});
    }
}

static void add_segment(maker *m, int e, wd_segment segment)
{
    const int batches = m->work->batches[e];
    const wd_stage_placement *place = m->placement->place[e];
    const int before = place[segment.first ? segment.first - 1 : 0].device;
    const int waiting = m->base[before]; /* places are taken anew where they come back */
    for (int s = segment.first; s < segment.end; s++) add_weights(m, WD_ENTRY_ACQUIRE, e, s);
    take_places(m, place, segment, batches);
    for (int b = 0; b < batches; b++) go_through(m, e, segment, b, place_of(m, before, waiting, b));
    for (int s = segment.first; s < segment.end; s++) add_weights(m, WD_ENTRY_RELEASE, e, s);
}

static void make(maker *m)
{
    for (int e = 0; e < m->placement->experts; e++)
        for (int s = 0; m->work->batches[e] && s < m->placement->stages;) {
            const wd_segment segment = wd_sweep_segment(m->placement, e, s);
            add_segment(m, e, segment);
            s = segment.end;
        }
}

void wd__sweep_schedule_each(const wd_placement *placement, const wd_sweep_work *work,
                             wd_sweep_entry_fn *fn, void *context)
{
    maker m = {.placement = placement, .work = work, .fn = fn, .context = context};
    make(&m);
}

/* ---- what a device does ---- */

typedef struct counter {
    int batches; /* of an expert in a window, at most */
    wd_sweep_device *of_device;
    int there[WD_CLUSTER_DEVICES_MAX]; /* micro-batches that are on each device */
} counter;

/* Of two micro-batches, both are on a device at once if and only if a whole window waits there. */
enum { COUNTED = 2 };

static void give_places(counter *c, int device, int places)
{
    if (c->of_device[device].places < places) c->of_device[device].places = places;
}

static void arrive(counter *c, int device)
{
    const bool waits = ++c->there[device] == COUNTED;
    give_places(c, device, waits && c->batches > 1 ? c->batches : 1);
}

static void count(void *context, const wd_sweep_entry *entry)
{
    counter *c = context;
    wd_sweep_device *of_device = &c->of_device[entry->device];
    switch (entry->kind) {
    case WD_ENTRY_ENTER:
        of_device->embeds = true;
        arrive(c, entry->device);
        break;
    case WD_ENTRY_COPY:
        c->there[entry->device]--;
        arrive(c, entry->to);
        give_places(c, entry->to, WD_PIPELINE_PLACES);
        break;
    case WD_ENTRY_SEND:
        c->there[entry->device]--;
        of_device->sends = true;
        break;
    case WD_ENTRY_RECEIVE:
        arrive(c, entry->device);
        of_device->receives = true;
        break;
    case WD_ENTRY_LEAVE:
        c->there[entry->device]--;
        break;
    default:
        break;
    }
}

void wd__sweep_devices(wd_sweep_device *out, int devices, const wd_placement *placement,
                       int batches)
{
    counter c = {.batches = batches, .of_device = out};
    for (int d = 0; d < devices; d++) out[d] = (wd_sweep_device){.places = 0};
    for (int e = 0; e < placement->experts; e++) {
        wd_sweep_work work = {{0}};
        work.batches[e] = COUNTED;
        wd__sweep_schedule_each(placement, &work, count, &c);
    }
}

/* ---- the list ---- */

static void append(void *context, const wd_sweep_entry *entry)
{
    wd_sweep_schedule *s = context;
    WD_REQUIRE(s->count < s->room, "a schedule has room for %d entries", s->room);
    s->entry[s->count++] = *entry;
}

/* At most: a stage is acquired and released, and for each micro-batch run, sent and received. */
static int room_for(const wd_placement *p, int batches)
{
    return p->experts * p->stages * (2 + 3 * batches);
}

wd_status wd_sweep_schedule_open(wd_sweep_schedule *out, int devices, const wd_placement *placement,
                                 int batches, wd_err *err)
{
    *out = (wd_sweep_schedule){.placement = placement, .room = room_for(placement, batches)};
    wd__sweep_devices(out->of_device, devices, placement, batches);
    return wd_alloc((void **)&out->entry, (size_t)out->room, sizeof *out->entry, "a schedule", err);
}

void wd_sweep_schedule_close(wd_sweep_schedule *schedule)
{
    wd_free(schedule->entry);
    schedule->entry = NULL;
}

void wd_sweep_schedule_make(wd_sweep_schedule *schedule, const wd_sweep_work *work)
{
    maker m = {.placement = schedule->placement,
               .work = work,
               .of_device = schedule->of_device,
               .turn = schedule->turn,
               .fn = append,
               .context = schedule};
    schedule->count = 0;
    make(&m);
}
