/* The transformer: forward and training step at the 1.3B geometry with 8 of its 30 blocks, and at
 * wan-tiny's. 512x512 pixels are 1024 tokens; text is 512, with keys and values recomputed. */
#include <stdio.h>

#include "bench/bench.h"
#include "dev/fill_random.h"
#include "dev/ops.h"
#include "train/network/loss.h"
#include "train/network/optimizer.h"

typedef struct geometry {
    wd_dit_config config;
    wd_dit_shape shape;
} geometry;

static const geometry wan_1_3b = {
    .config = {.in_channels = 16,
               .out_channels = 16,
               .heads = 12,
               .head_dim = 128,
               .ffn_dim = 8960,
               .layers = 8,
               .freq_dim = 256,
               .text_dim = 4096,
               .patch = {1, 2, 2},
               .rope_max_seq_len = 1024,
               .cross_attn_norm = true,
               .eps = 1e-6},
    .shape = {.samples = 1, .texts = 1, .frames = 1, .height = 64, .width = 64, .text_tokens = 512},
};

/* A student of half wan-tiny's depth. */
static const geometry wan_tiny = {
    .config = {.in_channels = 16,
               .out_channels = 16,
               .heads = 5,
               .head_dim = 32,
               .ffn_dim = 640,
               .layers = 3,
               .freq_dim = 256,
               .text_dim = 96,
               .patch = {1, 2, 2},
               .rope_max_seq_len = 1024,
               .cross_attn_norm = true,
               .eps = 1e-6},
    .shape = {.samples = 16, .texts = 16, .frames = 1, .height = 8, .width = 8, .text_tokens = 32},
};

/* A model with random weights, and a batch of random states. */
typedef struct bed {
    wd_params params;
    wd_optimizer *optimizer;
    wd_pass *pass;
    float *latents, *target, *velocity, *timestep, *loss;
    void *text;
    wd_dit_shape shape;
    wd_device *device;
} bed;

static void close_bed(bed *b)
{
    void *blocks[] = {b->latents, b->target, b->velocity, b->timestep, b->loss, b->text};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        wd_device_free(b->device, blocks[i]);
    wd_pass_close(b->pass);
    wd_optimizer_close(b->optimizer);
    wd_params_close(&b->params);
}

static wd_status open_bed(bed *b, const geometry *g, wd_dtype dtype, wd_pass_mode mode,
                          wd_bench_context *bench, wd_err *err)
{
    *b = (bed){.shape = g->shape, .device = bench->device};
    unsigned kinds = mode == WD_PASS_FORWARD ? 0 : WD_PARAMS_TRAINED;
    const wd_optimizer_options options = wd_optimizer_defaults();
    int64_t state = g->config.in_channels * g->shape.height * g->shape.width * g->shape.samples;
    int64_t text = g->shape.texts * g->shape.text_tokens * g->config.text_dim;
    size_t states = (size_t)state * sizeof(float), samples = (size_t)g->shape.samples * 4;
    WD_TRY(wd_params_open(&b->params, &g->config, dtype, kinds, bench->device, err));
    wd_params_clear_whole(&b->params, WD_PARAMS_P, bench->queue);
    WD_TRY(wd_fill_random(bench->queue, wd_params_whole(&b->params, WD_PARAMS_P), WD_F32,
                          b->params.count, 0.02f, err));
    wd_params_take(&b->params, WD_PARAMS_P, bench->queue);
    wd_params_show(&b->params, WD_PARAMS_P, bench->queue);
    if (kinds) WD_TRY(wd_optimizer_open(&b->optimizer, &options, &b->params, err));
    WD_TRY(wd_pass_open(&b->pass, &b->params, &g->shape, mode, bench->queue, err));
    WD_TRY(wd_device_alloc((void **)&b->latents, b->device, states, "bench", err));
    WD_TRY(wd_device_alloc((void **)&b->target, b->device, states, "bench", err));
    WD_TRY(wd_device_alloc((void **)&b->velocity, b->device, states, "bench", err));
    WD_TRY(wd_device_alloc((void **)&b->timestep, b->device, samples, "bench", err));
    WD_TRY(wd_device_alloc((void **)&b->loss, b->device, samples, "bench", err));
    WD_TRY(
        wd_device_alloc(&b->text, b->device, (size_t)text * wd_dtype_bytes(dtype), "bench", err));
    WD_TRY(wd_fill_random(bench->queue, b->latents, WD_F32, state, 1, err));
    WD_TRY(wd_fill_random(bench->queue, b->target, WD_F32, state, 1, err));
    wd_op_fill(bench->queue,
               &(wd_fill_args){
                   .to = b->timestep, .type = WD_F32, .count = g->shape.samples, .value = 500});
    return wd_fill_random(bench->queue, b->text, dtype, text, 0.1f, err);
}

