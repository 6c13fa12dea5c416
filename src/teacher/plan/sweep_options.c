/* Micro-batches of a sweep, and the shapes of their passes: see teacher/plan/sweep_options.h. */
#include "teacher/plan/sweep_options.h"

#include <inttypes.h>

#include "core/require.h"

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
