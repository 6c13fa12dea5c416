/* Launches of elementwise operations and copies: see cuda/launch.h. */
#include <limits.h>

#include "core/require.h"
#include "dev/cuda/launch_impl.h"

void wd_cuda_launch_activation(wd_cuda_launcher *l, const void *args)
{
    const wd_activation_args *a = args;
    wd_cuda_run_eights(l, WD_CUDA_activation, a->count, 1, a, sizeof *a);
}

void wd_cuda_launch_activation_backward(wd_cuda_launcher *l, const void *args)
{
    const wd_activation_backward_args *a = args;
    wd_cuda_run_eights(l, WD_CUDA_activation_backward, a->count, 1, a, sizeof *a);
}

void wd_cuda_launch_multiply(wd_cuda_launcher *l, const void *args)
{
    const wd_multiply_args *a = args;
    wd_cuda_run_eights(l, WD_CUDA_multiply, a->count, 1, a, sizeof *a);
}

void wd_cuda_launch_add_table(wd_cuda_launcher *l, const void *args)
{
    const wd_add_table_args *a = args;
    wd_cuda_run_rows(l, WD_CUDA_add_table, a->rows, a->width, 0, a, sizeof *a);
}

void wd_cuda_launch_combine(wd_cuda_launcher *l, const void *args)
{
    const wd_combine_args *a = args;
    wd_cuda_run_eights(l, WD_CUDA_combine, a->count, 1, a, sizeof *a);
}

void wd_cuda_launch_guidance(wd_cuda_launcher *l, const void *args)
{
    const wd_guidance_args *a = args;
    wd_cuda_run_eights(l, WD_CUDA_guidance, a->width, a->samples, a, sizeof *a);
}

void wd_cuda_launch_step_samples(wd_cuda_launcher *l, const void *args)
{
    const wd_step_samples_args *a = args;
    wd_cuda_run_eights(l, WD_CUDA_step_samples, a->width, a->samples, a, sizeof *a);
}

void wd_cuda_launch_timestep_embed(wd_cuda_launcher *l, const void *args)
{
    const wd_timestep_embed_args *a = args;
    wd_cuda_run_flat(l, WD_CUDA_timestep_embed, a->samples * (a->width / 2), a, sizeof *a);
}

void wd_cuda_launch_cast(wd_cuda_launcher *l, const void *args)
{
    const wd_cast_args *a = args;
    wd_cuda_run_eights(l, WD_CUDA_cast, a->count, 1, a, sizeof *a);
}

void wd_cuda_launch_dequantise(wd_cuda_launcher *l, const void *args)
{
    const wd_dequantise_args *a = args;
    wd_cuda_run_eights(l, WD_CUDA_dequantise, a->rows * a->width, 1, a, sizeof *a);
}

void wd_cuda_launch_fill(wd_cuda_launcher *l, const void *args)
{
    const wd_fill_args *a = args;
    wd_cuda_run_eights(l, WD_CUDA_fill, a->count, 1, a, sizeof *a);
}

void wd_cuda_launch_gather_rows(wd_cuda_launcher *l, const void *args)
{
    const wd_gather_rows_args *a = args;
    wd_cuda_run_rows(l, WD_CUDA_gather_rows, a->rows, a->width, 0, a, sizeof *a);
}

void wd_cuda_launch_strided_copy(wd_cuda_launcher *l, const void *args)
{
    const wd_strided_copy_args *op = args;
    wd_cuda_strided_copy a = {.to = op->to,
                              .from = op->from,
                              .to_type = op->to_type,
                              .from_type = op->from_type,
                              .alpha = op->alpha,
                              .beta = op->beta};
    if (!wd_strided_walk_plan(&a.walk, op)) return;
    int64_t eights = (a.walk.inner.count + 7) / 8, threads = eights;
    for (int i = 0; i < a.walk.outers; i++) threads *= a.walk.outer[i].count;
    WD_REQUIRE(threads <= INT_MAX && a.walk.repeat_count <= INT_MAX,
               "a strided copy of %lld times 8 elements", (long long)threads);
    a.eights = (uint32_t)eights;
    a.threads = (uint32_t)threads;
    wd_cuda_run_flat(l, WD_CUDA_strided_copy, threads, &a, sizeof a);
}
