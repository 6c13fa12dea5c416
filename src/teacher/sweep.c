/* The sweep: see teacher/sweep.h. */
#include "teacher/sweep.h"

#include <assert.h>
#include <string.h>

#include "core/memory.h"
#include "dev/ops.h"

enum { TOKENS_PER_PASS = 2048 };

/* One micro-batch on its way through the stages. */
typedef struct micro_batch {
    int64_t first, samples; /* range of `order` */
    wd_dit_stream stream[2]; /* conditional, unconditional */
} micro_batch;

/* Places in `order` that each expert has. */
typedef struct sweep_counts {
    int64_t of[2];
} sweep_counts;

struct wd_sweep {
    wd_sweep_options options;
    wd_residency *residency;
    wd_queue *queue;
    wd_device *device;
    wd_dit_rope rope;
    int64_t state_count; /* elements of one state's latents */
    bool guided;
    int64_t padded_max;  /* places in `order` */
    micro_batch *batch;  /* [padded_max] at most */
    int64_t *order;      /* [padded_max] states sorted by expert */
    /* device */
    float *latents;      /* [micro_batch, C, F, H, W], gathered */
    float *timestep;     /* [padded_max], in `order` */
    float *scale;        /* [padded_max], in `order` */
    void *velocity[2];   /* [micro_batch, C, F, H, W] dtype */
    float *guided_velocity; /* [micro_batch, C, F, H, W] */
    void *text;          /* [micro_batch, S, text_dim] dtype */
    void *text_negative; /* [1, S, text_dim] dtype */
    void *arena_block;
    wd_arena arena;
    /* host, read by copies: not touched until `uploaded` */
    float *host_timestep, *host_scale;
    void *host_text; /* [micro_batch, S, text_dim] dtype */
    wd_event *uploaded;
};

int64_t wd_sweep_micro_batch(const wd_dit_config *config, int64_t frames, int64_t height,
                             int64_t width)
{
    const wd_dit_shape one = {.samples = 1, .frames = frames, .height = height, .width = width};
    int64_t samples = TOKENS_PER_PASS / wd_dit_tokens(config, &one);
    return samples > 0 ? samples : 1;
}

static int expert_of(const wd_sweep *sweep, float timestep)
{
    return sweep->residency->experts == 2 && timestep < sweep->options.boundary_timestep;
}

static wd_dit_context context_of(wd_sweep *sweep, int64_t samples, int64_t texts)
{
    const wd_sweep_options *o = &sweep->options;
    return (wd_dit_context){
        .config = &o->config,
        .shape = {.samples = samples,
                  .texts = texts,
                  .frames = o->frames,
                  .height = o->height,
                  .width = o->width,
                  .text_tokens = o->text_tokens,
                  .text_repeat = o->text_repeat},
        .dtype = o->dtype,
        .rope = sweep->rope,
        .queue = sweep->queue,
        .arena = &sweep->arena,
    };
}

static size_t text_bytes(const wd_sweep_options *o)
{
    return (size_t)(o->text_tokens * o->config.text_dim) * wd_dtype_bytes(o->dtype);
}

/* Sizes that micro-batches have are multiples of this. Few sizes mean few shapes: what a device
 * makes per shape is made once, and a dry run can try them all. */
static int64_t size_step(int64_t largest) { return (largest + 15) / 16; }

/* Uploads what the window's states are told apart by, sorted by expert. Where an expert's states
 * make no whole number of steps, the last one is computed more than once: that takes less time than
 * a small micro-batch more. */
static void sort_window(sweep_counts *out, wd_sweep *sweep, const wd_window *window)
{
    int64_t n = 0, step = size_step(sweep->options.micro_batch);
    *out = (sweep_counts){{0}};
    for (int e = 0; e < sweep->residency->experts; e++) {
        int64_t first = n;
        for (int64_t i = 0; i < window->count; i++)
            if (expert_of(sweep, window->timestep[i]) == e) sweep->order[n++] = i;
        while ((n - first) % step) sweep->order[n] = sweep->order[n - 1], n++;
        for (int64_t i = first; i < n; i++) {
            sweep->host_timestep[i] = window->timestep[sweep->order[i]];
            sweep->host_scale[i] = (float)sweep->options.guidance_scale[e];
        }
        out->of[e] = n - first;
    }
    size_t bytes = (size_t)n * sizeof(float);
    wd_queue_copy(sweep->queue, sweep->timestep, sweep->host_timestep, bytes);
    wd_queue_copy(sweep->queue, sweep->scale, sweep->host_scale, bytes);
}

/* latents = the micro-batch's states, side by side. */
static void gather_latents(wd_sweep *sweep, const micro_batch *batch, const wd_window *window)
{
    size_t bytes = (size_t)sweep->state_count * sizeof(float);
    for (int64_t i = 0; i < batch->samples; i++) {
        int64_t at = sweep->order[batch->first + i];
        wd_queue_copy(sweep->queue, sweep->latents + i * sweep->state_count,
                      window->latents + at * sweep->state_count, bytes);
    }
}

