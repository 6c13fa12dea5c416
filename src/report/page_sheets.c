/* Sheets of samples, as small copies with links to their files: those of a step side by side for
 * several runs, and a slider over the steps. */
#include <inttypes.h>
#include <unistd.h>

#include "io/picture/png.h"
#include "report/page_impl.h"
#include "report/run_files.h"

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

/* ---- small copies ----
 *
 * The sheets that are shown are every stride-th. The stride is doubled until their copies fit, and
 * is kept, so it only grows with a run: no sheet that was left out comes back, and none is copied
 * twice. */

/* The first sheet that is wanted, and the one after sheet `i`; files->count: there is none. The
 * last one always is; when the stride is large, it alone. */
static int64_t first_wanted(const wd_run_files *f, int64_t stride)
{
    return f->count && stride >= 2 * f->count ? f->count - 1 : 0;
}

static int64_t next_wanted(const wd_run_files *f, int64_t stride, int64_t i)
{
    if (i >= f->count - 1) return f->count;
    return i + stride < f->count - 1 ? i + stride : f->count - 1;
}

static int64_t count_wanted(const wd_run_files *f, int64_t stride)
{
    int64_t n = 0;
    for (int64_t i = first_wanted(f, stride); i < f->count; i = next_wanted(f, stride, i)) n++;
    return n;
}

static bool is_same(const wd_run_picture *a, const wd_run_picture *b)
{
    return a->inode == b->inode && a->changed_ns == b->changed_ns && a->bytes == b->bytes;
}

/* The number of the copy of an open sheet; -1: there is none. One of an older file of its name is
 * given up. */
static int find_copy(wd_sheet_copies *c, int64_t step, const wd_run_picture *sheet)
{
    for (int i = 0; i < WD_SHEET_COPIES_MAX; i++) {
        if (c->copy[i].step != step) continue;
        if (is_same(&c->copy[i].of, sheet)) return i;
        c->bytes -= c->copy[i].bytes;
        c->copy[i] = (wd_sheet_copy){.step = -1};
    }
    return -1;
}

/* Gives up the copies of sheets that are not wanted any more. */
static void give_up_others(wd_sheet_copies *c, const wd_run_files *f)
{
    for (int k = 0; k < WD_SHEET_COPIES_MAX; k++) {
        bool wanted = false;
        for (int64_t i = first_wanted(f, c->stride); i < f->count; i = next_wanted(f, c->stride, i))
            wanted |= f->sheet[i].step == c->copy[k].step;
        if (wanted || c->copy[k].step < 0) continue;
        c->bytes -= c->copy[k].bytes;
        c->copy[k] = (wd_sheet_copy){.step = -1};
    }
}

static int free_place(const wd_sheet_copies *c)
{
    int k = 0;
    while (c->copy[k].step >= 0) k++; /* as many as there are sheets at most are wanted */
    return k;
}

/* Makes the copy of an open sheet. */
static wd_status copy_sheet(wd_sheet_copies *c, wd_run_sheet *sheet, const wd_run_picture *picture,
                            wd_err *err)
{
    char name[64];
    wd_small_png small;
    wd_err why = {0};
    const int k = free_place(c);
    wd__run_sheet_name(name, sheet->step);
    const wd_status status =
        wd_png_shrink(&small, picture->fd, c->fd, wd__sheet_copy_offset(k), WD_SHEET_COPY_WIDTH,
                      WD_SHEET_COPY_PIXELS, WD_SHEET_COPY_BYTES, name, &why);
    sheet->is_bad = status == WD_BAD_FORMAT;
    if (sheet->is_bad) return WD_OK;
    if (status != WD_OK) return wd_fail(err, status, "%s", why.message);
    c->copy[k] = (wd_sheet_copy){.of = *picture,
                                 .step = sheet->step,
                                 .width = small.width,
                                 .height = small.height,
                                 .bytes = small.bytes};
    c->bytes += small.bytes;
    sheet->copy = k;
    return WD_OK;
}

static wd_status use_sheet(wd_sheet_copies *c, wd_run_files *f, int64_t i, wd_err *err)
{
    wd_run_picture picture;
    wd_run_sheet *sheet = &f->sheet[i];
    if (sheet->is_bad || sheet->copy >= 0) return WD_OK;
    sheet->is_bad = !wd__run_sheet_open(&picture, f, i);
    if (sheet->is_bad) return WD_OK;
    sheet->copy = find_copy(c, sheet->step, &picture);
    const wd_status status = sheet->copy < 0 ? copy_sheet(c, sheet, &picture, err) : WD_OK;
    close(picture.fd);
    return status;
}

/* Copies what is wanted as long as it fits. */
static wd_status use_wanted(wd_sheet_copies *c, wd_run_files *f, size_t bytes_max, wd_err *err)
{
    for (int64_t i = 0; i < f->count; i++) f->sheet[i].copy = -1;
    give_up_others(c, f);
    for (int64_t i = first_wanted(f, c->stride); i < f->count && c->bytes <= bytes_max;
         i = next_wanted(f, c->stride, i))
        WD_TRY(use_sheet(c, f, i, err));
    return WD_OK;
}

wd_status wd__sheet_copies_update(wd_sheet_copies *copies, wd_run_files *files, const char *page,
                                  size_t bytes_max, wd_err *err)
{
    wd_sheet_copies *c = copies;
    if (!files->count) return WD_OK;
    if (!c->stride) {
        WD_TRY(wd_file_scratch(&c->fd, page, err));
        for (int k = 0; k < WD_SHEET_COPIES_MAX; k++) c->copy[k].step = -1;
        c->stride = 1;
    }
    for (;; c->stride *= 2) {
        while (count_wanted(files, c->stride) > WD_SHEET_COPIES_MAX) c->stride *= 2;
        WD_TRY(use_wanted(c, files, bytes_max, err));
        if (c->bytes <= bytes_max) return WD_OK;
        if (c->stride >= 2 * files->count) break;
    }
    files->sheet[files->count - 1].copy = -1; /* it alone is too large */
    return WD_OK;
}

void wd__sheet_copies_close(wd_sheet_copies *copies)
{
    if (copies->stride) close(copies->fd);
    *copies = (wd_sheet_copies){0};
}
