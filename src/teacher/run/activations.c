/* Activation buffers of a sweep: see teacher/run/activations.h. */
#include "teacher/run/activations.h"

#include <inttypes.h>

#include "core/error.h"
#include "core/memory.h"
#include "dev/ops.h"

static wd_dit_context context_of(wd_activations *s, int64_t samples, bool negative)
{
    wd_dit_context context = wd_sweep_dit_context(s->options, samples, negative);
    context.rope = s->rope;
    context.queue = s->queue;
    context.arena = &s->arena;
    return context;
}

/* ---- memory ---- */

static wd_status open_embedding(wd_activations *s, wd_err *err)
{
    const wd_sweep_options *o = s->options;
    const size_t micro = (size_t)o->micro_batch;
    s->uploads = wd_device_places(s->device, WD_SWEEP_UPLOADS);
    const size_t uploads = (size_t)s->uploads;
    if (s->streams > 1) s->text_negative = wd_arena_push(&s->arena, wd_sweep_text_bytes(o));
    WD_TRY(wd_host_alloc((void **)&s->host_timestep, s->device, uploads * micro * sizeof(float),
                         "teacher sweep", err));
    WD_TRY(wd_host_alloc((void **)&s->host_text, s->device,
                         uploads * micro * wd_sweep_text_bytes(o), "teacher sweep", err));
    for (int i = 0; i < s->uploads; i++) WD_TRY(wd_event_open(&s->uploaded[i], s->device, err));
    if (s->streams > 1 && !wd_device_is_dry(s->device)) {
        o->text(o->text_context, s->host_text, -1, o->dtype);
        wd_queue_copy(s->queue, s->text_negative, s->host_text, wd_sweep_text_bytes(o));
    }
    wd_event_record(s->uploaded[0], s->queue);
    return WD_OK;
}

static void push_place(wd_activation_place *out, wd_arena *arena, const wd_sweep_options *o)
{
    for (int u = 0; u < wd_sweep_streams(o); u++) {
        wd_dit_context context = wd_sweep_dit_context(o, o->micro_batch, u);
        context.arena = arena;
        wd_dit_stream_push(&out->stream[u], &context);
    }
}

size_t wd__sweep_place_bytes(const wd_sweep_options *options)
{
    wd_activation_place place;
    wd_arena arena = wd_arena_over(NULL, SIZE_MAX);
    push_place(&place, &arena, options);
    return arena.used;
}

wd_status wd__activations_open(wd_activations *s, const wd_sweep_options *options,
                               const wd_sweep_device *part, size_t arena_bytes, wd_queue *queue,
                               wd_err *err)
{
    wd_status status;
    const char *what = "teacher activations";
    *s = (wd_activations){.options = options,
                          .queue = queue,
                          .device = wd_queue_device(queue),
                          .streams = wd_sweep_streams(options),
                          .places = part->places};
    const wd_dit_context one = context_of(s, 1, false);
    WD_TRY_OUT(wd_dit_rope_open(&s->rope, &options->config, &one.shape, queue, err));
    if (arena_bytes) WD_TRY_OUT(wd_device_alloc(&s->block, s->device, arena_bytes, what, err));
    s->arena = wd_arena_over(s->block, arena_bytes ? arena_bytes : SIZE_MAX);
    if (part->embeds) WD_TRY_OUT(open_embedding(s, err));
    for (int e = 0; e < 2; e++) {
        s->scale[e] = wd_arena_push(&s->arena, sizeof(float));
        wd_op_fill(queue, &(wd_fill_args){.to = s->scale[e],
                                          .type = WD_F32,
                                          .count = 1,
                                          .value = (float)options->guidance_scale[e]});
    }
    WD_TRY_OUT(wd_alloc((void **)&s->place, (size_t)s->places, sizeof *s->place, what, err));
    for (int i = 0; i < s->places; i++) {
        WD_TRY_OUT(wd_event_open(&s->place[i].left, s->device, err));
        push_place(&s->place[i], &s->arena, options);
    }
    s->mark = wd_arena_mark(&s->arena);
out:
    if (status != WD_OK) wd__activations_close(s);
    return status;
}