static void upload_text(wd_sweep *sweep, const micro_batch *batch, const wd_window *window)
{
    const wd_sweep_options *o = &sweep->options;
    size_t bytes = text_bytes(o);
    wd_event_wait(sweep->uploaded);
    for (int64_t i = 0; i < batch->samples; i++) {
        int64_t at = sweep->order[batch->first + i];
        o->text(o->text_context, (char *)sweep->host_text + (size_t)i * bytes, window->prompt[at],
                o->dtype);
    }
    wd_queue_copy(sweep->queue, sweep->text, sweep->host_text, (size_t)batch->samples * bytes);
    wd_event_record(sweep->uploaded, sweep->queue);
}

static void run_embed(wd_sweep *sweep, micro_batch *batch, const wd_window *window,
                      const wd_dit_stage *weights)
{
    gather_latents(sweep, batch, window);
    upload_text(sweep, batch, window);
    wd_dit_context context = context_of(sweep, batch->samples, batch->samples);
    const float *timestep = sweep->timestep + batch->first;
    wd_dit_embed_forward(&batch->stream[0], NULL, sweep->latents, timestep, sweep->text, weights,
                         &context);
    if (!sweep->guided) return;
    context.shape.texts = 1;
    wd_dit_embed_forward(&batch->stream[1], NULL, sweep->latents, timestep, sweep->text_negative,
                         weights, &context);
}

static void run_block(wd_sweep *sweep, micro_batch *batch, const wd_dit_stage *weights)
{
    for (int u = 0; u <= (int)sweep->guided; u++) {
        wd_dit_context context = context_of(sweep, batch->samples, u ? 1 : batch->samples);
        wd_dit_block_forward(&batch->stream[u], NULL, weights, &context);
    }
}

static void run_head(wd_sweep *sweep, micro_batch *batch, const wd_window *window,
                     const wd_dit_stage *weights)
{
    for (int u = 0; u <= (int)sweep->guided; u++) {
        wd_dit_context context = context_of(sweep, batch->samples, u ? 1 : batch->samples);
        wd_dit_head_forward(sweep->velocity[u], NULL, &batch->stream[u], weights, &context);
    }
    wd_op_guidance(sweep->queue, &(wd_guidance_args){.v = sweep->guided_velocity,
                                                     .c = sweep->velocity[0],
                                                     .u = sweep->guided ? sweep->velocity[1] : NULL,
                                                     .scale = sweep->scale + batch->first,
                                                     .type = sweep->options.dtype,
                                                     .samples = batch->samples,
                                                     .width = sweep->state_count});
    size_t bytes = (size_t)sweep->state_count * sizeof(float);
    for (int64_t i = 0; i < batch->samples; i++) {
        int64_t at = sweep->order[batch->first + i];
        wd_queue_copy(sweep->queue, window->velocity + at * sweep->state_count,
                      sweep->guided_velocity + i * sweep->state_count, bytes);
    }
}

/* Cuts [first, first + count) of `order` into micro-batches and gives each its streams. */
static int64_t cut(wd_sweep *sweep, int64_t first, int64_t count)
{
    int64_t n = 0;
    for (int64_t done = 0; done < count; n++) {
        micro_batch *batch = &sweep->batch[n];
        int64_t size = sweep->options.micro_batch;
        if (size > count - done) size = count - done;
        batch->first = first + done;
        batch->samples = size;
        for (int u = 0; u <= (int)sweep->guided; u++) {
            wd_dit_context context = context_of(sweep, batch->samples, u ? 1 : batch->samples);
            wd_dit_stream_push(&batch->stream[u], &context);
        }
        done += batch->samples;
    }
    return n;
}

/* One expert over its states: each stage once. */
static wd_status run_expert(wd_sweep *sweep, int expert, int64_t first, int64_t count,
                            const wd_window *window, wd_err *err)
{
    size_t mark = wd_arena_mark(&sweep->arena);
    int64_t batches = cut(sweep, first, count);
    int stages = sweep->residency->stages;
    bool ahead = !wd_device_is_dry(sweep->device);
    if (ahead) wd_residency_prefetch(sweep->residency, expert, 0);
    for (int stage = 0; stage < stages; stage++) {
        wd_dit_stage weights;
        WD_TRY(wd_residency_acquire(sweep->residency, &weights, expert, stage, sweep->queue, err));
        if (ahead && stage + 1 < stages)
            wd_residency_prefetch(sweep->residency, expert, stage + 1);
        for (int64_t i = 0; i < batches; i++) {
            if (stage == 0) {
                run_embed(sweep, &sweep->batch[i], window, &weights);
            } else if (stage + 1 < stages) {
                run_block(sweep, &sweep->batch[i], &weights);
            } else {
                run_head(sweep, &sweep->batch[i], window, &weights);
            }
        }
        wd_residency_release(sweep->residency, expert, stage, sweep->queue);
    }
    wd_arena_reset(&sweep->arena, mark);
    return WD_OK;
}

