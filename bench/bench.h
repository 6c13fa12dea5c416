/* Benchmarks: figures of one run, which may be compared with one another.
 *
 * Machines are shared and drift: a time alone says little. So every case is measured beside the
 * machine's peak, which is that of the fastest of some large matrix products in the same run and
 * dtype. */
#ifndef WD_BENCH_BENCH_H
#define WD_BENCH_BENCH_H

#include "core/clock.h"
#include "core/dtype.h"
#include "dev/device.h"

/* The device of a case, and the function to which it reports. */
typedef struct wd_bench_context {
    wd_device *device;
    wd_queue *queue;
    double peak[WD_DTYPE_COUNT]; /* FLOP/s of the fastest large product; 0: none is measured */
    const char *only;            /* run cases whose name contains this; NULL: all */
    void (*print)(void *context, const char *line);
    void *context;
} wd_bench_context;

typedef wd_status wd_bench_fn(wd_bench_context *bench, wd_err *err);

/* The cases, in the order in which they run. */
wd_status wd_bench_peak(wd_bench_context *bench, wd_err *err);
wd_status wd_bench_forward(wd_bench_context *bench, wd_err *err);
wd_status wd_bench_train(wd_bench_context *bench, wd_err *err);
wd_status wd_bench_tiny(wd_bench_context *bench, wd_err *err);
wd_status wd_bench_vae(wd_bench_context *bench, wd_err *err);
wd_status wd_bench_copies(wd_bench_context *bench, wd_err *err);
wd_status wd_bench_codecs(wd_bench_context *bench, wd_err *err);
wd_status wd_bench_shapes(wd_bench_context *bench, wd_err *err);
wd_status wd_bench_models(wd_bench_context *bench, wd_err *err);
wd_status wd_bench_placement(wd_bench_context *bench, wd_err *err);
wd_status wd_bench_quantised(wd_bench_context *bench, wd_err *err);
wd_status wd_bench_prediction(wd_bench_context *bench, wd_err *err); /* in the source's folder */

/* Runs every case whose name contains bench->only. */
wd_status wd_bench_all(wd_bench_context *bench, wd_err *err);

/* "transformer forward 1.3B f32      1.92 s   421.3 GFLOP/s   86 % of peak" */
void wd_bench_report(wd_bench_context *bench, const char *name, wd_dtype dtype, double seconds,
                     double flops);

/* Prints that a case is left out, and the reason. */
void wd_bench_leave_out(wd_bench_context *bench, const char *name, const char *why);

/* Measures seconds of one launch: the best of several runs, each with enough launches to be timed.
 * It reserves the workspace of the launch. */
typedef void wd_bench_launch_fn(wd_queue *queue, const void *context);
double wd_bench_time(wd_bench_context *bench, wd_bench_launch_fn *launch, const void *context);

#endif
