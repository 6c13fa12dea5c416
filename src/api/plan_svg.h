/* A plan as a picture: every device's memory and host memory as a column of what is in it, and
 * below one sweep over the teacher, lane by lane. Plain SVG: no script, nothing from elsewhere. */
#ifndef WD_API_PLAN_SVG_H
#define WD_API_PLAN_SVG_H

#include "api/plan_text.h"
#include "core/page.h"

/* Draws table->shown. */
wd_status wd_plan_svg_write(const char *path, const wd_plan_table *table, wd_err *err);

/* The two parts, drawn from `y` on; each returns where it ends. */
double wd_plan_svg_memory(wd_page *page, const wd_plan_table *table, double y);
wd_status wd_plan_svg_timeline(double *end, wd_page *page, const wd_plan_table *table, double y);

enum { WD_PLAN_SVG_MARGIN = 20, WD_PLAN_SVG_WIDTH = 1320 };

#endif
