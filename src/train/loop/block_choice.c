/* The choice of blocks: see train/loop/block_choice.h.
 *
 * A round leaves one block out. The states go through the blocks that are still there, and before
 * each block that may be left out a copy of the stream begins, which goes past it. So a round with
 * n blocks computes n + n (n - 1) / 2 blocks, and each copy is the model without one of them. */
#include "train/loop/block_choice.h"

#include <math.h>
#include <string.h>

#include "core/memory.h"
#include "core/progress.h"
#include "core/random.h"
#include "dev/ops.h"
#include "model/dit/dit.h"
#include "train/network/init.h"

static const double weights_max = 4e9;

enum { WIDE = 8 }; /* streams that go through a block together, which reads its weights once */

typedef struct choice {
    const wd_block_choice_options *options;
    const wd_dit_config *config;
    wd_queue *queue;
    wd_device *device;
    wd_residency *residency;
    wd_params unread; /* of a preset, which has no files and is only planned: addresses */
    wd_dit_context context;
    wd_arena arena;
    void *arena_block; /* device; owned */
    int64_t width;     /* of a state */
    int64_t *kept;     /* [blocks of the model] those that are still there, ascending; owned */
    int64_t count;
    /* host; owned */
    float *latents, *reference, *found; /* [states, width] */
    void *staging;                      /* [states, S, text_dim] dtype */
    float timestep[WD_BLOCK_CHOICE_STATES];
    double sigma[WD_BLOCK_CHOICE_STATES];
    double *change; /* [blocks of the model] of the last round, by place in kept; owned */
    /* device memory, of the arena */
    float *d_latents, *d_timestep, *d_found;
    void *d_text, *d_velocity;
    wd_dit_stream stream; /* of the states; its x is the first of: */
    char *x;            /* [blocks of the model, states, L, D] the stream that leaves out the block
                         * at each place of kept; at place 0 the one that leaves out none */
    wd_dit_stream wide; /* WIDE times the rest of the stream, for blocks; it has no x */
} choice;

bool wd_block_choice_is_measured(const wd_dit_config *from, int64_t layers)
{
    return layers >= 2 && layers < from->layers && (double)wd_dit_parameters(from) <= weights_max;
}

/* ---- opening ---- */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static wd_dit_shape shape_of(const wd_block_choice_options *o)
{
    return (wd_dit_shape){.samples = WD_BLOCK_CHOICE_STATES,
                          .texts = WD_BLOCK_CHOICE_STATES,
                          .frames = 1,
                          .height = least(o->latent_height, WD_BLOCK_CHOICE_SIDE),
                          .width = least(o->latent_width, WD_BLOCK_CHOICE_SIDE),
                          .text_tokens = o->text_tokens,
                          .text_repeat = o->text_repeat};
}

static int64_t text_count(const choice *c)
{
    return c->options->text_tokens * c->config->text_dim;
}

static wd_status open_host(choice *c, wd_err *err)
{
    const size_t all = WD_BLOCK_CHOICE_STATES * (size_t)c->width;
    const size_t layers = (size_t)c->config->layers;
    float **const arrays[] = {&c->latents, &c->reference, &c->found};
    for (int i = 0; i < 3; i++)
        WD_TRY(wd_alloc((void **)arrays[i], all, sizeof(float), "states", err));
    WD_TRY(wd_alloc(&c->staging, WD_BLOCK_CHOICE_STATES * (size_t)text_count(c),
                    wd_dtype_bytes(c->options->dtype), "texts", err));
    WD_TRY(wd_alloc((void **)&c->kept, layers, sizeof *c->kept, "blocks", err));
    WD_TRY(wd_alloc((void **)&c->change, layers, sizeof *c->change, "blocks", err));
    for (c->count = 0; c->count < c->config->layers; c->count++) c->kept[c->count] = c->count;
    return WD_OK;
}

