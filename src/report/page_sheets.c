/* Sheets of samples, as small copies with links to their files: those of a step side by side for
 * several runs, and a slider over the steps. */
#include <inttypes.h>

#include "report/page_impl.h"

/* What the picture shows, for readers who do not see it. */
static void put_alt(wd_html *h, const wd_page_run *r, int64_t step)
{
    const bool has_teacher = !json_is_string(wd__page_option(r, "targets", false));
    wd__html_say(h, "Sheet of samples of step %" PRId64 " of ", step);
    wd__html_text(h, r->name);
    wd__html_put(h, has_teacher ? ": the teacher&#39;s pictures above, the student&#39;s below"
                                : ": the student&#39;s pictures");
}

/* The sheet's file is a link, which leads nowhere where the page has been sent alone. */
static void put_caption(wd_html *h, const wd_page_run *r, const wd_sheet_copy *copy)
{
    char name[64];
    wd__run_sheet_name(name, copy->step);
    wd__html_say(h, "<figcaption>Step %" PRId64 ", ", copy->step);
    if (*r->to_sheets) {
        wd__html_put(h, "<a href=\"");
        wd__html_path(h, r->to_sheets);
        wd__html_say(h, "%s\">%s</a>", name, name);
    } else {
        wd__html_put(h, name);
    }
    wd__html_say(h, ", %" PRId64 "x%" PRId64 "</figcaption>", copy->of.width, copy->of.height);
}

static void put_sheet(wd_html *h, const wd_page_run *r, int k)
{
    const wd_sheet_copy *copy = &r->copies.copy[k];
    wd__html_say(h, "<figure data-step=\"%" PRId64 "\">", copy->step);
    put_caption(h, r, copy);
    wd__html_say(h,
                 "<div class=\"scroll\"><img width=\"%" PRId64 "\" height=\"%" PRId64
                 "\" loading=\"lazy\" alt=\"",
                 copy->width, copy->height);
    put_alt(h, r, copy->step);
    wd__html_put(h, "\" src=\"data:image/png;base64,");
    wd__html_base64(h, r->copies.fd, wd__sheet_copy_offset(k), copy->bytes);
    wd__html_put(h, "\"></div></figure>\n");
}

static void put_left_out(wd_html *h, const wd_page_run *r)
{
    int64_t left = 0, bad = 0;
    for (int64_t i = 0; i < r->files.count; i++) {
        bad += r->files.sheet[i].is_bad;
        left += !r->files.sheet[i].is_bad && r->files.sheet[i].copy < 0;
    }
    if (left)
        wd__html_say(h,
                     "<p class=\"note\">%" PRId64 " of %" PRId64 " sheets are left out, so that "
                     "the page stays small.</p>",
                     left, r->files.count);
    if (bad)
        wd__html_say(h,
                     "<p class=\"bad\">%" PRId64 " of %" PRId64 " sheets cannot be read as a "
                     "picture.</p>",
                     bad, r->files.count);
    if (!left && !bad) return;
    wd__html_put(h, "<p class=\"note\">The sheets are in ");
    wd__html_text(h, r->files.sheets);
    wd__html_put(h, ".</p>");
}

static void put_prompts(wd_html *h, const wd_page_run *r)
{
    enum { SHOWN_MAX = 16 };
    size_t i;
    json_t *prompt;
    const json_t *prompts = wd__page_option(r, "sample_prompts", false);
    if (!json_array_size(prompts)) return;
    wd__html_put(h, "<details><summary>Prompts</summary><ol>");
    json_array_foreach(prompts, i, prompt)
    {
        if (!json_is_string(prompt) || i == SHOWN_MAX) break;
        wd__html_put(h, "<li>");
        wd__html_text(h, json_string_value(prompt));
        wd__html_put(h, "</li>");
    }
    wd__html_put(h, "</ol></details>");
}

static void put_run(wd_page *page, int k)
{
    wd_html *h = &page->html;
    const wd_page_run *r = &page->run[k];
    if (!r->files.count) return;
    wd__html_put(h, "<div class=\"run\">");
    if (page->count > 1) {
        wd__html_say(h, "<h3 class=\"c%d\"><i></i>", k);
        wd__html_text(h, r->name);
        wd__html_put(h, "</h3>");
    }
    for (int64_t i = 0; i < r->files.count; i++)
        if (r->files.sheet[i].copy >= 0) put_sheet(h, r, r->files.sheet[i].copy);
    put_left_out(h, r);
    put_prompts(h, r);
    wd__html_put(h, "</div>");
}

void wd__page_sheets(wd_page *page)
{
    wd_html *h = &page->html;
    int64_t count = 0;
    for (int k = 0; k < page->count; k++) count += page->run[k].files.count;
    if (!count) return;
    wd__html_put(h, "<section id=\"sheets\"><h2>Samples</h2><div class=\"slider\" hidden>"
                    "<label for=\"step\">Step <output id=\"at\" for=\"step\"></output></label>"
                    "<input id=\"step\" type=\"range\" min=\"0\" step=\"1\">"
                    "<label><input id=\"full\" type=\"checkbox\"> natural size</label></div>"
                    "<div class=\"runs\">");
    for (int k = 0; k < page->count; k++) put_run(page, k);
    wd__html_put(h, "</div></section>\n");
}