static void train_step(bed *b, wd_queue *queue)
{
    const float factor = 1.0f / (float)b->shape.samples;
    const wd_pass_inputs inputs = {b->latents, b->timestep, b->text};
    wd_params_zero_grads(&b->params, queue);
    const wd_pass_outputs outputs = wd_pass_forward(b->pass, &inputs);
    wd_loss_velocity(b->loss, &outputs, b->target, NULL, factor, queue);
    wd_pass_backward(b->pass, NULL, NULL);
    wd_optimizer_step(b->optimizer, 1e-5, 0, queue);
}

/* Reports the best of `runs` runs after a first one that warms up. */
static wd_status time_bed(const char *name, const geometry *g, wd_dtype dtype, wd_pass_mode mode,
                          int runs, wd_bench_context *bench, wd_err *err)
{
    bed b;
    double best = 1e30, flops = 0;
    wd_status status = open_bed(&b, g, dtype, mode, bench, err);
    for (int run = 0; status == WD_OK && run <= runs; run++) {
        double before = wd_queue_total(bench->queue).flops, begun = wd_clock_s();
        if (mode == WD_PASS_FORWARD) {
            const wd_pass_inputs inputs = {b.latents, b.timestep, b.text};
            wd_pass_velocity(b.velocity, b.pass, &inputs);
        } else {
            train_step(&b, bench->queue);
        }
        wd_queue_wait(bench->queue);
        double seconds = wd_clock_s() - begun;
        flops = wd_queue_total(bench->queue).flops - before;
        if (run && seconds < best) best = seconds;
    }
    if (status == WD_OK) {
        wd_bench_report(bench, name, dtype, best, flops);
        char line[160];
        const wd_pass_plan *plan = wd_pass_planned(b.pass);
        snprintf(line, sizeof line, "    weights, gradients, moments %.2f GB; activations %.3f GB",
                 (double)wd_params_bytes(&b.params) * 1e-9,
                 (double)(plan->arena_bytes + plan->workspace_bytes) * 1e-9);
        bench->print(bench->context, line);
    }
    close_bed(&b);
    return status;
}

wd_status wd_bench_forward(wd_bench_context *bench, wd_err *err)
{
    const char *name = "forward 1.3B, 8 blocks, 1024 tokens";
    WD_TRY(time_bed(name, &wan_1_3b, WD_F32, WD_PASS_FORWARD, 3, bench, err));
    return time_bed(name, &wan_1_3b, WD_BF16, WD_PASS_FORWARD, 3, bench, err);
}

wd_status wd_bench_train(wd_bench_context *bench, wd_err *err)
{
    const char *name = "train 1.3B, 8 blocks, 1024 tokens";
    WD_TRY(time_bed(name, &wan_1_3b, WD_F32, WD_PASS_TRAIN, 2, bench, err));
    return time_bed(name, &wan_1_3b, WD_BF16, WD_PASS_TRAIN, 2, bench, err);
}

wd_status wd_bench_tiny(wd_bench_context *bench, wd_err *err)
{
    WD_TRY(time_bed("forward tiny, batch 16", &wan_tiny, WD_F32, WD_PASS_FORWARD, 50, bench, err));
    WD_TRY(time_bed("train tiny, batch 16", &wan_tiny, WD_F32, WD_PASS_TRAIN, 50, bench, err));
    return time_bed("train tiny, batch 16", &wan_tiny, WD_BF16, WD_PASS_TRAIN, 50, bench, err);
}

/* A step of one network at a number of tokens. */
typedef struct row {
    const char *name;
    const geometry *geometry;
    wd_pass_mode mode;
} row;

/* A pass of the 14B teacher and a training step of the 1.3B student, with few of their blocks, in
 * bf16, for the numbers of tokens of small to large pictures. Cases that would take longer than
 * MODEL_S at the measured peak are left out. */
wd_status wd_bench_models(wd_bench_context *bench, wd_err *err)
{
    static const double MODEL_S = 2, PARAMS_PER_BLOCK_14B = 3.4e8;
    static const int64_t sides[][2] = {{64, 64}, {60, 104}, {128, 128}, {128, 256}};
    geometry wan_14b = wan_1_3b;
    wan_14b.config.heads = 40;
    wan_14b.config.ffn_dim = 13824;
    wan_14b.config.layers = 4;
    const row rows[] = {{"forward 14B, 4 blocks", &wan_14b, WD_PASS_FORWARD},
                        {"train 1.3B, 8 blocks", &wan_1_3b, WD_PASS_TRAIN}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (size_t i = 0; i < sizeof sides / sizeof *sides; i++) {
            char name[96];
            geometry g = *rows[r].geometry;
            g.shape.height = sides[i][0];
            g.shape.width = sides[i][1];
            const int64_t tokens = sides[i][0] * sides[i][1] / 4;
            snprintf(name, sizeof name, "%s, %lld tokens", rows[r].name, (long long)tokens);
            if (2 * 4 * PARAMS_PER_BLOCK_14B * (double)tokens > MODEL_S * bench->peak[WD_BF16]) {
                wd_bench_leave_out(bench, name, "it takes too long at the peak");
                continue;
            }
            WD_TRY(time_bed(name, &g, WD_BF16, rows[r].mode, 3, bench, err));
        }
    return WD_OK;
}
