/* Texts of contact sheets: see io/picture/sheet_text.h.
 *
 * Data flow: UTF-8 becomes code points. If a font of the system has one of them that the bitmap
 * font lacks, they are the glyphs; else the text is folded to glyphs of the bitmap font. Advances
 * are computed, the glyphs are cut into lines, and the lines are drawn glyph by glyph. */
#include "io/picture/sheet_text.h"

#include <string.h>
#include <utf8proc.h>

#include "core/unicode.h"
#include "io/picture/font.h"

/* Of lines in the system's fonts, in pixels at scale 1. */
enum {
    EM = 11, /* more at scale 1: see em_of */
    BETWEEN = 3,
    BASE_LINE = 8, /* below the y of a line */
    ABOVE = 4,     /* the most that a glyph reaches above the y of a line */
    BELOW = 4      /* and below its base line */
};

/* Glyphs beside code points. The bitmap font's own are ASCII. */
enum { BOX = 0xfffd, BOX_OF_FONT = 127, RESERVED = 3 /* glyphs for "..." */ };

/* In 11 pixels the strokes of many Chinese characters run into one another. */
static int em_of(const wd_text *t)
{
    return EM * t->scale + (t->scale == 1);
}

void wd__text_close(wd_text *t)
{
    wd__system_font_close(t->fonts);
    *t = (wd_text){0};
}

static bool is_mark(int32_t point)
{
    const utf8proc_category_t k = utf8proc_category(point);
    return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_ME;
}

/* ---- glyphs ---- */

/* The first code points of a text, composed, each white space a single ' ', without controls and
 * formats. Bytes that are no UTF-8 are boxes. */
