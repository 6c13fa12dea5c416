/* The page about a run under way: report.html in its output folder, and plan.svg, which it shows.
 *
 * The page is written after the first step, with sheets and checkpoints, every minute, and at the
 * end; less often where writing it takes long, so that it takes a hundredth of the time. What
 * cannot be written is a warning, once. */
#ifndef WD_API_JOBS_TRAIN_REPORT_H
#define WD_API_JOBS_TRAIN_REPORT_H

#include "api/plan/train_plan.h"
#include "report/report.h"

/* Zeroed: there is no page. */
typedef struct wd_train_report {
    wd_run_page *page; /* NULL: none is written */
    double written;    /* clock: when the last one was; 0: none was */
    double took;       /* seconds */
    bool warned;
} wd_train_report;

/* For the rank that writes. With --save_report false it does nothing, and nothing is written. */
void wd__train_report_open(wd_train_report *out, const wd_train_setup *setup);
void wd__train_report_close(wd_train_report *report);

/* Writes plan.svg into the output folder, unless a file of that name is there that no run wrote. */
void wd__train_report_plan(wd_train_report *report, const wd_train_setup *setup,
                           const wd_train_plan *where);

/* Writes the page if it is due; `wrote`: the run has written a checkpoint or a sheet. */
void wd__train_report_follow(wd_train_report *report, wd_train_setup *setup, bool wrote);

/* For a run that has ended: adds to run.json, also where there is no page, the measured memory of
 * its devices, and as "error" how it has failed; NULL: it has not. Then writes the page, which has
 * both from there. What cannot be written is a warning. */
void wd__train_report_end(wd_train_report *report, wd_train_setup *setup, const wd_devices *devices,
                          const char *error);

#endif
