/* Writes pictures as numbered PNG files and contact sheets. */
#ifndef WD_API_JOBS_GALLERY_H
#define WD_API_JOBS_GALLERY_H

#include "core/error.h"

/* Checks that `count` pictures can be written to `path`: a .png file in a writable folder, or a
 * folder, which is created if it is missing. Call it before pictures are computed. */
wd_status wd__gallery_check(const char *path, int64_t count, wd_err *err);

enum { WD_GALLERY_SHEET_MAX = 64 }; /* pictures on the contact sheet */

/* Pictures that are written one after another. */
typedef struct wd_gallery {
    const char *path;          /* borrowed: a folder, or a .png file for the only picture */
    const char *const *prompt; /* [count / each] borrowed */
    const char *made_by;       /* "Steps: 4, CFG scale: 1": written into each picture, behind its
                                * prompt; borrowed */
    int64_t each;              /* pictures of a prompt, one after another */
    uint64_t seed;             /* of the first picture of a prompt; seed + 1 of the next, ... */
    bool noise_is_given;       /* and is of no seed */
    int64_t count, written;
    int64_t height, width;                /* in pixels */
    uint8_t *shown[WD_GALLERY_SHEET_MAX]; /* rgb [height, width, 3] of the first pictures */
} wd_gallery;

/* Writes the next pictures, image [count, 3, height, width] fp32 in [0, 1]. A folder is created if
 * it is missing, and gets 0000.png, 0001.png, ... What is written stays if a later call fails. */
wd_status wd__gallery_add(wd_gallery *gallery, const float *image, int64_t count, wd_err *err);

/* Writes contact-sheet.png into a folder: the first pictures with their prompts below them, and in
 * each row those of one prompt, where it has several. */
wd_status wd__gallery_finish(const wd_gallery *gallery, wd_err *err);
void wd__gallery_close(wd_gallery *gallery); /* a zeroed one is fine */

/* Writes a sheet of two rows, such as teacher and student: `upper` and `lower` are [count, 3,
 * height, width] fp32 in [0, 1], `titles` [2] are at the left, the prompts below the lower row. */
wd_status wd__gallery_write_pair(const char *path, const float *upper, const float *lower,
                                 int64_t count, int64_t height, int64_t width,
                                 const char *const *titles, const char *const *prompt, wd_err *err);

#endif
