/* The page about runs: see report/report.h. */
#include "report/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/text.h"
#include "io/file/writable.h"
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
    for (int i = 0; i < report->page.count; i++) {
        wd__metrics_file_close(report->page.run[i].metrics);
        wd__sheet_copies_close(&report->page.run[i].copies);
    }
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

/* The path of the sheets from the folder of the page: "./samples/", "../../elsewhere/". */
static void find_sheets(wd_page_run *r, const char *page)
{
    char beside[WD_PATH_MAX], from[WD_PATH_MAX], to[WD_PATH_MAX];
    size_t same = 0, used = 0;
    r->to_sheets[0] = 0;
    if (wd_path_beside(beside, page, ".", NULL) != WD_OK || !realpath(beside, from) ||
        !realpath(r->files.sheets, to))
        return;
    for (size_t i = 0;; i++) { /* the folders that both are in */
        const bool ends[] = {!from[i] || from[i] == '/', !to[i] || to[i] == '/'};
        if (ends[0] && ends[1]) same = i;
        if (from[i] != to[i] || !from[i]) break;
    }
    used = wd_append_text(r->to_sheets, sizeof r->to_sheets, used, "./");
    for (const char *up = from + same; *up; up++)
        if (*up == '/' && up[1])
            used = wd_append_text(r->to_sheets, sizeof r->to_sheets, used, "../");
    if (used + strlen(to + same) + 1 >= sizeof r->to_sheets)
        r->to_sheets[0] = 0;
    else if (to[same] && to[same + 1])
        wd_append_text(r->to_sheets, sizeof r->to_sheets, used, "%s/", to + same + 1);
}

static wd_status read_run(wd_page *page, int i, const wd_reported_run *run, const char *out,
                          wd_err *err)
{
    char path[WD_PATH_MAX];
    wd_page_run *r = &page->run[i];
    r->run = *run;
    name_run(r);
    WD_TRY(wd_path_join(path, run->folder, "metrics.jsonl", err));
    WD_TRY(wd__metrics_file_read(r->metrics, path, err));
    WD_TRY(wd__run_files_open(&r->files, run->folder, err));
    find_sheets(r, out);
    return wd__sheet_copies_update(&r->copies, &r->files, out,
                                   WD_PAGE_SHEET_BYTES / (size_t)page->count, err);
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

wd_status wd_run_page_check_replaced(const char *path, wd_err *err)
{
    return wd_file_check_replaced(path, WD_REPORT_BEGIN, "page", err);
}

wd_status wd_run_page_write(wd_run_page *report, const char *path, const wd_reported_run *run,
                            wd_err *err)
{
    wd_page *page = &report->page;
    wd_status status = wd_run_page_check_replaced(path, err);
    for (int i = 0; i < page->count && status == WD_OK; i++)
        status = read_run(page, i, &run[i], path, err);
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
