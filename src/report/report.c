/* The page about runs: see report/report.h. */
#include "report/report.h"

#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "report/page_impl.h"

struct wd_run_page {
    wd_page page;
};

wd_status wd_run_page_open(wd_run_page **out, int64_t runs, wd_err *err)
{
    wd_run_page *report;
    WD_TRY(wd_alloc((void **)&report, 1, sizeof *report, "a report", err));
    wd_status status = WD_OK;
    report->page.count = (int)runs;
    for (int i = 0; i < report->page.count && status == WD_OK; i++)
        status = wd__metrics_file_open(&report->page.run[i].metrics, err);
    if (status == WD_OK)
        *out = report;
    else
        wd_run_page_close(report);
    return status;
}

void wd_run_page_close(wd_run_page *report)
{
    if (!report) return;
    for (int i = 0; i < report->page.count; i++)
        wd__metrics_file_close(report->page.run[i].metrics);
    wd_free(report);
}

/* The last part of the folder's path, without slashes at its end. */
static void name_run(wd_page_run *r)
{
    char path[WD_PATH_MAX];
    snprintf(path, sizeof path, "%s", r->run.folder);
    for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--) path[n - 1] = 0;
    const char *name = wd_path_name(path);
    snprintf(r->name, sizeof r->name, "%s", *name ? name : path);
}

/* Runs of one name get numbers. */
static void number_runs(wd_page *page)
{
    for (int i = page->count - 1; i > 0; i--) {
        int same = 0;
        for (int k = 0; k < i; k++) same += !strcmp(page->run[k].name, page->run[i].name);
        const size_t used = strlen(page->run[i].name);
        if (same)
            snprintf(page->run[i].name + used, sizeof page->run[i].name - used, " (%d)", same + 1);
    }
}

static wd_status read_run(wd_page *page, int i, const wd_reported_run *run, wd_err *err)
{
    char path[WD_PATH_MAX];
    wd_page_run *r = &page->run[i];
    r->run = *run;
    name_run(r);
    WD_TRY(wd_path_join(path, run->folder, "metrics.jsonl", err));
    WD_TRY(wd__metrics_file_read(r->metrics, path, err));
    return wd__run_files_open(&r->files, run->folder, WD_PAGE_SHEET_BYTES / (size_t)page->count,
                              err);
}

static void write_parts(wd_page *page)
{
    wd__page_head(page);
    wd__page_figures(page);
    wd__page_sheets(page);
    wd__page_curves(page);
    wd__page_evaluation(page);
    wd__page_use(page);
    wd__page_plan(page);
    wd__page_options(page);
    wd__html_put(&page->html, "</main><div id=\"tip\" hidden></div><script>");
    wd__html_put(&page->html, wd__page_script);
    wd__html_put(&page->html, "</script></body></html>\n");
}

wd_status wd_run_page_write(wd_run_page *report, const char *path, const wd_reported_run *run,
                            wd_err *err)
{
    wd_page *page = &report->page;
    wd_status status = WD_OK;
    for (int i = 0; i < page->count && status == WD_OK; i++)
        status = read_run(page, i, &run[i], err);
    number_runs(page);
    if (status == WD_OK) status = wd__html_open(&page->html, path, err);
    if (status == WD_OK) {
        write_parts(page);
        status = wd__html_close(&page->html);
    }
    for (int i = 0; i < page->count; i++) wd__run_files_close(&page->run[i].files);
    return status;
}

int64_t wd_run_page_wrong_lines(const wd_run_page *report, int64_t i)
{
    return report->page.run[i].metrics->wrong;
}
