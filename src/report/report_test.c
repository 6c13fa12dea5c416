/* The page about runs as text: what it shows is what the runs' files say, nothing from them is
 * markup, and its size has a bound. tests/report_test.c looks at it in a browser. */
#include "testing.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/picture/png.h"
#include "report/report.h"
#include "report/run_files.h"

static const char hostile[] = "</script><img src=x onerror=\\\"a\\\">&'\\u001b[2J";
static const char escaped[] =
    "&lt;/script&gt;&lt;img src=x onerror=&quot;a&quot;&gt;&amp;&#39;?[2J";

static void put(const char *run, const char *name, const char *text)
{
    char path[WD_PATH_MAX], folder[WD_PATH_MAX];
    wd_err err;
    snprintf(path, sizeof path, "%s/%s/%s", wd_test_folder(), run, name);
    wd_test_ok(wd_path_beside(folder, path, "", &err), &err);
    wd_test_ok(wd_folder_make(folder, &err), &err);
    wd_test_ok(wd_file_write(path, text, strlen(text), &err), &err);
}

static void put_metrics(const char *run, int steps)
{
    static char text[1 << 20];
    size_t used = 0;
    for (int i = 1; i <= steps; i++)
        used +=
            (size_t)snprintf(text + used, sizeof text - used,
                             "{\"step\": %d, \"loss\": %.17g, \"lr\": 0.0015}\n", i, 1.0 / 3 + i);
    put(run, "metrics.jsonl", text);
}

static const char *folder_of(const char *run)
{
    static char path[4][WD_PATH_MAX];
    static int next;
    char *out = path[next++ % 4];
    snprintf(out, sizeof *path, "%s/%s", wd_test_folder(), run);
    return out;
}

/* The page about `count` runs; the caller frees it. */
static char *page_of(const wd_reported_run *run, int64_t count)
{
    char path[WD_PATH_MAX], *text;
    size_t bytes;
    wd_err err;
    wd_run_page *page;
    snprintf(path, sizeof path, "%s/page.html", wd_test_folder());
    wd_test_ok(wd_run_page_open(&page, count, &err), &err);
    wd_test_ok(wd_run_page_write(page, path, run, &err), &err);
    wd_run_page_close(page);
    wd_test_ok(wd_file_read(&text, &bytes, path, 32 << 20, &err), &err);
    assert_int_equal(strlen(text), bytes);
    assert_int_equal(strncmp(text, WD_REPORT_BEGIN, strlen(WD_REPORT_BEGIN)), 0);
    assert_non_null(strstr(text, "</body></html>\n"));
    return text;
}

static char *page_of_one(const char *run)
{
    return page_of(&(wd_reported_run){.folder = folder_of(run)}, 1);
}

static void assert_has(const char *text, const char *part)
{
    if (!strstr(text, part)) fail_msg("the page has no \"%s\"", part);
}

static int count_of(const char *text, const char *part)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, part)); at++) n++;
    return n;
}

static void texts_are_no_markup(void **state)
{
    (void)state;
    char run[1024], card[1024];
    static const char name[] = "run<b>\"'&\xff\x1b";
    snprintf(run, sizeof run,
             "{\"command\": \"train\", \"options\": {\"data_path\": \"%s\", \"%s\": 1}, "
             "\"resolved\": {\"teacher_path\": \"%s\", \"sample_prompts\": [\"%s\"]}, "
             "\"device\": \"%s\"}",
             hostile, hostile, hostile, hostile, hostile);
    snprintf(card, sizeof card, "# x\n\n## Sampling\n\n```\nprompt=</code></script>\n```\n\n%s\n",
             "<img>");
    put_metrics(name, 3);
    put(name, "run.json", run);
    put(name, "README.md", card);
    char *text = page_of_one(name);
    assert_int_equal(count_of(text, "<script"), 1);
    assert_int_equal(count_of(text, "</script"), 1);
    assert_null(strstr(text, "<img src=x"));
    assert_null(strstr(text, "<b>"));
    assert_null(strchr(text, 0x1b));
    assert_non_null(strstr(text, "run&lt;b&gt;&quot;&#39;&amp;??"));
    assert_true(count_of(text, escaped) >= 4); /* value, name, teacher, device */
    assert_has(text, "prompt=&lt;/code&gt;&lt;/script&gt;\n</code></pre>");
    assert_has(text, "<p>&lt;img&gt;</p>");
    assert_null(strstr(text, "http://")); /* it needs no network */
    assert_null(strstr(text, "https://"));
    wd_free(text);
}

