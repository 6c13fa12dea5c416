/* Pieces of an SVG picture, written to a page: text is escaped, numbers are short. */
#ifndef WD_API_SVG_H
#define WD_API_SVG_H

#include "core/page.h"

typedef struct wd_svg_box {
    double x, y, width, height;
} wd_svg_box;

/* `style`: classes of the picture's style sheet. `title`: what a browser shows over it; "": no. */
void wd_svg_rect(wd_page *page, wd_svg_box box, const char *style, const char *title);

/* `y`: of the base line. */
void wd_svg_text(wd_page *page, double x, double y, const char *style, const char *text);

/* The same, of the style `small`, no wider than `width`: narrower letters where it could be. */
void wd_svg_text_within(wd_page *page, double x, double y, double width, const char *text);

void wd_svg_line(wd_page *page, double x0, double y0, double x1, double y1, const char *style);

#endif
