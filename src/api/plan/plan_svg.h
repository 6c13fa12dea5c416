/* A plan as a picture: a column for host memory and for each device's memory, with their items, and
 * below them a timeline of one sweep over the teacher. It is plain SVG without scripts and external
 * files. */
#ifndef WD_API_PLAN_PLAN_SVG_H
#define WD_API_PLAN_PLAN_SVG_H

#include "api/plan/plan_print.h"
#include "core/text.h"

/* Every picture begins with this text, so that a run replaces its own, and nothing else. */
#define WD_PLAN_SVG_BEGIN "<svg data-plan-of=\"WanDistiller\" "

/* Draws table->shown. */
wd_status wd_plan_svg_write(const char *path, const wd_plan_table *table, wd_err *err);

/* Draws the timeline of table->shown from the height `y` on; *end = where it ends. */
wd_status wd__plan_svg_timeline(double *end, wd_text_builder *builder, const wd_plan_table *table,
                                double y);

enum { WD_PLAN_SVG_MARGIN = 20, WD_PLAN_SVG_WIDTH = 1320 };

/* ---- elements, with escaped text and short numbers, for both files of the picture ---- */

typedef struct wd_svg_box {
    double x, y, width, height;
} wd_svg_box;

/* `style`: classes of the picture's style sheet. `title`: the browser's tooltip; "": none. */
void wd__svg_rect(wd_text_builder *builder, wd_svg_box box, const char *style, const char *title);

/* `y`: the base line of the text. */
void wd__svg_text(wd_text_builder *builder, double x, double y, const char *style,
                  const char *text);

void wd__svg_line(wd_text_builder *builder, double x0, double y0, double x1, double y1,
                  const char *style);

#endif
