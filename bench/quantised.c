/* Quantised teachers: how much time widening takes beside computing, and whether a slow disk
 * delivers them faster by as much as they are smaller.
 *
 * In memory the processor computes 12 equal blocks for a window of eight trajectories of 128x128
 * pixels. Larger pictures hide more: a block is widened once per window, and computing it grows
 * with the pixels. From disk a simulated device, whose speed is not limited, waits for files that
 * are read at a given rate. The forms are measured in turns, and the best time of each counts,
 * since other programs may use the machine. */
#include <stdio.h>

#include "core/memory.h"
#include "bench/rig.h"
#include "io/file/file_reader.h"

enum { FORMS = 4, TURNS = 3, WINDOW = 8 };

/* The larger one is computed; of the smaller one nothing takes time but reading. */
static wd_dit_config config_of(bool is_large)
{
    return (wd_dit_config){.in_channels = 16,
                           .out_channels = 16,
                           .heads = 4,
                           .head_dim = is_large ? 128 : 32,
                           .ffn_dim = 2048,
                           .layers = 12,
                           .freq_dim = 64,
                           .text_dim = WD_BENCH_TEXT_DIM,
                           .patch = {1, 2, 2},
                           .rope_max_seq_len = 1024,
                           .cross_attn_norm = true,
                           .eps = 1e-6};
}

static const double DISK_BLOCK_SECONDS = 40e-3; /* to read a block in bfloat16 */

static const struct {
    wd_dtype quantised;
    const char *name;
} forms[FORMS] = {
    {WD_F32, "bfloat16"}, {WD_F8_E4M3, "float8_e4m3fn"}, {WD_I8, "int8"}, {WD_Q8_0, "q8_0"}};

/* The best of several turns of each form. */
static wd_status time_forms(double seconds[FORMS], const wd_bench_teacher *teacher,
                            const wd_bench_workload *work, wd_err *err)
{
    for (int f = 0; f < FORMS; f++) seconds[f] = 1e30;
    for (int turn = 0; turn < TURNS; turn++)
        for (int f = 0; f < FORMS; f++) {
            double s;
            WD_TRY(wd_bench_time_target(&s, &teacher[f], work, err));
            if (s < seconds[f]) seconds[f] = s;
        }
    return WD_OK;
}

/* "quantised: float8_e4m3fn in memory   1.012 times the 0.215 s of bfloat16   (1.10 at most)" */
static void report(wd_bench_context *bench, const char *form, const char *where, double seconds,
                   double base, const char *wanted)
{
    char line[160], what[64];
    snprintf(what, sizeof what, "%s %s", form, where);
    snprintf(line, sizeof line, "quantised: %-24s %6.3f times the %.3g s of bfloat16       (%s)",
             what, seconds / base, base, wanted);
    bench->print(bench->context, line);
}

static wd_status in_memory(wd_bench_context *bench, const wd_bench_teacher *t, wd_err *err)
{
    const wd_bench_workload work = {.devices = "cpu",
                                    .strategy = WD_STRATEGY_cpu,
                                    .window = WINDOW,
                                    .processor = true,
                                    .rounds = 2};
    double seconds[FORMS];
    WD_TRY(time_forms(seconds, t, &work, err));
    for (int f = 1; f < FORMS; f++)
        report(bench, forms[f].name, "in memory", seconds[f], seconds[0], "1.10 at most");
    return WD_OK;
}

static wd_status from_disk(wd_bench_context *bench, const wd_bench_teacher *t, wd_err *err)
{
    const wd_bench_workload work = {.devices = "sim:1x1GiB@link=20GB/s",
                                    .strategy = WD_STRATEGY_disk,
                                    .window = 1,
                                    .rounds = 2};
    double seconds[FORMS];
    char wanted[64];
    wd_file_reader_bytes_per_s = (double)t->size.stage[0][1].file / DISK_BLOCK_SECONDS;
    const wd_status status = time_forms(seconds, t, &work, err);
    wd_file_reader_bytes_per_s = 0;
    for (int f = 1; status == WD_OK && f < FORMS; f++) {
        double bytes[2] = {0, 0};
        for (int s = 0; s < t->size.stages; s++) {
            bytes[0] += (double)t[0].size.stage[0][s].file;
            bytes[1] += (double)t[f].size.stage[0][s].file;
        }
        snprintf(wanted, sizeof wanted, "%.3f times the bytes", bytes[1] / bytes[0]);
        report(bench, forms[f].name, "from disk", seconds[f], seconds[0], wanted);
    }
    return status;
}

/* Opens a teacher in each form and measures it. */
static wd_status run(wd_bench_context *bench, bool is_large, wd_err *err)
{
    wd_bench_teacher *t;
    int opened = 0;
    wd_status status = wd_alloc((void **)&t, FORMS, sizeof *t, "teachers", err);
    while (opened < FORMS && status == WD_OK) {
        t[opened] = (wd_bench_teacher){.config = config_of(is_large),
                                       .latent = is_large ? 16 : 4,
                                       .dtype = WD_BF16,
                                       .quantised = forms[opened].quantised};
        status = wd_bench_teacher_open(&t[opened++], bench, err);
    }
    if (status == WD_OK) status = is_large ? in_memory(bench, t, err) : from_disk(bench, t, err);
    for (int f = 0; f < opened; f++) wd_bench_teacher_close(&t[f]);
    if (opened) wd_free(t);
    return status;
}

wd_status wd_bench_quantised(wd_bench_context *bench, wd_err *err)
{
    WD_TRY(run(bench, true, err));
    return run(bench, false, err);
}
