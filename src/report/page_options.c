/* Options of the runs, the plan, an evaluation, and how the student is used. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "report/page_impl.h"

enum { ROWS_MAX = 512, VALUE_TEXT = 2048 };

/* ---- tables ---- */

/* A value of JSON as a user would give it; "": null, or none. */
static void put_value(wd_html *h, const json_t *value)
{
    char text[VALUE_TEXT];
    if (json_is_string(value)) {
        wd__html_text(h, json_string_value(value));
    } else if (value && !json_is_null(value)) {
        wd__html_text(h, wd_json_show(text, sizeof text, value));
    }
}

static void put_code(wd_html *h, const char *name)
{
    wd__html_put(h, "<code>");
    wd__html_text(h, name);
    wd__html_put(h, "</code>");
}

static void begin_table(wd_html *h, const char *first)
{
    wd__html_say(h, "<div class=\"scroll\"><table><thead><tr><th scope=\"col\">%s</th>", first);
}

static void put_run_columns(wd_page *page)
{
    wd_html *h = &page->html;
    for (int k = 0; k < page->count; k++) {
        wd__html_say(h, "<th scope=\"col\" class=\"c%d\"><i></i>", k);
        wd__html_text(h, page->run[k].name);
        wd__html_put(h, "</th>");
    }
    wd__html_put(h, "</tr></thead><tbody>");
}

static void end_table(wd_html *h)
{
    wd__html_put(h, "</tbody></table></div>");
}

/* ---- options ---- */

static void put_given(wd_html *h, const wd_page_run *r)
{
    const char *name;
    json_t *value;
    int rows = 0;
    json_t *given = json_object_get(r->files.run, "options");
    begin_table(h, "Option");
    wd__html_put(h, "<th scope=\"col\">Given</th><th scope=\"col\">Used</th></tr></thead><tbody>");
    json_object_foreach(given, name, value)
    {
        if (rows++ == ROWS_MAX) break;
        wd__html_put(h, "<tr><th scope=\"row\">");
        put_code(h, name);
        wd__html_put(h, "</th><td>");
        put_value(h, value);
        wd__html_put(h, "</td><td>");
        put_value(h, wd__page_option(r, name, false));
        wd__html_put(h, "</td></tr>");
    }
    end_table(h);
}

static void put_others(wd_html *h, const wd_page_run *r)
{
    const char *name;
    json_t *value;
    int rows = 0;
    json_t *used = json_object_get(r->files.run, "resolved");
    wd__html_put(h, "<details><summary>All other options</summary>");
    begin_table(h, "Option");
    wd__html_put(h, "<th scope=\"col\">Used</th></tr></thead><tbody>");
    json_object_foreach(used, name, value)
    {
        if (wd__page_option(r, name, true)) continue;
        if (rows++ == ROWS_MAX) break;
        wd__html_put(h, "<tr><th scope=\"row\">");
        put_code(h, name);
        wd__html_put(h, "</th><td>");
        put_value(h, value);
        wd__html_put(h, "</td></tr>");
    }
    end_table(h);
    wd__html_put(h, "</details>");
}

static bool differs(const wd_page *page, const char *name)
{
    const json_t *first = wd__page_option(&page->run[0], name, false);
    for (int k = 1; k < page->count; k++) {
        const json_t *other = wd__page_option(&page->run[k], name, false);
        if ((!first || json_is_null(first)) && (!other || json_is_null(other))) continue;
        if (!json_equal(first, other)) return true;
    }
    return false;
}

/* Whether an earlier run of the page has the option, whose row is then there. */
static bool is_seen(const wd_page *page, int run, const char *name)
{
    for (int k = 0; k < run; k++)
        if (wd__page_option(&page->run[k], name, false)) return true;
    return false;
}

static void put_differing(wd_page *page)
{
    wd_html *h = &page->html;
    const char *name;
    json_t *ignored;
    int rows = 0;
    wd__html_put(h, "<h3>Options that differ</h3>");
    begin_table(h, "Option");
    put_run_columns(page);
    for (int run = 0; run < page->count; run++) {
        json_t *used = json_object_get(page->run[run].files.run, "resolved");
        json_object_foreach(used, name, ignored)
        {
            if (is_seen(page, run, name) || !differs(page, name) || rows == ROWS_MAX) continue;
            rows++;
            wd__html_put(h, "<tr><th scope=\"row\">");
            put_code(h, name);
            wd__html_put(h, "</th>");
            for (int k = 0; k < page->count; k++) {
                wd__html_put(h, "<td>");
                put_value(h, wd__page_option(&page->run[k], name, false));
                wd__html_put(h, "</td>");
            }
            wd__html_put(h, "</tr>");
        }
    }
    end_table(h);
}

static void begin_details(wd_html *h, const wd_page_run *r, const char *what)
{
    wd__html_say(h, "<details><summary>%s ", what);
    wd__html_text(h, r->name);
    wd__html_put(h, "</summary>");
}

