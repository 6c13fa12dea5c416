/* Benchmarks: see bench/bench.h. */
#include "bench/bench.h"

#include <stdio.h>
#include <string.h>

#include "core/append.h"
#include "core/memory.h"
#include "core/random.h"
#include "dev/ops.h"

enum { FILL_BLOCK = 1 << 20, PEAK_SIZE = 3072, GPU_PEAK_SIZE = 8192 };

static const double GPU_FLOPS_PER_S = 1e13; /* more than a processor reaches */

void wd_bench_report(wd_bench_context *bench, const char *name, wd_dtype dtype, double seconds,
                     double flops)
{
    char line[160];
    const size_t n = wd_append(line, sizeof line, 0, "%-34s %-5s %10.2f ms %9.1f GFLOP/s", name,
                               wd_dtype_file_name(dtype), seconds * 1e3, flops / seconds * 1e-9);
    if (bench->peak[dtype] > 0)
        wd_append(line, sizeof line, n, " %5.1f %% of peak",
                  100 * flops / seconds / bench->peak[dtype]);
    bench->print(bench->context, line);
}

void wd_bench_leave_out(wd_bench_context *bench, const char *name, const char *why)
{
    char line[160];
    wd_append(line, sizeof line, 0, "%-34s left out: %s", name, why);
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
        wd_queue_copy_and_wait(bench->queue, to + i, block, (size_t)n * sizeof *block);
    }
    wd_free(block);
    return WD_OK;
}

static void multiply(wd_queue *queue, const void *args)
{
    wd_op_matmul(queue, args);
}

/* Measures the peak with a square product, large enough for this processor (n 3072), or for a GPU
 * (8192). */
static wd_status peak_of(wd_bench_context *bench, wd_dtype dtype, int64_t n, wd_err *err)
{
    wd_status status;
    float *values = NULL;
    void *a = NULL, *c = NULL;
    char name[64];
    const size_t bytes = (size_t)(n * n) * wd_dtype_bytes(dtype);
    WD_TRY_OUT(wd_device_alloc((void **)&values, bench->device, (size_t)(n * n) * 4, "bench", err));
    WD_TRY_OUT(wd_device_alloc(&a, bench->device, bytes, "bench", err));
    WD_TRY_OUT(wd_device_alloc(&c, bench->device, bytes, "bench", err));
    WD_TRY_OUT(wd_bench_fill(bench, values, n * n, 0.1f, err));
    wd_op_cast(bench->queue,
               &(wd_cast_args){.to = a, .from = values, .to_type = dtype, .count = n * n});
    const wd_matmul_args args = {.c = c,
                                 .a = a,
                                 .b = a,
                                 .c_type = dtype,
                                 .a_type = dtype,
                                 .b_type = dtype,
                                 .transpose_b = true,
                                 .m = n,
                                 .n = n,
                                 .k = n,
                                 .lda = n,
                                 .ldb = n,
                                 .ldc = n,
                                 .batch = 1};
    const double flops = 2.0 * (double)n * (double)n * (double)n;
    const double seconds = wd_bench_time(bench, multiply, &args);
    if (flops / seconds > bench->peak[dtype]) bench->peak[dtype] = flops / seconds;
    snprintf(name, sizeof name, "matrix product %lldx%lldx%lld", (long long)n, (long long)n,
             (long long)n);
    wd_bench_report(bench, name, dtype, seconds, flops);
out:
    wd_device_free(bench->device, values);
    wd_device_free(bench->device, a);
    wd_device_free(bench->device, c);
    return status;
}

wd_status wd_bench_peak(wd_bench_context *bench, wd_err *err)
{
    static const wd_dtype dtypes[] = {WD_F32, WD_BF16};
    for (int i = 0; i < 2; i++) {
        const wd_dtype dtype = dtypes[i];
        WD_TRY(peak_of(bench, dtype, PEAK_SIZE, err));
        if (bench->peak[dtype] > GPU_FLOPS_PER_S) WD_TRY(peak_of(bench, dtype, GPU_PEAK_SIZE, err));
    }
    return WD_OK;
}

wd_status wd_bench_all(wd_bench_context *bench, wd_err *err)
{
    static const struct {
        const char *name;
        wd_bench_fn *run;
        bool large; /* for GPUs: a processor runs it only if its name is given */
    } cases[] = {
        {"peak", wd_bench_peak, false},
        {"forward", wd_bench_forward, false},
        {"train", wd_bench_train, false},
        {"tiny", wd_bench_tiny, false},
        {"vae", wd_bench_vae, false},
        {"codecs", wd_bench_codecs, true},
        {"copies", wd_bench_copies, true},
        {"shapes", wd_bench_shapes, true},
        {"models", wd_bench_models, true},
        {"placement", wd_bench_placement, false},
        {"quantised", wd_bench_quantised, true},
        {"prediction", wd_bench_prediction, false},
    };
    const int count = sizeof cases / sizeof *cases;
    bool asked[sizeof cases / sizeof *cases], any = false;
    for (int i = 0; i < count; i++)
        any |= asked[i] = !bench->only || strstr(cases[i].name, bench->only);
    if (!any)
        return wd_fail(
            err, WD_INVALID_ARGUMENT,
            "bench: no case has \"%s\" in its name; there are peak, forward, train, "
            "tiny, vae, codecs, copies, shapes, models, placement, quantised and prediction",
            bench->only);
    asked[0] = true; /* other cases are compared with it */
    for (int i = 0; i < count; i++) {
        const bool fast = bench->peak[WD_BF16] > GPU_FLOPS_PER_S;
        if (asked[i] && (fast || !cases[i].large || bench->only)) WD_TRY(cases[i].run(bench, err));
    }
    return WD_OK;
}
