/* Writes pictures as numbered PNG files and contact sheets. */
#ifndef WD_API_GALLERY_H
#define WD_API_GALLERY_H

#include "core/error.h"

/* Checks that `count` pictures can be written to `path`: a .png file in a writable folder, or a
 * folder, which is created if it is missing. Call it before pictures are computed. */
wd_status wd_gallery_check(const char *path, int64_t count, wd_err *err);

/* Writes image [count, 3, height, width] fp32 in [0, 1]. If `path` is a folder, which is created if
 * it is missing, it gets 0000.png, 0001.png, ... and contact-sheet.png with the prompts below the
 * pictures; a .png path gets the only picture. */
wd_status wd_gallery_write(const char *path, const float *image, int64_t count, int64_t height,
                           int64_t width, const char *const *prompt, wd_err *err);

/* Writes a sheet of two rows, such as teacher and student: `upper` and `lower` have the layout of
 * `image` above, `titles` [2] are at the left, the prompts below the lower row. */
wd_status wd_gallery_write_pair(const char *path, const float *upper, const float *lower,
                                int64_t count, int64_t height, int64_t width,
                                const char *const *titles, const char *const *prompt, wd_err *err);

#endif
