/* Widening of quantised weights: a block's largest matrix of the 14B transformer in each form, to
 * the dtypes that are computed in, beside a cast from BF16. */
#include <stdio.h>

#include "bench/bench.h"
#include "dev/fill_random.h"
#include "dev/ops.h"

enum { ROWS = 13824, WIDTH = 5120 };

static void launch(wd_queue *queue, const void *args)
{
    wd_op_dequantise(queue, args);
}

static void launch_cast(wd_queue *queue, const void *args)
{
    wd_op_cast(queue, args);
}

static void report(wd_bench_context *bench, wd_dtype from, wd_dtype to, double seconds)
{
    char line[160];
    const double values = (double)ROWS * WIDTH;
    snprintf(line, sizeof line, "widen %-8s to %-4s %23.2f ms %9.2f GB/s of it",
             wd_dtype_file_name(from), wd_dtype_file_name(to), seconds * 1e3,
             values * (double)wd_dtype_bytes(to) / seconds * 1e-9);
    bench->print(bench->context, line);
}

wd_status wd_bench_codecs(wd_bench_context *bench, wd_err *err)
{
    static const wd_dtype from[] = {WD_F8_E4M3, WD_F8_E5M2, WD_I8,   WD_Q8_0,   WD_Q6_K,
                                    WD_Q5_K,    WD_Q4_K,    WD_Q5_0, WD_Q4_0,   WD_Q5_1,
                                    WD_Q4_1,    WD_Q3_K,    WD_Q2_K, WD_IQ4_NL, WD_IQ4_XS};
    static const wd_dtype to[] = {WD_F32, WD_BF16};
    const int64_t count = (int64_t)ROWS * WIDTH;
    wd_status status;
    void *weights = NULL, *wide = NULL;
    float *scale = NULL;
    WD_TRY_OUT(wd_device_alloc(&weights, bench->device, 2 * (size_t)count, "bench", err));
    WD_TRY_OUT(wd_device_alloc(&wide, bench->device, 4 * (size_t)count, "bench", err));
    WD_TRY_OUT(wd_device_alloc((void **)&scale, bench->device, ROWS * sizeof *scale, "bench", err));
    WD_TRY_OUT(wd_fill_random(bench->queue, weights, WD_F32, count / 2, 0.02f, err));
    WD_TRY_OUT(wd_fill_random(bench->queue, scale, WD_F32, ROWS, 0.01f, err));
    for (int t = 0; t < 2; t++) {
        const wd_cast_args cast = {wide, weights, to[t], WD_BF16, count};
        report(bench, WD_BF16, to[t], wd_bench_time(bench, launch_cast, &cast));
        for (size_t i = 0; i < sizeof from / sizeof *from; i++) {
            const bool scaled = wd_dtype_block(from[i]) == 1;
            const wd_dequantise_args args = {.to = wide,
                                             .from = weights,
                                             .scale = scaled ? scale : NULL,
                                             .to_type = to[t],
                                             .from_type = from[i],
                                             .scale_type = WD_F32,
                                             .rounded = to[t],
                                             .rows = ROWS,
                                             .width = WIDTH,
                                             .scale_rows = ROWS,
                                             .scale_columns = 1};
            report(bench, from[i], to[t], wd_bench_time(bench, launch, &args));
        }
    }
out:
    wd_queue_wait(bench->queue);
    wd_device_free(bench->device, scale);
    wd_device_free(bench->device, wide);
    wd_device_free(bench->device, weights);
    return status;
}
