/* Writes elements of an SVG picture to a builder, with escaped text and short numbers. */
#ifndef WD_API_PLAN_SVG_H
#define WD_API_PLAN_SVG_H

#include "core/text.h"

typedef struct wd_svg_box {
    double x, y, width, height;
} wd_svg_box;

/* `style`: classes of the picture's style sheet. `title`: the browser's tooltip; "": none. */
void wd__svg_rect(wd_text_builder *builder, wd_svg_box box, const char *style, const char *title);

/* `y`: the base line of the text. */
void wd__svg_text(wd_text_builder *builder, double x, double y, const char *style,
                  const char *text);

/* Writes text of the style `small` no wider than `width`: the letters are narrower if it might be
 * wider. */
void wd__svg_text_within(wd_text_builder *builder, double x, double y, double width,
                         const char *text);

void wd__svg_line(wd_text_builder *builder, double x0, double y0, double x1, double y1,
                  const char *style);

#endif
