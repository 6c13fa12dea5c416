/* The VAE decoder: Wan 2.1 geometry, random weights, one picture of 512x512. */
#include "bench/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/random.h"
#include "io/tensors/safetensors.h"
#include "model/vae/vae.h"

static const wd_vae_config wan_2_1 = {
    .base_dim = 96,
    .decoder_base_dim = 96,
    .z_dim = 16,
    .num_res_blocks = 2,
    .levels = 4,
    .dim_mult = {1, 2, 4, 4},
    .temporal_downsample = {false, true, true},
    .in_channels = 3,
    .out_channels = 3,
    .patch_size = 1,
    .scale_factor_spatial = 8,
    .scale_factor_temporal = 4,
};

/* Writes a checkpoint of small random weights. */
static wd_status write_weights(const char *path, const wd_tensor_table *table, wd_err *err)
{
    enum { BLOCK = 1 << 18 };
    wd_status status;
    wd_safetensors_item *items = NULL;
    wd_safetensors_writer *writer = NULL;
    float *block = NULL;
    WD_TRY_OUT(wd_alloc((void **)&items, (size_t)table->count, sizeof *items, "items", err));
    WD_TRY_OUT(wd_alloc((void **)&block, BLOCK, sizeof *block, "random values", err));
    wd_random_normal(block, BLOCK, (wd_random){.seed = 1, .stream = WD_RANDOM_WEIGHT}, 0);
    for (int i = 0; i < BLOCK; i++) block[i] *= 0.02f;
    for (int64_t i = 0; i < table->count; i++) {
        items[i] = (wd_safetensors_item){
            .name = table->spec[i].name, .dtype = WD_F32, .ndim = table->spec[i].ndim};
        for (int d = 0; d < items[i].ndim; d++) items[i].dim[d] = table->spec[i].dim[d];
    }
    WD_TRY_OUT(wd_safetensors_create(&writer, path, items, table->count, NULL, err));
    for (int64_t i = 0; i < table->count; i++) {
        int64_t left = 1;
        for (int d = 0; d < items[i].ndim; d++) left *= items[i].dim[d];
        for (; left > 0; left -= BLOCK) {
            size_t n = (size_t)(left < BLOCK ? left : BLOCK);
            WD_TRY_OUT(wd_safetensors_put(writer, block, n * sizeof *block, err));
        }
    }
    status = wd_safetensors_finish(writer, err);
    writer = NULL;
out:
    wd_safetensors_abandon(writer);
    wd_free(items);
    wd_free(block);
    return status;
}

static wd_status decode(wd_bench_context *bench, const wd_safetensors *weights, wd_err *err)
{
    enum { SIDE = 64, RUNS = 2 };
    const int64_t dim[5] = {1, 16, 1, SIDE, SIDE};
    wd_status status;
    wd_vae *vae = NULL;
    float *z = NULL, *image = NULL;
    double best = 1e30, flops = 0;
    WD_TRY_OUT(wd_vae_open(&vae, &wan_2_1, weights, WD_VAE_DECODER, bench->queue, err));
    WD_TRY_OUT(wd_alloc((void **)&z, 16 * SIDE * SIDE, sizeof *z, "latents", err));
    WD_TRY_OUT(wd_alloc((void **)&image, 3 * 64 * SIDE * SIDE, sizeof *image, "a picture", err));
    for (int run = 0; run <= RUNS; run++) {
        double before = wd_queue_total(bench->queue).flops, begun = wd_clock_s();
        WD_TRY_OUT(wd_vae_decode(vae, image, z, dim, err));
        double seconds = wd_clock_s() - begun;
        flops = wd_queue_total(bench->queue).flops - before;
        if (run && seconds < best) best = seconds;
    }
    wd_bench_report(bench, "VAE 2.1 decode 512x512", WD_F32, best, flops);
    char line[96];
    snprintf(line, sizeof line, "    memory beside weights %.3f GB",
             (double)wd_vae_decode_bytes(&wan_2_1, dim) * 1e-9);
    bench->print(bench->context, line);
out:
    wd_vae_close(vae);
    wd_free(z);
    wd_free(image);
    return status;
}

wd_status wd_bench_vae(wd_bench_context *bench, wd_err *err)
{
    wd_status status;
    wd_tensor_table table = {0};
    wd_safetensors *weights = NULL;
    char path[] = "/tmp/wandistiller-bench-XXXXXX.safetensors";
    int file = mkstemps(path, 12);
    if (file < 0) return wd_fail(err, WD_IO, "%s: cannot be made", path);
    close(file);
    WD_TRY_OUT(wd_vae_table_open(&table, &wan_2_1, err));
    WD_TRY_OUT(write_weights(path, &table, err));
    WD_TRY_OUT(wd_safetensors_open(&weights, path, err));
    WD_TRY_OUT(decode(bench, weights, err));
out:
    wd_safetensors_close(weights);
    wd_vae_table_close(&table);
    unlink(path);
    return status;
}
