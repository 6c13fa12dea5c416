/* Curves over the steps: those of several runs in one picture. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/page_impl.h"

/* ---- charts: SVG pictures inside a page, with axes, units, a legend, and the values that the
 * page's script shows where the pointer is ----
 *
 * A bin of a curve is drawn as its mean, with a band from its lowest to its highest value behind
 * it. Values are finite, but may be as large as a double can be. */

typedef struct curve_series {
    const wd_curve *curve;
    const char *name; /* from outside; "": the chart's title says what it is */
    int color;        /* 0 to 7; a colour also has its own dashes, unless it is 0 */
    double hue;       /* in place of a colour: degrees; NaN: none */
} curve_series;

typedef struct curve_chart {
    const char *title;          /* "Loss"; it may name a run */
    const char *unit;           /* of this program: "MiB"; "": none */
    const curve_series *series; /* [count] */
    int count;
    double divisor;           /* of the values: 1 << 20 shows bytes in MiB */
    double planned;           /* a line across the chart; NaN: none */
    const char *planned_name; /* "planned" */
    const char *caption;      /* a sentence below the title; "": none */
    bool from_zero;           /* the axis begins at 0 also where all values are close together */
    bool may_be_log;          /* the axis is logarithmic where the values ask for it */
} curve_chart;

enum { WIDTH = 520, HEIGHT = 270, LEFT = 62, RIGHT = 14, TOP = 14, BOTTOM = 44, TICKS_MAX = 16 };

/* A logarithmic axis is for values that are this many times apart. */
static const double LOG_RATIO = 8;

/* From values to the picture. */
typedef struct axis {
    double low, high; /* values; of a logarithmic axis their logarithms */
    double from, to;  /* units of the picture */
    bool is_log;
} axis;

/* The part of the axis, in [0, 1], that is below `value`. Halves keep differences finite. */
static double share(const axis *a, double value)
{
    const double v = a->is_log ? log10(value) : value;
    const double part = (v / 2 - a->low / 2) / (a->high / 2 - a->low / 2);
    return fmin(fmax(part, 0), 1);
}

static double place(const axis *a, double value)
{
    return a->from + (a->to - a->from) * share(a, value);
}

/* ---- ticks ---- */

/* 1, 2 or 5 times a power of ten, at least `step`. */
static double nice_step(double step)
{
    const double power = pow(10, floor(log10(step)));
    const double times = step / power;
    return power * (times <= 1 ? 1 : times <= 2 ? 2 : times <= 5 ? 5 : 10);
}

static int linear_ticks(double out[TICKS_MAX], const axis *a, int wanted)
{
    const double step = nice_step((a->high / wanted - a->low / wanted));
    int n = 0;
    if (!isfinite(step) || !(step > 0)) return 0; /* values at the ends of what a double holds */
    for (double k = ceil(a->low / step); k <= floor(a->high / step) && n < TICKS_MAX; k++)
        out[n++] = k * step + 0.0; /* no -0 */
    return n;
}

static int log_ticks(double out[TICKS_MAX], const axis *a)
{
    const double decades = a->high - a->low;
    const double stride = fmax(1, ceil(decades / 6));
    int n = 0;
    for (double k = floor(a->low); k <= a->high && n < TICKS_MAX; k += stride)
        for (int times = 1; times <= 5 && n < TICKS_MAX; times = times == 1 ? 2 : times + 3) {
            const double at = k + log10(times);
            if (times > 1 && decades > 2) break;
            if (at >= a->low - 1e-9 && at <= a->high + 1e-9) out[n++] = pow(10, at);
        }
    return n;
}

static int ticks(double out[TICKS_MAX], const axis *a, int wanted)
{
    return a->is_log ? log_ticks(out, a) : linear_ticks(out, a, wanted);
}

/* "0.25", "1e-05", and of steps "25k". */
static const char *tick_text(char out[32], double v, bool is_step)
{
    if (is_step && v >= 1e6)
        snprintf(out, 32, "%.4gM", v / 1e6);
    else if (is_step && v >= 1e4)
        snprintf(out, 32, "%.4gk", v / 1e3);
    else if (v != 0 && fabs(v) < 1e-3)
        snprintf(out, 32, "%.2g", v);
    else
        snprintf(out, 32, "%.4g", v);
    return out;
}

/* ---- axes ---- */

static void widen(axis *a, double share_below, double share_above)
{
    const double room = a->high / 2 - a->low / 2;
    a->low -= share_below * 2 * room;
    a->high += share_above * 2 * room;
}

