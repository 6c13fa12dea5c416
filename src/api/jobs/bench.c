/* `bench`: the cases of bench/, one after the other. */
#include "api/setup/run.h"
#include "bench/bench.h"

wd_status wd_bench(const wd_bench_options *options, wd_err *err)
{
    wd_run run;
    WD_TRY(wd_options_check(WD_JOB_BENCH, options, err));
    if (!options->print)
        return wd_fail(err, WD_INVALID_ARGUMENT, "bench needs a function that takes its lines");
    WD_TRY(wd_run_open(&run, WD_JOB_BENCH, options, options->device, options->num_threads, err));
    options->print(options->print_context, wd_device_name(run.device));
    wd_bench_context bench = {.device = run.device,
                              .queue = run.queue,
                              .only = options->only,
                              .print = options->print,
                              .context = options->print_context};
    const wd_status status = wd_bench_all(&bench, err);
    wd_run_close(&run);
    return status;
}
