/* Sampling with a model: see api/setup/painter.h. The pictures of a batch are computed together, at
 * the same timestep. */
#include "api/setup/painter.h"

#include <string.h>

#include "api/setup/run.h"
#include "core/memory.h"
#include "core/progress.h"
#include "model/sampling/sampler.h"
#include "teacher/run/sweep.h"

/* Pictures are drawn together until they have so many tokens, of which a device makes good use:
 * more would only take memory, and let the first picture wait. */
enum { BATCH_MAX = 64, BATCH_TOKENS = 16384 };

/* Streamed blocks on the device at a time: one is computed while the next one comes. */
enum { STREAM_BUFFERS = 2 };

struct wd_painter {
    wd_painter_options options;
    wd_queue *queue;
    wd_device *device;
    wd_residency *residency; /* of the model: a teacher's experts, or a student as the only one */
    wd_sweep *sweep;
    float *timestep; /* [batch] of the current step */
    int64_t *prompt; /* [batch] of the current run */
    wd_schedule schedule;
    int64_t each, batch;       /* elements of a picture's latents; pictures at a time */
    float *latents, *velocity; /* [batch, each] device */
    wd_painter_trace trace;    /* of the current run */
    int64_t step;              /* of the current run */
    int64_t first, count;      /* pictures of the current run */
    wd_progress_task progress; /* over all pictures */
    size_t bytes;              /* of the latents of the current run */
};

wd_status wd_painter_check_model(const wd_pipeline *p, wd_err *err)
{
    WD_TRY(wd_pipeline_require_experts(p, err));
    WD_TRY(wd_pipeline_require(p, WD_COMPONENT_SCHEDULER, err));
    WD_TRY(wd_pipeline_check_weights(p, WD_COMPONENT_TRANSFORMER, err));
    return wd_pipeline_check_weights(p, WD_COMPONENT_VAE, err);
}

wd_status wd_painter_set_steps(wd_painter *p, int64_t steps, wd_err *err)
{
    const wd_painter_options *o = &p->options;
    wd_schedule schedule;
    WD_TRY(wd_schedule_open(&schedule, o->scheduler ? o->scheduler : &o->pipeline->scheduler, steps,
                            err));
    wd_schedule_close(&p->schedule);
    p->schedule = schedule;
    p->options.steps = steps;
    return WD_OK;
}

/* *out = where the weights of the model are: all in the same place. */
static void place(wd_placement *out, const wd_painter_options *o)
{
    const wd_home home = o->strategy == WD_STRATEGY_offload ? WD_HOME_HOST
                         : o->strategy == WD_STRATEGY_disk  ? WD_HOME_DISK
                                                            : WD_HOME_DEVICE;
    *out = (wd_placement){.experts = wd_teacher_experts(o->pipeline),
                          .stages = wd_dit_stages(&o->pipeline->dit),
                          .buffers = STREAM_BUFFERS,
                          .devices = 1};
    for (int e = 0; e < out->experts; e++)
        for (int s = 0; s < out->stages; s++) out->place[e][s].home = home;
}

/* Prompts are not encoded yet when memory is planned. */
static void no_text(void *context, void *out, int64_t prompt, wd_dtype dtype)
{
    (void)context, (void)out, (void)prompt, (void)dtype;
}

static wd_status open_sweep(wd_painter *p, wd_err *err)
{
    const wd_painter_options *o = &p->options;
    wd_placement placement;
    wd_sweep_options sweep = wd_sweep_options_for(o->pipeline, wd_teacher_compute_dtype(o->dtype));
    sweep.height = o->height;
    sweep.width = o->width;
    sweep.text_tokens = o->embeds->text_tokens;
    sweep.text_repeat = o->embeds->text_repeat;
    sweep.window_max = p->batch;
    sweep.micro_batch = wd_sweep_micro_batch(&sweep.config, 1, o->height, o->width);
    for (int e = 0; e < 2; e++) sweep.guidance_scale[e] = o->guidance_scale[e];
    sweep.text = wd_device_is_dry(p->device) ? no_text : wd_prompt_embeds_text;
    sweep.text_context = (void *)(uintptr_t)o->embeds;
    place(&placement, o);
    WD_TRY(wd_residency_open_placed(&p->residency, o->pipeline, &placement, o->dtype, &p->queue,
                                    o->processor, NULL, err));
    return wd_sweep_open(&p->sweep, &sweep, p->residency, &p->queue, err);
}

static wd_status open_parts(wd_painter *p, wd_err *err)
{
    const wd_painter_options *o = &p->options;
    const size_t batch = (size_t)p->batch, bytes = batch * (size_t)p->each * sizeof(float);
    WD_TRY(wd_pipeline_require_experts(o->pipeline, err));
    WD_TRY(wd_painter_set_steps(p, o->steps, err));
    WD_TRY(wd_device_alloc((void **)&p->latents, p->device, bytes, "latents", err));
    WD_TRY(wd_device_alloc((void **)&p->velocity, p->device, bytes, "velocity", err));
    WD_TRY(wd_alloc((void **)&p->timestep, batch, sizeof *p->timestep, "a model", err));
    WD_TRY(wd_alloc((void **)&p->prompt, batch, sizeof *p->prompt, "a model", err));
    return open_sweep(p, err);
}

