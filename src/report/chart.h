/* Draws curves over the steps of a run as an SVG picture inside a page, with axes, units, a legend,
 * and the values that the page's script shows where the pointer is. */
#ifndef WD_REPORT_CHART_H
#define WD_REPORT_CHART_H

#include "report/curve.h"
#include "report/html.h"

typedef struct wd_series {
    const wd_curve *curve;
    const char *name; /* from outside; "": the chart's title says what it is */
    int color;        /* 0 to 7; a colour also has its own dashes, unless it is 0 */
    double hue;       /* in place of a colour: degrees; NaN: none */
} wd_series;

typedef struct wd_chart {
    const char *title;       /* "Loss"; it may name a run */
    const char *unit;        /* of this program: "MiB"; "": none */
    const wd_series *series; /* [count] */
    int count;
    double divisor;           /* of the values: 1 << 20 shows bytes in MiB */
    double planned;           /* a line across the chart; NaN: none */
    const char *planned_name; /* "planned" */
    const char *caption;      /* a sentence below the title; "": none */
    bool from_zero;           /* the axis begins at 0 also where all values are close together */
    bool may_be_log;          /* the axis is logarithmic where the values ask for it */
} wd_chart;

/* Writes the chart, or nothing where no series has a value. */
void wd__chart_draw(wd_html *html, const wd_chart *chart);

#endif
