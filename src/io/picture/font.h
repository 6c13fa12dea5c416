/* A small proportional bitmap font for contact sheets. It has ASCII only; other text is converted
 * to ASCII. */
#ifndef WD_IO_PICTURE_FONT_H
#define WD_IO_PICTURE_FONT_H

#include "io/picture/png.h"

/* In pixels at scale 1. Scales are powers of two; doubling smooths the steps of slanted strokes. */
enum { WD_FONT_HEIGHT = 9, WD_FONT_LINE = 12 };

/* Converts UTF-8 text to glyphs: ASCII stays, letters lose their accents, white space becomes one
 * space, anything else a box. Writes at most `out_bytes` - 1 glyphs and a '\0'; returns their
 * number. */
size_t wd__font_fold(char *out, size_t out_bytes, const char *text);

/* Whether the glyphs of a code point have no box. */
bool wd__font_has(int32_t point);

/* Width in pixels of the first `count` glyphs. */
int64_t wd__font_width(const char *glyphs, size_t count, int scale);

/* Draws the first `count` glyphs with their upper left corner at (x, y), which may be outside of
 * the image. */
void wd__font_draw(wd_image *image, int64_t x, int64_t y, const char *glyphs, size_t count,
                   int scale, uint8_t grey);

#endif
