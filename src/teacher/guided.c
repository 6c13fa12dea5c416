/* Guided velocities of a pipeline: see teacher/guided.h. */
#include "teacher/guided.h"

#include <inttypes.h>

#include "core/memory.h"
#include "core/require.h"

struct wd_guided {
    wd_queue *queue;
    wd_residency *residency;
    wd_sweep *sweep;
    wd_dtype dtype;
    int64_t pictures, pictures_max;
    float *timestep; /* [pictures_max] */
    int64_t *prompt; /* [pictures_max] */
};

static wd_status open_sweep(wd_guided *g, const wd_pipeline *pipeline, const wd_guided_options *o,
                            wd_queue *queue, wd_err *err)
{
    const wd_sweep_options sweep = {
        .config = pipeline->dit,
        .dtype = g->dtype,
        .frames = o->frames,
        .height = o->height,
        .width = o->width,
        .text_tokens = o->text_tokens,
        .text_repeat = o->text_repeat,
        .window_max = o->pictures_max,
        .micro_batch = wd_sweep_micro_batch(&pipeline->dit, o->frames, o->height, o->width),
        .boundary_timestep =
            pipeline->boundary_ratio * (double)pipeline->scheduler.num_train_timesteps,
        .guidance_scale = {o->guidance_scale[0], o->guidance_scale[1]},
        .text = o->text,
        .text_context = o->text_context,
    };
    return wd_sweep_open(&g->sweep, &sweep, g->residency, NULL, &queue, err);
}

wd_status wd_guided_open(wd_guided **out, const wd_pipeline *pipeline,
                         const wd_guided_options *options, wd_queue *queue, wd_err *err)
{
    wd_status status;
    wd_guided *g;
    size_t pictures = (size_t)options->pictures_max;
    WD_TRY(wd_alloc((void **)&g, 1, sizeof *g, "a model", err));
    g->dtype = wd_teacher_compute_dtype(options->dtype);
    g->queue = queue;
    g->pictures_max = options->pictures_max;
    WD_TRY_OUT(wd_alloc((void **)&g->timestep, pictures, sizeof *g->timestep, "a model", err));
    WD_TRY_OUT(wd_alloc((void **)&g->prompt, pictures, sizeof *g->prompt, "a model", err));
    WD_TRY_OUT(
        wd_residency_open_resident(&g->residency, pipeline, NULL, options->dtype, queue, err));
    WD_TRY_OUT(open_sweep(g, pipeline, options, queue, err));
    *out = g;
out:
    if (status != WD_OK) wd_guided_close(g);
    return status;
}

void wd_guided_close(wd_guided *guided)
{
    if (!guided) return;
    wd_sweep_close(guided->sweep);
    wd_residency_close(guided->residency);
    wd_free(guided->timestep);
    wd_free(guided->prompt);
    wd_free(guided);
}

void wd_guided_select(wd_guided *guided, int64_t first_prompt, int64_t pictures)
{
    WD_REQUIRE(pictures > 0 && pictures <= guided->pictures_max,
               "%" PRId64 " pictures, and there is room for %" PRId64, pictures,
               guided->pictures_max);
    guided->pictures = pictures;
    for (int64_t i = 0; i < pictures; i++) guided->prompt[i] = first_prompt + i;
}

wd_status wd_guided_velocity(void *context, float *velocity, const float *latents, float timestep,
                             wd_err *err)
{
    wd_guided *g = context;
    for (int64_t i = 0; i < g->pictures; i++) g->timestep[i] = timestep;
    const wd_window window = {.count = g->pictures,
                              .queue = g->queue,
                              .latents = latents,
                              .velocity = velocity,
                              .timestep = g->timestep,
                              .prompt = g->prompt};
    return wd_sweep_run(g->sweep, &window, err);
}

wd_dtype wd_guided_dtype(const wd_guided *guided)
{
    return guided->dtype;
}
