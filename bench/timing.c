/* Timing of launches: see wd_bench_time in bench/bench.h. */
#include "bench/bench.h"

enum { RUNS = 5, LAUNCHES_MAX = 1000 };

static const double RUN_S = 5e-3, WORTH_S = 0.5;

static double run_s(wd_bench_context *bench, wd_bench_launch_fn *launch, const void *context,
                    int launches)
{
    const double begun_s = wd_clock_s();
    for (int i = 0; i < launches; i++) launch(bench->queue, context);
    wd_queue_wait(bench->queue);
    return wd_clock_s() - begun_s;
}

double wd_bench_time(wd_bench_context *bench, wd_bench_launch_fn *launch, const void *context)
{
    run_s(bench, launch, context, 1); /* warms up: libraries make their kernels */
    const double once_s = run_s(bench, launch, context, 1);
    int launches = once_s > 0 && once_s < RUN_S ? (int)(RUN_S / once_s) + 1 : 1;
    if (launches > LAUNCHES_MAX) launches = LAUNCHES_MAX;
    double best_s = 1e30, all_s = 0;
    for (int run = 0; run < RUNS || all_s < WORTH_S / 10; run++) {
        const double s = run_s(bench, launch, context, launches);
        if (s / launches < best_s) best_s = s / launches;
        all_s += s;
        if (all_s > WORTH_S) break;
    }
    return best_s;
}
