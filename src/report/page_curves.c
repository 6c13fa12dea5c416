/* Curves over the steps: those of several runs in one picture. */
#include <math.h>
#include <stdio.h>

#include "report/chart.h"
#include "report/page_impl.h"

static void put_chart(wd_page *page, wd_figure figure, wd_chart chart)
{
    wd_series series[WD_REPORT_RUNS_MAX];
    for (int k = 0; k < page->count; k++)
        series[k] = (wd_series){.curve = &page->run[k].metrics->figure[figure],
                                .name = page->count > 1 ? page->run[k].name : "",
                                .color = k,
                                .hue = NAN};
    chart.series = series;
    chart.count = page->count;
    wd__chart_draw(&page->html, &chart);
}

static void put_memory(wd_page *page)
{
    double low, high, most = 0;
    for (int k = 0; k < page->count; k++) {
        wd__curve_range(&low, &high, &page->run[k].metrics->figure[WD_FIGURE_MEMORY]);
        most = fmax(most, high);
    }
    const bool is_large = most >= 10 * 0x1p30;
    put_chart(page, WD_FIGURE_MEMORY,
              (wd_chart){.title = "Host memory",
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
    wd_series series[WD_LEVELS_MAX];
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
        series[i] = (wd_series){.curve = &m->level[i]->curve,
                                .name = name[i],
                                .hue = 225 - 225 * fmin(fmax(part, 0), 1)};
    }
    snprintf(title, sizeof title, "Validation error by noise level%s%s",
             page->count > 1 ? ": " : "", page->count > 1 ? page->run[k].name : "");
    wd__chart_draw(&page->html,
                   &(wd_chart){.title = title,
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
    wd_chart chart = {.title = "Loss", .unit = "", .caption = "", .divisor = 1, .planned = NAN};
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
