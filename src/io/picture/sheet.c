/* Contact sheets: see io/picture/sheet.h.
 *
 * Data flow: every text is converted to glyphs and cut into lines, which determine the heights of
 * the rows; then the picture is opened and drawn. Both passes run the same code for a text, so
 * nothing is kept between them. All distances are multiples of the text's scale, which depends on
 * the width of the pictures. */
#include "io/picture/sheet.h"

#include <string.h>

#include "io/picture/font.h"

enum {
    PICTURE_MIN = 128,
    LINES_MAX = 3,
    GLYPHS_MAX = 4096, /* three lines of the widest picture have fewer */
    INK = 0x40,        /* a grey value */
    TITLE_INK = 0x20,
    FRAME = 0xd8,
    EMPTY = 0xf4
};

/* A text as lines of glyphs. */
typedef struct lines {
    char glyphs[GLYPHS_MAX];
    size_t begin[LINES_MAX], count[LINES_MAX];
    int used;
} lines;

typedef struct layout {
    int64_t zoom;          /* factor by which pictures are enlarged */
    int64_t height, width; /* of an enlarged picture */
    int scale;             /* factor by which text is enlarged */
    int64_t margin, gap;   /* around the sheet; between columns */
    int64_t left, top;     /* position of the first picture */
    lines text;            /* scratch */
} layout;

/* How many of the glyphs fit into `width`, broken at a space if there is one. */
static size_t fit(const char *glyphs, size_t count, int64_t width, int scale)
{
    size_t n = 0;
    int64_t used = -scale; /* no space before the first */
    for (; n < count; n++) {
        used += scale + wd__font_width(glyphs + n, 1, scale);
        if (used > width) break;
    }
    if (n == count || glyphs[n] == ' ') return n;
    size_t word = n;
    while (word > 0 && glyphs[word - 1] != ' ') word--;
    if (word > 0) return word - 1;
    return n > 0 ? n : 1;
}

/* Replaces glyphs at the end of the line by "...", so that it fits. */
static void end_with_dots(lines *l, int line, int64_t width, int scale)
{
    char *glyphs = l->glyphs + l->begin[line];
    int64_t dots = wd__font_width("...", 3, scale) + scale;
    size_t n = l->count[line];
    while (n > 0 && (wd__font_width(glyphs, n, scale) + dots > width || glyphs[n - 1] == ' ')) n--;
    memcpy(glyphs + n, "...", 3);
    l->count[line] = n + 3;
}

static void wrap(lines *l, const char *text, int64_t width, int lines_max, int scale)
{
    l->used = 0;
    if (!text) return;
    size_t end = wd__font_fold(l->glyphs, sizeof l->glyphs - 3, text), at = 0;
    while (at < end && l->used < lines_max) {
        l->begin[l->used] = at;
        l->count[l->used] = fit(l->glyphs + at, end - at, width, scale);
        at += l->count[l->used++];
        while (at < end && l->glyphs[at] == ' ') at++;
    }
    if (at < end) end_with_dots(l, l->used - 1, width, scale);
}

static int64_t line_height(const layout *p)
{
    return WD_FONT_LINE * p->scale;
}

/* Pixels from the top of a row's pictures to the top of the next row's. */
static int64_t row_height(layout *p, const wd_sheet *s, int64_t row)
{
    int most = 0;
    for (int64_t c = 0; s->labels && c < s->columns; c++) {
        wrap(&p->text, s->labels[row * s->columns + c], p->width, LINES_MAX, p->scale);
        if (p->text.used > most) most = p->text.used;
    }
    if (most == 0) return p->height + p->gap;
    return p->height + 5 * p->scale + most * line_height(p) + p->gap;
}

/* Wraps the row's title; returns the width of its longest line. */
static int64_t title_width(layout *p, const wd_sheet *s, int64_t row)
{
    const lines *l = &p->text;
    int64_t widest = 0;
    wrap(&p->text, s->row_titles[row], p->width, LINES_MAX, p->scale);
    for (int i = 0; i < l->used; i++) {
        const int64_t width = wd__font_width(l->glyphs + l->begin[i], l->count[i], p->scale);
        if (width > widest) widest = width;
    }
    return widest;
}

