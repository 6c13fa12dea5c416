/* The parts of the page. Private to src/report/.
 *
 * report.c         reads the runs, and writes the parts in their order
 * page_figures.c   the head, and figures of the runs
 * page_sheets.c    sheets of samples
 * page_curves.c    curves over the steps
 * page_memory.c    memory, planned and measured
 * page_options.c   options, plan, evaluation, and how the student is used
 * page_assets.c    style and script, which are the same on every page */
#ifndef WD_REPORT_PAGE_IMPL_H
#define WD_REPORT_PAGE_IMPL_H

#include "report/html.h"
#include "report/metrics_file.h"
#include "report/report.h"
#include "report/run_files.h"
#include "report/sheet_copies.h"

typedef struct wd_page_run {
    wd_reported_run run;
    char name[256]; /* the last part of the folder's path; of two equal ones with a number */
    wd_metrics_file *metrics;
    wd_run_files files;
    wd_sheet_copies copies;
    char to_sheets[WD_PATH_MAX]; /* their folder, seen from the page's; "": not known */
} wd_page_run;

typedef struct wd_page {
    wd_html html;
    wd_page_run run[WD_REPORT_RUNS_MAX];
    int count;
} wd_page;

extern const char wd__page_style[], wd__page_script[];

/* An effective option of a run, or one of run.json's "options" if `given`; NULL: it has none. */
const json_t *wd__page_option(const wd_page_run *run, const char *name, bool given);

/* The planned and the measured peak of host memory, of the whole process, in bytes; NaN: not known.
 */
double wd__page_host_planned(const wd_page_run *run);
double wd__page_host_measured(const wd_page_run *run);

/* The most bytes that the run has had allocated on a device so far; NaN: not known. */
double wd__page_device_measured(const wd_page_run *run, const char *device);

void wd__page_head(wd_page *page);
void wd__page_figures(wd_page *page);
void wd__page_sheets(wd_page *page);
void wd__page_curves(wd_page *page);
void wd__page_evaluation(wd_page *page);
void wd__page_use(wd_page *page);
void wd__page_memory(wd_page *page, const wd_page_run *run);
void wd__page_plan(wd_page *page);
void wd__page_options(wd_page *page);

#endif