/* What stays on the arena. */
static void push_all(choice *c)
{
    const size_t states = WD_BLOCK_CHOICE_STATES, width = (size_t)c->width;
    const size_t dtype = wd_dtype_bytes(c->options->dtype);
    c->d_latents = wd_arena_push(&c->arena, states * width * sizeof(float));
    c->d_found = wd_arena_push(&c->arena, states * width * sizeof(float));
    c->d_timestep = wd_arena_push(&c->arena, states * sizeof(float));
    c->d_text = wd_arena_push(&c->arena, states * (size_t)text_count(c) * dtype);
    c->d_velocity = wd_arena_push(&c->arena, states * width * dtype);
    const wd_dit_stream_bytes bytes = wd_dit_stream_sizes(&c->context);
    c->x = wd_arena_push(&c->arena, (size_t)c->config->layers * bytes.x);
    c->stream = (wd_dit_stream){.x = c->x,
                                .temb = wd_arena_push(&c->arena, bytes.temb),
                                .tp = wd_arena_push(&c->arena, bytes.tp),
                                .ctx = wd_arena_push(&c->arena, bytes.ctx)};
    c->wide = (wd_dit_stream){.temb = wd_arena_push(&c->arena, WIDE * bytes.temb),
                              .tp = wd_arena_push(&c->arena, WIDE * bytes.tp),
                              .ctx = wd_arena_push(&c->arena, WIDE * bytes.ctx)};
}

/* `arena_bytes` SIZE_MAX: of a dry device, whose arena has no end. */
static wd_status open_choice(choice *c, const wd_block_choice_options *o, size_t arena_bytes,
                             wd_queue *queue, wd_err *err)
{
    const wd_component expert = wd_student_expert(o->from);
    const wd_dit_shape shape = shape_of(o);
    *c = (choice){.options = o,
                  .config = &o->from->dit,
                  .queue = queue,
                  .device = wd_queue_device(queue),
                  .width = o->from->dit.in_channels * shape.height * shape.width};
    WD_TRY(open_host(c, err));
    if (*o->from->path)
        WD_TRY(wd_residency_open_resident(&c->residency, o->from, &expert, o->dtype, queue, err));
    else
        WD_TRY(wd_params_open(&c->unread, c->config, o->dtype, 0, c->device, err));
    if (!wd_device_is_dry(c->device))
        WD_TRY(wd_device_alloc(&c->arena_block, c->device, arena_bytes, "choice of blocks", err));
    c->arena = wd_arena_over(c->arena_block, arena_bytes);
    c->context = (wd_dit_context){
        .config = c->config, .shape = shape, .dtype = o->dtype, .queue = queue, .arena = &c->arena};
    WD_TRY(wd_dit_rope_open(&c->context.rope, c->config, &shape, queue, err));
    push_all(c);
    return WD_OK;
}

static void close_choice(choice *c)
{
    if (c->queue) wd_queue_wait(c->queue);
    wd_dit_rope_close(&c->context.rope);
    wd_residency_close(c->residency);
    wd_params_close(&c->unread);
    if (c->arena_block) wd_device_free(c->device, c->arena_block);
    void *const arrays[] = {c->latents, c->reference, c->found, c->staging, c->kept, c->change};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) wd_free(arrays[i]);
}

/* ---- passes ---- */

static wd_status acquire(choice *c, wd_dit_stage *out, int stage, wd_err *err)
{
    const int64_t first = wd_dit_stage_first(c->config, stage);
    if (c->residency) return wd_residency_acquire(c->residency, out, 0, stage, c->queue, err);
    *out = (wd_dit_stage){0};
    for (int slot = 0; slot < wd_dit_stage_slots(c->config, stage); slot++)
        out->t[slot] = wd_params_weight(&c->unread, first + slot);
    return WD_OK;
}

static void release(choice *c, int stage)
{
    if (c->residency) wd_residency_release(c->residency, 0, stage, c->queue);
}

