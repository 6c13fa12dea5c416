/* Pictures of 8 bits per channel, and PNG files of them. */
#ifndef WD_IO_PNG_H
#define WD_IO_PNG_H

#include "core/error.h"

enum { WD_PNG_SIDE_MAX = 1 << 15, WD_PNG_PIXELS_MAX = 1 << 26 };

/* A picture that owns its pixels. Zeroed: empty. */
typedef struct wd_image {
    int64_t height, width;
    uint8_t *rgb; /* [height, width, 3] */
} wd_image;

/* Black; sides from 1 to WD_PNG_SIDE_MAX, at most WD_PNG_PIXELS_MAX pixels in all. */
wd_status wd_image_open(wd_image *out, int64_t height, int64_t width, wd_err *err);
void wd_image_close(wd_image *image);

/* rgb [height, width, 3] of planes [3, height, width]: 255 x rounded half to even, as diffusers'
 * numpy_to_pil does; below 0 and not a number give 0, above 1 gives 255. */
void wd_png_from_unit(uint8_t *rgb, const float *planes, int64_t height, int64_t width);

/* Writes rgb [height, width, 3]; the file appears whole or not at all. Once it is there the picture
 * is shown to the function that asked for pictures (wd_pictures_to). */
wd_status wd_png_write(const char *path, const uint8_t *rgb, int64_t height, int64_t width,
                       wd_err *err);

/* Reads a PNG of any kind as 8-bit RGB: grey and palettes widened, 16 bits rounded, alpha dropped.
 */
wd_status wd_png_read(wd_image *out, const char *path, wd_err *err);

#endif
