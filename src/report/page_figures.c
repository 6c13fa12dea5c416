/* The head of the page, the figures of its runs (cards of one run, a table of several), and their
 * memory. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "report/page_impl.h"

const json_t *wd__page_option(const wd_page_run *run, const char *name, bool given)
{
    return json_object_get(json_object_get(run->files.run, given ? "options" : "resolved"), name);
}

/* A number of an object; NaN: it has none. */
static double number_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static double option_number(const wd_page_run *run, const char *name)
{
    return number_of(json_object_get(run->files.run, "resolved"), name);
}

/* ---- memory of a run, planned and measured: of the host and of each device ----
 *
 * run.json has what was planned, and once the run has ended what devices have held at most;
 * metrics.jsonl has that until each step. Both measure since the program began, so of a run that
 * was resumed they say its last part. */

/* A number of run.json's "memory", or of an object there; NaN: it has none. */
static double memory_number(const wd_page_run *run, const char *object, const char *key)
{
    const json_t *from = json_object_get(run->files.run, "memory");
    const json_t *value = json_object_get(object ? json_object_get(from, object) : from, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

double wd__page_host_planned(const wd_page_run *run)
{
    const double before = memory_number(run, NULL, "bytes_before"); /* the plan is of the rest */
    return memory_number(run, NULL, "bytes_peak") + (isnan(before) ? 0 : before);
}

/* The measured one. */
static double host_measured(const wd_page_run *run)
{
    double low, high;
    const wd_curve *curve = &run->metrics->figure[WD_FIGURE_MEMORY];
    if (!curve->count) return NAN;
    wd__curve_range(&low, &high, curve);
    return high;
}

/* The most bytes that the run has had allocated on a device so far; NaN: not known. */
static double device_measured(const wd_page_run *run, const char *device)
{
    double bytes = memory_number(run, "devices_measured", device);
    for (int i = 0; i < run->metrics->devices; i++)
        if (!strcmp(run->metrics->device[i].name, device))
            bytes = fmax(bytes, run->metrics->device[i].bytes);
    return bytes;
}

/* ---- figures ---- */

enum { FIGURE_TEXT = 400 };

/* The last row is written when the time is over; it has seven digits of it. */
static bool is_used_up(const wd_page_run *r, double seconds)
{
    return r->metrics->seconds >= seconds * (1 - 1e-6);
}

/* How the run has failed, as run.json says; NULL: it has not, or it goes on. */
static const char *error_of(const wd_page_run *r)
{
    return r->run.is_running ? NULL : json_string_value(json_object_get(r->files.run, "error"));
}

static void say_state(char *out, const wd_page_run *r)
{
    const double steps = option_number(r, "num_steps"), minutes = option_number(r, "max_minutes");
    const char *state = error_of(r)                                  ? "failed"
                        : r->run.is_running                          ? "training"
                        : steps > 0 && r->metrics->step >= steps     ? "done"
                        : minutes > 0 && is_used_up(r, 60 * minutes) ? "done: its time is used up"
                                                                     : "ended";
    snprintf(out, FIGURE_TEXT, "%s", state);
}

static void say_step(char *out, const wd_page_run *r)
{
    const double steps = option_number(r, "num_steps");
    if (steps > 0)
        snprintf(out, FIGURE_TEXT, "%.0f of %.0f", r->metrics->step, steps);
    else
        snprintf(out, FIGURE_TEXT, "%.0f", r->metrics->step);
}

static void say_dropped(char *out, const wd_page_run *r)
{
    if (r->metrics->dropped) snprintf(out, FIGURE_TEXT, "%" PRId64, r->metrics->dropped);
}

static void say_loss(char *out, const wd_page_run *r)
{
    const double loss = wd__metrics_file_loss(r->metrics);
    if (!isnan(loss)) snprintf(out, FIGURE_TEXT, "%.4g", loss);
}

static void say_validation(char *out, const wd_page_run *r)
{
    const wd_curve *c = &r->metrics->figure[WD_FIGURE_VALIDATION];
    if (!c->count) return;
    snprintf(out, FIGURE_TEXT, "%.4g (best %.4g at step %.0f)", c->newest,
             r->metrics->best_validation, r->metrics->best_step);
}

static void say_samples(char *out, const wd_page_run *r)
{
    snprintf(out, FIGURE_TEXT, "%.0f", r->metrics->samples);
}

static void say_targets(char *out, const wd_page_run *r)
{
    snprintf(out, FIGURE_TEXT, "%.0f", r->metrics->targets);
}

static void say_time(char *out, const wd_page_run *r)
{
    const double s = r->metrics->seconds;
    if (!(s >= 0 && s < 1e12)) return;
    const int64_t all = (int64_t)s;
    if (s < 60)
        snprintf(out, FIGURE_TEXT, "%.1f s", s);
    else if (s < 3600)
        snprintf(out, FIGURE_TEXT, "%" PRId64 " min %02" PRId64 " s", all / 60, all % 60);
    else
        snprintf(out, FIGURE_TEXT, "%" PRId64 " h %02" PRId64 " min", all / 3600, all / 60 % 60);
}

static void say_speed(char *out, const wd_page_run *r)
{
    const wd_curve *c = &r->metrics->figure[WD_FIGURE_STEPS_PER_S];
    if (c->count && c->newest > 0 && c->newest < 0.1)
        snprintf(out, FIGURE_TEXT, "%.3g s per step", 1 / c->newest);
    else if (c->count)
        snprintf(out, FIGURE_TEXT, "%.3g steps/s", c->newest);
}

static void say_memory(char *out, const wd_page_run *r)
{
    const double most = host_measured(r);
    if (!isnan(most)) snprintf(out, FIGURE_TEXT, "%.4g MiB", most / (1 << 20));
}

/* Of the device that has held most. */
static void say_device_memory(char *out, const wd_page_run *r)
{
    double most = -1;
    for (int i = 0; i < r->metrics->devices; i++) {
        const char *name = r->metrics->device[i].name;
        const double bytes = device_measured(r, name);
        if (bytes > most) snprintf(out, FIGURE_TEXT, "%.4g MiB, %s", bytes / (1 << 20), name);
        most = fmax(most, bytes);
    }
}

static void say_student(char *out, const wd_page_run *r)
{
    const json_t *s = json_object_get(r->files.run, "student");
    const double layers = number_of(s, "num_layers"), heads = number_of(s, "num_attention_heads");
    const double size = number_of(s, "attention_head_dim");
    if (!isnan(layers * heads * size))
        snprintf(out, FIGURE_TEXT, "%.6g blocks, width %.6g", layers, heads * size);
}

static void say_teacher(char *out, const wd_page_run *r)
{
    static const char *const names[] = {"teacher_path", "transformer", "targets"};
    for (size_t i = 0; i < sizeof names / sizeof *names && !*out; i++) {
        const char *path = json_string_value(wd__page_option(r, names[i], false));
        if (path) snprintf(out, FIGURE_TEXT, "%s", path);
    }
}

static void say_pictures(char *out, const wd_page_run *r)
{
    const double width = option_number(r, "width"), height = option_number(r, "height");
    if (!isnan(width * height)) snprintf(out, FIGURE_TEXT, "%.6gx%.6g", width, height);
}

static void say_device(char *out, const wd_page_run *r)
{
    const char *device = json_string_value(json_object_get(r->files.run, "device"));
    if (device) snprintf(out, FIGURE_TEXT, "%s", device);
}

static const struct {
    const char *name;
    void (*say)(char *out, const wd_page_run *r); /* "": the run has no such figure */
} figures[] = {{"State", say_state},
               {"Step", say_step},
               {"Steps dropped", say_dropped},
               {"Loss, mean of the last 100 steps", say_loss},
               {"Validation error", say_validation},
               {"Samples seen", say_samples},
               {"Teacher's velocities", say_targets},
               {"Time of training", say_time},
               {"Speed", say_speed},
               {"Host memory, most", say_memory},
               {"Device memory, most", say_device_memory},
               {"Student", say_student},
               {"Teacher", say_teacher},
               {"Pixels", say_pictures},
               {"Device", say_device}};

enum { FIGURES = sizeof figures / sizeof *figures };

static void put_cards(wd_page *page)
{
    wd_html *h = &page->html;
    wd__html_put(h, "<dl class=\"cards\">");
    for (int i = 0; i < FIGURES; i++) {
        char text[FIGURE_TEXT] = "";
        figures[i].say(text, &page->run[0]);
        if (!*text) continue;
        wd__html_say(h, "<div><dt>%s</dt><dd>", figures[i].name);
        wd__html_text(h, text);
        wd__html_put(h, "</dd></div>");
    }
    wd__html_put(h, "</dl>");
}

/* A row for each figure that some run has, and a column for each run. */
static void put_table(wd_page *page)
{
    wd_html *h = &page->html;
    wd__html_put(h, "<div class=\"scroll\"><table><thead><tr><th scope=\"col\">Figure</th>");
    for (int k = 0; k < page->count; k++) {
        wd__html_say(h, "<th scope=\"col\" class=\"c%d\"><i></i>", k);
        wd__html_text(h, page->run[k].name);
        wd__html_put(h, "</th>");
    }
    wd__html_put(h, "</tr></thead><tbody>");
    for (int i = 0; i < FIGURES; i++) {
        char text[WD_REPORT_RUNS_MAX][FIGURE_TEXT] = {0};
        bool any = false;
        for (int k = 0; k < page->count; k++) {
            figures[i].say(text[k], &page->run[k]);
            any |= *text[k] != 0;
        }
        if (!any) continue;
        wd__html_say(h, "<tr><th scope=\"row\">%s</th>", figures[i].name);
        for (int k = 0; k < page->count; k++) {
            wd__html_put(h, "<td>");
            wd__html_text(h, text[k]);
            wd__html_put(h, "</td>");
        }
        wd__html_put(h, "</tr>");
    }
    wd__html_put(h, "</tbody></table></div>");
}

static void put_notes(wd_page *page)
{
    wd_html *h = &page->html;
    for (int i = 0; i < page->count; i++) {
        const wd_page_run *r = &page->run[i];
        if (error_of(r)) {
            wd__html_put(h, "<p class=\"bad\">");
            wd__html_text(h, r->name);
            wd__html_put(h, ": ");
            wd__html_text(h, error_of(r));
            wd__html_put(h, "</p>");
        }
        if (r->metrics->wrong) {
            wd__html_put(h, "<p class=\"bad\">");
            wd__html_text(h, r->name);
            wd__html_say(h,
                         ": %" PRId64 " line%s of metrics.jsonl cannot be read, and %s left "
                         "out.</p>",
                         r->metrics->wrong, r->metrics->wrong == 1 ? "" : "s",
                         r->metrics->wrong == 1 ? "is" : "are");
        }
    }
}

void wd__page_figures(wd_page *page)
{
    put_notes(page);
    wd__html_put(&page->html, "<section aria-label=\"Figures\">");
    if (page->count == 1)
        put_cards(page);
    else
        put_table(page);
    wd__html_put(&page->html, "</section>\n");
}

/* ---- the head ---- */

static void put_title(wd_page *page)
{
    wd_html *h = &page->html;
    for (int i = 0; i < page->count; i++) {
        if (i) wd__html_put(h, ", ");
        wd__html_text(h, page->run[i].name);
    }
}

/* Whether somebody writes the page anew while the run goes on. */
static bool is_rewritten(const wd_page_run *r)
{
    const char *writes = json_string_value(wd__page_option(r, "save_report", false));
    return r->run.is_rewritten && !(writes && !strcmp(writes, "false"));
}

void wd__page_head(wd_page *page)
{
    wd_html *h = &page->html;
    bool runs = false;
    char written[32] = "";
    const time_t now = time(NULL);
    struct tm utc;
    for (int i = 0; i < page->count; i++) runs |= is_rewritten(&page->run[i]);
    if (gmtime_r(&now, &utc)) strftime(written, sizeof written, "%Y-%m-%d %H:%M UTC", &utc);
    wd__html_put(h, WD_REPORT_BEGIN
                 "\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
                 "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
                 "<meta name=\"color-scheme\" content=\"light dark\">"
                 "<meta name=\"referrer\" content=\"no-referrer\">"
                 "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none';"
                 "img-src data:;style-src 'unsafe-inline';script-src 'unsafe-inline'\">");
    if (runs) wd__html_put(h, "<noscript><meta http-equiv=\"refresh\" content=\"30\"></noscript>");
    wd__html_put(h, "<title>");
    put_title(page);
    wd__html_put(h, " - WanDistiller</title><style>");
    wd__html_put(h, wd__page_style);
    wd__html_say(h, "</style></head><body data-written=\"%lld\"%s><main><header><h1>",
                 (long long)now, runs ? " data-runs" : "");
    put_title(page);
    wd__html_say(h,
                 "</h1><p class=\"note\">%s of WanDistiller. Written %s<span id=\"age\"></span>%s"
                 "</p></header>\n",
                 page->count > 1 ? "Runs" : "A run", written,
                 runs ? "; the page reloads itself while the run goes on" : "");
}

/* ---- memory: the table ---- */

static void put_cell(wd_html *h, double bytes)
{
    const bool is_large = bytes >= 0x1p30;
    if (!(bytes >= 0 && bytes < 0x1p63)) /* not known, or no size */
        wd__html_put(h, "<td></td>");
    else
        wd__html_say(h, "<td title=\"%.0f bytes\">%.4g %s</td>", bytes,
                     bytes / (is_large ? 0x1p30 : 0x1p20), is_large ? "GiB" : "MiB");
}

static void put_row(wd_html *h, const char *place, double planned, double measured)
{
    wd__html_put(h, "<tr><th scope=\"row\">");
    wd__html_text(h, place);
    wd__html_put(h, "</th>");
    put_cell(h, planned);
    put_cell(h, measured);
    wd__html_put(h, "</tr>");
}

static void put_note(wd_html *h, const wd_page_run *run)
{
    bool is_simulated = false;
    for (int i = 0; i < run->metrics->devices; i++)
        is_simulated |= !strncmp(run->metrics->device[i].name, "sim:", 4);
    wd__html_say(h,
                 "<p class=\"note\">Of the first process (rank 0) and its devices. Host memory is "
                 "the process's own, without mapped files, as measured about once a second%s. Of a "
                 "device it is what the run has allocated there, counted with every allocation; "
                 "what the driver and its libraries take beside that is in neither column.</p>",
                 is_simulated ? "; measured, it includes the memory of simulated devices" : "");
}

/* Devices that were planned, then those that only metrics.jsonl has. */
static void put_devices(wd_html *h, const wd_page_run *run)
{
    const char *name;
    json_t *value;
    int rows = 0;
    json_t *planned = json_object_get(json_object_get(run->files.run, "memory"), "devices");
    json_object_foreach(planned, name, value)
    {
        if (rows++ == WD_REPORT_DEVICES_MAX) break;
        put_row(h, name, memory_number(run, "devices", name), device_measured(run, name));
    }
    for (int i = 0; i < run->metrics->devices; i++)
        if (!json_object_get(planned, run->metrics->device[i].name))
            put_row(h, run->metrics->device[i].name, NAN, run->metrics->device[i].bytes);
}

void wd__page_memory(wd_page *page, const wd_page_run *run)
{
    wd_html *h = &page->html;
    wd__html_put(h, "<h3>Memory, planned and measured</h3><div class=\"scroll\">"
                    "<table class=\"memory\"><thead><tr><th scope=\"col\">Memory</th>"
                    "<th scope=\"col\">Planned, at most</th>"
                    "<th scope=\"col\">Measured, at most</th></tr></thead><tbody>");
    put_row(h, "host", wd__page_host_planned(run), host_measured(run));
    put_devices(h, run);
    wd__html_put(h, "</tbody></table></div>");
    put_note(h, run);
}