static void take_points(wd_text *t, const char *utf8)
{
    size_t n = 0, i = 0;
    int32_t *out = t->glyph;
    const size_t bytes = strlen(utf8);
    while (i < bytes && n < WD_TEXT_GLYPHS_MAX - RESERVED) {
        utf8proc_int32_t c;
        const utf8proc_ssize_t used =
            utf8proc_iterate((const uint8_t *)utf8 + i, (int64_t)(bytes - i), &c);
        i += used > 0 ? (size_t)used : 1;
        if (used <= 0) c = BOX;
        const utf8proc_category_t k = utf8proc_category(c);
        if (wd_point_is_space(c))
            c = ' ';
        else if (k == UTF8PROC_CATEGORY_CC || k == UTF8PROC_CATEGORY_CF)
            continue;
        if (c == ' ' && (n == 0 || out[n - 1] == ' ')) continue;
        out[n++] = c;
    }
    if (n && out[n - 1] == ' ') n--;
    const utf8proc_ssize_t composed =
        utf8proc_normalize_utf32(out, (utf8proc_ssize_t)n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    t->glyphs = composed > 0 ? (size_t)composed : n;
    t->goes_on = i < bytes;
}

static int box_advance(int scale)
{
    return (int)wd__font_width(&(char){BOX_OF_FONT}, 1, scale) + scale;
}

/* Sets the advances of the first glyphs, until they fill all lines. A mark that no font has is left
 * out. False: the system's fonts have no glyph that the bitmap font lacks. */
static bool measure_points(wd_text *t, int64_t width, int lines_max)
{
    bool has_more = false;
    size_t n = 0, i = 0;
    int64_t sum = 0;
    wd__system_font_choose(t->fonts, t->glyph, t->glyphs);
    for (; i < t->glyphs && (sum <= lines_max * width || n <= (size_t)lines_max); i++) {
        const int32_t c = t->glyph[i];
        const int advance = c == BOX ? -1 : wd__system_font_advance(t->fonts, c, em_of(t));
        if (advance < 0 && is_mark(c)) continue;
        has_more |= advance >= 0 && !wd__font_has(c);
        t->glyph[n] = advance < 0 ? BOX : c;
        t->advance[n] = (int16_t)(advance < 0 ? box_advance(t->scale) : is_mark(c) ? 0 : advance);
        sum += t->advance[n++];
    }
    t->goes_on |= i < t->glyphs;
    t->glyphs = n;
    return has_more;
}

/* Whether the text becomes glyphs of the system's fonts. */
static bool take_system(wd_text *t, const char *utf8, int64_t width, int lines_max)
{
    size_t i = 0;
    take_points(t, utf8);
    while (i < t->glyphs && (t->glyph[i] == BOX || wd__font_has(t->glyph[i]))) i++;
    if (i == t->glyphs) return false;
    if (!t->asked) t->fonts = wd__system_font_open();
    t->asked = true;
    return t->fonts && measure_points(t, width, lines_max);
}

static void take_folded(wd_text *t, const char *utf8)
{
    char folded[WD_TEXT_GLYPHS_MAX - RESERVED];
    t->goes_on = false;
    t->glyphs = wd__font_fold(folded, sizeof folded, utf8);
    for (size_t i = 0; i < t->glyphs; i++) {
        t->glyph[i] = (unsigned char)folded[i];
        t->advance[i] = (int16_t)(wd__font_width(folded + i, 1, t->scale) + t->scale);
    }
}

/* ---- lines ---- */

/* The space behind a line's last glyph, which counts for no width. */
static int64_t last_space(const wd_text *t)
{
    return t->by_system ? 0 : t->scale;
}

static int64_t width_of(const wd_text *t, size_t begin, size_t count)
{
    int64_t width = count ? -last_space(t) : 0;
    for (size_t i = 0; i < count; i++) width += t->advance[begin + i];
    return width;
}

/* Whether a line may end before the glyph. */
static bool breaks_before(const wd_text *t, size_t at)
{
    const int32_t before = t->glyph[at - 1], after = t->glyph[at];
    if (before == ' ' || !t->by_system) return before == ' ';
    if (utf8proc_charwidth(before) < 2 && utf8proc_charwidth(after) < 2) return false;
    switch (utf8proc_category(after)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_LM: /* such as the mark of a long vowel */
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
        return false;
    default:
        break;
    }
    const utf8proc_category_t k = utf8proc_category(before);
    return k != UTF8PROC_CATEGORY_PS && k != UTF8PROC_CATEGORY_PI;
}

/* How many of the glyphs from `begin` on fit into `width`. A word that does not is cut. */
static size_t fit(const wd_text *t, size_t begin, int64_t width)
{
    size_t n = 0;
    const size_t count = t->glyphs - begin;
    int64_t used = -last_space(t);
    for (; n < count; n++) {
        used += t->advance[begin + n];
        if (used > width) break;
    }
    if (n == count || t->glyph[begin + n] == ' ') return n;
    size_t end = n;
    while (end > 0 && !breaks_before(t, begin + end)) end--;
    if (end > 0) return t->glyph[begin + end - 1] == ' ' ? end - 1 : end;
    while (n > 1 && t->by_system && is_mark(t->glyph[begin + n])) n--;
    return n > 0 ? n : 1;
}

/* Replaces glyphs at the end of the last line by "...", so that it fits. */
static void end_with_dots(wd_text *t, int64_t width)
{
    const size_t begin = t->begin[t->used - 1];
    const int dot = t->by_system ? wd__system_font_advance(t->fonts, '.', em_of(t))
                                 : (int)wd__font_width(".", 1, t->scale) + t->scale;
    const int advance = dot < 0 ? box_advance(t->scale) : dot;
    size_t n = t->count[t->used - 1];
    while (n > 0 &&
           (width_of(t, begin, n) + RESERVED * advance > width || t->glyph[begin + n - 1] == ' '))
        n--;
    for (int i = 0; i < RESERVED; i++) {
        t->glyph[begin + n] = dot < 0 ? BOX : '.';
        t->advance[begin + n++] = (int16_t)advance;
    }
    t->count[t->used - 1] = n;
}

void wd__text_wrap(wd_text *t, const char *utf8, int64_t width, int lines_max, int scale)
{
    size_t at = 0;
    t->used = 0;
    t->scale = scale;
    t->glyphs = 0;
    t->by_system = utf8 && take_system(t, utf8, width, lines_max);
    if (!utf8) return;
    if (!t->by_system) take_folded(t, utf8);
    while (at < t->glyphs && t->used < lines_max) {
        t->begin[t->used] = at;
        t->count[t->used] = fit(t, at, width);
        at += t->count[t->used++];
        while (at < t->glyphs && t->glyph[at] == ' ') at++;
    }
    if (t->used && (at < t->glyphs || t->goes_on)) end_with_dots(t, width);
}

int64_t wd__text_line_height(const wd_text *t)
{
    return t->by_system ? em_of(t) + BETWEEN * t->scale : WD_FONT_LINE * t->scale;
}

int64_t wd__text_width(const wd_text *t, int line)
{
    return width_of(t, t->begin[line], t->count[line]);
}

/* ---- drawing ---- */

/* A part of the image: from the first to before the last pixel. */
typedef struct rectangle {
    int64_t x, y, x_end, y_end;
} rectangle;

static int64_t at_least(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Mixes the grey into the image, as much as the glyph covers a pixel. */
static void draw_coverage(wd_image *image, const rectangle *inside, int64_t x, int64_t y,
                          const wd_coverage *c, uint8_t grey)
{
    for (int i = 0; i < c->height; i++) {
        if (y + i < inside->y || y + i >= inside->y_end) continue;
        for (int k = 0; k < c->width; k++) {
            if (x + k < inside->x || x + k >= inside->x_end) continue;
            const int much = c->at[(ptrdiff_t)i * c->pitch + k];
            uint8_t *rgb = image->rgb + 3 * ((y + i) * image->width + x + k);
            for (int p = 0; p < 3; p++)
                rgb[p] = (uint8_t)((rgb[p] * (255 - much) + grey * much + 127) / 255);
        }
    }
}

/* Draws a glyph of the system at the pen. A mark stands over what is left of the pen; fonts of
 * which it is as wide as a letter have drawn it to the right. */
static void draw_point(wd_image *image, const rectangle *inside, int64_t x, int64_t base,
                       wd_text *t, int32_t point, uint8_t grey)
{
    wd_coverage c;
    if (point == BOX) {
        wd__font_draw(image, x, base - (BASE_LINE - 1) * t->scale, &(char){BOX_OF_FONT}, 1,
                      t->scale, grey);
        return;
    }
    if (is_mark(point)) x -= wd__system_font_advance(t->fonts, point, em_of(t));
    if (!wd__system_font_render(&c, t->fonts, point, em_of(t))) return;
    draw_coverage(image, inside, x + c.left, base - c.top, &c, grey);
}

static void draw_line_by_system(wd_image *image, int64_t x, int64_t y, wd_text *t, int line,
                                uint8_t grey)
{
    const int64_t base = y + BASE_LINE * t->scale, end = x + wd__text_width(t, line);
    const rectangle inside = {
        .x = at_least(x, 0),
        .y = at_least(y - ABOVE * t->scale, 0),
        .x_end = end < image->width ? end : image->width,
        .y_end = base + BELOW * t->scale < image->height ? base + BELOW * t->scale : image->height};
    for (size_t i = 0; i < t->count[line]; i++) {
        draw_point(image, &inside, x, base, t, t->glyph[t->begin[line] + i], grey);
        x += t->advance[t->begin[line] + i];
    }
}

void wd__text_draw(wd_image *image, int64_t x, int64_t y, wd_text *t, uint8_t grey)
{
    for (int line = 0; line < t->used; line++, y += wd__text_line_height(t)) {
        if (t->by_system) {
            draw_line_by_system(image, x, y, t, line, grey);
            continue;
        }
        int64_t pen = x;
        for (size_t i = 0; i < t->count[line]; i++) {
            const size_t at = t->begin[line] + i;
            wd__font_draw(image, pen, y, &(char){(char)t->glyph[at]}, 1, t->scale, grey);
            pen += t->advance[at];
        }
    }
}
