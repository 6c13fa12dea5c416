/* Pictures as files: numbered PNGs, contact sheets. */
#ifndef WD_API_GALLERY_H
#define WD_API_GALLERY_H

#include "core/error.h"

/* Whether `count` pictures can be written to `path`: a .png file in a folder that may be written
 * to, or a folder, which is made if missing. Asked before they are painted. */
wd_status wd_gallery_check(const char *path, int64_t count, wd_err *err);

/* image [count, 3, height, width] in [0, 1]. A folder (made if missing) gets 0000.png, 0001.png,
 * ... and contact-sheet.png with the prompts below; a .png path gets the one picture. */
wd_status wd_gallery_write(const char *path, const float *image, int64_t count, int64_t height,
                           int64_t width, const char *const *prompt, wd_err *err);

/* A sheet of two rows, such as teacher and student: `upper` and `lower` as image above, `titles`
 * [2], the prompts below the lower row. */
wd_status wd_gallery_write_pair(const char *path, const float *upper, const float *lower,
                                int64_t count, int64_t height, int64_t width,
                                const char *const *titles, const char *const *prompt, wd_err *err);

#endif
