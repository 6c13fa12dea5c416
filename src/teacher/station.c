/* Stations of a sweep: see teacher/station.h. */
#include "teacher/station.h"

#include <inttypes.h>

#include "core/memory.h"
#include "core/require.h"
#include "dev/ops.h"

static wd_dit_context shape_of(const wd_sweep_options *o, int64_t samples, bool negative)
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

static wd_dit_context context_of(wd_station *s, int64_t samples, bool negative)
{
    wd_dit_context context = shape_of(s->options, samples, negative);
    context.rope = s->rope;
    context.queue = s->queue;
    context.arena = &s->arena;
    return context;
}

static bool is_guided(const wd_sweep_options *o)
{
    return o->guidance_scale[0] > 1;
}

static size_t text_bytes(const wd_sweep_options *o)
{
    return (size_t)(o->text_tokens * o->config.text_dim) * wd_dtype_bytes(o->dtype);
}

/* ---- memory ---- */

static wd_status open_entry(wd_station *s, wd_err *err)
{
    const wd_sweep_options *o = s->options;
    const size_t micro = (size_t)o->micro_batch;
    s->uploads = wd_device_places(s->device, WD_SWEEP_UPLOADS);
    const size_t uploads = (size_t)s->uploads;
    if (s->guided) s->text_negative = wd_arena_push(&s->arena, text_bytes(o));
    WD_TRY(wd_host_alloc((void **)&s->host_timestep, s->device, uploads * micro * sizeof(float),
                         "teacher sweep", err));
    WD_TRY(wd_host_alloc((void **)&s->host_text, s->device, uploads * micro * text_bytes(o),
                         "teacher sweep", err));
    for (int i = 0; i < s->uploads; i++) WD_TRY(wd_event_open(&s->uploaded[i], s->device, err));
    if (s->guided && !wd_device_is_dry(s->device)) {
        o->text(o->text_context, s->host_text, -1, o->dtype);
        wd_queue_copy(s->queue, s->text_negative, s->host_text, text_bytes(o));
    }
    wd_event_record(s->uploaded[0], s->queue);
    return WD_OK;
}

static void open_exit(wd_station *s)
{
    for (int e = 0; e < 2; e++) {
        s->scale[e] = wd_arena_push(&s->arena, sizeof(float));
        wd_op_fill(s->queue, &(wd_fill_args){.to = s->scale[e],
                                             .type = WD_F32,
                                             .count = 1,
                                             .value = (float)s->options->guidance_scale[e]});
    }
}

/* The place of a micro-batch: what a head reads of it, then what blocks read besides. */
static void push_place(wd_station_slot *out, wd_arena *arena, const wd_sweep_options *o)
{
    for (int u = 0; u <= (int)is_guided(o); u++) {
        const wd_dit_context context = shape_of(o, o->micro_batch, u);
        const wd_dit_stream_bytes bytes = wd_dit_stream_sizes(&context);
        out->stream[u] = (wd_dit_stream){.x = wd_arena_push(arena, bytes.x),
                                         .temb = wd_arena_push(arena, bytes.temb),
                                         .tp = wd_arena_push(arena, bytes.tp),
                                         .ctx = wd_arena_push(arena, bytes.ctx)};
    }
}

size_t wd_sweep_place_bytes(const wd_sweep_options *options)
{
    wd_station_slot slot;
    wd_arena arena = wd_arena_over(NULL, SIZE_MAX);
    push_place(&slot, &arena, options);
    return arena.used;
}

static wd_status open_slots(wd_station *s, wd_err *err)
{
    const int slots = s->sweep.streams;
    WD_TRY(wd_alloc((void **)&s->slot, (size_t)slots, sizeof *s->slot, "teacher sweep", err));
    for (int i = 0; i < slots; i++) {
        WD_TRY(wd_event_open(&s->slot[i].left, s->device, err));
        push_place(&s->slot[i], &s->arena, s->options);
    }
    s->mark = wd_arena_mark(&s->arena);
    return WD_OK;
}

