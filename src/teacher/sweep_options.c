/* Micro-batches of a sweep: see teacher/sweep_options.h. */
#include "teacher/sweep_options.h"

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

wd_sweep_options wd_sweep_fitted(const wd_sweep_options *options)
{
    wd_sweep_options o = *options;
    WD_REQUIRE(o.micro_batch > 0 && o.window_max > 0,
               "a sweep of windows of %" PRId64 " states in micro-batches of %" PRId64,
               o.window_max, o.micro_batch);
    if (o.micro_batch > o.window_max) o.micro_batch = o.window_max;
    while (o.micro_batch % wd_sweep_size_step(o.micro_batch)) o.micro_batch--;
    return o;
}

int wd_sweep_batches(const wd_sweep_options *options)
{
    const wd_sweep_options o = wd_sweep_fitted(options);
    int64_t step = wd_sweep_size_step(o.micro_batch);
    int64_t padded = (o.window_max + step - 1) / step * step;
    return (int)((padded + o.micro_batch - 1) / o.micro_batch);
}