void wd__activations_close(wd_activations *s)
{
    if (s->queue) wd_queue_wait(s->queue);
    for (int i = 0; s->place && i < s->places; i++) wd_event_close(s->place[i].left);
    for (int i = 0; i < s->uploads; i++) wd_event_close(s->uploaded[i]);
    wd_dit_rope_close(&s->rope);
    if (s->block) wd_device_free(s->device, s->block);
    wd_free(s->place);
    wd_host_free(s->device, s->host_timestep);
    wd_host_free(s->device, s->host_text);
    *s = (wd_activations){0};
}

/* ---- stages ---- */

static int upload_place(const wd_activations *s)
{
    return (int)(s->entered % s->uploads);
}

/* One state of a stream. Image, text and head are computed state by state: few shapes need few
 * kernels, and next to no memory. Blocks, where the work is, take all states at once. */
static wd_dit_stream stream_of(const wd_dit_stream *all, int64_t state, const wd_dit_context *one)
{
    const wd_dit_stream_bytes bytes = wd_dit_stream_sizes(one);
    const size_t n = (size_t)state;
    return (wd_dit_stream){.x = (char *)all->x + n * bytes.x,
                           .temb = (char *)all->temb + n * bytes.temb,
                           .tp = (char *)all->tp + n * bytes.tp,
                           .ctx = (char *)all->ctx + n * bytes.ctx};
}

wd_activations_input wd__activations_begin_enter(wd_activations *s)
{
    const size_t micro = (size_t)s->options->micro_batch, first = (size_t)upload_place(s) * micro;
    wd_event_wait(s->uploaded[upload_place(s)]);
    wd_arena_reset(&s->arena, s->mark);
    return (wd_activations_input){
        .timestep = s->host_timestep + first,
        .text = s->host_text + first * wd_sweep_text_bytes(s->options),
        .latents = wd_arena_push(&s->arena, micro * wd_sweep_latent_bytes(s->options))};
}

void wd__activations_enter(wd_activations *s, wd_activation_place *place,
                           const wd_activations_input *input, int64_t samples,
                           const wd_dit_stage *weights)
{
    const size_t time_bytes = (size_t)samples * sizeof(float);
    const size_t all_text = (size_t)samples * wd_sweep_text_bytes(s->options);
    float *timestep = wd_arena_push(&s->arena, time_bytes);
    char *text = wd_arena_push(&s->arena, all_text);
    wd_queue_copy(s->queue, timestep, input->timestep, time_bytes);
    wd_queue_copy(s->queue, text, input->text, all_text);
    wd_event_record(s->uploaded[upload_place(s)], s->queue);
    s->entered++;
    const wd_dit_context one = context_of(s, 1, false);
    for (int u = 0; u < s->streams; u++) {
        const wd_dit_context context = context_of(s, samples, u);
        wd_dit_stream *all = &place->stream[u];
        wd_dit_embed_time(all, timestep, weights, &context);
        if (u) wd_dit_embed_text(all, s->text_negative, weights, &context);
        for (int64_t i = 0; i < samples; i++) {
            wd_dit_stream stream = stream_of(all, i, &one);
            const float *latents = input->latents + i * wd_sweep_latent_count(s->options);
            wd_dit_embed_image(&stream, latents, weights, &one);
            if (u) continue;
            wd_dit_embed_text(&stream, text + (size_t)i * wd_sweep_text_bytes(s->options), weights,
                              &one);
        }
    }
}

void wd__activations_run_block(wd_activations *s, wd_activation_place *place, int64_t samples,
                               const wd_dit_stage *weights)
{
    wd_arena_reset(&s->arena, s->mark);
    for (int u = 0; u < s->streams; u++) {
        const wd_dit_context context = context_of(s, samples, u);
        wd_dit_block_forward(&place->stream[u], NULL, weights, &context);
    }
}

