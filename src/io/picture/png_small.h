/* Small copies of PNG files. */
#ifndef WD_IO_PICTURE_PNG_SMALL_H
#define WD_IO_PICTURE_PNG_SMALL_H

#include "core/error.h"

typedef struct wd_small_png {
    int64_t height, width; /* of the copy */
    size_t bytes;          /* of its file */
} wd_small_png;

/* Reads the PNG file that is open as `from`, from its begin, and writes a copy as an RGB PNG into
 * `to` from `offset` on: at most `width_max` wide, with at most `pixels_max` pixels, and at most
 * `bytes_max` bytes. A smaller picture keeps its size; in a copy that is scaled down a pixel is the
 * mean of those in its place. Both are gone through row by row, so that neither is in memory.
 *
 * WD_BAD_FORMAT: it is no whole PNG file, is interlaced, has more pixels than wd_png_read takes, or
 * its copy would have more bytes. WD_IO: the copy cannot be written. `name`: of the file, in
 * errors. */
wd_status wd_png_shrink(wd_small_png *out, int from, int to, int64_t offset, int64_t width_max,
                        int64_t pixels_max, size_t bytes_max, const char *name, wd_err *err);

#endif