void wd__page_options(wd_page *page)
{
    wd_html *h = &page->html;
    wd__html_put(h, "<section id=\"options\"><h2>Configuration</h2>");
    if (page->count > 1) put_differing(page);
    for (int k = 0; k < page->count; k++) {
        const wd_page_run *r = &page->run[k];
        if (!r->files.run) continue;
        if (page->count > 1) begin_details(h, r, "Options given to");
        put_given(h, r);
        put_others(h, r);
        if (page->count > 1) wd__html_put(h, "</details>");
    }
    wd__html_put(h, "</section>\n");
}

/* ---- the plan ---- */

/* The picture is an image of its own, in which nothing runs, and which no style reaches. */
static void put_picture(wd_html *h, const wd_page_run *r)
{
    wd_run_picture picture;
    if (!wd__run_plan_open(&picture, &r->files)) return;
    wd__html_put(h, "<div class=\"scroll paper\"><img class=\"plan\" alt=\"The plan of the run: "
                    "what is in the memory of the host and of each device, and the course of a "
                    "sweep over the teacher. The table below has the same figures.\" "
                    "src=\"data:image/svg+xml;base64,");
    wd__html_base64(h, picture.fd, 0, picture.bytes);
    wd__html_put(h, "\"></div>");
    close(picture.fd);
}

static void put_bytes(wd_html *h, double bytes)
{
    const bool is_large = bytes >= 0x1p30;
    wd__html_say(h, "%.3g %s", bytes / (is_large ? 0x1p30 : 0x1p20), is_large ? "GiB" : "MiB");
}

static void put_items(wd_html *h, const json_t *items)
{
    size_t i;
    json_t *item;
    wd__html_put(h, "<details><summary>Planned memory, item by item</summary>");
    begin_table(h, "Item");
    wd__html_put(h, "<th scope=\"col\">Where</th><th scope=\"col\">While</th>"
                    "<th scope=\"col\">Size</th></tr></thead><tbody>");
    json_array_foreach(items, i, item)
    {
        const json_t *bytes = json_object_get(item, "bytes");
        if (i == ROWS_MAX) break;
        if (!json_is_number(bytes)) continue;
        wd__html_put(h, "<tr><th scope=\"row\">");
        put_value(h, json_object_get(item, "name"));
        wd__html_put(h, "</th><td>");
        put_value(h, json_object_get(item, "where"));
        wd__html_put(h, "</td><td>");
        put_value(h, json_object_get(item, "while"));
        wd__html_put(h, "</td><td class=\"number\">");
        put_bytes(h, json_number_value(bytes));
        wd__html_put(h, "</td></tr>");
    }
    end_table(h);
    wd__html_put(h, "</details>");
}

static void put_plan(wd_page *page, int k)
{
    wd_html *h = &page->html;
    const wd_page_run *r = &page->run[k];
    const json_t *teacher = json_object_get(r->files.run, "teacher");
    const json_t *seconds = json_object_get(teacher, "seconds_per_step");
    const json_t *items = json_object_get(json_object_get(r->files.run, "memory"), "items");
    if (json_is_number(seconds)) {
        wd__html_say(h, "<p>Planned: %.3g s per step, limited by ", json_number_value(seconds));
        put_value(h, json_object_get(teacher, "limited_by"));
        wd__html_put(h, "; the teacher's weights by strategy ");
        put_value(h, json_object_get(teacher, "strategy"));
        wd__html_put(h, ".</p>");
    }
    wd__page_memory(page, r);
    put_picture(h, r);
    if (json_is_array(items)) put_items(h, items);
}

void wd__page_plan(wd_page *page)
{
    wd_html *h = &page->html;
    bool any = false;
    for (int k = 0; k < page->count; k++) any |= page->run[k].files.run != NULL;
    if (!any) return;
    wd__html_put(h, "<section id=\"plan\"><h2>Plan</h2>");
    for (int k = 0; k < page->count; k++) {
        if (page->count > 1) begin_details(h, &page->run[k], "Plan of");
        put_plan(page, k);
        if (page->count > 1) wd__html_put(h, "</details>");
    }
    wd__html_put(h, "</section>\n");
}

/* ---- the evaluation ---- */

static const struct {
    const char *key, *of, *name, *unit; /* `of`: the object that has the key; NULL: the whole */
} eval_figures[] = {
    {"pictures", NULL, "Pictures compared", ""},
    {"steps", NULL, "Steps of the student", ""},
    {"reference_steps", NULL, "Steps of the teacher", ""},
    {"reference_correlation", NULL, "Correlation with the teacher's pictures", ""},
    {"reference_psnr_db", NULL, "PSNR to the teacher's pictures", "dB"},
    {"correlation", NULL, "Correlation, teacher in as many steps", ""},
    {"psnr_db", NULL, "PSNR, teacher in as many steps", "dB"},
    {"velocity_error", NULL, "Relative error of the velocity", ""},
    {"latents_error", NULL, "Relative difference of the final latents", ""},
    {"diversity", "student", "Diversity of the student, from seed to seed", ""},
    {"reference_diversity", NULL, "Diversity of the teacher", ""},
    {"seconds_per_picture", "student", "Time of the student per picture", "s"},
    {"seconds_per_picture", "teacher", "Time of the teacher per picture", "s"},
};