static void numbers_are_those_of_the_metrics(void **state)
{
    (void)state;
    put_metrics("numbers", 5);
    put("numbers", "run.json",
        "{\"command\": \"train\", \"options\": {\"num_steps\": 5}, \"resolved\": "
        "{\"num_steps\": 5, \"lr\": 0.0015}, \"memory\": {\"bytes_peak\": 1048576}}");
    char *text = page_of_one("numbers");
    assert_has(text, "data-p=\"1 1.333333;2 2.333333;3 3.333333;4 4.333333;5 5.333333\"");
    assert_has(text, "at step 5 5.333333, lowest 1.333333, highest 5.333333");
    assert_has(text, "<dt>State</dt><dd>done</dd>");
    assert_has(text, "<dt>Step</dt><dd>5 of 5</dd>");
    assert_has(text, "<dd>3.333</dd>"); /* the mean loss */
    assert_has(text, "<code>lr</code></th><td>0.0015</td>");
    assert_null(strstr(text, "data-runs")); /* it does not reload itself */
    wd_free(text);
    text = page_of(&(wd_reported_run){.folder = folder_of("numbers"),
                                      .is_running = true,
                                      .is_rewritten = true},
                   1);
    assert_has(text, "<body data-written=\"");
    assert_has(text, " data-runs>");
    assert_has(text, "<dd>training</dd>");
    wd_free(text);
    text = page_of(&(wd_reported_run){.folder = folder_of("numbers"), .is_running = true}, 1);
    assert_has(text, "<dd>training</dd>");
    assert_null(strstr(text, "data-runs")); /* nobody writes it anew */
    assert_null(strstr(text, "http-equiv=\"refresh\""));
    wd_free(text);
}

/* Also where all its steps are made, as where the last ones were dropped; not while it goes on. */
static void a_failed_run_says_why(void **state)
{
    (void)state;
    char run[16 << 10], lost[8 << 10];
    memset(lost, 'a', sizeof lost);
    lost[sizeof lost - 1] = 0;
    put_metrics("lost", 5);
    snprintf(run, sizeof run,
             "{\"command\": \"train\", \"resolved\": {\"num_steps\": 5}, \"error\": \"%s%s\"}",
             hostile, lost);
    put("lost", "run.json", run);
    char *text = page_of_one("lost");
    snprintf(run, sizeof run, "<p class=\"bad\">lost: %saaa", escaped);
    assert_has(text, run);
    assert_has(text, "aaa...</p>"); /* so long is no error of this program */
    assert_has(text, "<dt>State</dt><dd>failed</dd>");
    wd_free(text);
    text = page_of(&(wd_reported_run){.folder = folder_of("lost"), .is_running = true}, 1);
    assert_has(text, "<dd>training</dd>");
    assert_null(strstr(text, "class=\"bad\""));
    wd_free(text);
    put("lost", "run.json",
        "{\"command\": \"train\", \"resolved\": {\"num_steps\": 5}, \"error\": [\"x\"]}");
    text = page_of_one("lost");
    assert_has(text, "<dt>State</dt><dd>done</dd>");
    wd_free(text);
}

/* A run says why it has ended: all steps are made, its time is used up, or it was stopped. */
static void the_state_says_why_a_run_has_ended(void **state)
{
    (void)state;
    static const struct {
        const char *seconds, *says;
    } ends[] = {{"61.5", "done: its time is used up"},
                {"60", "done: its time is used up"},
                {"59.9", "ended"}};
    put("timed", "run.json",
        "{\"command\": \"train\", \"resolved\": {\"num_steps\": 9, \"max_minutes\": 1}}");
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        char row[64], state_text[64];
        snprintf(row, sizeof row, "{\"step\": 3, \"seconds\": %s}\n", ends[i].seconds);
        snprintf(state_text, sizeof state_text, "<dt>State</dt><dd>%s</dd>", ends[i].says);
        put("timed", "metrics.jsonl", row);
        char *text = page_of_one("timed");
        assert_has(text, state_text);
        wd_free(text);
    }
    put("timed", "run.json",
        "{\"command\": \"train\", \"resolved\": {\"save_report\": \"false\"}}");
    char *text = page_of(
        &(wd_reported_run){.folder = folder_of("timed"), .is_running = true, .is_rewritten = true},
        1);
    assert_null(strstr(text, "data-runs")); /* the run writes no page */
    wd_free(text);
}