static axis value_axis(const curve_chart *c)
{
    double low = INFINITY, high = -INFINITY, l, h;
    for (int i = 0; i < c->count; i++) {
        wd__curve_range(&l, &h, c->series[i].curve);
        low = fmin(low, l / c->divisor);
        high = fmax(high, h / c->divisor);
    }
    if (!isnan(c->planned)) low = fmin(low, c->planned / c->divisor);
    if (!isnan(c->planned)) high = fmax(high, c->planned / c->divisor);
    axis a = {low, high, HEIGHT - BOTTOM, TOP, false};
    if (c->may_be_log && low > 0 && high / low > LOG_RATIO) {
        a = (axis){log10(low), log10(high), HEIGHT - BOTTOM, TOP, true};
    } else if (low >= 0 && (c->from_zero || low <= 0.6 * high)) {
        a.low = 0; /* values that are not close together are shown from 0 */
    }
    if (a.high / 2 - a.low / 2 <= 1e-12 * fmax(fabs(a.low), fabs(a.high))) {
        const double room = fmax(fabs(a.high) * 0.1, 1e-6);
        a.low -= room;
        a.high += room;
        return a;
    }
    const bool from_zero = !a.is_log && a.low == 0;
    widen(&a, from_zero ? 0 : 0.05, 0.05);
    return a;
}

static axis step_axis(const curve_chart *c)
{
    axis a = {INFINITY, -INFINITY, LEFT, WIDTH - RIGHT, false};
    for (int i = 0; i < c->count; i++) {
        const wd_curve *curve = c->series[i].curve;
        if (!curve->count) continue;
        a.low = fmin(a.low, curve->bin[0].first);
        a.high = fmax(a.high, curve->bin[curve->count - 1].last);
    }
    if (a.low <= a.high / 4) a.low = 0;
    if (a.high <= a.low) a.high = a.low + 1;
    return a;
}

static void draw_axes(wd_html *h, const curve_chart *c, const axis *x, const axis *y)
{
    char text[32];
    double at[TICKS_MAX];
    int n = ticks(at, y, 5);
    wd__html_put(h, "<g class=\"axes\" aria-hidden=\"true\">");
    for (int i = 0; i < n; i++)
        wd__html_say(h,
                     "<path d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" class=\"end\">%s</text>",
                     LEFT, place(y, at[i]), WIDTH - RIGHT, LEFT - 7, place(y, at[i]) + 4,
                     tick_text(text, at[i], false));
    n = ticks(at, x, 5);
    for (int i = 0; i < n; i++)
        if (at[i] == floor(at[i]))
            wd__html_say(h, "<text x=\"%.1f\" y=\"%d\" class=\"mid\">%s</text>", place(x, at[i]),
                         HEIGHT - BOTTOM + 18, tick_text(text, at[i], true));
    wd__html_say(h,
                 "<path class=\"base\" d=\"M%d %dH%d\"/><text x=\"%d\" y=\"%d\" class=\"mid "
                 "name\">step</text></g>",
                 LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6);
    if (isnan(c->planned)) return;
    wd__html_say(h, "<path class=\"planned\" d=\"M%d %.1fH%d\"/>", LEFT,
                 place(y, c->planned / c->divisor), WIDTH - RIGHT);
}

/* ---- a series ---- */

/* The attributes that give a series its colour. */
static void put_color(wd_html *h, const curve_series *s, const char *style)
{
    if (isnan(s->hue))
        wd__html_say(h, " class=\"%s c%d\"", style, s->color);
    else
        wd__html_say(h, " class=\"%s\" style=\"--c:hsl(%.0f 62%% var(--l))\"", style, s->hue);
}

static void draw_band(wd_html *h, const curve_chart *c, const curve_series *s, const axis *x,
                      const axis *y)
{
    const wd_curve *curve = s->curve;
    wd__html_put(h, "<path");
    put_color(h, s, "band");
    wd__html_put(h, " d=\"");
    for (int i = 0; i < curve->count; i++)
        wd__html_say(h, "%s%.1f %.1f", i ? "L" : "M", place(x, wd__curve_bin_step(&curve->bin[i])),
                     place(y, curve->bin[i].high / c->divisor));
    for (int i = curve->count - 1; i >= 0; i--)
        wd__html_say(h, "L%.1f %.1f", place(x, wd__curve_bin_step(&curve->bin[i])),
                     place(y, curve->bin[i].low / c->divisor));
    wd__html_put(h, "Z\"/>");
}