float *wd__activations_leave(wd_activations *s, wd_activation_place *place, int64_t samples,
                             int expert, const wd_dit_stage *weights)
{
    const int64_t count = samples * wd_sweep_latent_count(s->options);
    const wd_dit_context one = context_of(s, 1, false);
    char *velocity[2] = {NULL, NULL};
    wd_arena_reset(&s->arena, s->mark);
    float *guided = wd_arena_push(&s->arena, (size_t)count * sizeof(float));
    for (int u = 0; u < s->streams; u++) {
        const size_t bytes = wd_dtype_size(s->options->dtype, count);
        velocity[u] = wd_arena_push(&s->arena, bytes);
        for (int64_t i = 0; i < samples; i++) {
            const wd_dit_stream stream = stream_of(&place->stream[u], i, &one);
            wd_dit_head_forward(velocity[u] + (size_t)i * (bytes / (size_t)samples), NULL, &stream,
                                weights, &one);
        }
    }
    wd_op_guidance(s->queue, &(wd_guidance_args){.v = guided,
                                                 .c = velocity[0],
                                                 .u = velocity[1],
                                                 .scale = s->scale[expert],
                                                 .type = s->options->dtype,
                                                 .samples = 1,
                                                 .width = count});
    wd_event_record(place->left, s->queue);
    return guided;
}

/* The parts of a micro-batch that a stage reads, of both streams, and what they take. */
typedef struct parts {
    int count;
    char *at[8];
    size_t bytes[8];
} parts;

/* In a place, or, where `place` is NULL, one after another from `packed` on. */
static parts parts_of(const wd_sweep_options *o, const wd_activation_place *place, char *packed,
                      int64_t samples, wd_stage_kind next)
{
    parts out = {.count = 0};
    for (int u = 0; u < wd_sweep_streams(o); u++) {
        const wd_dit_context context = wd_sweep_dit_context(o, samples, u);
        const wd_dit_stream_bytes sizes = wd_dit_stream_sizes(&context);
        const wd_dit_stream none = {0}, *all = place ? &place->stream[u] : &none;
        void *const at[] = {all->x, all->temb, all->tp, all->ctx};
        const size_t bytes[] = {sizes.x, sizes.temb, sizes.tp, sizes.ctx};
        for (int i = 0; i < wd_sweep_stream_tensors(next); i++) {
            out.at[out.count] = place ? at[i] : packed;
            out.bytes[out.count++] = bytes[i];
            if (!place) packed += bytes[i];
        }
    }
    return out;
}

static void copy_parts(wd_queue *queue, const parts *to, const parts *from)
{
    for (int i = 0; i < from->count; i++)
        wd_queue_copy(queue, to->at[i], from->at[i], from->bytes[i]);
}

/* The device that has the micro-batch copies it, on the queue on which it was computed. The copies
 * of a processor reach its own pool only, so the other device fetches what leaves a processor. */
void wd__activations_copy(wd_activations *to, wd_activation_place *to_place, wd_activations *from,
                          wd_activation_place *from_place, int64_t samples, wd_stage_kind next)
{
    const bool fetched =
        wd_device_traits(from->device)->reads_host && !wd_device_traits(to->device)->reads_host;
    wd_activations *by = fetched ? to : from;
    if (fetched) {
        wd_event_record(from_place->left, from->queue);
        wd_event_wait_on(to->queue, from_place->left);
    }
    wd_event_wait_on(by->queue, to_place->left);
    const parts in = parts_of(from->options, from_place, NULL, samples, next);
    const parts out = parts_of(to->options, to_place, NULL, samples, next);
    copy_parts(by->queue, &out, &in);
    if (fetched) {
        wd_event_record(to_place->left, to->queue);
        wd_event_wait_on(from->queue, to_place->left);
    }
    wd_event_record(from_place->left, from->queue);
    if (!fetched) wd_event_wait_on(to->queue, from_place->left);
}

