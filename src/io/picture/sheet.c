/* Contact sheets: see io/picture/sheet.h.
 *
 * Data flow: every text is cut into lines, which determine the heights of the rows; then the
 * picture is opened and drawn, and every text is cut again. Of the first pass only the heights are
 * kept. All distances are multiples of the text's scale, which depends on the width of the
 * pictures. */
#include "io/picture/sheet.h"

#include <string.h>

#include "core/memory.h"
#include "io/picture/font.h"
#include "io/picture/sheet_text.h"

enum {
    PICTURE_MIN = 128,
    INK = 0x40, /* a grey value */
    TITLE_INK = 0x20,
    FRAME = 0xd8,
    EMPTY = 0xf4
};

typedef struct layout {
    int64_t zoom;          /* factor by which pictures are enlarged */
    int64_t height, width; /* of an enlarged picture */
    int scale;             /* factor by which text is enlarged */
    int64_t margin, gap;   /* around the sheet; between columns */
    int64_t left, top;     /* position of the first picture */
    int64_t *row_height;   /* [rows] from the top of a row's pictures to that of the next row's */
    wd_text text;          /* scratch */
} layout;

static void close_layout(layout *p)
{
    wd__text_close(&p->text);
    wd_free(p->row_height);
}

static void wrap(layout *p, const char *text)
{
    wd__text_wrap(&p->text, text, p->width, WD_TEXT_LINES_MAX, p->scale);
}

static int64_t row_height(layout *p, const wd_sheet *s, int64_t row)
{
    int64_t most = 0;
    for (int64_t c = 0; s->labels && c < s->columns; c++) {
        wrap(p, s->labels[row * s->columns + c]);
        const int64_t height = p->text.used * wd__text_line_height(&p->text);
        if (height > most) most = height;
    }
    return p->height + (most ? 5 * p->scale + most : 0) + p->gap;
}

/* Wraps the row's title; returns the width of its longest line. */
static int64_t title_width(layout *p, const wd_sheet *s, int64_t row)
{
    int64_t widest = 0;
    wrap(p, s->row_titles[row]);
    for (int i = 0; i < p->text.used; i++) {
        const int64_t width = wd__text_width(&p->text, i);
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
    if (s->title) p->top += 2 * WD_FONT_LINE * p->scale + p->gap;
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

static void draw_row(wd_image *image, int64_t y, layout *p, const wd_sheet *s, int64_t row)
{
    if (s->row_titles) {
        title_width(p, s, row);
        const int64_t high = (p->text.used - 1) * wd__text_line_height(&p->text) + 7 * p->scale;
        wd__text_draw(image, p->margin, y + (p->height - high) / 2, &p->text, INK);
    }
    for (int64_t c = 0; c < s->columns; c++) {
        int64_t x = p->left + c * (p->width + p->gap), i = row * s->columns + c;
        draw_picture(image, x, y, s->pictures[i], p, s);
        wrap(p, s->labels ? s->labels[i] : NULL);
        wd__text_draw(image, x, y + p->height + 5 * p->scale, &p->text, INK);
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
    WD_TRY(wd_alloc((void **)&p->row_height, (size_t)s->rows, sizeof *p->row_height,
                    "rows of a contact sheet", err));
    plan(p, s);
    *width = p->left + s->columns * (p->width + p->gap) - p->gap + p->margin;
    *height = p->top - p->gap + p->margin;
    for (int64_t r = 0; r < s->rows; r++) *height += p->row_height[r] = row_height(p, s, r);
    return WD_OK;
}

wd_status wd_sheet_draw(wd_image *out, const wd_sheet *sheet, wd_err *err)
{
    layout p = {0};
    wd_image image = {0};
    int64_t height = 0, width = 0;
    wd_status status = measure(&height, &width, &p, sheet, err);
    if (status != WD_OK) goto out;
    status = wd__image_open(&image, height, width, err);
    if (status != WD_OK) {
        wd_fail_in(err, "the contact sheet of %lld x %lld pictures", (long long)sheet->columns,
                   (long long)sheet->rows);
        goto out;
    }
    fill(&image, 0, 0, width, height, 0xff);
    if (sheet->title) {
        wd__text_wrap(&p.text, sheet->title, width - 2 * p.margin, 1, 2 * p.scale);
        wd__text_draw(&image, p.margin, p.margin, &p.text, TITLE_INK);
    }
    for (int64_t r = 0, y = p.top; r < sheet->rows; y += p.row_height[r++])
        draw_row(&image, y, &p, sheet, r);
    *out = image;
out:
    close_layout(&p);
    return status;
}
