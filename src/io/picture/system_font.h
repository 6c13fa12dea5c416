/* The fonts that the system has, for texts that the bitmap font of io/picture/font.h cannot draw.
 *
 * fontconfig says which fonts there are, FreeType draws their outlines. Both libraries are opened
 * when the first text needs them: where one of them is missing, or the program was built without
 * their headers (system_font_absent.c), there is no such font.
 *
 * Every character is one glyph: nothing is shaped. So Arabic letters are not joined, vowel signs of
 * Indian scripts stand where their code points do, and text that is read from right to left is
 * drawn from left to right. */
#ifndef WD_IO_PICTURE_SYSTEM_FONT_H
#define WD_IO_PICTURE_SYSTEM_FONT_H

#include "core/error.h"

typedef struct wd_system_font wd_system_font;

/* A glyph as grey values, in pixels. */
typedef struct wd_coverage {
    const uint8_t *at; /* [height, pitch] 0 (no ink) to 255, of which the first `width` of a row
                          belong to the glyph; valid until the font's next call */
    int height, width, pitch;
    int left, top; /* of the upper left corner: to the right of the pen, and above the base line */
} wd_coverage;

/* Opens the system's fonts, for one thread. NULL: there are none that can be used, or no memory for
 * them. What they take is host memory of core/memory.h. Files of fonts are mapped. */
wd_system_font *wd__system_font_open(void);
void wd__system_font_close(wd_system_font *font);

/* Chooses the fonts for a text of `count` code points: the first that has all of its letters, in
 * the order that fontconfig has for a sans-serif text in the language that the text seems to be in;
 * where that has a character not, the first of the others that has it. */
void wd__system_font_choose(wd_system_font *font, const int32_t *points, size_t count);

/* How far the pen goes for the glyph of a code point, in pixels, in the font chosen for the text,
 * at a size of `pixels` for the em. -1: no font has it, or its glyph is several times as large as
 * others are. */
int wd__system_font_advance(wd_system_font *font, int32_t point, int pixels);

/* The same glyph, drawn; false: there is none, or no memory for it. */
bool wd__system_font_render(wd_coverage *out, wd_system_font *font, int32_t point, int pixels);

#endif
