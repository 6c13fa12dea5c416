/* Memory of a run, planned and measured: of the host and of each device.
 *
 * run.json has what was planned, and once the run has ended what devices have held at most;
 * metrics.jsonl has that until each step. Both measure since the program began, so of a run that
 * was resumed they say its last part. */
#include <math.h>
#include <string.h>

#include "report/page_impl.h"

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

double wd__page_host_measured(const wd_page_run *run)
{
    double low, high;
    const wd_curve *curve = &run->metrics->figure[WD_FIGURE_MEMORY];
    if (!curve->count) return NAN;
    wd__curve_range(&low, &high, curve);
    return high;
}

double wd__page_device_measured(const wd_page_run *run, const char *device)
{
    double bytes = memory_number(run, "devices_measured", device);
    for (int i = 0; i < run->metrics->devices; i++)
        if (!strcmp(run->metrics->device[i].name, device))
            bytes = fmax(bytes, run->metrics->device[i].bytes);
    return bytes;
}

/* ---- the table ---- */

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
        put_row(h, name, memory_number(run, "devices", name), wd__page_device_measured(run, name));
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
    put_row(h, "host", wd__page_host_planned(run), wd__page_host_measured(run));
    put_devices(h, run);
    wd__html_put(h, "</tbody></table></div>");
    put_note(h, run);
}
