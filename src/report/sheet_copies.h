/* Small copies of a run's sheets, which the page shows.
 *
 * They lie in a file without a name in the folder of the page, so they take no memory, and are kept
 * from page to page: a page about a run under way copies only new sheets. */
#ifndef WD_REPORT_SHEET_COPIES_H
#define WD_REPORT_SHEET_COPIES_H

#include "report/run_files.h"

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

#endif