/* Planned and measured, of the host and of each device; of names that are markup, too. */
static void memory_is_planned_and_measured(void **state)
{
    (void)state;
    put("memory", "metrics.jsonl",
        "{\"step\": 1, \"loss\": 1, \"memory_bytes\": 7000, \"device_memory_bytes\": "
        "{\"sim:0\": 1048577, \"sim:1\": 0, \"<b>\": 5, \"huge\": 1e308}}\n"
        "{\"step\": 1, \"validation_error\": 1}\n"
        "{\"step\": 2, \"device_memory_bytes\": {\"sim:0\": -1}}\n"
        "{\"step\": 2, \"device_memory_bytes\": [1]}\n");
    put("memory", "run.json",
        "{\"command\": \"train\", \"memory\": {\"bytes_peak\": 6000, \"bytes_before\": 500, "
        "\"devices\": {\"sim:0\": 2000000, \"sim:1\": 3, \"&\": 7}, \"devices_measured\": "
        "{\"sim:0\": 1999999}}}");
    char *text = page_of_one("memory");
    assert_has(text, "<th scope=\"row\">host</th><td title=\"6500 bytes\">0.006199 MiB</td>"
                     "<td title=\"7000 bytes\">");
    assert_has(text, "<th scope=\"row\">sim:0</th><td title=\"2000000 bytes\">1.907 MiB</td>"
                     "<td title=\"1999999 bytes\">1.907 MiB</td></tr>");
    assert_has(text, "<th scope=\"row\">sim:1</th><td title=\"3 bytes\">2.861e-06 MiB</td>"
                     "<td title=\"0 bytes\">0 MiB</td></tr>");
    assert_has(text, "<th scope=\"row\">&amp;</th><td title=\"7 bytes\">6.676e-06 MiB</td>"
                     "<td></td></tr>");
    assert_has(text, "<th scope=\"row\">&lt;b&gt;</th><td></td><td title=\"5 bytes\">");
    assert_has(text, "<th scope=\"row\">huge</th><td></td><td></td>");
    assert_has(text, "the memory of simulated devices");
    assert_has(text, "2 lines of metrics.jsonl cannot be read");
    wd_free(text);
    put("memory", "metrics.jsonl",
        "{\"step\": 1, \"device_memory_bytes\": {\"sim:0\": 1048576}}\n"
        "{\"step\": 1, \"validation_error\": 1}\n");
    put("memory", "run.json", "{}");
    text = page_of_one("memory");
    assert_has(text, "<dt>Device memory, most</dt><dd>1 MiB, sim:0</dd>");
    wd_free(text);
    put("memory", "metrics.jsonl",
        "{\"step\": 1, \"device_memory_bytes\": {\"sim:0\": 1048576}}\n"
        "{\"step\": 2, \"memory_bytes\": 7000}\n");
    text = page_of_one("memory"); /* it was resumed on the processor alone */
    assert_null(strstr(text, "sim:0"));
    assert_null(strstr(text, "Device memory"));
    wd_free(text);
}

/* Which student an evaluation is of, since the run may have gone on. */
static void an_evaluation_names_its_student(void **state)
{
    (void)state;
    static const struct {
        const char *eval, *says;
    } cases[] = {
        {"{\"student\": {\"trained_steps\": 5}}", "the student of step 5"},
        {"{\"student\": {\"trained_steps\": 3}}", "the student of step 3; the run is at step 5"},
        {"{\"student\": {\"trained_steps\": 9223372036854775807}}",
         "the student of step 9223372036854775807; the run is at step 5"},
        {"{\"student\": {\"weights\": 7}}", "not known"}, /* of an older version */
        {"{\"student\": {\"trained_steps\": -3}}", "not known"},
        {"{\"student\": {\"trained_steps\": 1e300}}", "not known"},
        {"{\"student\": \"x\"}", "not known"},
        {"{\"student\": {}, \"quantisation\": \"<b>\"}", "the teacher in &lt;b&gt;"},
    };
    put_metrics("judged", 5);
    put_metrics("plain", 5);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char row[256];
        put("judged", i % 2 ? "eval.json" : "eval/eval.json", cases[i].eval);
        const wd_reported_run runs[] = {{.folder = folder_of("judged")},
                                        {.folder = folder_of("plain")}};
        char *text = page_of(runs, 2);
        snprintf(row, sizeof row, "<th scope=\"row\">Measured</th><td>%s</td><td></td></tr>",
                 cases[i].says);
        assert_has(text, row);
        wd_free(text);
        if (i % 2) assert_int_equal(unlink(folder_of("judged/eval.json")), 0);
    }
}