/* wide = the stream's temb, tp and ctx, WIDE times. */
static void widen(choice *c)
{
    const wd_dit_stream_bytes bytes = wd_dit_stream_sizes(&c->context);
    for (size_t k = 0; k < WIDE; k++) {
        wd_queue_copy(c->queue, (char *)c->wide.temb + k * bytes.temb, c->stream.temb, bytes.temb);
        wd_queue_copy(c->queue, (char *)c->wide.tp + k * bytes.tp, c->stream.tp, bytes.tp);
        wd_queue_copy(c->queue, (char *)c->wide.ctx + k * bytes.ctx, c->stream.ctx, bytes.ctx);
    }
}

static wd_status embed(choice *c, wd_err *err)
{
    wd_dit_stage weights;
    const size_t bytes = WD_BLOCK_CHOICE_STATES * sizeof(float);
    wd_queue_copy_and_wait(c->queue, c->d_latents, c->latents, bytes * (size_t)c->width);
    wd_queue_copy_and_wait(c->queue, c->d_timestep, c->timestep, bytes);
    WD_TRY(acquire(c, &weights, 0, err));
    wd_dit_embed_forward(&c->stream, NULL, c->d_latents, c->d_timestep, c->d_text, &weights,
                         &c->context);
    release(c, 0);
    widen(c);
    return WD_OK;
}

/* out [states, width] host = the head's velocities of a stream, whose x is `x`. */
static wd_status finish(float *out, choice *c, void *x, wd_err *err)
{
    wd_dit_stage weights;
    wd_dit_stream stream = c->stream;
    const int head = wd_dit_stages(c->config) - 1;
    const int64_t count = WD_BLOCK_CHOICE_STATES * c->width;
    stream.x = x;
    WD_TRY(acquire(c, &weights, head, err));
    wd_dit_head_forward(c->d_velocity, NULL, &stream, &weights, &c->context);
    release(c, head);
    wd_op_cast(c->queue, &(wd_cast_args){.to = c->d_found,
                                         .from = c->d_velocity,
                                         .to_type = WD_F32,
                                         .from_type = c->options->dtype,
                                         .count = count});
    wd_queue_copy_and_wait(c->queue, out, c->d_found, (size_t)count * sizeof *out);
    return WD_OK;
}

/* The streams at places [0, count) go through a block, some at a time: what becomes of one does not
 * depend on the others. */
static void run_block(choice *c, int64_t count, const wd_dit_stage *weights)
{
    const size_t bytes = wd_dit_stream_sizes(&c->context).x;
    for (int64_t first = 0; first < count; first += WIDE) {
        wd_dit_context wide = c->context;
        wd_dit_stream stream = c->wide;
        stream.x = c->x + (size_t)first * bytes;
        wide.shape.samples = WD_BLOCK_CHOICE_STATES * least(WIDE, count - first);
        wide.shape.texts = wide.shape.samples;
        wd_dit_block_forward(&stream, NULL, weights, &wide);
    }
}

/* Whether the block at a place of `kept` may be left out. */
static bool may_go(const choice *c, int64_t place)
{
    return place > 0 && place + 1 < c->count;
}

/* Runs the blocks that are there on the stream, and, if `leaves`, on the streams that leave one out
 * each, which begin before that block. */
static wd_status run_blocks(choice *c, bool leaves, wd_err *err)
{
    wd_dit_stage weights;
    const wd_block_choice_options *o = c->options;
    const size_t bytes = wd_dit_stream_sizes(&c->context).x;
    for (int64_t i = 0; i < c->count; i++) {
        const int stage = 1 + (int)c->kept[i];
        if (o->stop && o->stop(o->stop_context))
            return wd_fail(err, WD_INTERRUPTED, "stopped on request while blocks were chosen");
        WD_TRY(acquire(c, &weights, stage, err));
        if (leaves && may_go(c, i)) wd_queue_copy(c->queue, c->x + (size_t)i * bytes, c->x, bytes);
        run_block(c, leaves && i > 0 ? i : 1, &weights);
        release(c, stage);
    }
    return WD_OK;
}

/* ---- states ---- */

