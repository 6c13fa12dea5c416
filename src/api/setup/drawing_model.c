/* A model that draws: see api/setup/drawing_model.h. */
#include "api/setup/drawing_model.h"

#include "api/setup/run.h"
#include "core/memory.h"
#include "model/sampling/painter.h"
#include "teacher/run/sweep.h"

/* Pictures are drawn together until they have so many tokens, of which a device makes good use:
 * more would only take memory, and let the first picture wait. */
enum { BATCH_MAX = 64, BATCH_TOKENS = 16384 };

/* Streamed blocks on the device at a time: one is computed while the next one comes. */
enum { STREAM_BUFFERS = 2 };

struct wd_drawing_model {
    wd_drawing_model_options options;
    wd_residency *residency; /* of the model: a teacher's experts, or a student as the only one */
    wd_sweep *sweep;
    wd_schedule schedule;
    wd_painter painter;
    int64_t count;   /* pictures of the current run */
    float *timestep; /* [batch] of the current step */
    int64_t *prompt; /* [batch] of the current run */
};

wd_status wd_drawing_model_check(const wd_pipeline *p, wd_err *err)
{
    WD_TRY(wd_pipeline_require_experts(p, err));
    WD_TRY(wd_pipeline_require(p, WD_COMPONENT_SCHEDULER, err));
    WD_TRY(wd_pipeline_check_weights(p, WD_COMPONENT_TRANSFORMER, err));
    return wd_pipeline_check_weights(p, WD_COMPONENT_VAE, err);
}

wd_status wd_drawing_model_set_steps(wd_drawing_model *m, int64_t steps, wd_err *err)
{
    const wd_drawing_model_options *o = &m->options;
    wd_schedule schedule;
    WD_TRY(wd_schedule_open(&schedule, o->scheduler ? o->scheduler : &o->pipeline->scheduler, steps,
                            err));
    wd_schedule_close(&m->schedule);
    m->schedule = schedule;
    m->options.steps = steps;
    return WD_OK;
}

/* *out = where the weights of the model are: all in the same place. */
static void place(wd_placement *out, const wd_drawing_model_options *o)
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

static wd_status open_sweep(wd_drawing_model *m, wd_err *err)
{
    const wd_drawing_model_options *o = &m->options;
    wd_placement placement;
    wd_sweep_options sweep = wd_sweep_options_for(o->pipeline, wd_teacher_compute_dtype(o->dtype));
    sweep.height = o->height;
    sweep.width = o->width;
    sweep.text_tokens = o->embeds->text_tokens;
    sweep.text_repeat = o->embeds->text_repeat;
    sweep.window_max = m->painter.batch;
    sweep.micro_batch = wd_sweep_micro_batch(&sweep.config, 1, o->height, o->width);
    for (int e = 0; e < 2; e++) sweep.guidance_scale[e] = o->guidance_scale[e];
    sweep.text =
        wd_device_is_dry(wd_queue_device(m->painter.queue)) ? no_text : wd_prompt_embeds_text;
    sweep.text_context = (void *)(uintptr_t)o->embeds;
    place(&placement, o);
    WD_TRY(wd_residency_open_placed(&m->residency, o->pipeline, &placement, o->dtype,
                                    &m->painter.queue, o->processor, NULL, err));
    return wd_sweep_open(&m->sweep, &sweep, m->residency, &m->painter.queue, err);
}

static wd_status open_parts(wd_drawing_model *m, wd_err *err)
{
    const size_t batch = (size_t)m->painter.batch;
    WD_TRY(wd_pipeline_require_experts(m->options.pipeline, err));
    WD_TRY(wd_drawing_model_set_steps(m, m->options.steps, err));
    WD_TRY(wd_alloc((void **)&m->timestep, batch, sizeof *m->timestep, "a model", err));
    WD_TRY(wd_alloc((void **)&m->prompt, batch, sizeof *m->prompt, "a model", err));
    return open_sweep(m, err);
}

int64_t wd_drawing_model_usual_batch(const wd_drawing_model_options *o)
{
    const wd_dit_config *dit = &o->pipeline->dit;
    const int64_t tokens = (o->height / dit->patch[1]) * (o->width / dit->patch[2]);
    const int64_t batch = tokens < BATCH_TOKENS ? BATCH_TOKENS / tokens : 1;
    const int64_t most = batch < BATCH_MAX ? batch : BATCH_MAX;
    const int64_t all = wd_drawing_model_pictures(o);
    return most < all ? most : all;
}

