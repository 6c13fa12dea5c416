/* A small proportional bitmap font, for contact sheets: ASCII, and what can be shown as ASCII. */
#ifndef WD_IO_FONT_H
#define WD_IO_FONT_H

#include "io/png.h"

/* In pixels at scale 1. Scales are powers of two; doubling smooths the steps of slanted strokes. */
enum { WD_FONT_HEIGHT = 9, WD_FONT_LINE = 12 };

/* Makes glyphs of UTF-8 text: ASCII as it is, letters without their accents, white space as one
 * space, anything else as a box. At most `out_bytes` - 1 of them, ended by '\0'. Returns how many.
 */
size_t wd_font_fold(char *out, size_t out_bytes, const char *text);

/* Width in pixels of the first `count` glyphs. */
int64_t wd_font_width(const char *glyphs, size_t count, int scale);

/* Draws them with their upper left corner at (x, y), which may lie outside of the image. */
void wd_font_draw(wd_image *image, int64_t x, int64_t y, const char *glyphs, size_t count,
                  int scale, uint8_t grey);

#endif