static void set_noise_levels(choice *c)
{
    const double shift = c->options->flow_shift;
    for (int k = 0; k < WD_BLOCK_CHOICE_STATES; k++) {
        const double t = 1 - (double)k / WD_BLOCK_CHOICE_STATES;
        c->sigma[k] = shift * t / (1 + (shift - 1) * t);
    }
}

static void put_text(choice *c)
{
    const wd_block_choice_options *o = c->options;
    const size_t bytes = wd_dtype_size(o->dtype, text_count(c));
    for (int64_t b = 0; b < WD_BLOCK_CHOICE_STATES; b++)
        o->text(o->text_context, (char *)c->staging + (size_t)b * bytes, b % o->prompts, o->dtype);
    wd_queue_copy_and_wait(c->queue, c->d_text, c->staging, WD_BLOCK_CHOICE_STATES * bytes);
}

/* State k goes k of Euler's steps along the model's velocities, and stays there. */
static wd_status make_states(choice *c, wd_err *err)
{
    set_noise_levels(c);
    for (int b = 0; b < WD_BLOCK_CHOICE_STATES; b++)
        wd_random_normal(c->latents + b * c->width, c->width,
                         (wd_random){c->options->seed, WD_RANDOM_BLOCK_CHOICE, (uint64_t)b}, 0);
    for (int k = 0; k < WD_BLOCK_CHOICE_STATES; k++) {
        for (int b = 0; b < WD_BLOCK_CHOICE_STATES; b++)
            c->timestep[b] =
                (float)(c->sigma[b < k ? b : k] * (double)c->options->num_train_timesteps);
        WD_TRY(embed(c, err));
        WD_TRY(run_blocks(c, false, err));
        WD_TRY(finish(c->reference, c, c->stream.x, err));
        for (int b = k + 1; b < WD_BLOCK_CHOICE_STATES; b++) {
            const float dt = (float)(c->sigma[k + 1] - c->sigma[k]);
            for (int64_t i = b * c->width; i < (b + 1) * c->width; i++)
                c->latents[i] += dt * c->reference[i];
        }
    }
    return WD_OK;
}

/* ---- rounds ---- */

/* By how much the velocities in `found` differ in direction from the model's: 1 - cosine, mean over
 * the states. The difference itself would not do: without many blocks velocities are wrong and
 * small, and then the shorter of two wrong ones is closer. */
static double change_of(const choice *c)
{
    double sum = 0;
    for (int b = 0; b < WD_BLOCK_CHOICE_STATES; b++) {
        double product = 0, norm = 0, found_norm = 0;
        for (int64_t i = b * c->width; i < (b + 1) * c->width; i++) {
            const double v = c->reference[i], w = c->found[i];
            product += v * w;
            norm += v * v;
            found_norm += w * w;
        }
        sum += 1 - product / fmax(sqrt(norm * found_norm), 1e-300);
    }
    return sum / WD_BLOCK_CHOICE_STATES;
}

/* The place in `kept` of the block that matters least; the first of equal ones. */
static int64_t least_change(const choice *c)
{
    int64_t best = 1;
    for (int64_t i = 2; i + 1 < c->count; i++)
        if (c->change[i] < c->change[best]) best = i;
    return best;
}

static wd_status run_round(choice *c, wd_err *err)
{
    const size_t bytes = wd_dit_stream_sizes(&c->context).x;
    WD_TRY(embed(c, err));
    WD_TRY(run_blocks(c, true, err));
    for (int64_t i = 0; i < c->count; i++) {
        if (!may_go(c, i)) continue;
        WD_TRY(finish(c->found, c, c->x + (size_t)i * bytes, err));
        c->change[i] = change_of(c);
    }
    const int64_t gone = least_change(c);
    c->count--;
    memmove(c->kept + gone, c->kept + gone + 1, (size_t)(c->count - gone) * sizeof *c->kept);
    return WD_OK;
}