/* What the script shows: "step mean", or "step mean low high" of bins of several values. */
static void put_values(wd_html *h, const curve_chart *c, const wd_curve *curve)
{
    wd__html_put(h, " data-p=\"");
    for (int i = 0; i < curve->count; i++) {
        const wd_curve_bin *b = &curve->bin[i];
        wd__html_say(h, "%s%.0f %.7g", i ? ";" : "", wd__curve_bin_step(b),
                     wd__curve_bin_mean(b) / c->divisor);
        if (b->count > 1) wd__html_say(h, " %.7g %.7g", b->low / c->divisor, b->high / c->divisor);
    }
    wd__html_put(h, "\"");
}

static void draw_line(wd_html *h, const curve_chart *c, const curve_series *s, const axis *x,
                      const axis *y)
{
    const wd_curve *curve = s->curve;
    wd__html_put(h, "<path");
    put_color(h, s, "line");
    wd__html_put(h, " data-name=\"");
    wd__html_text(h, s->name);
    wd__html_put(h, "\"");
    put_values(h, c, curve);
    wd__html_put(h, " d=\"");
    for (int i = 0; i < curve->count; i++)
        wd__html_say(h, "%s%.1f %.1f", i ? "L" : "M", place(x, wd__curve_bin_step(&curve->bin[i])),
                     place(y, wd__curve_bin_mean(&curve->bin[i]) / c->divisor));
    wd__html_put(h, curve->count == 1 ? "h.01\"/>" : "\"/>");
}

/* ---- words ---- */

static void put_legend(wd_html *h, const curve_chart *c)
{
    const bool names = c->count > 1 || *c->series[0].name;
    if (!names && isnan(c->planned)) return;
    wd__html_put(h, "<p class=\"legend\">");
    for (int i = 0; i < c->count && names; i++) {
        const curve_series *s = &c->series[i];
        if (!s->curve->count) continue;
        wd__html_put(h, "<span");
        put_color(h, s, "key");
        wd__html_put(h, "><svg viewBox=\"0 0 24 8\" aria-hidden=\"true\"><path d=\"M0 4H24\"/>"
                        "</svg>");
        wd__html_text(h, s->name);
        wd__html_put(h, "</span> ");
    }
    if (!isnan(c->planned)) {
        wd__html_put(h, "<span class=\"key\"><svg viewBox=\"0 0 24 8\" aria-hidden=\"true\"><path "
                        "class=\"planned\" d=\"M0 4H24\"/></svg>");
        wd__html_say(h, "%s: %.4g %s</span>", c->planned_name, c->planned / c->divisor, c->unit);
    }
    wd__html_put(h, "</p>");
}

/* For readers who do not see the picture. */
static void put_description(wd_html *h, const curve_chart *c)
{
    wd__html_put(h, "<desc>");
    for (int i = 0; i < c->count; i++) {
        const wd_curve *curve = c->series[i].curve;
        double low, high;
        if (!curve->count) continue;
        wd__curve_range(&low, &high, curve);
        wd__html_text(h, c->series[i].name);
        wd__html_say(h, "%sat step %.0f %.7g, lowest %.7g, highest %.7g%s%s. ",
                     *c->series[i].name ? ": " : "", curve->bin[curve->count - 1].last,
                     curve->newest / c->divisor, low / c->divisor, high / c->divisor,
                     *c->unit ? " " : "", c->unit);
    }
    wd__html_put(h, "</desc>");
}

/* Writes the chart, or nothing where no series has a value. */
static void draw_chart(wd_html *html, const curve_chart *chart)
{
    const curve_chart *c = chart;
    bool any = false;
    for (int i = 0; i < c->count; i++) any |= c->series[i].curve->count > 0;
    if (!any) return;
    const axis x = step_axis(c), y = value_axis(c);
    wd__html_put(html, "<figure class=\"chart\"><figcaption>");
    wd__html_text(html, c->title);
    if (*c->unit) wd__html_say(html, " <small>in %s</small>", c->unit);
    wd__html_put(html, "</figcaption>");
    if (*c->caption) wd__html_say(html, "<p class=\"note\">%s</p>", c->caption);
    put_legend(html, c);
    wd__html_say(html,
                 "<svg viewBox=\"0 0 %d %d\" role=\"img\" data-x=\"%d %d %.17g %.17g\" "
                 "data-unit=\"%s\"><title>",
                 WIDTH, HEIGHT, LEFT, WIDTH - RIGHT, x.low, x.high, c->unit);
    wd__html_text(html, c->title);
    wd__html_put(html, " over the steps of training</title>");
    put_description(html, c);
    draw_axes(html, c, &x, &y);
    for (int i = 0; i < c->count; i++)
        if (c->series[i].curve->per_bin > 1) draw_band(html, c, &c->series[i], &x, &y);
    for (int i = 0; i < c->count; i++)
        if (c->series[i].curve->count) draw_line(html, c, &c->series[i], &x, &y);
    wd__html_say(html, "<path class=\"cursor\" d=\"M0 %dV%d\"/></svg></figure>\n", TOP,
                 HEIGHT - BOTTOM);
}