/* ---- micro-batches that go between ranks ---- */

wd_status wd__activation_transfer_open(wd_activation_transfer *out, wd_comm *comm,
                                       wd_activations *activations, wd_err *err)
{
    wd_status status;
    const int64_t most = activations->options->micro_batch;
    *out = (wd_activation_transfer){
        .comm = comm,
        .queue = activations->queue,
        .bytes = wd_sweep_packed_bytes(activations->options, most, WD_STAGE_BLOCK)};
    WD_TRY_OUT(wd_host_alloc((void **)&out->staging, activations->device,
                             WD_TRANSFERS_UNDER_WAY * out->bytes, "activations on their way", err));
    for (int i = 0; i < WD_TRANSFERS_UNDER_WAY; i++)
        WD_TRY_OUT(wd_event_open(&out->copied[i], activations->device, err));
out:
    if (status != WD_OK) wd__activation_transfer_close(out);
    return status;
}

void wd__activation_transfer_close(wd_activation_transfer *transfer)
{
    if (transfer->queue) wd_queue_wait(transfer->queue);
    for (int i = 0; i < WD_TRANSFERS_UNDER_WAY; i++) {
        if (i < transfer->sends) wd_comm_wait(transfer->comm, transfer->sent[i]);
        wd_event_close(transfer->copied[i]);
    }
    if (transfer->queue) wd_host_free(wd_queue_device(transfer->queue), transfer->staging);
    *transfer = (wd_activation_transfer){0};
}

/* Copies what the next stage reads of a micro-batch from a place to host memory, where its parts
 * follow one another (wd_sweep_packed_bytes). */
static void pack(char *host, wd_activations *s, const wd_activation_place *place, int64_t samples,
                 wd_stage_kind next)
{
    const parts on = parts_of(s->options, place, NULL, samples, next);
    const parts packed = parts_of(s->options, NULL, host, samples, next);
    copy_parts(s->queue, &packed, &on);
}

/* Copies it from there to a place. */
static void unpack(wd_activations *s, const wd_activation_place *place, char *host, int64_t samples,
                   wd_stage_kind next)
{
    const parts on = parts_of(s->options, place, NULL, samples, next);
    const parts packed = parts_of(s->options, NULL, host, samples, next);
    copy_parts(s->queue, &on, &packed);
}

void wd__activation_transfer_send(wd_activation_transfer *c, wd_activations *from,
                                  wd_activation_place *place, int64_t samples, wd_stage_kind next,
                                  int to)
{
    const int i = (int)(c->sends % WD_TRANSFERS_UNDER_WAY);
    char *staging = c->staging + (size_t)i * c->bytes;
    if (c->sends++ >= WD_TRANSFERS_UNDER_WAY) wd_comm_wait(c->comm, c->sent[i]);
    pack(staging, from, place, samples, next);
    wd_event_record(c->copied[i], from->queue);
    wd_event_record(place->left, from->queue);
    c->sent[i] =
        wd_comm_send(c->comm, WD_LANE_ACTIVATIONS, staging,
                     wd_sweep_packed_bytes(from->options, samples, next), to, c->copied[i]);
}

void wd__activation_transfer_receive(wd_activation_transfer *c, wd_activations *to,
                                     wd_activation_place *place, int64_t samples,
                                     wd_stage_kind next, int from)
{
    const int i = (int)(c->receives++ % WD_TRANSFERS_UNDER_WAY);
    char *staging = c->staging + (size_t)i * c->bytes;
    wd_event_wait(c->copied[i]);
    wd_comm_wait(c->comm, wd_comm_receive(c->comm, WD_LANE_ACTIVATIONS, staging,
                                          wd_sweep_packed_bytes(to->options, samples, next), from));
    unpack(to, place, staging, samples, next);
    wd_event_record(c->copied[i], to->queue);
}