/* No curve shows these steps, for their figures are null. */
static void dropped_steps_are_counted(void **state)
{
    (void)state;
    put_metrics("dropped", 4);
    char *text = page_of_one("dropped");
    assert_null(strstr(text, "dropped</dt>"));
    wd_free(text);
    put("dropped", "metrics.jsonl",
        "{\"step\": 1, \"loss\": 1, \"grad_norm\": 2}\n"
        "{\"step\": 2, \"loss\": null, \"grad_norm\": null}\n"
        "{\"step\": 3, \"loss\": 1, \"grad_norm\": null}\n"
        "{\"step\": 3, \"validation_error\": null}\n");
    text = page_of_one("dropped");
    assert_has(text, "<dt>Steps dropped</dt><dd>2</dd>");
    wd_free(text);
}

static void several_runs_are_compared(void **state)
{
    (void)state;
    put_metrics("one", 4);
    put_metrics("two", 6);
    put_metrics("more/two", 2);
    put("one", "run.json",
        "{\"command\": \"train\", \"options\": {}, \"resolved\": "
        "{\"lr\": 0.1, \"seed\": 3, \"recipe\": null}}");
    put("two", "run.json",
        "{\"command\": \"train\", \"options\": {}, \"resolved\": "
        "{\"lr\": 0.2, \"seed\": 3, \"recipe\": \"chord\"}}");
    const wd_reported_run runs[] = {{.folder = folder_of("one")},
                                    {.folder = folder_of("two/")},
                                    {.folder = folder_of("more/two")}};
    char *text = page_of(runs, 3);
    assert_has(text, "<h1>one, two, two (2)</h1>");
    assert_has(text, "<code>lr</code></th><td>0.1</td><td>0.2</td><td></td>");
    assert_has(text, "<code>recipe</code></th><td></td><td>chord</td><td></td>");
    assert_has(text, "<th scope=\"row\">Step</th><td>4</td><td>6</td><td>2</td>");
    assert_int_equal(count_of(text, "<figcaption>Loss</figcaption>"), 1);
    assert_int_equal(count_of(text, "data-name=\"two\""), 2); /* loss and learning rate */
    wd_free(text);
    text = page_of(runs, 2);
    assert_null(strstr(text, "<code>seed</code></th><td>3</td><td>3</td>"));
    wd_free(text);
}

/* A sheet of so many bytes: noise, so that the file is about as large as its pixels. */
static void put_sheet(const char *run, int step, int64_t side)
{
    char path[WD_PATH_MAX];
    wd_err err;
    uint8_t *rgb;
    uint32_t noise = (uint32_t)step + 1;
    snprintf(path, sizeof path, "%s/%s/samples", wd_test_folder(), run);
    wd_test_ok(wd_folder_make(path, &err), &err);
    snprintf(path, sizeof path, "%s/%s/samples/step-%08d.png", wd_test_folder(), run, step);
    wd_test_ok(wd_alloc((void **)&rgb, (size_t)(side * side), 3, "noise", &err), &err);
    for (int64_t i = 0; i < 3 * side * side; i++) {
        noise = noise * 1664525u + 1013904223u;
        rgb[i] = (uint8_t)(noise >> 24);
    }
    wd_test_ok(wd_png_write(path, rgb, side, side, &err), &err);
    wd_free(rgb);
}

static void sheets_are_in_the_page(void **state)
{
    (void)state;
    char link[WD_PATH_MAX], target[WD_PATH_MAX];
    put_metrics("sheets", 3);
    for (int i = 1; i <= 3; i++) put_sheet("sheets", 10 * i, 8);
    put("sheets", "samples/step-00000040.png", "no picture");
    put("sheets", "samples/step-50.png", "not named as a run does");
    snprintf(target, sizeof target, "%s/samples/step-00000010.png", folder_of("sheets"));
    snprintf(link, sizeof link, "%s/samples/step-00000060.png", folder_of("sheets"));
    assert_int_equal(symlink(target, link), 0);
    char *text = page_of_one("sheets");
    assert_int_equal(count_of(text, "src=\"data:image/png;base64,iVBORw0KGgo"), 3);
    assert_has(text, "<figure data-step=\"10\">");
    assert_has(text, "<figure data-step=\"30\">");
    assert_has(text, "width=\"8\" height=\"8\"");
    assert_has(text, "<a href=\"./sheets/samples/step-00000010.png\">step-00000010.png</a>, 8x8<");
    assert_has(text, "alt=\"Sheet of samples of step 30 of sheets: the teacher&#39;s pictures");
    assert_null(strstr(text, "left out"));
    wd_free(text);
}

