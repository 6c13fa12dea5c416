/* Folder api/jobs. The public functions: train, sample, eval, convert, inspect, report, tell,
 * forward, bench.
 *
 * Most jobs have a file of their name. This file has the short ones, inspect, report, tell and
 * bench, and the functions that belong to no job. */
#include <inttypes.h>

#include "api/options/options.h"
#include "api/setup/run.h"
#include "bench/bench.h"
#include "core/locale.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/stop.h"
#include "io/file/file.h"
#include "io/file/writable.h"
#include "model/convert/inspect.h"
#include "report/report.h"
#include "train/output/output.h"
#include "train/output/request.h"
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
    WD_C_LOCALE;
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

/* ---- report: a page about runs from what they have left in their folders ---- */

static wd_status check_runs(const wd_report_options *o, wd_err *err)
{
    if (o->runs.count > WD_REPORT_RUNS_MAX)
        return wd_fail(err, WD_INVALID_ARGUMENT, "%" PRId64 " runs: a page has at most %d",
                       o->runs.count, WD_REPORT_RUNS_MAX);
    for (int64_t i = 0; i < o->runs.count; i++)
        if (!wd_path_is_folder(o->runs.item[i]))
            return wd_fail(err, WD_NOT_FOUND, "%s: expected the output folder of a run of train",
                           o->runs.item[i]);
    if (o->out || o->runs.count == 1) return WD_OK;
    return wd_fail(err, WD_INVALID_ARGUMENT,
                   "a page about %" PRId64 " runs: --out FILE says where it is written",
                   o->runs.count);
}

static wd_status check_out(char path[WD_PATH_MAX], const wd_report_options *o, wd_err *err)
{
    static const char *const others[] = {".png", ".svg", ".json", ".jsonl", ".md", ".pdf", NULL};
    if (!o->out) {
        WD_TRY(wd_path_join(path, o->runs.item[0], "report.html", err));
        return wd_run_page_check_replaced(path, err);
    }
    WD_TRY(wd_path_join(path, "", o->out, err));
    WD_TRY(wd_path_refuse_endings(path, "--out", others, "a .html file", err));
    WD_TRY(wd_run_page_check_replaced(path, err));
    return wd_file_check_writable(path, "--out", err);
}

static void say_done(const wd_run_page *report, const wd_report_options *o, const char *path)
{
    for (int64_t i = 0; i < o->runs.count; i++) {
        const int64_t wrong = wd_run_page_wrong_lines(report, i);
        if (wrong)
            wd_log(WD_LOG_WARNING,
                   "%s/metrics.jsonl: %" PRId64 " line%s cannot be read, and %s left out",
                   o->runs.item[i], wrong, wrong == 1 ? "" : "s", wrong == 1 ? "is" : "are");
    }
    wd_log(WD_LOG_INFO, "the report is in %s", path);
}

wd_status wd_report(const wd_report_options *options, wd_err *err)
{
    WD_C_LOCALE;
    char path[WD_PATH_MAX];
    wd_run_page *report;
    wd_reported_run run[WD_REPORT_RUNS_MAX] = {0};
    WD_TRY(wd_options_check(WD_JOB_REPORT, options, err));
    WD_TRY(check_runs(options, err));
    WD_TRY(check_out(path, options, err));
    wd_stop_begin();
    for (int64_t i = 0; i < options->runs.count; i++) {
        const bool runs = wd_output_is_running(options->runs.item[i]);
        run[i] = (wd_reported_run){.folder = options->runs.item[i],
                                   .is_running = runs,
                                   .is_rewritten = runs && !options->out};
    }
    WD_TRY(wd_run_page_open(&report, options->runs.count, err));
    const wd_status status = wd_run_page_write(report, path, run, err);
    if (status == WD_OK) say_done(report, options, path);
    wd_run_page_close(report);
    return status;
}

/* ---- tell: leaves a request in the folder of a run that is under way ---- */

static wd_status check_run(const char *folder, wd_err *err)
{
    char lock[WD_PATH_MAX];
    WD_TRY(wd_path_join(lock, folder, ".lock", err));
    if (!wd_path_is_folder(folder) || !wd_path_exists(lock))
        return wd_fail(err, WD_NOT_FOUND,
                       "%s: expected the output folder of a run of train that is under way, found "
                       "no file .lock in it",
                       folder);
    if (wd_output_is_running(folder)) return WD_OK;
    return wd_fail(err, WD_MISMATCH,
                   "%s: no run is under way there: the lock of its file .lock is free. `train "
                   "--resume` goes on with a run that has ended",
                   folder);
}

wd_status wd_tell(const wd_tell_options *options, wd_err *err)
{
    WD_C_LOCALE;
    WD_TRY(wd_options_check(WD_JOB_TELL, options, err));
    WD_TRY(check_run(options->run, err));
    WD_TRY(wd_request_leave(options->run, wd_request_find(options->request), err));
    WD_TRY(check_run(options->run, err)); /* it may have ended meanwhile */
    wd_log(WD_LOG_INFO, "the run in %s is told to %s; it will do so between two steps",
           options->run, options->request);
    return WD_OK;
}

/* ---- bench ---- */

wd_status wd_bench(const wd_bench_options *options, wd_err *err)
{
    WD_C_LOCALE;
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