int64_t wd_painter_usual_batch(const wd_painter_options *o)
{
    const wd_dit_config *dit = &o->pipeline->dit;
    const int64_t tokens = (o->height / dit->patch[1]) * (o->width / dit->patch[2]);
    const int64_t batch = tokens < BATCH_TOKENS ? BATCH_TOKENS / tokens : 1;
    const int64_t most = batch < BATCH_MAX ? batch : BATCH_MAX;
    const int64_t all = wd_painter_pictures(o);
    return most < all ? most : all;
}

const wd_residency_info *wd_painter_weights(const wd_painter *painter)
{
    return wd_residency_info_of(painter->residency);
}

wd_status wd_painter_open(wd_painter **out, const wd_painter_options *options, wd_queue *queue,
                          wd_err *err)
{
    wd_painter *p;
    WD_TRY(wd_alloc((void **)&p, 1, sizeof *p, "painter", err));
    p->options = *options;
    p->queue = queue;
    p->device = wd_queue_device(queue);
    p->each = options->pipeline->dit.in_channels * options->height * options->width;
    p->batch = options->batch_max ? options->batch_max : wd_painter_usual_batch(options);
    if (p->batch > wd_painter_pictures(options)) p->batch = wd_painter_pictures(options);
    wd_status status = open_parts(p, err);
    if (status != WD_OK)
        wd_painter_close(p);
    else
        *out = p;
    return status;
}

void wd_painter_close(wd_painter *painter)
{
    if (!painter) return;
    wd_queue_wait(painter->queue);
    wd_sweep_close(painter->sweep);
    wd_residency_close(painter->residency);
    wd_free(painter->timestep);
    wd_free(painter->prompt);
    wd_device_free(painter->device, painter->latents);
    wd_device_free(painter->device, painter->velocity);
    wd_schedule_close(&painter->schedule);
    wd_free(painter);
}

int64_t wd_painter_batch(const wd_painter *painter)
{
    return painter->batch;
}

static wd_status velocity(void *context, float *out, const float *latents, float timestep,
                          wd_err *err)
{
    wd_painter *p = context;
    WD_TRY(wd__run_go_on(err));
    const wd_window window = {.count = p->count,
                              .queue = p->queue,
                              .latents = latents,
                              .velocity = out,
                              .timestep = p->timestep,
                              .prompt = p->prompt};
    for (int64_t i = 0; i < p->count; i++) p->timestep[i] = timestep;
    WD_TRY(wd_sweep_run(p->sweep, &window, err));
    if (p->trace.velocity)
        wd_queue_copy_and_wait(p->queue, p->trace.velocity[p->step], out, p->bytes);
    return WD_OK;
}

static wd_status look(void *context, int64_t step, const float *latents, wd_err *err)
{
    wd_painter *p = context;
    (void)err;
    p->step = step;
    wd_progress_at(&p->progress, p->first / p->batch * p->options.steps + step);
    if (p->trace.latents)
        wd_queue_copy_and_wait(p->queue, p->trace.latents[step], latents, p->bytes);
    return WD_OK;
}

static void begin(wd_painter *p, const float *latents, int64_t first, int64_t count)
{
    p->first = first;
    p->bytes = (size_t)(count * p->each) * sizeof(float);
    p->count = count;
    const int64_t each = p->options.images_per_prompt > 1 ? p->options.images_per_prompt : 1;
    for (int64_t i = 0; i < count; i++) p->prompt[i] = (first + i) / each;
    wd_queue_copy_and_wait(p->queue, p->latents, latents, p->bytes);
}

static void end(wd_painter *p, float *to, const float *from)
{
    wd_queue_copy_and_wait(p->queue, to, from, p->bytes);
}

wd_status wd_painter_run(wd_painter *painter, float *latents, const wd_painter_trace *trace,
                         int64_t first, int64_t count, wd_err *err)
{
    wd_painter *p = painter;
    p->trace = trace ? *trace : (wd_painter_trace){0};
    begin(p, latents, first, count);
    if (!first && !wd_device_is_dry(p->device)) {
        const int64_t batches = (wd_painter_pictures(&p->options) + p->batch - 1) / p->batch;
        p->progress = wd_progress_begin("drawing", "step", 0, batches * p->options.steps);
    }
    WD_TRY(wd_sampler_run(p->latents, count * p->each, &p->schedule,
                          wd_teacher_compute_dtype(p->options.dtype), velocity, p, look, p,
                          p->queue, err));
    end(p, latents, p->latents);
    return wd_pictures_check(latents, first, count, p->each, "latents", p->options.pipeline->path,
                             err);
}

wd_status wd_painter_velocity(wd_painter *painter, float *out, const float *latents, float timestep,
                              int64_t first, int64_t count, wd_err *err)
{
    wd_painter *p = painter;
    p->trace = (wd_painter_trace){0};
    begin(p, latents, first, count);
    WD_TRY(velocity(p, p->velocity, p->latents, timestep, err));
    end(p, out, p->velocity);
    return WD_OK;
}
