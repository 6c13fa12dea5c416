/* Folder api/jobs. The public functions: train, sample, eval, convert, inspect, report,
 * tell, forward, bench.
 *
 * Most jobs have a file of their name. This file has the short ones, inspect and bench, and the
 * functions that belong to no job. */
#include "api/options/config.h"
#include "api/options/option_paths.h"
#include "api/setup/run.h"
#include "bench/bench.h"
#include "core/memory.h"
#include "core/stop.h"
#include "model/convert/inspect.h"
#include "wandistiller.h"

/* ---- the library ---- */

#ifndef WD_FEATURES
#define WD_FEATURES "" /* of the build: see cmake/library.cmake */
#endif

const char *wd_version(void)
{
    return WD_VERSION;
}

int wd_version_number(void)
{
    return WD_VERSION_NUMBER;
}

const char *wd_features(void)
{
    return WD_FEATURES;
}

void wd_text_free(char *text)
{
    wd_free(text);
}

/* ---- inspect ---- */

wd_status wd_inspect(char **text, const wd_inspect_options *options, wd_err *err)
{
    json_t *tree;
    WD_TRY(wd_options_check(WD_JOB_INSPECT, options, err));
    wd_stop_begin();
    wd_pipeline_parts parts = WD_PARTS_OF(options);
    const char *path = options->path;
    const bool loras = parts.lora[0] || parts.lora[1];
    const bool is_file = path && wd_path_exists(path) && !wd_path_is_folder(path);
    if (loras && is_file) {
        parts.part[WD_COMPONENT_TRANSFORMER] = path; /* which LoRAs are for */
        path = NULL;
    }
    const bool any =
        wd_parts_any(&parts) || parts.preset || loras || (parts.ignores_unknown && !is_file);
    WD_TRY(wd_inspect_tree(&tree, path, any ? &parts : NULL, err));
    const wd_status status =
        options->json ? wd_json_text_of(text, tree, err) : wd_inspect_text(text, tree, err);
    json_decref(tree);
    return status;
}

/* ---- bench ---- */

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
