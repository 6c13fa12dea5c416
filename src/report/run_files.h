/* What lies in the folder of a run beside its metrics: run.json, sheets of samples, the picture of
 * its plan, an evaluation, and how the student is used. The folder may be anybody's: links are not
 * followed, sizes have bounds, and what is not as expected is left out. */
#ifndef WD_REPORT_RUN_FILES_H
#define WD_REPORT_RUN_FILES_H

#include "io/file/file.h"
#include "io/json/json.h"

enum { WD_SHEETS_SHOWN_MAX = 60, WD_PLAN_PICTURE_BYTES = 1 << 20 };

/* A picture file that is open. */
typedef struct wd_run_picture {
    int fd;
    size_t bytes;
    int64_t width, height; /* of a PNG, by its header */
} wd_run_picture;

typedef struct wd_run_sheet {
    int64_t step;
    size_t bytes;
    bool shown;
} wd_run_sheet;

typedef struct wd_run_files {
    const char *folder;       /* borrowed */
    char sheets[WD_PATH_MAX]; /* their folder */
    json_t *run;              /* run.json; NULL: there is none, or it is not of a run of train */
    json_t *eval;             /* NULL: none */
    wd_run_sheet *sheet;      /* [count], by step */
    int64_t count, shown;     /* sheets, and how many of them the page shows */
    char *use;                /* the part of README.md about sampling; NULL: none */
} wd_run_files;

/* Reads the files that are small, and lists the sheets: those that are marked as shown have at most
 * `sheet_bytes` bytes together. The newest one is, then the first, then some evenly between them.
 * The caller closes *out. */
wd_status wd__run_files_open(wd_run_files *out, const char *folder, size_t sheet_bytes,
                             wd_err *err);
void wd__run_files_close(wd_run_files *files); /* a zeroed struct is allowed */

/* Opens sheet `i`, or the picture of the plan. False: it is not there, is no PNG, or no file of
 * the expected size. The caller closes the descriptor. */
bool wd__run_sheet_open(wd_run_picture *out, const wd_run_files *files, int64_t i);
bool wd__run_plan_open(wd_run_picture *out, const wd_run_files *files);

#endif