/* The number of sheets that the page shows; *last is the highest step among them. */
static int shown_sheets(int *last, const char *text)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, "<figure data-step=\"")); n++)
        *last = atoi(at += strlen("<figure data-step=\""));
    return n;
}

/* Copies of noise are as large as their pixels: every second, or fourth sheet is left out. */
static void many_sheets_are_thinned(void **state)
{
    (void)state;
    int last = 0;
    put_metrics("many", 3);
    for (int i = 1; i <= 17; i++) put_sheet("many", i, 700);
    char *text = page_of_one("many");
    assert_int_equal(shown_sheets(&last, text), 9);
    assert_int_equal(last, 17);
    assert_has(text, "8 of 17 sheets are left out");
    assert_has(text, "data-step=\"1\"");
    assert_has(text, "data-step=\"3\"");
    assert_has(text, "width=\"632\" height=\"632\"");
    assert_has(text, "step-00000017.png</a>, 700x700");
    assert_true(strlen(text) < WD_PAGE_SHEET_BYTES / 3 * 4 + (1 << 20));
    wd_free(text);
    const wd_reported_run runs[] = {{.folder = folder_of("many")}, {.folder = folder_of("many")}};
    text = page_of(runs, 2); /* they share the bytes */
    assert_int_equal(count_of(text, "12 of 17 sheets are left out"), 2);
    assert_int_equal(count_of(text, "data-step=\"17\""), 2);
    wd_free(text);
}

/* A page of a run under way takes up what is new, and what was written anew. */
static void sheets_come_and_change(void **state)
{
    (void)state;
    char path[WD_PATH_MAX], *text[3];
    wd_err err;
    size_t bytes;
    wd_run_page *page;
    put_metrics("grows", 3);
    snprintf(path, sizeof path, "%s/grows.html", wd_test_folder());
    const wd_reported_run run = {.folder = folder_of("grows")};
    wd_test_ok(wd_run_page_open(&page, 1, &err), &err);
    for (int i = 0; i < 3; i++) {
        if (i < 2) put_sheet("grows", 100 + i, 16);
        if (i == 2) put_sheet("grows", 100, 24);
        if (i == 2) put("grows", "samples/step-00000102.png", "\x89PNG\r\n\x1a\n");
        wd_test_ok(wd_run_page_write(page, path, &run, &err), &err);
        wd_test_ok(wd_file_read(&text[i], &bytes, path, 32 << 20, &err), &err);
    }
    wd_run_page_close(page);
    assert_int_equal(count_of(text[0], "<figure data-step"), 1);
    assert_int_equal(count_of(text[1], "<figure data-step"), 2);
    assert_int_equal(count_of(text[2], "<figure data-step"), 2);
    assert_has(text[1], "step-00000100.png</a>, 16x16");
    assert_has(text[2], "step-00000100.png</a>, 24x24");
    for (int i = 0; i < 3; i++) wd_free(text[i]);
}

/* A file with the head of a picture and nothing behind it; the others are shown. */
static void a_cut_sheet_is_left_out(void **state)
{
    (void)state;
    char path[WD_PATH_MAX];
    put_metrics("cut", 3);
    for (int i = 1; i <= 3; i++) put_sheet("cut", i, 40);
    snprintf(path, sizeof path, "%s/samples/step-00000003.png", folder_of("cut"));
    assert_int_equal(truncate(path, 1000), 0);
    char *text = page_of_one("cut");
    assert_int_equal(count_of(text, "<figure data-step"), 2);
    assert_has(text, "1 of 3 sheets cannot be read as a picture");
    assert_null(strstr(text, "are left out"));
    wd_free(text);
}

static void curves_are_thinned(void **state)
{
    (void)state;
    put_metrics("thin", 9000);
    char *text = page_of_one("thin");
    assert_true(strlen(text) < 200000);
    assert_has(text, "class=\"band");
    assert_has(text, "lowest 1.333333, highest 9000.333");
    wd_free(text);
}