static wd_status run_all(choice *c, wd_err *err)
{
    const int64_t layers = c->options->layers, rounds = c->count - layers;
    wd_progress_task progress = wd_progress_begin("choosing blocks", "block", 0, rounds);
    put_text(c);
    WD_TRY(make_states(c, err));
    while (c->count > layers) {
        WD_TRY(run_round(c, err));
        wd_progress_at(&progress, rounds - (c->count - layers));
    }
    return WD_OK;
}

/* ---- memory ---- */

typedef struct memory_needs {
    size_t arena_bytes, workspace_bytes;
} memory_needs;

/* What a choice launches on a dry queue, which closes with its device later: the first round is the
 * one with most blocks. */
static wd_status rehearse(memory_needs *out, const wd_block_choice_options *options, wd_queue *dry,
                          wd_err *err)
{
    choice c = {0};
    wd_status status;
    WD_TRY_OUT(open_choice(&c, options, SIZE_MAX, dry, err));
    WD_TRY_OUT(run_round(&c, err));
    *out = (memory_needs){.arena_bytes = c.arena.peak,
                          .workspace_bytes = wd_queue_workspace_bytes(dry)};
out:
    close_choice(&c);
    return status;
}

static wd_status find_needs(memory_needs *out, const wd_block_choice_options *options,
                            wd_queue *queue, wd_err *err)
{
    wd_device *dry = NULL;
    wd_queue *dry_queue = NULL;
    wd_status status;
    WD_TRY_OUT(wd_device_open_rehearsed(&dry, wd_queue_device(queue), err));
    WD_TRY_OUT(wd_queue_open(&dry_queue, dry, err));
    WD_TRY_OUT(rehearse(out, options, dry_queue, err));
    WD_TRY_OUT(wd_device_check_kernels(err));
    status = wd_device_check_planned(dry, err);
out:
    wd_queue_close(dry_queue);
    wd_device_close(dry);
    return status;
}

wd_status wd_block_choice_make(int64_t *block, const wd_block_choice_options *options,
                               wd_queue *queue, wd_err *err)
{
    choice c = {0};
    memory_needs needs;
    wd_status status;
    WD_TRY(find_needs(&needs, options, queue, err));
    WD_TRY_OUT(wd_queue_reserve_workspace(queue, needs.workspace_bytes, err));
    WD_TRY_OUT(open_choice(&c, options, needs.arena_bytes, queue, err));
    WD_TRY_OUT(run_all(&c, err));
    WD_TRY_OUT(wd_device_fault(c.device, err));
    memcpy(block, c.kept, (size_t)options->layers * sizeof *block);
out:
    close_choice(&c);
    return status;
}

wd_status wd_block_choice_plan(wd_memory_plan *plan, const wd_block_choice_options *options,
                               const wd_devices *devices, int device, wd_err *err)
{
    const int place = wd_memory_place(devices, device);
    wd_device *dry = NULL;
    wd_queue *queue = NULL;
    memory_needs needs;
    wd_status status;
    int64_t before;
    WD_TRY_OUT(wd_device_open_dry(&dry, devices->device[device], err));
    before = wd_memory_held();
    wd_memory_restart_peak();
    WD_TRY_OUT(wd_queue_open(&queue, dry, err));
    WD_TRY_OUT(rehearse(&needs, options, queue, err));
    const size_t of_preset = wd_dtype_size(options->dtype, wd_dit_parameters(&options->from->dit));
    wd_memory_plan_add(plan, "model, to choose its blocks", WD_MEMORY_CHOOSING, place,
                       (*options->from->path ? wd_device_bytes_peak(dry) : of_preset) +
                           needs.arena_bytes);
    wd_memory_plan_add(plan, "workspace of a queue", WD_MEMORY_CHOOSING, place,
                       needs.workspace_bytes);
    wd_memory_plan_add(plan, "states, to choose blocks", WD_MEMORY_CHOOSING, WD_MEMORY_HOST,
                       (size_t)(wd_memory_peak() - before));
    WD_TRY_OUT(wd_device_check_kernels(err));
    status = wd_device_check_planned(dry, err);
out:
    wd_queue_close(queue);
    wd_device_close(dry);
    return status;
}
