/* What lies in the folder of a run beside its metrics: run.json, sheets of samples, the picture of
 * its plan, an evaluation, and how the student is used. The folder may be anybody's: links are not
 * followed, sizes have bounds, and what is not as expected is left out. */
#ifndef WD_REPORT_RUN_FILES_H
#define WD_REPORT_RUN_FILES_H

#include "io/file/file.h"
#include "io/json/json.h"

enum { WD_PLAN_PICTURE_BYTES = 1 << 20 };

/* A picture file that is open. */
typedef struct wd_run_picture {
    int fd;
    size_t bytes;
    int64_t width, height; /* of a PNG, by its header */
    uint64_t inode;
    int64_t changed_ns; /* when its bytes were written last */
} wd_run_picture;

typedef struct wd_run_sheet {
    int64_t step;
    bool is_bad; /* its file cannot be read as a picture */
    int copy;    /* number of its small copy (report/page_impl.h); -1: it is not shown */
} wd_run_sheet;

typedef struct wd_run_files {
    const char *folder;       /* borrowed */
    char sheets[WD_PATH_MAX]; /* their folder */
    json_t *run;              /* run.json; NULL: there is none, or it is not of a run of train */
    json_t *eval;             /* NULL: none */
    wd_run_sheet *sheet;      /* [count], by step */
    int64_t count;
    char *use; /* the part of README.md about sampling; NULL: none */
} wd_run_files;

/* Reads the files that are small, and lists the sheets, of which none is shown yet. The caller
 * closes *out. */
wd_status wd__run_files_open(wd_run_files *out, const char *folder, wd_err *err);
void wd__run_files_close(wd_run_files *files); /* a zeroed struct is allowed */

/* The file name of the sheet of a step. */
void wd__run_sheet_name(char out[64], int64_t step);

/* Opens sheet `i`, or the picture of the plan. False: it is not there, is no PNG, or is too large.
 * The caller closes the descriptor. */
bool wd__run_sheet_open(wd_run_picture *out, const wd_run_files *files, int64_t i);
bool wd__run_plan_open(wd_run_picture *out, const wd_run_files *files);

#endif
