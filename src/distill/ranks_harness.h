/* A small machine, and the devices of its ranks, which are threads of a test. */
#ifndef WD_DISTILL_RANKS_HARNESS_H
#define WD_DISTILL_RANKS_HARNESS_H

#include "testing.h"

#include <pthread.h>

#include "core/random.h"
#include "dist/comm_harness.h"
#include "distill/devices.h"
#include "distill/machine.h"

enum { LATENT = 4, TEXT = 6, RANKS_MAX = 4, MICRO_BATCHES = 4 };

static inline void text_of(void *context, void *out, int64_t prompt, wd_dtype dtype)
{
    float rows[TEXT * 96] = {0};
    (void)context;
    wd_random_normal(rows, (TEXT - 2) * 96,
                     (wd_random){.stream = WD_RANDOM_TEST, .index = (uint64_t)(prompt + 1)}, 0);
    for (int i = 0; i < TEXT * 96; i++)
        if (dtype == WD_F32)
            ((float *)out)[i] = rows[i];
        else
            ((uint16_t *)out)[i] = wd_f32_to_bf16(rows[i]);
}

static inline wd_machine_options options_of(const wd_pipeline *teacher)
{
    wd_machine_options o = {
        .teacher = teacher,
        .student = teacher->dit,
        .teacher_dtype = WD_BF16,
        .student_dtype = WD_F32,
        .latent_height = LATENT,
        .latent_width = LATENT,
        .text_tokens = TEXT,
        .text_repeat = 3,
        .trajectory = {.seed = 9,
                       .slots = 6,
                       .steps = 4,
                       .prompts = 5,
                       .flow_shift = 3,
                       .num_train_timesteps = 1000,
                       .integer_timesteps = true},
        .reuse = 2,
        .replay = 10,
        .window = 6,
        .micro_batch = 6,
        .guidance_scale = {2, 3},
        .batch = 2,
        .ema = true,
        .optimizer = wd_optimizer_defaults(),
        .text = text_of,
    };
    o.student.layers = 2;
    return o;
}

/* What ranks have: a processor; a device as fast as it goes; one so slow that whoever does not wait
 * comes too early. */
#define CPU "cpu"
#define SIM "sim:1x1GiB"
#define SLOW_SIM "sim:1x1GiB@link=50MB/s,compute=3GFLOP/s"

/* Nothing but what queues have for their work is left on them. */
static inline void close_devices(wd_devices *d)
{
    for (int i = 0; i < d->count; i++) {
        size_t bytes = wd_queue_workspace_bytes(d->teacher[i]);
        if (!i && d->student != d->host) bytes += wd_queue_workspace_bytes(d->student);
        HARNESS_CHECK(wd_device_bytes(d->device[i]) == bytes);
    }
    wd_devices_close(d);
}

#endif
