/* Benchmarks: see bench/bench.h. */
#include "bench/bench.h"

#include <stdio.h>
#include <string.h>

#include "core/text.h"
#include "dev/fill_random.h"
#include "dev/ops.h"

static const double GPU_FLOPS_PER_S = 1e13; /* more than a processor reaches */

void wd_bench_report(wd_bench_context *bench, const char *name, wd_dtype dtype, double seconds,
                     double flops)
{
    char line[160];
    const size_t n =
        wd_append_text(line, sizeof line, 0, "%-34s %-5s %10.2f ms %9.1f GFLOP/s", name,
                       wd_dtype_file_name(dtype), seconds * 1e3, flops / seconds * 1e-9);
    if (bench->peak[dtype] > 0)
        wd_append_text(line, sizeof line, n, " %5.1f %% of peak",
                       100 * flops / seconds / bench->peak[dtype]);
    bench->print(bench->context, line);
}

void wd_bench_leave_out(wd_bench_context *bench, const char *name, const char *why)
{
    char line[160];
    wd_append_text(line, sizeof line, 0, "%-34s left out: %s", name, why);
    bench->print(bench->context, line);
}

static void multiply(wd_queue *queue, const void *args)
{
    wd_op_matmul(queue, args);
}

/* Sizes of c[m, n] = a[m, k] b[n, k]T. */
typedef struct sizes {
    int64_t m, n, k;
} sizes;

/* Measures a large product; the peak is the fastest of a run. */
static wd_status time_product(wd_bench_context *bench, wd_dtype dtype, sizes s, wd_err *err)
{
    wd_status status;
    void *a = NULL, *b = NULL, *c = NULL;
    char name[64];
    const size_t item = wd_dtype_bytes(dtype);
    WD_TRY_OUT(wd_device_alloc(&a, bench->device, (size_t)(s.m * s.k) * item, "bench", err));
    WD_TRY_OUT(wd_device_alloc(&b, bench->device, (size_t)(s.n * s.k) * item, "bench", err));
    WD_TRY_OUT(wd_device_alloc(&c, bench->device, (size_t)(s.m * s.n) * item, "bench", err));
    WD_TRY_OUT(wd_fill_random(bench->queue, a, dtype, s.m * s.k, 1, err));
    WD_TRY_OUT(wd_fill_random(bench->queue, b, dtype, s.n * s.k, 1, err));
    const wd_matmul_args args = {.c = c,
                                 .a = a,
                                 .b = b,
                                 .c_type = dtype,
                                 .a_type = dtype,
                                 .b_type = dtype,
                                 .transpose_b = true,
                                 .m = s.m,
                                 .n = s.n,
                                 .k = s.k,
                                 .lda = s.k,
                                 .ldb = s.k,
                                 .ldc = s.n,
                                 .batch = 1};
    const double flops = 2.0 * (double)s.m * (double)s.n * (double)s.k;
    const double seconds = wd_bench_time(bench, multiply, &args);
    if (flops / seconds > bench->peak[dtype]) bench->peak[dtype] = flops / seconds;
    snprintf(name, sizeof name, "matrix product %lldx%lldx%lld", (long long)s.m, (long long)s.n,
             (long long)s.k);
    wd_bench_report(bench, name, dtype, seconds, flops);
out:
    wd_device_free(bench->device, a);
    wd_device_free(bench->device, b);
    wd_device_free(bench->device, c);
    return status;
}

/* The first product is large enough for a processor; the others, which only a GPU computes, are the
 * square ones that libraries are tuned for, and the layers of 14B. */
wd_status wd_bench_peak(wd_bench_context *bench, wd_err *err)
{
    static const wd_dtype dtypes[] = {WD_F32, WD_BF16};
    static const sizes all[] = {{3072, 3072, 3072},  {8192, 8192, 8192},  {16384, 8192, 8192},
                                {8192, 13824, 5120}, {8192, 5120, 13824}, {8192, 5120, 5120}};
    for (int i = 0; i < 2; i++)
        for (size_t s = 0; s < sizeof all / sizeof *all; s++) {
            const wd_dtype dtype = dtypes[i];
            if (s && bench->peak[dtype] < GPU_FLOPS_PER_S) break;
            WD_TRY(time_product(bench, dtype, all[s], err));
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
