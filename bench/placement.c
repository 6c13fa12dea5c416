/* Placement: how much time it costs to keep the teacher's weights elsewhere, on simulated devices
 * whose links and processors have the speeds that the case needs. There are two figures:
 *
 * A device whose link copies a block in four times the time in which the device computes it for one
 * trajectory: with a window of eight copies are hidden behind computing, with four only just, and
 * with one the link alone determines the time.
 *
 * Four devices that share the blocks: a window of micro-batches keeps all of them busy, also
 * between sweeps, while a single micro-batch keeps only one busy at a time. The devices belong to
 * one process, or to four ranks, which are threads here and send micro-batches through host memory.
 *
 * Real computing is a small part of the simulated time, so that the ratios are right on a machine
 * with few cores, too. */
#include <stdio.h>

#include "bench/rig.h"

enum { LATENT = 4, DEVICES = 4, BATCHES = 16 };

/* Seconds in which a device computes a block for one trajectory. */
static const double BLOCK_SECONDS = 10e-3, TRANSFERS_PER_COMPUTE = 4;

static const wd_dit_config config = {.in_channels = 16,
                                     .out_channels = 16,
                                     .heads = 4,
                                     .head_dim = 32,
                                     .ffn_dim = 2048,
                                     .layers = 12,
                                     .freq_dim = 64,
                                     .text_dim = WD_BENCH_TEXT_DIM,
                                     .patch = {1, 2, 2},
                                     .rope_max_seq_len = 1024,
                                     .cross_attn_norm = true,
                                     .eps = 1e-6};

/* ---- the figures ---- */

/* "placement: disk, window 8           1.012 times the time of gpu      (1.05 at most)" */
static void report(wd_bench_context *bench, const char *what, double ratio, const char *base,
                   const char *wanted)
{
    char line[160];
    snprintf(line, sizeof line, "placement: %-24s %6.3f times %-28s (%s)", what, ratio, base,
             wanted);
    bench->print(bench->context, line);
}

static wd_status stream(wd_bench_context *bench, const wd_bench_teacher *t, wd_err *err)
{
    static const struct {
        int64_t window;
        const char *wanted;
    } cases[] = {{8, "1.05 at most"}, {4, "1.10 at most"}, {1, "1.05 at most"}};
    static const wd_strategy streams[] = {WD_STRATEGY_offload, WD_STRATEGY_disk};
    const double link =
        (double)t->size.stage[0][1].device / (TRANSFERS_PER_COMPUTE * BLOCK_SECONDS);
    char list[96], what[48];
    snprintf(list, sizeof list, "sim:1x1GiB@link=%.9gGB/s,compute=%.9gGFLOP/s", link * 1e-9,
             t->size.flops[1] / BLOCK_SECONDS * 1e-9);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double base = (double)t->bytes / link, seconds;
        wd_bench_workload work = {
            .devices = list, .strategy = WD_STRATEGY_gpu, .window = cases[i].window};
        if (work.window > 1) WD_TRY(wd_bench_time_target(&base, t, &work, err));
        for (size_t s = 0; s < sizeof streams / sizeof *streams; s++) {
            work.strategy = streams[s];
            WD_TRY(wd_bench_time_target(&seconds, t, &work, err));
            snprintf(what, sizeof what, "%s, window %d", wd_strategy_name(work.strategy),
                     (int)work.window);
            report(bench, what, seconds / base,
                   work.window > 1 ? "the time of gpu" : "the time of transfers", cases[i].wanted);
        }
    }
    return WD_OK;
}

/* Measures the pipeline over `ranks` ranks with `devices` devices each. */
static wd_status pipeline(wd_bench_context *bench, const wd_bench_teacher *t, int devices,
                          int ranks, const char *what, wd_err *err)
{
    char list[96];
    double one, all;
    snprintf(list, sizeof list, "sim:%dx1GiB@compute=%.9gGFLOP/s", devices,
             t->size.flops[1] / BLOCK_SECONDS * 1e-9);
    wd_bench_workload work = {.devices = list,
                              .strategy = WD_STRATEGY_balanced,
                              .window = 1,
                              .alone = true,
                              .ranks = ranks};
    WD_TRY(wd_bench_time_target(&one, t, &work, err));
    work.window = BATCHES;
    work.alone = false;
    WD_TRY(wd_bench_time_target(&all, t, &work, err));
    report(bench, what, one / all, "the throughput of 1 at once", "3.6 at least");
    return WD_OK;
}

wd_status wd_bench_placement(wd_bench_context *bench, wd_err *err)
{
    wd_bench_teacher t = {.config = config, .latent = LATENT, .dtype = WD_F32};
    wd_status status = wd_bench_teacher_open(&t, bench, err);
    if (status == WD_OK) status = stream(bench, &t, err);
    if (status == WD_OK)
        status = pipeline(bench, &t, DEVICES, 1, "balanced over 4, 16 at once", err);
    if (status == WD_OK) status = pipeline(bench, &t, 1, DEVICES, "balanced over 4 ranks", err);
    wd_bench_teacher_close(&t);
    return status;
}