static wd_status open_parts(wd_station *s, size_t arena_bytes, wd_err *err)
{
    const wd_dit_context context = context_of(s, 1, false);
    WD_TRY(wd_dit_rope_open(&s->rope, &s->options->config, &context.shape, s->queue, err));
    if (arena_bytes)
        WD_TRY(wd_device_alloc(&s->block, s->device, arena_bytes, "teacher activations", err));
    s->arena = wd_arena_over(s->block, arena_bytes ? arena_bytes : SIZE_MAX);
    if (s->sweep.kind[WD_STAGE_EMBED]) WD_TRY(open_entry(s, err));
    if (s->sweep.kind[WD_STAGE_HEAD]) open_exit(s);
    return open_slots(s, err);
}

wd_status wd_station_open(wd_station *s, const wd_sweep_options *options,
                          const wd_placed_sweep *sweep, size_t arena_bytes, wd_queue *queue,
                          wd_err *err)
{
    *s = (wd_station){
        .options = options,
        .queue = queue,
        .device = wd_queue_device(queue),
        .guided = is_guided(options),
        .state_count =
            options->config.in_channels * options->frames * options->height * options->width,
        .sweep = *sweep,
    };
    const wd_status status = open_parts(s, arena_bytes, err);
    if (status != WD_OK) wd_station_close(s);
    return status;
}

void wd_station_close(wd_station *s)
{
    if (s->queue) wd_queue_wait(s->queue);
    for (int i = 0; s->slot && i < s->sweep.streams; i++) wd_event_close(s->slot[i].left);
    for (int i = 0; i < s->uploads; i++) wd_event_close(s->uploaded[i]);
    wd_dit_rope_close(&s->rope);
    if (s->block) wd_device_free(s->device, s->block);
    wd_free(s->slot);
    wd_host_free(s->device, s->host_timestep);
    wd_host_free(s->device, s->host_text);
    *s = (wd_station){0};
}

/* ---- stages ---- */

/* Where whole windows are, or wait, each micro-batch has a place of its own, however often it comes
 * back: another one waits in the next. Else they come round. */
wd_station_slot *wd_station_take_slot(wd_station *s, int expert, int behind)
{
    const int slots = s->sweep.streams;
    const bool own = s->sweep.windows || s->sweep.waits[expert];
    const int64_t at = own ? slots - 1 - behind : s->taken++ % slots;
    WD_REQUIRE(at >= 0 && at < slots, "slot %" PRId64 " of %d of a device", at, slots);
    return &s->slot[at];
}

static int entry_place(const wd_station *s)
{
    return (int)(s->entered % s->uploads);
}

static wd_station_entry entry_of(const wd_station *s)
{
    const size_t first = (size_t)entry_place(s) * (size_t)s->options->micro_batch;
    return (wd_station_entry){s->host_timestep + first,
                              s->host_text + first * text_bytes(s->options)};
}

wd_station_entry wd_station_await_entry(wd_station *s)
{
    wd_event_wait(s->uploaded[entry_place(s)]);
    return entry_of(s);
}

void wd_station_entered(wd_station *s)
{
    wd_event_record(s->uploaded[entry_place(s)], s->queue);
    s->entered++;
}

void wd_station_begin(wd_station *s, wd_stage_kind kind)
{
    wd_arena_reset(&s->arena, s->mark);
    if (kind == WD_STAGE_EMBED)
        s->latents = wd_arena_push(&s->arena, (size_t)s->state_count * sizeof(float));
}

static void *at(void *part, int64_t state, size_t bytes)
{
    return part ? (char *)part + (size_t)state * bytes : NULL;
}

/* Of one state of a stream: embedding and head take them one after another, so that what these
 * need beside is of one; blocks, where the work is, take all. */
