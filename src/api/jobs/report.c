/* `report`: a page about runs from what they have left in their folders. */
#include <inttypes.h>

#include "core/log.h"
#include "core/stop.h"
#include "io/file/writable.h"
#include "report/report.h"
#include "train/output/output.h"
#include "wandistiller.h"

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
