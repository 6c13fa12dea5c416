/* Rotation tables (RoPE) of one latent size, as in diffusers' WanRotaryPosEmbed: angles in float64,
 * cosines and sines rounded to fp32 once. Of the K / 2 pairs of a head the last K / 6 rotate with
 * the column, the K / 6 before them with the row, and the first ones with the frame. */
#include <math.h>

#include "core/memory.h"
#include "model/dit/dit_impl.h"

/* The number of pairs for each axis: frame, row, column. */
static void axis_pairs(int64_t pairs[3], int64_t head_dim)
{
    pairs[1] = pairs[2] = head_dim / 6;
    pairs[0] = head_dim / 2 - pairs[1] - pairs[2];
}

/* Computes cos, sin [K / 2] of one token. */
static void fill_token(float *cosines, float *sines, const int64_t position[3],
                       const int64_t pairs[3])
{
    int64_t at = 0;
    for (int axis = 0; axis < 3; axis++)
        for (int64_t j = 0; j < pairs[axis]; j++, at++) {
            double frequency = 1.0 / pow(10000.0, (double)(2 * j) / (double)(2 * pairs[axis]));
            double angle = (double)position[axis] * frequency;
            cosines[at] = (float)cos(angle);
            sines[at] = (float)sin(angle);
        }
}

static void fill(float *cosines, float *sines, const wd_dit_config *config, const int64_t grid[3])
{
    int64_t pairs[3], half = config->head_dim / 2, token = 0, p[3];
    axis_pairs(pairs, config->head_dim);
    for (p[0] = 0; p[0] < grid[0]; p[0]++)
        for (p[1] = 0; p[1] < grid[1]; p[1]++)
            for (p[2] = 0; p[2] < grid[2]; p[2]++, token++)
                fill_token(cosines + token * half, sines + token * half, p, pairs);
}

wd_status wd_dit_rope_open(wd_dit_rope *out, const wd_dit_config *config, const wd_dit_shape *shape,
                           wd_queue *queue, wd_err *err)
{
    wd_dit_rope rope = {.device = wd_queue_device(queue)};
    void *host = NULL, *cosines = NULL, *sines = NULL;
    wd_status status = WD_OK;
    const int64_t size[3] = {shape->frames, shape->height, shape->width};
    const char *const names[3] = {"frames", "rows", "columns"};
    int64_t grid[3];
    for (int i = 0; i < 3; i++) {
        grid[i] = size[i] / config->patch[i];
        if (grid[i] > config->rope_max_seq_len)
            return wd_fail(err, WD_INVALID_ARGUMENT,
                           "%lld latent %s are %lld patches, but this model (rope_max_seq_len) has "
                           "positions for %lld: choose a smaller picture",
                           (long long)size[i], names[i], (long long)grid[i],
                           (long long)config->rope_max_seq_len);
    }
    size_t count = (size_t)(wd_dit_tokens(config, shape) * (config->head_dim / 2));
    WD_TRY_OUT(wd_alloc(&host, count, 2 * sizeof(float), "RoPE tables", err));
    WD_TRY_OUT(wd_device_alloc(&cosines, rope.device, count * sizeof(float), "RoPE cosines", err));
    rope.cos = cosines;
    WD_TRY_OUT(wd_device_alloc(&sines, rope.device, count * sizeof(float), "RoPE sines", err));
    rope.sin = sines;
    if (!wd_device_is_dry(rope.device)) fill(host, (float *)host + count, config, grid);
    wd_queue_copy_and_wait(queue, rope.cos, host, count * sizeof(float));
    wd_queue_copy_and_wait(queue, rope.sin, (float *)host + count, count * sizeof(float));
    *out = rope;
out:
    if (status != WD_OK) wd_dit_rope_close(&rope);
    wd_free(host);
    return status;
}

void wd_dit_rope_close(wd_dit_rope *rope)
{
    if (!rope->device) return;
    wd_device_free(rope->device, rope->sin);
    wd_device_free(rope->device, rope->cos);
    *rope = (wd_dit_rope){0};
}