static wd_dit_stream stream_of(const wd_dit_stream *all, int64_t state, const wd_dit_context *one)
{
    const wd_dit_stream_bytes bytes = wd_dit_stream_sizes(one);
    return (wd_dit_stream){.x = at(all->x, state, bytes.x),
                           .temb = at(all->temb, state, bytes.temb),
                           .tp = at(all->tp, state, bytes.tp),
                           .ctx = at(all->ctx, state, bytes.ctx)};
}

void wd_station_enter(wd_station *s, wd_station_slot *slot, int64_t samples,
                      const wd_dit_stage *weights)
{
    const size_t bytes = (size_t)samples * sizeof(float), mark = wd_arena_mark(&s->arena);
    float *timestep = wd_arena_push(&s->arena, bytes);
    wd_queue_copy(s->queue, timestep, entry_of(s).timestep, bytes);
    for (int u = 0; u <= (int)s->guided; u++) {
        const wd_dit_context context = context_of(s, samples, u);
        wd_dit_embed_time(&slot->stream[u], timestep, weights, &context);
        if (!u) continue;
        wd_dit_embed_text_first(&slot->stream[u], s->text_negative, weights, &context);
        wd_dit_embed_text_second(&slot->stream[u], weights, &context);
    }
    wd_arena_reset(&s->arena, mark);
}

/* Its latents are done with when its text comes, its text when the second layer does. */
void wd_station_enter_state(wd_station *s, wd_station_slot *slot, int64_t state,
                            const wd_dit_stage *weights)
{
    const wd_dit_context one = context_of(s, 1, false);
    const size_t bytes = text_bytes(s->options);
    for (int u = 0; u <= (int)s->guided; u++) {
        wd_dit_stream stream = stream_of(&slot->stream[u], state, &one);
        wd_dit_embed_image(&stream, s->latents, weights, &one);
    }
    wd_dit_stream stream = stream_of(&slot->stream[0], state, &one);
    wd_arena_reset(&s->arena, s->mark);
    void *text = wd_arena_push(&s->arena, bytes);
    wd_queue_copy(s->queue, text, entry_of(s).text + (size_t)state * bytes, bytes);
    wd_dit_embed_text_first(&stream, text, weights, &one);
    wd_arena_reset(&s->arena, s->mark);
    wd_dit_embed_text_second(&stream, weights, &one);
    wd_station_begin(s, WD_STAGE_EMBED);
}

void wd_station_run_block(wd_station *s, wd_station_slot *slot, int64_t samples,
                          const wd_dit_stage *weights)
{
    for (int u = 0; u <= (int)s->guided; u++) {
        const wd_dit_context context = context_of(s, samples, u);
        wd_dit_block_forward(&slot->stream[u], NULL, weights, &context);
    }
}

/* Guidance is of patches, which lie where their states were; what it gives, where the normed states
 * were; the velocity, where patches were. */
void wd_station_exit_state(wd_station *s, wd_station_slot *slot, int64_t state, int expert,
                           const wd_dit_stage *weights)
{
    const wd_dit_context one = context_of(s, 1, false);
    const size_t normed = wd_dit_stream_sizes(&one).x;
    const size_t guided = (size_t)s->state_count * sizeof(float);
    void *patches[2] = {NULL, NULL};
    wd_arena_reset(&s->arena, s->mark);
    void *low = wd_arena_push(&s->arena, normed > guided ? normed : guided);
    for (int u = 0; u <= (int)s->guided; u++) {
        const wd_dit_stream stream = stream_of(&slot->stream[u], state, &one);
        patches[u] = normed < guided ? wd_arena_push(&s->arena, guided) : stream.x;
        wd_dit_head_patches(patches[u], low, &stream, weights, &one);
    }
    wd_op_guidance(s->queue, &(wd_guidance_args){.v = low,
                                                 .c = patches[0],
                                                 .u = patches[1],
                                                 .scale = s->scale[expert],
                                                 .type = s->options->dtype,
                                                 .samples = 1,
                                                 .width = s->state_count});
    s->velocity = patches[0];
    wd_dit_head_unpatchify(s->velocity, low, &one);
}

