/* Sheets of samples: those of a step side by side for several runs, and a slider over the steps. */
#include <inttypes.h>
#include <unistd.h>

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

static void put_sheet(wd_html *h, const wd_page_run *r, int64_t i)
{
    wd_run_picture picture;
    const int64_t step = r->files.sheet[i].step;
    if (!wd__run_sheet_open(&picture, &r->files, i)) return;
    wd__html_say(h,
                 "<figure data-step=\"%" PRId64 "\"><figcaption>Step %" PRId64 "</figcaption>"
                 "<div class=\"scroll\"><img width=\"%" PRId64 "\" height=\"%" PRId64
                 "\" loading=\"lazy\" alt=\"",
                 step, step, picture.width, picture.height);
    put_alt(h, r, step);
    wd__html_put(h, "\" src=\"data:image/png;base64,");
    wd__html_base64(h, picture.fd, picture.bytes);
    wd__html_put(h, "\"></div></figure>\n");
    close(picture.fd);
}

static void put_left_out(wd_html *h, const wd_page_run *r)
{
    const int64_t left = r->files.count - r->files.shown;
    if (!left) return;
    wd__html_say(h,
                 "<p class=\"note\">%" PRId64 " of %" PRId64 " sheets are left out, so that the "
                 "page stays small: they are in ",
                 left, r->files.count);
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
        if (r->files.sheet[i].shown) put_sheet(h, r, i);
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
                    "<label><input id=\"full\" type=\"checkbox\"> full size</label></div>"
                    "<div class=\"runs\">");
    for (int k = 0; k < page->count; k++) put_run(page, k);
    wd__html_put(h, "</div></section>\n");
}
