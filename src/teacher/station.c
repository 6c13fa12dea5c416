/* Stations of a sweep: see teacher/station.h. */
#include "teacher/station.h"

#include "core/memory.h"
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
    if (s->guided) s->text_negative = wd_arena_push(&s->arena, text_bytes(o));
    WD_TRY(wd_alloc((void **)&s->host_timestep, micro, sizeof(float), "teacher sweep", err));
    WD_TRY(wd_alloc(&s->host_text, micro, text_bytes(o), "teacher sweep", err));
    WD_TRY(wd_event_open(&s->uploaded, s->device, err));
    if (s->guided && !wd_device_is_dry(s->device)) {
        o->text(o->text_context, s->host_text, -1, o->dtype);
        wd_queue_copy(s->queue, s->text_negative, s->host_text, text_bytes(o));
    }
    wd_event_record(s->uploaded, s->queue);
    return WD_OK;
}

static void open_exit(wd_station *s)
{
    const wd_sweep_options *o = s->options;
    const size_t micro = (size_t)o->micro_batch;
    for (int e = 0; e < 2; e++) {
        s->scale[e] = wd_arena_push(&s->arena, micro * sizeof(float));
        wd_op_fill(s->queue, &(wd_fill_args){.to = s->scale[e],
                                             .type = WD_F32,
                                             .count = o->micro_batch,
                                             .value = (float)o->guidance_scale[e]});
    }
}

static wd_status open_slots(wd_station *s, wd_err *err)
{
    WD_TRY(wd_alloc((void **)&s->slot, (size_t)s->slots, sizeof *s->slot, "teacher sweep", err));
    for (int i = 0; i < s->slots; i++) {
        WD_TRY(wd_event_open(&s->slot[i].left, s->device, err));
        for (int u = 0; u <= (int)s->guided; u++) {
            const wd_dit_context context = context_of(s, s->options->micro_batch, u);
            wd_dit_stream_push(&s->slot[i].stream[u], &context);
        }
    }
    return WD_OK;
}

static wd_status open_parts(wd_station *s, const wd_placed_sweep *sweep, size_t arena_bytes,
                            wd_err *err)
{
    const wd_dit_context context = context_of(s, 1, false);
    WD_TRY(wd_dit_rope_open(&s->rope, &s->options->config, &context.shape, s->queue, err));
    if (arena_bytes)
        WD_TRY(wd_device_alloc(&s->block, s->device, arena_bytes, "teacher activations", err));
    s->arena = wd_arena_over(s->block, arena_bytes ? arena_bytes : SIZE_MAX);
    if (sweep->kind[WD_STAGE_EMBED]) WD_TRY(open_entry(s, err));
    if (sweep->kind[WD_STAGE_HEAD]) open_exit(s);
    WD_TRY(open_slots(s, err));
    s->mark = wd_arena_mark(&s->arena);
    return WD_OK;
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
        .slots = sweep->streams,
    };
    const wd_status status = open_parts(s, sweep, arena_bytes, err);
    if (status != WD_OK) wd_station_close(s);
    return status;
}

void wd_station_close(wd_station *s)
{
    if (s->queue) wd_queue_wait(s->queue);
    for (int i = 0; s->slot && i < s->slots; i++) wd_event_close(s->slot[i].left);
    wd_event_close(s->uploaded);
    wd_dit_rope_close(&s->rope);
    if (s->block) wd_device_free(s->device, s->block);
    wd_free(s->slot);
    wd_free(s->host_timestep);
    wd_free(s->host_text);
    *s = (wd_station){0};
}

/* ---- stages ---- */

void wd_station_begin(wd_station *s, wd_stage_kind kind)
{
    const wd_sweep_options *o = s->options;
    const size_t micro = (size_t)o->micro_batch, values = micro * (size_t)s->state_count;
    wd_arena_reset(&s->arena, s->mark);
    if (kind == WD_STAGE_EMBED) {
        s->latents = wd_arena_push(&s->arena, values * sizeof(float));
        s->timestep = wd_arena_push(&s->arena, micro * sizeof(float));
        s->text = wd_arena_push(&s->arena, micro * text_bytes(o));
    } else if (kind == WD_STAGE_HEAD) {
        for (int u = 0; u <= (int)s->guided; u++)
            s->velocity[u] = wd_arena_push(&s->arena, values * wd_dtype_bytes(o->dtype));
        s->guided_velocity = wd_arena_push(&s->arena, values * sizeof(float));
    }
}