/* The parts of a stream that a stage reads, and what they take. */
typedef struct parts {
    int count;
    void *at[4];
    size_t bytes[4];
} parts;

static parts parts_of(wd_station *s, const wd_station_slot *slot, int stream, int64_t samples,
                      wd_stage_kind next)
{
    const wd_dit_context context = context_of(s, samples, stream);
    const wd_dit_stream_bytes bytes = wd_dit_stream_sizes(&context);
    const wd_dit_stream *of = &slot->stream[stream];
    return (parts){.count = next == WD_STAGE_HEAD ? 2 : 4,
                   .at = {of->x, of->temb, of->tp, of->ctx},
                   .bytes = {bytes.x, bytes.temb, bytes.tp, bytes.ctx}};
}

/* By the one that has it, in order with what was computed there. A processor's copies see its own
 * pool only: what leaves it is fetched by the other. */
void wd_station_hop(wd_station *to, wd_station_slot *to_slot, wd_station *from,
                    wd_station_slot *from_slot, int64_t samples, wd_stage_kind next)
{
    const bool fetched =
        wd_device_traits(from->device)->reads_host && !wd_device_traits(to->device)->reads_host;
    wd_station *by = fetched ? to : from;
    if (fetched) {
        wd_event_record(from_slot->left, from->queue);
        wd_event_wait_on(to->queue, from_slot->left);
    }
    wd_event_wait_on(by->queue, to_slot->left);
    for (int u = 0; u <= (int)from->guided; u++) {
        const parts in = parts_of(from, from_slot, u, samples, next);
        const parts out = parts_of(from, to_slot, u, samples, next);
        for (int i = 0; i < in.count; i++)
            wd_queue_copy(by->queue, out.at[i], in.at[i], in.bytes[i]);
    }
    if (fetched) {
        wd_event_record(to_slot->left, to->queue);
        wd_event_wait_on(from->queue, to_slot->left);
    }
    wd_event_record(from_slot->left, from->queue);
    if (!fetched) wd_event_wait_on(to->queue, from_slot->left);
}

wd_sweep_hop wd_sweep_hop_of(const wd_sweep_options *options)
{
    wd_sweep_hop hop = {0};
    for (int u = 0; u <= (int)is_guided(options); u++) {
        const wd_dit_context context = shape_of(options, 1, u);
        const wd_dit_stream_bytes bytes = wd_dit_stream_sizes(&context);
        hop.head += bytes.x + bytes.temb;
        hop.state += bytes.x + bytes.temb + bytes.tp;
        *(u ? &hop.batch : &hop.state) += bytes.ctx;
    }
    return hop;
}

size_t wd_station_stream_bytes(const wd_station *station, int64_t samples, wd_stage_kind next)
{
    const wd_sweep_hop hop = wd_sweep_hop_of(station->options);
    return next == WD_STAGE_HEAD ? (size_t)samples * hop.head
                                  : (size_t)samples * hop.state + hop.batch;
}

void wd_station_copy_out(wd_station *from, char *to, const wd_station_slot *slot, int64_t samples,
                         wd_stage_kind next)
{
    for (int u = 0; u <= (int)from->guided; u++) {
        const parts p = parts_of(from, slot, u, samples, next);
        for (int i = 0; i < p.count; to += p.bytes[i++])
            wd_queue_copy(from->queue, to, p.at[i], p.bytes[i]);
    }
}

void wd_station_copy_in(wd_station *to, wd_station_slot *slot, const char *from, int64_t samples,
                        wd_stage_kind next)
{
    for (int u = 0; u <= (int)to->guided; u++) {
        const parts p = parts_of(to, slot, u, samples, next);
        for (int i = 0; i < p.count; from += p.bytes[i++])
            wd_queue_copy(to->queue, p.at[i], from, p.bytes[i]);
    }
}
