/* Folder io/picture. PNG files, contact sheets and their font.
 *
 * Pictures with 8 bits per channel, and their PNG files. */
#ifndef WD_IO_PICTURE_PNG_H
#define WD_IO_PICTURE_PNG_H

#include "core/error.h"

enum { WD_PNG_SIDE_MAX = 1 << 15, WD_PNG_PIXELS_MAX = 1 << 26 };

/* A picture that owns its pixels. Zeroed: empty. */
typedef struct wd_image {
    int64_t height, width;
    uint8_t *rgb; /* [height, width, 3] */
} wd_image;

/* Allocates a black picture with sides from 1 to WD_PNG_SIDE_MAX and at most WD_PNG_PIXELS_MAX
 * pixels. The caller closes *out. */
wd_status wd__image_open(wd_image *out, int64_t height, int64_t width, wd_err *err);
void wd_image_close(wd_image *image);

/* Converts planes [3, height, width] fp32 in [0, 1] to rgb [height, width, 3]: 255 x, rounded half
 * to even, as diffusers' numpy_to_pil does. Values below 0 and NaN give 0, values above 1 give 255.
 */
void wd_png_from_unit(uint8_t *rgb, const float *planes, int64_t height, int64_t width);

/* Writes rgb [height, width, 3]. The file is replaced as a whole (wd_file_write). Then the picture
 * is passed to the function of wd_pictures_to. */
wd_status wd_png_write(const char *path, const uint8_t *rgb, int64_t height, int64_t width,
                       wd_err *err);

/* The same with a text (UTF-8) in a chunk whose keyword is "parameters": how the picture was made,
 * as AUTOMATIC1111's web UI writes it, and ComfyUI and others read it. ASCII is written as tEXt,
 * other texts as iTXt. NULL: no chunk. */
wd_status wd_png_write_with(const char *path, const uint8_t *rgb, int64_t height, int64_t width,
                            const char *parameters, wd_err *err);

/* Reads any PNG as 8-bit RGB: grey and palettes become RGB, 16 bits are rounded, alpha is dropped.
 * The caller closes *out. */
wd_status wd_png_read(wd_image *out, const char *path, wd_err *err);

/* ---- small copies: png_small.c ---- */

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