/* ---- the page's charts ---- */

static void put_chart(wd_page *page, wd_figure figure, curve_chart chart)
{
    curve_series series[WD_REPORT_RUNS_MAX];
    for (int k = 0; k < page->count; k++)
        series[k] = (curve_series){.curve = &page->run[k].metrics->figure[figure],
                                   .name = page->count > 1 ? page->run[k].name : "",
                                   .color = k,
                                   .hue = NAN};
    chart.series = series;
    chart.count = page->count;
    draw_chart(&page->html, &chart);
}

static void put_memory(wd_page *page)
{
    double low, high, most = 0;
    for (int k = 0; k < page->count; k++) {
        wd__curve_range(&low, &high, &page->run[k].metrics->figure[WD_FIGURE_MEMORY]);
        most = fmax(most, high);
    }
    const bool is_large = most >= 10 * 0x1p30;
    put_chart(
        page, WD_FIGURE_MEMORY,
        (curve_chart){.title = "Host memory",
                      .unit = is_large ? "GiB" : "MiB",
                      .caption = "Measured in the first process, without mapped files.",
                      .divisor = is_large ? 0x1p30 : 0x1p20,
                      .planned = page->count == 1 ? wd__page_host_planned(&page->run[0]) : NAN,
                      .planned_name = "planned peak",
                      .from_zero = true});
}

/* The errors at the noise levels of one run; blue is little noise, red is much. */
static void put_levels(wd_page *page, int k)
{
    char name[WD_LEVELS_MAX][32], title[320];
    curve_series series[WD_LEVELS_MAX];
    const wd_metrics_file *m = page->run[k].metrics;
    double low = INFINITY, high = -INFINITY;
    for (int i = 0; i < m->levels; i++) {
        low = fmin(low, m->level[i]->sigma);
        high = fmax(high, m->level[i]->sigma);
    }
    for (int i = 0; i < m->levels; i++) {
        const double part =
            high > low ? (m->level[i]->sigma / 2 - low / 2) / (high / 2 - low / 2) : 0;
        snprintf(name[i], sizeof *name, "sigma %.4g", m->level[i]->sigma);
        series[i] = (curve_series){.curve = &m->level[i]->curve,
                                   .name = name[i],
                                   .hue = 225 - 225 * fmin(fmax(part, 0), 1)};
    }
    snprintf(title, sizeof title, "Validation error by noise level%s%s",
             page->count > 1 ? ": " : "", page->count > 1 ? page->run[k].name : "");
    draw_chart(&page->html,
               &(curve_chart){.title = title,
                              .unit = "",
                              .series = series,
                              .count = m->levels,
                              .divisor = 1,
                              .planned = NAN,
                              .caption = m->more_levels ? "Only the first 16 levels." : "",
                              .may_be_log = true});
}

void wd__page_curves(wd_page *page)
{
    curve_chart chart = {.title = "Loss", .unit = "", .caption = "", .divisor = 1, .planned = NAN};
    wd__html_put(&page->html, "<section><h2>Curves</h2><div class=\"charts\">");
    chart.may_be_log = true;
    put_chart(page, WD_FIGURE_LOSS, chart);
    chart.title = "Validation error";
    put_chart(page, WD_FIGURE_VALIDATION, chart);
    for (int k = 0; k < page->count; k++) put_levels(page, k);
    chart.title = "Norm of the gradients";
    put_chart(page, WD_FIGURE_GRAD_NORM, chart);
    chart.may_be_log = false;
    chart.title = "Learning rate";
    put_chart(page, WD_FIGURE_LR, chart);
    chart.title = "Speed";
    chart.unit = "steps per second";
    put_chart(page, WD_FIGURE_STEPS_PER_S, chart);
    put_memory(page);
    wd__html_put(&page->html,
                 "</div><p class=\"note\">A band reaches from the lowest to the highest value of "
                 "neighbouring steps, where a point stands for several.</p></section>\n");
}