wd_status wd_sweep_run(wd_sweep *sweep, const wd_window *window, wd_err *err)
{
    assert(window->count > 0 && window->count <= sweep->options.window_max);
    wd_event_wait(sweep->uploaded);
    sweep_counts count;
    sort_window(&count, sweep, window);
    wd_event_record(sweep->uploaded, sweep->queue);
    if (count.of[0]) WD_TRY(run_expert(sweep, 0, 0, count.of[0], window, err));
    if (count.of[1]) WD_TRY(run_expert(sweep, 1, count.of[0], count.of[1], window, err));
    return WD_OK;
}

/* Everything that does not depend on the arena's size. */
static wd_status allocate(wd_sweep *sweep, wd_err *err)
{
    const wd_sweep_options *o = &sweep->options;
    size_t window = (size_t)sweep->padded_max, micro = (size_t)o->micro_batch;
    size_t state = (size_t)sweep->state_count;
    wd_device *d = sweep->device;
    WD_TRY(wd_alloc((void **)&sweep->batch, window, sizeof *sweep->batch, "sweep", err));
    WD_TRY(wd_alloc((void **)&sweep->order, window, sizeof *sweep->order, "sweep", err));
    WD_TRY(wd_alloc((void **)&sweep->host_timestep, window, sizeof(float), "sweep", err));
    WD_TRY(wd_alloc((void **)&sweep->host_scale, window, sizeof(float), "sweep", err));
    WD_TRY(wd_alloc(&sweep->host_text, micro, text_bytes(o), "sweep text", err));
    const char *what = "teacher sweep";
    size_t f = sizeof(float), item = wd_dtype_bytes(o->dtype);
    WD_TRY(wd_device_alloc((void **)&sweep->latents, d, micro * state * f, what, err));
    WD_TRY(wd_device_alloc((void **)&sweep->timestep, d, window * f, what, err));
    WD_TRY(wd_device_alloc((void **)&sweep->scale, d, window * f, what, err));
    WD_TRY(wd_device_alloc(&sweep->velocity[0], d, micro * state * item, what, err));
    WD_TRY(wd_device_alloc(&sweep->velocity[1], d, micro * state * item, what, err));
    WD_TRY(wd_device_alloc((void **)&sweep->guided_velocity, d, micro * state * f, what, err));
    WD_TRY(wd_device_alloc(&sweep->text, d, micro * text_bytes(o), what, err));
    WD_TRY(wd_device_alloc(&sweep->text_negative, d, text_bytes(o), what, err));
    WD_TRY(wd_event_open(&sweep->uploaded, d, err));
    wd_dit_context context = context_of(sweep, 1, 1);
    return wd_dit_rope_open(&sweep->rope, &o->config, &context.shape, sweep->queue, err);
}

/* A sweep without its arena: `arena` is a dry one. */
static wd_status open_measuring(wd_sweep **out, const wd_sweep_options *options,
                                wd_residency *residency, wd_queue *queue, wd_err *err)
{
    assert(options->micro_batch > 0 && options->window_max > 0);
    wd_sweep *sweep;
    WD_TRY(wd_alloc((void **)&sweep, 1, sizeof *sweep, "a sweep", err));
    sweep->options = *options;
    int64_t *micro = &sweep->options.micro_batch;
    if (*micro > options->window_max) *micro = options->window_max;
    *micro -= *micro % size_step(*micro);
    sweep->padded_max = options->window_max + 2 * (size_step(*micro) - 1);
    sweep->residency = residency;
    sweep->queue = queue;
    sweep->device = wd_queue_device(queue);
    sweep->guided = options->guidance_scale[0] > 1;
    sweep->state_count =
        options->config.in_channels * options->frames * options->height * options->width;
    sweep->arena = wd_arena_over(NULL, SIZE_MAX);
    wd_status status = allocate(sweep, err);
    if (status != WD_OK) {
        wd_sweep_close(sweep);
        return status;
    }
    *out = sweep;
    return WD_OK;
}

/* Runs a full window on a dry device, then one of each smaller size of micro-batch: a smaller
 * product may need more scratch memory. */
