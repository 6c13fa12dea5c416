/* Benchmarks: see bench/bench.h. */
#include "bench/bench.h"

#include <string.h>

#include "core/append.h"
#include "core/memory.h"
#include "core/random.h"
#include "dev/ops.h"

enum { FILL_BLOCK = 1 << 20, PEAK_SIZE = 3072, PEAK_RUNS = 20 };

void wd_bench_report(wd_bench_context *bench, const char *name, wd_dtype dtype, double seconds,
                     double flops)
{
    char line[160];
    const size_t n =
        wd_append(line, sizeof line, 0, "%-34s %-5s %10.2f ms %9.1f GFLOP/s", name,
                  wd_dtype_file_name(dtype), seconds * 1e3, flops / seconds * 1e-9);
    if (bench->peak[dtype] > 0)
        wd_append(line, sizeof line, n, " %5.1f %% of peak",
                  100 * flops / seconds / bench->peak[dtype]);
    bench->print(bench->context, line);
}

wd_status wd_bench_fill(wd_bench_context *bench, float *to, int64_t count, float scale, wd_err *err)
{
    float *block;
    WD_TRY(wd_alloc((void **)&block, FILL_BLOCK, sizeof *block, "random values", err));
    wd_random_normal(block, FILL_BLOCK, (wd_random){.seed = 1, .stream = WD_RANDOM_WEIGHT}, 0);
    for (int64_t i = 0; i < FILL_BLOCK; i++) block[i] *= scale;
    for (int64_t i = 0; i < count; i += FILL_BLOCK) {
        int64_t n = count - i < FILL_BLOCK ? count - i : FILL_BLOCK;
        wd_queue_copy(bench->queue, to + i, block, (size_t)n * sizeof *block);
    }
    wd_queue_wait(bench->queue);
    wd_free(block);
    return WD_OK;
}

/* The best of some runs of one square product. */
static wd_status peak_of(wd_bench_context *bench, wd_dtype dtype, wd_err *err)
{
    wd_status status;
    int64_t n = PEAK_SIZE;
    float *values = NULL;
    void *a = NULL, *c = NULL;
    size_t bytes = (size_t)(n * n) * wd_dtype_bytes(dtype);
    WD_TRY_OUT(wd_device_alloc((void **)&values, bench->device, (size_t)(n * n) * 4, "bench", err));
    WD_TRY_OUT(wd_device_alloc(&a, bench->device, bytes, "bench", err));
    WD_TRY_OUT(wd_device_alloc(&c, bench->device, bytes, "bench", err));
    WD_TRY_OUT(wd_bench_fill(bench, values, n * n, 0.1f, err));
    wd_op_cast(bench->queue, &(wd_cast_args){
                                 .to = a, .from = values, .to_type = dtype, .count = n * n});
    const wd_matmul_args args = {.c = c, .a = a, .b = a, .c_type = dtype, .a_type = dtype,
                                 .b_type = dtype, .transpose_b = true, .m = n, .n = n, .k = n,
                                 .lda = n, .ldb = n, .ldc = n, .batch = 1};
    double best = 1e30;
    for (int run = 0; run <= PEAK_RUNS; run++) {
        double begun = wd_clock_s();
        wd_op_matmul(bench->queue, &args);
        wd_queue_wait(bench->queue);
        double seconds = wd_clock_s() - begun;
        if (run && seconds < best) best = seconds;
    }
    double flops = 2.0 * (double)n * (double)n * (double)n;
    bench->peak[dtype] = flops / best;
    wd_bench_report(bench, "matrix product 3072x3072x3072", dtype, best, flops);
out:
    wd_device_free(bench->device, values);
    wd_device_free(bench->device, a);
    wd_device_free(bench->device, c);
    return status;
}

wd_status wd_bench_peak(wd_bench_context *bench, wd_err *err)
{
    WD_TRY(peak_of(bench, WD_F32, err));
    return peak_of(bench, WD_BF16, err);
}

wd_status wd_bench_all(wd_bench_context *bench, wd_err *err)
{
    static const struct {
        const char *name;
        wd_bench_fn *run;
    } cases[] = {
        {"peak", wd_bench_peak},
        {"forward", wd_bench_forward},
        {"train", wd_bench_train},
        {"tiny", wd_bench_tiny},
        {"vae", wd_bench_vae},
        {"placement", wd_bench_placement},
        {"prediction", wd_bench_prediction},
    };
    const int count = sizeof cases / sizeof *cases;
    bool asked[sizeof cases / sizeof *cases], any = false;
    for (int i = 0; i < count; i++)
        any |= asked[i] = !bench->only || strstr(cases[i].name, bench->only);
    if (!any)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "bench: no case has \"%s\" in its name; there are peak, forward, train, "
                       "tiny, vae, placement and prediction",
                       bench->only);
    asked[0] = true; /* the others are shown beside it */
    for (int i = 0; i < count; i++)
        if (asked[i]) WD_TRY(cases[i].run(bench, err));
    return WD_OK;
}