const wd_residency_info *wd_drawing_model_weights(const wd_drawing_model *model)
{
    return wd_residency_info_of(model->residency);
}

/* The velocities of the current run's pictures, all of which are at one timestep. */
static wd_status velocity(void *context, float *out, const float *latents, float timestep,
                          wd_err *err)
{
    wd_drawing_model *m = context;
    WD_TRY(wd__run_go_on(err));
    const wd_window window = {.count = m->count,
                              .queue = m->painter.queue,
                              .latents = latents,
                              .velocity = out,
                              .timestep = m->timestep,
                              .prompt = m->prompt};
    for (int64_t i = 0; i < m->count; i++) m->timestep[i] = timestep;
    return wd_sweep_run(m->sweep, &window, err);
}

wd_status wd_drawing_model_open(wd_drawing_model **out, const wd_drawing_model_options *options,
                                wd_queue *queue, wd_err *err)
{
    wd_drawing_model *m;
    const int64_t pictures = wd_drawing_model_pictures(options);
    const int64_t batch =
        options->batch_max ? options->batch_max : wd_drawing_model_usual_batch(options);
    WD_TRY(wd_alloc((void **)&m, 1, sizeof *m, "a model", err));
    m->options = *options;
    m->painter =
        (wd_painter){.queue = queue,
                     .schedule = &m->schedule,
                     .velocity = velocity,
                     .context = m,
                     .model_dtype = wd_teacher_compute_dtype(options->dtype),
                     .each = options->pipeline->dit.in_channels * options->height * options->width,
                     .pictures = pictures,
                     .batch = batch < pictures ? batch : pictures,
                     .task = "drawing"};
    wd_status status = open_parts(m, err);
    if (status != WD_OK)
        wd_drawing_model_close(m);
    else
        *out = m;
    return status;
}

void wd_drawing_model_close(wd_drawing_model *model)
{
    if (!model) return;
    wd_queue_wait(model->painter.queue);
    wd_sweep_close(model->sweep);
    wd_residency_close(model->residency);
    wd_free(model->timestep);
    wd_free(model->prompt);
    wd_schedule_close(&model->schedule);
    wd_free(model);
}

int64_t wd_drawing_model_batch(const wd_drawing_model *model)
{
    return model->painter.batch;
}

static void begin(wd_drawing_model *m, int64_t first, int64_t count)
{
    const int64_t each = m->options.images_per_prompt > 1 ? m->options.images_per_prompt : 1;
    m->count = count;
    for (int64_t i = 0; i < count; i++) m->prompt[i] = (first + i) / each;
}

wd_status wd_drawing_model_run(wd_drawing_model *model, float *latents,
                               const wd_painter_trace *trace, int64_t first, int64_t count,
                               wd_err *err)
{
    begin(model, first, count);
    WD_TRY(wd_painter_run(&model->painter, latents, trace, first, count, err));
    return wd_pictures_check(latents, first, count, model->painter.each, "latents",
                             model->options.pipeline->path, err);
}

wd_status wd_drawing_model_velocity(wd_drawing_model *model, float *out, const float *latents,
                                    float timestep, int64_t first, int64_t count, wd_err *err)
{
    wd_queue *queue = model->painter.queue;
    wd_device *device = wd_queue_device(queue);
    const size_t bytes = (size_t)(count * model->painter.each) * sizeof(float);
    float *x = NULL, *v = NULL;
    wd_status status;
    begin(model, first, count);
    WD_TRY_OUT(wd_device_alloc((void **)&x, device, bytes, "latents", err));
    WD_TRY_OUT(wd_device_alloc((void **)&v, device, bytes, "velocity", err));
    wd_queue_copy_and_wait(queue, x, latents, bytes);
    WD_TRY_OUT(velocity(model, v, x, timestep, err));
    wd_queue_copy_and_wait(queue, out, v, bytes);
out:
    wd_queue_wait(queue);
    wd_device_free(device, x);
    wd_device_free(device, v);
    return status;
}