static wd_status run_dry(wd_sweep *sweep, double *flops, wd_err *err)
{
    wd_status status;
    int64_t count = sweep->options.window_max, size = sweep->options.micro_batch;
    float *timestep = NULL;
    int64_t *prompt = NULL;
    WD_TRY_OUT(wd_alloc((void **)&timestep, (size_t)count, sizeof *timestep, "a plan", err));
    WD_TRY_OUT(wd_alloc((void **)&prompt, (size_t)count, sizeof *prompt, "a plan", err));
    for (int64_t i = 0; i < count; i++) timestep[i] = 1e9f; /* all at the first expert */
    wd_window window = {.count = count,
                        .latents = sweep->latents,
                        .velocity = sweep->guided_velocity,
                        .timestep = timestep,
                        .prompt = prompt};
    WD_TRY_OUT(wd_sweep_run(sweep, &window, err));
    *flops = wd_queue_total(sweep->queue).flops;
    for (int64_t step = size_step(size); size > step;) {
        window.count = size -= step;
        WD_TRY_OUT(wd_sweep_run(sweep, &window, err));
    }
out:
    wd_free(timestep);
    wd_free(prompt);
    return status;
}

static void no_text(void *context, void *out, int64_t prompt, wd_dtype dtype)
{
    (void)context, (void)out, (void)prompt, (void)dtype;
}

static size_t host_bytes(const wd_sweep *sweep)
{
    size_t per_state = sizeof(micro_batch) + sizeof(int64_t) + 2 * sizeof(float);
    return (size_t)sweep->padded_max * per_state +
           (size_t)sweep->options.micro_batch * text_bytes(&sweep->options);
}

/* Runs dry; *arena_bytes gets the size of the arena. */
static wd_status measure(wd_sweep_plan *out, size_t *arena_bytes, const wd_sweep_options *options,
                         wd_residency *residency, wd_device *target, wd_err *err)
{
    wd_status status;
    wd_device *device = NULL;
    wd_queue *queue = NULL;
    wd_sweep *sweep = NULL;
    double flops = 0;
    wd_sweep_options dry = *options;
    dry.text = no_text;
    WD_TRY_OUT(wd_device_open_dry(&device, target, err));
    WD_TRY_OUT(wd_queue_open(&queue, device, err));
    WD_TRY_OUT(open_measuring(&sweep, &dry, residency, queue, err));
    WD_TRY_OUT(run_dry(sweep, &flops, err));
    *arena_bytes = sweep->arena.peak;
    *out = (wd_sweep_plan){.device_bytes = wd_device_bytes(device) + sweep->arena.peak,
                           .host_bytes = host_bytes(sweep),
                           .workspace_bytes = wd_queue_workspace_bytes(queue),
                           .flops = flops};
out:
    wd_sweep_close(sweep);
    wd_queue_close(queue);
    wd_device_close(device);
    return status;
}

wd_status wd_sweep_plan_for(wd_sweep_plan *out, const wd_sweep_options *options,
                            wd_residency *residency, wd_device *target, wd_err *err)
{
    size_t arena_bytes;
    return measure(out, &arena_bytes, options, residency, target, err);
}

wd_status wd_sweep_open(wd_sweep **out, const wd_sweep_options *options, wd_residency *residency,
                        wd_queue *queue, wd_err *err)
{
    wd_sweep_plan plan;
    size_t arena_bytes;
    wd_sweep *sweep;
    wd_device *device = wd_queue_device(queue);
    WD_TRY(measure(&plan, &arena_bytes, options, residency, device, err));
    WD_TRY(open_measuring(&sweep, options, residency, queue, err));
    wd_status status =
        wd_device_alloc(&sweep->arena_block, device, arena_bytes, "teacher activations", err);
    if (status == WD_OK) status = wd_queue_reserve_workspace(queue, plan.workspace_bytes, err);
    if (status != WD_OK) {
        wd_sweep_close(sweep);
        return status;
    }
    sweep->arena = wd_arena_over(sweep->arena_block, arena_bytes);
    if (sweep->guided) {
        options->text(options->text_context, sweep->host_text, -1, options->dtype);
        wd_queue_copy(queue, sweep->text_negative, sweep->host_text, text_bytes(options));
    }
    wd_event_record(sweep->uploaded, queue);
    *out = sweep;
    return WD_OK;
}

void wd_sweep_close(wd_sweep *sweep)
{
    if (!sweep) return;
    void *blocks[] = {sweep->latents,       sweep->timestep,        sweep->scale,
                      sweep->velocity[0],   sweep->velocity[1],     sweep->guided_velocity,
                      sweep->text,          sweep->text_negative,   sweep->arena_block};
    if (sweep->uploaded) wd_event_wait(sweep->uploaded);
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        wd_device_free(sweep->device, blocks[i]);
    wd_dit_rope_close(&sweep->rope);
    wd_event_close(sweep->uploaded);
    wd_free(sweep->batch);
    wd_free(sweep->order);
    wd_free(sweep->host_timestep);
    wd_free(sweep->host_scale);
    wd_free(sweep->host_text);
    wd_free(sweep);
}