static void plan(layout *p, const wd_sheet *s)
{
    int64_t side = s->height > s->width ? s->height : s->width;
    p->zoom = side >= PICTURE_MIN ? 1 : (PICTURE_MIN + side - 1) / side;
    p->height = s->height * p->zoom;
    p->width = s->width * p->zoom;
    p->scale = p->width < 320 ? 1 : p->width < 960 ? 2 : 4;
    p->margin = 16 * p->scale;
    p->gap = 8 * p->scale;
    p->left = p->top = p->margin;
    int64_t widest = 0;
    for (int64_t r = 0; s->row_titles && r < s->rows; r++) {
        const int64_t width = title_width(p, s, r);
        if (width > widest) widest = width;
    }
    if (widest) p->left += widest + 2 * p->gap;
    if (s->title) p->top += 2 * line_height(p) + p->gap;
}

static void fill(wd_image *image, int64_t x, int64_t y, int64_t width, int64_t height, uint8_t grey)
{
    for (int64_t i = 0; i < height; i++)
        memset(image->rgb + 3 * ((y + i) * image->width + x), grey, (size_t)(3 * width));
}

static void draw_picture(wd_image *image, int64_t x, int64_t y, const uint8_t *rgb, const layout *p,
                         const wd_sheet *s)
{
    fill(image, x - 1, y - 1, p->width + 2, p->height + 2, FRAME);
    if (!rgb) fill(image, x, y, p->width, p->height, EMPTY);
    for (int64_t i = 0; rgb && i < p->height; i++) {
        uint8_t *to = image->rgb + 3 * ((y + i) * image->width + x);
        const uint8_t *from = rgb + 3 * (i / p->zoom) * s->width;
        for (int64_t k = 0; k < p->width; k++) memcpy(to + 3 * k, from + 3 * (k / p->zoom), 3);
    }
}

static void draw_lines(wd_image *image, int64_t x, int64_t y, const lines *l, int scale,
                       uint8_t grey)
{
    for (int i = 0; i < l->used; i++)
        wd__font_draw(image, x, y + i * WD_FONT_LINE * scale, l->glyphs + l->begin[i], l->count[i],
                      scale, grey);
}

static void draw_row(wd_image *image, int64_t y, layout *p, const wd_sheet *s, int64_t row)
{
    if (s->row_titles) {
        title_width(p, s, row);
        const int64_t high = (p->text.used - 1) * line_height(p) + 7 * p->scale;
        draw_lines(image, p->margin, y + (p->height - high) / 2, &p->text, p->scale, INK);
    }
    for (int64_t c = 0; c < s->columns; c++) {
        int64_t x = p->left + c * (p->width + p->gap), i = row * s->columns + c;
        draw_picture(image, x, y, s->pictures[i], p, s);
        wrap(&p->text, s->labels ? s->labels[i] : NULL, p->width, LINES_MAX, p->scale);
        draw_lines(image, x, y + p->height + 5 * p->scale, &p->text, p->scale, INK);
    }
}

/* Computes the sides of the sheet; a number of pictures that would overflow is refused first. */
static wd_status measure(int64_t *height, int64_t *width, layout *p, const wd_sheet *s, wd_err *err)
{
    const int64_t most = WD_PNG_SIDE_MAX;
    if (s->rows < 1 || s->columns < 1 || s->height < 1 || s->width < 1 || s->rows > most ||
        s->columns > most || s->height > most || s->width > most)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "a contact sheet of %lld x %lld pictures of %lld x %lld pixels: expected 1 "
                       "to %lld of each",
                       (long long)s->columns, (long long)s->rows, (long long)s->width,
                       (long long)s->height, (long long)most);
    plan(p, s);
    *width = p->left + s->columns * (p->width + p->gap) - p->gap + p->margin;
    *height = p->top - p->gap + p->margin;
    for (int64_t r = 0; r < s->rows; r++) *height += row_height(p, s, r);
    return WD_OK;
}

wd_status wd_sheet_draw(wd_image *out, const wd_sheet *sheet, wd_err *err)
{
    layout p;
    wd_image image = {0};
    int64_t height = 0, width = 0;
    WD_TRY(measure(&height, &width, &p, sheet, err));
    if (wd__image_open(&image, height, width, err) != WD_OK)
        return wd_fail_in(err, "the contact sheet of %lld x %lld pictures",
                          (long long)sheet->columns, (long long)sheet->rows);
    fill(&image, 0, 0, width, height, 0xff);
    if (sheet->title) {
        wrap(&p.text, sheet->title, width - 2 * p.margin, 1, 2 * p.scale);
        draw_lines(&image, p.margin, p.margin, &p.text, 2 * p.scale, TITLE_INK);
    }
    for (int64_t r = 0, y = p.top; r < sheet->rows; r++) {
        draw_row(&image, y, &p, sheet, r);
        y += row_height(&p, sheet, r);
    }
    *out = image;
    return WD_OK;
}