static const json_t *eval_value(const wd_page_run *r, size_t figure)
{
    const json_t *from = r->files.eval;
    if (eval_figures[figure].of) from = json_object_get(from, eval_figures[figure].of);
    const json_t *value = json_object_get(from, eval_figures[figure].key);
    const bool is_diversity = strstr(eval_figures[figure].key, "diversity") != NULL;
    const bool has_one_seed = json_integer_value(json_object_get(r->files.eval, "seeds")) == 1;
    return json_is_number(value) && !(is_diversity && has_one_seed) ? value : NULL;
}

static void put_eval_row(wd_page *page, size_t figure)
{
    wd_html *h = &page->html;
    bool any = false;
    for (int k = 0; k < page->count; k++) any |= eval_value(&page->run[k], figure) != NULL;
    if (!any) return;
    wd__html_put(h, "<tr><th scope=\"row\">");
    wd__html_text(h, eval_figures[figure].name);
    wd__html_put(h, "</th>");
    for (int k = 0; k < page->count; k++) {
        const json_t *value = eval_value(&page->run[k], figure);
        wd__html_put(h, "<td>");
        if (value) wd__html_say(h, "%.4g %s", json_number_value(value), eval_figures[figure].unit);
        wd__html_put(h, "</td>");
    }
    wd__html_put(h, "</tr>");
}

/* Which student was measured: an evaluation stays while the run is resumed, and the student is
 * trained further. "steps" of eval.json are those of sampling. */
static void put_measured(wd_html *h, const wd_page_run *r)
{
    const char *quantised = json_string_value(json_object_get(r->files.eval, "quantisation"));
    const json_t *student = json_object_get(r->files.eval, "student");
    const json_int_t steps = json_integer_value(json_object_get(student, "trained_steps"));
    if (quantised) {
        wd__html_put(h, "the teacher in ");
        wd__html_text(h, quantised);
    } else if (steps <= 0) {
        wd__html_put(h, "not known");
    } else {
        wd__html_say(h, "the student of step %" JSON_INTEGER_FORMAT, steps);
        if ((double)steps != r->metrics->step)
            wd__html_say(h, "; the run is at step %.0f", r->metrics->step);
    }
}

static void put_measured_row(wd_page *page)
{
    wd_html *h = &page->html;
    wd__html_put(h, "<tr><th scope=\"row\">Measured</th>");
    for (int k = 0; k < page->count; k++) {
        wd__html_put(h, "<td>");
        if (page->run[k].files.eval) put_measured(h, &page->run[k]);
        wd__html_put(h, "</td>");
    }
    wd__html_put(h, "</tr>");
}

void wd__page_evaluation(wd_page *page)
{
    wd_html *h = &page->html;
    bool any = false;
    for (int k = 0; k < page->count; k++) any |= page->run[k].files.eval != NULL;
    if (!any) return;
    wd__html_put(h, "<section id=\"evaluation\"><h2>Evaluation</h2>");
    begin_table(h, "Figure");
    put_run_columns(page);
    put_measured_row(page);
    for (size_t i = 0; i < sizeof eval_figures / sizeof *eval_figures; i++) put_eval_row(page, i);
    end_table(h);
    wd__html_put(h, "</section>\n");
}

/* ---- how the student is used ---- */

/* The card is Markdown: what is between two lines of ``` is code, anything else text. */
static void put_card(wd_html *h, const char *card)
{
    bool code = false;
    char line[VALUE_TEXT];
    while (*card) {
        const size_t bytes = strcspn(card, "\n");
        snprintf(line, sizeof line, "%.*s", (int)(bytes < sizeof line ? bytes : sizeof line - 1),
                 card);
        card += bytes + (card[bytes] == '\n');
        if (!strncmp(line, "```", 3)) {
            wd__html_put(h, code ? "</code></pre>" : "<pre tabindex=\"0\"><code>");
            code = !code;
        } else if (code) {
            wd__html_text(h, line);
            wd__html_put(h, "\n");
        } else if (*line) {
            wd__html_put(h, *line == '#' ? "<h3>" : "<p>");
            wd__html_text(h, line + strspn(line, "# "));
            wd__html_put(h, *line == '#' ? "</h3>" : "</p>");
        }
    }
    if (code) wd__html_put(h, "</code></pre>");
}

void wd__page_use(wd_page *page)
{
    wd_html *h = &page->html;
    bool any = false;
    for (int k = 0; k < page->count; k++) any |= page->run[k].files.use != NULL;
    if (!any) return;
    wd__html_put(h, "<section id=\"use\"><h2>Using the student</h2>");
    for (int k = 0; k < page->count; k++) {
        const wd_page_run *r = &page->run[k];
        if (!r->files.use) continue;
        if (page->count > 1) begin_details(h, r, "The student of");
        put_card(h, r->files.use);
        if (page->count > 1) wd__html_put(h, "</details>");
    }
    wd__html_put(h, "</section>\n");
}
