/* The parts of the page. Private to src/report/.
 *
 * report.c         reads the runs, and writes the parts in their order
 * page_figures.c   the head, figures of the runs, and memory, planned and measured
 * page_sheets.c    sheets of samples, and their small copies
 * page_curves.c    curves over the steps, and how they are drawn
 * page_options.c   options, plan, evaluation, and how the student is used
 * page_assets.c    style and script, which are the same on every page */
#ifndef WD_REPORT_PAGE_IMPL_H
#define WD_REPORT_PAGE_IMPL_H

#include "report/html.h"
#include "report/metrics_file.h"
#include "report/report.h"
#include "report/run_files.h"

/* ---- small copies of a run's sheets, which the page shows ----
 *
 * They lie in a file without a name in the folder of the page, so they take no memory, and are kept
 * from page to page: a page about a run under way copies only new sheets. */

enum {
    WD_SHEET_COPIES_MAX = 60,
    WD_SHEET_COPY_WIDTH = 1280,
    WD_SHEET_COPY_PIXELS = 400000,
    WD_SHEET_COPY_BYTES = 2 << 20 /* more than such a picture has without compression */
};

typedef struct wd_sheet_copy {
    wd_run_picture of;     /* the sheet's file when it was copied; its descriptor is closed */
    int64_t step;          /* -1: the place is free */
    int64_t width, height; /* of the copy */
    size_t bytes;
} wd_sheet_copy;

typedef struct wd_sheet_copies {
    wd_sheet_copy copy[WD_SHEET_COPIES_MAX];
    size_t bytes;   /* of all copies */
    int64_t stride; /* every so many-th sheet is shown; 0: nothing was done yet */
    int fd;
} wd_sheet_copies;

/* Copies the sheets that the page at `page` shows, and sets their `copy` in `files`: at most
 * WD_SHEET_COPIES_MAX, with at most `bytes_max` bytes together. These are the newest one, the first
 * one, and every second, or fourth, or eighth one and so on between them; if not even two fit, only
 * the newest. A sheet that cannot be copied is marked as bad. WD_IO: a copy cannot be written. */
wd_status wd__sheet_copies_update(wd_sheet_copies *copies, wd_run_files *files, const char *page,
                                  size_t bytes_max, wd_err *err);

/* Where copy `i` begins in copies->fd. */
static inline int64_t wd__sheet_copy_offset(int i)
{
    return (int64_t)i * WD_SHEET_COPY_BYTES;
}

void wd__sheet_copies_close(wd_sheet_copies *copies); /* a zeroed struct is allowed */

/* ---- the page ---- */

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

/* The planned peak of host memory, of the whole process, in bytes; NaN: not known. */
double wd__page_host_planned(const wd_page_run *run);

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