static void run_embed(wd_station *s, wd_station_slot *slot, int64_t samples,
                      const wd_dit_stage *weights)
{
    for (int u = 0; u <= (int)s->guided; u++) {
        const wd_dit_context context = context_of(s, samples, u);
        wd_dit_embed_forward(&slot->stream[u], NULL, s->latents, s->timestep,
                             u ? s->text_negative : s->text, weights, &context);
    }
}

static void run_block(wd_station *s, wd_station_slot *slot, int64_t samples,
                      const wd_dit_stage *weights)
{
    for (int u = 0; u <= (int)s->guided; u++) {
        const wd_dit_context context = context_of(s, samples, u);
        wd_dit_block_forward(&slot->stream[u], NULL, weights, &context);
    }
}

static void run_head(wd_station *s, wd_station_slot *slot, int expert, int64_t samples,
                     const wd_dit_stage *weights)
{
    for (int u = 0; u <= (int)s->guided; u++) {
        const wd_dit_context context = context_of(s, samples, u);
        wd_dit_head_forward(s->velocity[u], NULL, &slot->stream[u], weights, &context);
    }
    wd_op_guidance(s->queue, &(wd_guidance_args){.v = s->guided_velocity,
                                                 .c = s->velocity[0],
                                                 .u = s->guided ? s->velocity[1] : NULL,
                                                 .scale = s->scale[expert],
                                                 .type = s->options->dtype,
                                                 .samples = samples,
                                                 .width = s->state_count});
}

void wd_station_run(wd_station *station, wd_station_slot *slot, wd_stage_kind kind, int expert,
                    int64_t samples, const wd_dit_stage *weights)
{
    switch (kind) {
    case WD_STAGE_EMBED:
        run_embed(station, slot, samples, weights);
        return;
    case WD_STAGE_BLOCK:
        run_block(station, slot, samples, weights);
        return;
    default:
        run_head(station, slot, expert, samples, weights);
    }
}

/* The parts of a stream, and what they take. */
typedef struct parts {
    void *at[4];
    size_t bytes[4];
} parts;

static parts parts_of(wd_station *s, const wd_station_slot *slot, int stream, int64_t samples)
{
    const wd_dit_context context = context_of(s, samples, stream);
    const wd_dit_stream_bytes bytes = wd_dit_stream_sizes(&context);
    const wd_dit_stream *of = &slot->stream[stream];
    return (parts){{of->x, of->temb, of->tp, of->ctx}, {bytes.x, bytes.temb, bytes.tp, bytes.ctx}};
}

/* By the one that has it, in order with what was computed there. A processor's copies see its own
 * pool only: what leaves it is fetched by the other. */
void wd_station_hop(wd_station *to, wd_station_slot *to_slot, wd_station *from,
                    wd_station_slot *from_slot, int64_t samples)
{
    const bool fetched = wd_device_reads_host(from->device) && !wd_device_reads_host(to->device);
    wd_station *by = fetched ? to : from;
    if (fetched) {
        wd_event_record(from_slot->left, from->queue);
        wd_event_wait_on(to->queue, from_slot->left);
    }
    wd_event_wait_on(by->queue, to_slot->left);
    for (int u = 0; u <= (int)from->guided; u++) {
        const parts in = parts_of(from, from_slot, u, samples);
        const parts out = parts_of(from, to_slot, u, samples);
        for (int i = 0; i < 4; i++) wd_queue_copy(by->queue, out.at[i], in.at[i], in.bytes[i]);
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
        hop.state += bytes.x + bytes.temb + bytes.tp;
        *(u ? &hop.batch : &hop.state) += bytes.ctx;
    }
    return hop;
}

size_t wd_station_stream_bytes(const wd_station *station, int64_t samples)
{
    const wd_sweep_hop hop = wd_sweep_hop_of(station->options);
    return (size_t)samples * hop.state + hop.batch;
}

void wd_station_copy_out(wd_station *from, char *to, const wd_station_slot *slot, int64_t samples)
{
    for (int u = 0; u <= (int)from->guided; u++) {
        const parts p = parts_of(from, slot, u, samples);
        for (int i = 0; i < 4; to += p.bytes[i++])
            wd_queue_copy(from->queue, to, p.at[i], p.bytes[i]);
    }
}

void wd_station_copy_in(wd_station *to, wd_station_slot *slot, const char *from, int64_t samples)
{
    for (int u = 0; u <= (int)to->guided; u++) {
        const parts p = parts_of(to, slot, u, samples);
        for (int i = 0; i < 4; from += p.bytes[i++])
            wd_queue_copy(to->queue, p.at[i], from, p.bytes[i]);
    }
}
