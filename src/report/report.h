/* Folder report. A page about runs of train: one HTML file that needs no network.
 *
 * Data flow: the folder of a run (run.json, metrics.jsonl, sheets, plan.svg, an evaluation, the
 * student's card) -> curves of bounded size (report/metrics_file.h) and files
 * (report/run_files.h) -> the page, written piece by piece (report/html.h). A run under way writes
 * the page from its own folder, so the same page can be made later. */
#ifndef WD_REPORT_REPORT_H
#define WD_REPORT_REPORT_H

#include "core/error.h"

enum {
    WD_REPORT_RUNS_MAX = 8,
    WD_PAGE_WRITING_BYTES = 256 << 10, /* of host memory, measured: while a page is written */
    WD_PAGE_SHEET_BYTES = 12 << 20     /* of all sheets of a page at most, before base64 */
};

/* Every page begins with this text, so that a page may replace an earlier one, and nothing else. */
#define WD_REPORT_BEGIN "<!doctype html><!-- a report of WanDistiller -->"

typedef struct wd_run_page wd_run_page;

/* A run on the page; all is borrowed. */
typedef struct wd_reported_run {
    const char *folder;
    bool is_running;
    bool is_rewritten; /* and writes the page anew: it reloads itself */
} wd_reported_run;

/* For pages about `runs` runs, 1 to WD_REPORT_RUNS_MAX. It keeps the curves from page to page. */
wd_status wd_run_page_open(wd_run_page **out, int64_t runs, wd_err *err);
void wd_run_page_close(wd_run_page *report); /* NULL is allowed */

/* WD_INVALID_ARGUMENT: `path` is there, and is no page of this program. */
wd_status wd_run_page_check_replaced(const char *path, wd_err *err);

/* Reads what is new in the runs' folders, and replaces the file `path` by the page. run: [runs].
 * WD_NOT_FOUND: a folder has no metrics.jsonl. WD_INVALID_ARGUMENT: as above. */
wd_status wd_run_page_write(wd_run_page *report, const char *path, const wd_reported_run *run,
                            wd_err *err);

/* The lines of metrics.jsonl of run `i` that the last page left out because they are wrong. */
int64_t wd_run_page_wrong_lines(const wd_run_page *report, int64_t i);

#endif