static void a_folder_without_metrics_is_refused(void **state)
{
    (void)state;
    char path[WD_PATH_MAX];
    wd_err err;
    wd_run_page *page;
    put("empty", "run.json", "{}");
    snprintf(path, sizeof path, "%s/none.html", wd_test_folder());
    const wd_reported_run run = {.folder = folder_of("empty")};
    wd_test_ok(wd_run_page_open(&page, 1, &err), &err);
    wd_test_refused(wd_run_page_write(page, path, &run, &err), &err, WD_NOT_FOUND,
                    "empty/metrics.jsonl is not there");
    wd_run_page_close(page);
    assert_false(wd_path_exists(path));
}

static int entries_of(const char *folder)
{
    int entries = -2; /* . and .. */
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    while (readdir(dir)) entries++;
    closedir(dir);
    return entries;
}

/* A page that cannot be written leaves the earlier one, and nothing else. */
static void a_failure_leaves_the_earlier_page(void **state)
{
    (void)state;
    char path[WD_PATH_MAX], *text;
    size_t before, after;
    wd_err err;
    wd_run_page *page;
    struct rlimit limit;
    put_metrics("fails", 3);
    put("target", "report.html", WD_REPORT_BEGIN "an earlier one");
    snprintf(path, sizeof path, "%s/target/report.html", wd_test_folder());
    const wd_reported_run run = {.folder = folder_of("fails")};
    wd_test_ok(wd_file_read(&text, &before, path, 1000, &err), &err);
    wd_free(text);
    wd_test_ok(wd_run_page_open(&page, 1, &err), &err);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){.rlim_cur = 1000, .rlim_max = limit.rlim_max});
    const wd_status status = wd_run_page_write(page, path, &run, &err);
    setrlimit(RLIMIT_FSIZE, &limit);
    wd_test_refused(status, &err, WD_IO, "report.html");
    wd_test_ok(wd_file_read(&text, &after, path, 1000, &err), &err);
    wd_free(text);
    assert_int_equal(after, before);
    assert_int_equal(entries_of(folder_of("target")), 1);
    wd_test_ok(wd_run_page_write(page, path, &run, &err), &err); /* a page is replaced */
    wd_run_page_close(page);
    wd_test_ok(wd_file_read(&text, &after, path, 32 << 20, &err), &err);
    wd_free(text);
    assert_true(after > before);
}

/* Neither a file of the user, nor a link, nor a folder is. */
static void only_a_page_is_replaced(void **state)
{
    (void)state;
    wd_err err;
    char path[WD_PATH_MAX];
    wd_run_page *page;
    put_metrics("mine", 3);
    put("mine", "own.html", "<!doctype html>mine");
    put("mine", "page.html", WD_REPORT_BEGIN);
    const wd_reported_run run = {.folder = folder_of("mine")};
    snprintf(path, sizeof path, "%s/link.html", folder_of("mine"));
    assert_int_equal(symlink("page.html", path), 0);
    snprintf(path, sizeof path, "%s/folder.html", folder_of("mine"));
    wd_test_ok(wd_folder_make(path, &err), &err);
    static const char *const names[] = {"own.html", "link.html", "folder.html"};
    wd_test_ok(wd_run_page_open(&page, 1, &err), &err);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder_of("mine"), names[i]);
        wd_test_refused(wd_run_page_write(page, path, &run, &err), &err, WD_INVALID_ARGUMENT,
                        "is no page of this program");
    }
    wd_run_page_close(page);
    assert_int_equal(entries_of(folder_of("mine")), 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_no_markup),
        cmocka_unit_test(numbers_are_those_of_the_metrics),
        cmocka_unit_test(a_failed_run_says_why),
        cmocka_unit_test(the_state_says_why_a_run_has_ended),
        cmocka_unit_test(memory_is_planned_and_measured),
        cmocka_unit_test(an_evaluation_names_its_student),
        cmocka_unit_test(dropped_steps_are_counted),
        cmocka_unit_test(several_runs_are_compared),
        cmocka_unit_test(sheets_are_in_the_page),
        cmocka_unit_test(many_sheets_are_thinned),
        cmocka_unit_test(sheets_come_and_change),
        cmocka_unit_test(a_cut_sheet_is_left_out),
        cmocka_unit_test(curves_are_thinned),
        cmocka_unit_test(a_folder_without_metrics_is_refused),
        cmocka_unit_test(a_failure_leaves_the_earlier_page),
        cmocka_unit_test(only_a_page_is_replaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
