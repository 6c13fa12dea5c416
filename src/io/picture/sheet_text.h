/* Texts of a contact sheet: cut into lines, and drawn. */
#ifndef WD_IO_PICTURE_SHEET_TEXT_H
#define WD_IO_PICTURE_SHEET_TEXT_H

#include "io/picture/system_font.h"
#include "io/picture/png.h"

enum {
    WD_TEXT_LINES_MAX = 3,
    WD_TEXT_GLYPHS_MAX = 4096 /* three lines of the widest picture have fewer */
};

/* A text as lines of glyphs; every text replaces the one before. Zeroed: none yet. */
typedef struct wd_text {
    int scale; /* of this text: the factor by which the bitmap font is enlarged */
    int used;  /* lines */
    size_t begin[WD_TEXT_LINES_MAX], count[WD_TEXT_LINES_MAX];
    bool by_system; /* glyphs are code points for `fonts`; else of the bitmap font */
    bool goes_on;   /* behind the last glyph, which does not fit */
    size_t glyphs;
    int32_t glyph[WD_TEXT_GLYPHS_MAX];
    int16_t advance[WD_TEXT_GLYPHS_MAX]; /* in pixels, with the space behind a glyph */
    wd_system_font *fonts;               /* opened by the first text that needs them */
    bool asked;                          /* for them */
} wd_text;

void wd__text_close(wd_text *text);

/* Cuts a text (UTF-8 that may be damaged, or NULL) into lines of at most `width` pixels, the last
 * of which ends with "..." where the text goes on.
 *
 * What the bitmap font can draw it draws, so a text of Latin letters has the same pixels on every
 * machine. Any other text is drawn by the fonts of the system, where one of them has a character
 * that the bitmap font lacks. A character that no font has is a box. Lines are broken at spaces,
 * and between the wide characters of East Asia, but not before a closing mark or behind an opening
 * one. */
void wd__text_wrap(wd_text *text, const char *utf8, int64_t width, int lines_max, int scale);

/* From one line to the next, and from the left to the right end of a line, in pixels. */
int64_t wd__text_line_height(const wd_text *text);
int64_t wd__text_width(const wd_text *text, int line);

/* Draws all lines. (x, y) is the upper left corner of the first line's capitals in the bitmap font.
 * No pixel is drawn outside of the lines, or of the image. */
void wd__text_draw(wd_image *image, int64_t x, int64_t y, wd_text *text, uint8_t grey);

#endif
