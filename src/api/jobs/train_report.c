/* The page about a run under way: see api/jobs/train_report.h. */
#include "api/jobs/train_report.h"

#include <math.h>
#include <string.h>

#include "api/plan/plan_svg.h"
#include "api/setup/memory_report.h"
#include "core/clock.h"
#include "core/log.h"
#include "io/file/writable.h"
#include "io/json/json.h"

static void warn(wd_train_report *r, const wd_err *why)
{
    if (!r->warned)
        wd_log(WD_LOG_WARNING, "%s; training goes on, and its report lacks what is not written",
               why->message);
    r->warned = true;
}

void wd__train_report_open(wd_train_report *out, const wd_train_setup *setup)
{
    wd_err why = {0};
    *out = (wd_train_report){0};
    if (strcmp(setup->options.save_report, "true")) return;
    if (wd_run_page_open(&out->page, 1, &why) != WD_OK) warn(out, &why);
}

void wd__train_report_close(wd_train_report *report)
{
    wd_run_page_close(report->page);
    report->page = NULL;
}

void wd__train_report_plan(wd_train_report *report, const wd_train_setup *setup,
                           const wd_train_plan *where)
{
    char path[WD_PATH_MAX];
    wd_err why = {0};
    const char *teacher = setup->options.teacher_path;
    const wd_plan_table table = {.plan = where,
                                 .setup = setup,
                                 .teacher = teacher ? teacher : setup->teacher.path,
                                 .shown = &where->chosen};
    if (!report->page) return;
    wd_status status = wd_path_join(path, setup->output.path, "plan.svg", &why);
    if (status == WD_OK)
        status = wd_file_check_replaced(path, WD_PLAN_SVG_BEGIN, "picture of a plan", &why);
    if (status == WD_OK) status = wd_plan_svg_write(path, &table, &why);
    if (status != WD_OK) warn(report, &why);
}

static wd_status write_page(wd_run_page *page, wd_output *output, bool is_running, wd_err *err)
{
    char path[WD_PATH_MAX];
    WD_TRY(wd_output_follow(output, err));
    WD_TRY(wd_path_join(path, output->path, "report.html", err));
    const wd_reported_run run = {
        .folder = output->path, .is_running = is_running, .is_rewritten = is_running};
    return wd_run_page_write(page, path, &run, err);
}

static void write_or_warn(wd_train_report *r, wd_train_setup *s, bool is_running)
{
    wd_err why = {0};
    const double begun = wd_clock_s();
    if (write_page(r->page, &s->output, is_running, &why) != WD_OK) warn(r, &why);
    r->written = wd_clock_s();
    r->took = r->written - begun;
}

void wd__train_report_follow(wd_train_report *report, wd_train_setup *setup, bool wrote)
{
    const double wait = fmax(wrote ? 1 : 60, 100 * report->took);
    const bool is_due = report->written == 0 || wd_clock_s() - report->written >= wait;
    if (report->page && is_due) write_or_warn(report, setup, true);
}

/* The file was written anew when the run began, so it has no end of an earlier part of it. */
static wd_status save_end(const char *path, const wd_devices *devices, const char *error,
                          wd_err *err)
{
    json_t *run = NULL;
    wd_status status;
    WD_TRY(wd_json_load(&run, path, err));
    WD_TRY_OUT(wd_memory_report_add(run, path, devices, err));
    if (error && json_object_set_new(run, "error", wd_json_string(error)))
        WD_TRY_OUT(wd_fail(err, WD_OUT_OF_MEMORY, "%s: no memory to write it", path));
    status = wd_json_save(run, path, err);
out:
    json_decref(run);
    return status;
}

static void save_end_or_warn(wd_train_setup *setup, const wd_devices *devices, const char *error)
{
    char path[WD_PATH_MAX];
    wd_err why;
    wd_status status = wd_output_follow(&setup->output, &why);
    if (status == WD_OK) status = wd_path_join(path, setup->output.path, "run.json", &why);
    if (status == WD_OK) status = save_end(path, devices, error, &why);
    if (status != WD_OK)
        wd_log(WD_LOG_WARNING, "%s; run.json lacks the measured memory of devices%s", why.message,
               error ? ", and how the run has failed" : "");
}

void wd__train_report_end(wd_train_report *report, wd_train_setup *setup, const wd_devices *devices,
                          const char *error)
{
    if (!setup->output_begun) return;
    save_end_or_warn(setup, devices, error);
    if (report->page) write_or_warn(report, setup, false);
}
