/* report.html: a run writes it, `report` makes it later and of several runs, and a browser shows
 * what it should. The browser is Chromium, asked for the page after its script has run; where there
 * is none that test is skipped. */
#include "runs.h"

#include <sys/stat.h>

#include "io/json/json.h"
#include "wandistiller.h"

static wd_program program;

static char *read_page(const char *path)
{
    char *text;
    size_t bytes;
    wd_err err;
    wd_test_ok(wd_file_read(&text, &bytes, path, 32 << 20, &err), &err);
    return text;
}

static void assert_has(const char *text, const char *part)
{
    if (!strstr(text, part)) fail_msg("the page has no \"%s\"", part);
}

static int make_runs(void **state)
{
    prepare(state);
    wd_program_run(&program, SMALL_RUN(wd_test_path("one")), "--save_samples", "true",
                   "--sample_interval", "2", "--sample_steps", "2");
    wd_program_succeeded(&program);
    wd_program_run(&program, SMALL_RUN(wd_test_path("two")), "--save_samples", "true",
                   "--sample_interval", "4", "--sample_steps", "2", "--weight_decay", "0.5");
    wd_program_succeeded(&program);
    wd_program_run(&program, SMALL_RUN(wd_test_path("devices")), "--num_steps", "3",
                   "--save_samples", "true", "--sample_steps", "2", "--devices",
                   "sim:64MiB,64MiB@compute=1TFLOP/s,link=1GB/s", "--teacher_device_strategy",
                   "balanced");
    wd_program_succeeded(&program);
    return 0;
}

/* The page of a run that has ended, as the run itself has left it. */
static void a_run_leaves_its_page(void **state)
{
    (void)state;
    char *text = read_page(wd_test_path("one/report.html"));
    assert_has(text, "<dt>State</dt><dd>done</dd>");
    assert_has(text, "<dt>Step</dt><dd>8 of 8</dd>");
    assert_has(text, "<figure data-step=\"8\">");
    assert_has(text, "<figcaption>Host memory <small>in MiB</small>");
    assert_has(text, "WanPipeline.from_pretrained"); /* as the card says it */
    assert_has(text, "data:image/svg+xml;base64,");
    assert_null(strstr(text, " data-runs")); /* it does not reload itself any more */
    wd_free(text);
    assert_true(wd_path_exists(wd_test_path("one/plan.svg")));
}

static json_int_t peak_of(const json_t *run, const char *kind, const char *device)
{
    const json_t *peaks = json_object_get(json_object_get(run, "memory"), kind);
    return json_integer_value(json_object_get(peaks, device));
}

/* Simulated devices count every byte: each holds what was planned, or less. The last step's row of
 * metrics.jsonl has what was held so far; the sheet at the end is drawn after it. */
static void assert_device_memory(const char *page, const char *device)
{
    char *text, row[256];
    wd_err err;
    json_t *run;
    long long seen = 0;
    wd_test_ok(wd_json_load(&run, wd_test_path("devices/run.json"), &err), &err);
    const json_int_t planned = peak_of(run, "devices", device);
    json_int_t measured = peak_of(run, "devices_measured", device);
    json_decref(run);
    text = read_page(wd_test_path("devices/metrics.jsonl"));
    const char *last = strstr(text, "{\"step\": 3,"),
               *at = last ? strstr(last, "\"device_m") : NULL;
    assert_non_null(at);
    snprintf(row, sizeof row, "\"%s\": ", device);
    at = strstr(at, row);
    assert_non_null(at);
    assert_int_equal(sscanf(at + strlen(row), "%lld", &seen), 1);
    wd_free(text);
    if (!measured) measured = seen; /* of a run that has not ended */
    assert_true(seen > 0 && seen <= measured && measured <= planned);
    snprintf(row, sizeof row, "<th scope=\"row\">%s</th><td title=\"%lld bytes\">", device,
             (long long)planned);
    assert_has(page, row);
    snprintf(row, sizeof row, "</td><td title=\"%lld bytes\">", (long long)measured);
    assert_has(strstr(page, device), row);
}

static void device_memory_is_shown(void **state)
{
    (void)state;
    char *text = read_page(wd_test_path("devices/report.html"));
    assert_device_memory(text, "sim:0");
    assert_device_memory(text, "sim:1");
    wd_free(text);
}

/* What `report` makes later is the same page but for the times at which it was written. */
static void the_page_can_be_made_later(void **state)
{
    (void)state;
    char *before = read_page(wd_test_path("one/report.html"));
    wd_program_run(&program, "report", wd_test_path("one"));
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, "the report is in "));
    char *after = read_page(wd_test_path("one/report.html"));
    const char *x = strstr(before, "</header>"), *y = strstr(after, "</header>");
    assert_true(x && y);
    assert_string_equal(x, y);
    wd_free(before);
    wd_free(after);
}

/* The page of run "judged" says which student was measured; "": it has no evaluation. */
static void assert_measured(const char *says)
{
    char row[128];
    wd_program_run(&program, "report", wd_test_path("judged"));
    wd_program_succeeded(&program);
    char *text = read_page(wd_test_path("judged/report.html"));
    snprintf(row, sizeof row, "<th scope=\"row\">Measured</th><td>%s</td>", says);
    if (*says)
        assert_has(text, row);
    else
        assert_null(strstr(text, "id=\"evaluation\""));
    wd_free(text);
}

/* An evaluation is of one student. The run may train it further, and the next run has another. */
static void an_evaluation_is_of_its_student(void **state)
{
    (void)state;
    const char *run = wd_test_path("judged");
    wd_program_run(&program, SMALL_RUN(run), "--stop_at_step", "2");
    wd_program_succeeded(&program);
    wd_program_run(&program, "eval", "--teacher", teacher, "--student", run, "--prompts",
                   wd_test_path("prompts.txt"), "--steps", "1", "--reference_steps", "1", "--count",
                   "1", "--out", wd_test_path("judged/eval"));
    wd_program_succeeded(&program);
    assert_measured("the student of step 2");
    wd_program_run(&program, SMALL_RUN(run), "--stop_at_step", "3", "--resume", "auto");
    wd_program_succeeded(&program);
    assert_measured("the student of step 2; the run is at step 3");
    wd_program_run(&program, SMALL_RUN(run), "--num_steps", "1");
    wd_program_succeeded(&program);
    assert_measured("");
    assert_true(wd_path_exists(wd_test_path("judged/earlier-1/eval/side-by-side.png")));
}

static void a_page_can_be_left_out(void **state)
{
    (void)state;
    wd_program_run(&program, SMALL_RUN(wd_test_path("none")), "--save_report", "false");
    wd_program_succeeded(&program);
    assert_false(wd_path_exists(wd_test_path("none/report.html")));
    assert_false(wd_path_exists(wd_test_path("none/plan.svg")));
    wd_program_run(&program, SMALL_RUN(wd_test_path("plain")));
    wd_program_succeeded(&program);
    assert_true(wd_path_exists(wd_test_path("plain/report.html")));
    assert_same_weights(wd_test_path("none"), wd_test_path("plain"));
}

/* A page that cannot be written is a warning, and the student is the same. */
static void a_run_goes_on_without_its_page(void **state)
{
    (void)state;
    wd_err err;
    wd_program_run(&program, SMALL_RUN(wd_test_path("barred")), "--stop_at_step", "4");
    wd_program_succeeded(&program);
    assert_int_equal(unlink(wd_test_path("barred/report.html")), 0);
    wd_test_ok(wd_folder_make(wd_test_path("barred/report.html/x"), &err), &err);
    wd_program_run(&program, SMALL_RUN(wd_test_path("barred")), "--resume", "auto");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, "report.html"));
    assert_non_null(strstr(program.err, "training goes on, and its report lacks"));
    assert_same_weights(wd_test_path("barred"), wd_test_path("plain"));
}

/* A user's own plan.svg in the folder of a run that goes on stays; the run's own is replaced. */
static void a_plan_that_is_none_of_a_run_stays(void **state)
{
    (void)state;
    wd_err err;
    static const char mine[] = "<svg>my own picture</svg>";
    const char *run = wd_test_path("drawn"), *plan = wd_test_path("drawn/plan.svg");
    wd_program_run(&program, SMALL_RUN(run), "--stop_at_step", "1");
    wd_program_run(&program, SMALL_RUN(run), "--stop_at_step", "2", "--resume", "auto");
    wd_program_succeeded(&program);
    assert_null(strstr(program.err, "plan.svg"));
    wd_test_ok(wd_file_write(plan, mine, sizeof mine - 1, &err), &err);
    wd_program_run(&program, SMALL_RUN(run), "--stop_at_step", "3", "--resume", "auto");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, "plan.svg is there, and is no picture of a plan"));
    char *text = read_page(plan);
    assert_string_equal(text, mine);
    wd_free(text);
}

/* A page elsewhere is of a run under way, and stays as it is. */
static void only_the_runs_own_page_reloads_itself(void **state)
{
    (void)state;
    const char *run = wd_test_path("long");
    const pid_t pid =
        wd_program_start((const char *const[]){SMALL_RUN(run), "--num_steps", "1000000", NULL});
    wait_for_steps(wd_test_path("long/metrics.jsonl"));
    wd_program_run(&program, "report", run, "--out", wd_test_path("elsewhere.html"));
    wd_program_succeeded(&program);
    wd_program_run(&program, "report", run);
    wd_program_succeeded(&program);
    char *own = read_page(wd_test_path("long/report.html"));
    kill(pid, SIGTERM);
    wd_program_wait(&program, pid);
    char *text = read_page(wd_test_path("elsewhere.html"));
    assert_has(text, "<dt>State</dt><dd>training</dd>");
    assert_null(strstr(text, " data-runs"));
    assert_has(own, " data-runs>");
    wd_free(own);
    wd_free(text);
}

static void what_is_wrong_is_said(void **state)
{
    (void)state;
    wd_err err;
    static const char mine[] = "<!doctype html>my own page";
    const char *page = wd_test_path("mine.html");
    wd_test_ok(wd_file_write(page, mine, sizeof mine - 1, &err), &err);
    wd_program_run(&program, "report");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "report needs --runs");
    wd_program_run(&program, "report", wd_test_path("nowhere"));
    wd_program_refused(&program, WD_NOT_FOUND, "expected the output folder of a run of train");
    wd_program_run(&program, "report", wd_test_folder());
    wd_program_refused(&program, WD_NOT_FOUND, "metrics.jsonl is not there");
    wd_program_run(&program, "report", wd_test_path("one"), wd_test_path("two"));
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "--out FILE says where it is written");
    wd_program_run(&program, "report", wd_test_path("one"), "--out", page);
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "is no page of this program");
    wd_program_run(&program, "report", wd_test_path("one"), "--out", wd_test_path("x.png"));
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "a .html file");
    const char *r = wd_test_path("one");
    wd_program_run(&program, "report", r, r, r, r, r, r, r, r, r, "--out", wd_test_path("n.html"));
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "9 runs: a page has at most 8");
    char *text = read_page(page);
    assert_string_equal(text, mine);
    wd_free(text);
    wd_test_ok(wd_folder_make(wd_test_path("wrong"), &err), &err);
    static const char rows[] = "{\"step\": 1, \"loss\": 1}\nx\ny\n";
    wd_test_ok(wd_file_write(wd_test_path("wrong/metrics.jsonl"), rows, sizeof rows - 1, &err),
               &err);
    wd_program_run(&program, "report", wd_test_path("wrong"));
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, "2 lines cannot be read, and are left out"));
}

/* ---- in a browser ---- */

static const char *browser(void)
{
    static const char *const names[] = {"/usr/bin/chromium", "/usr/bin/chromium-browser",
                                        "/usr/bin/google-chrome"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!access(names[i], X_OK)) return names[i];
    return NULL;
}

/* The page's elements after its script has run, in program.out. Network is cut off, and what the
 * script says of errors is in program.err. */
static void show(const char *page)
{
    char url[300], profile[300];
    snprintf(url, sizeof url, "file://%s", page);
    snprintf(profile, sizeof profile, "--user-data-dir=%s/browser", wd_test_folder());
    const char *const arguments[] = {"--headless",
                                     "--no-sandbox",
                                     "--disable-gpu",
                                     "--disable-dev-shm-usage",
                                     "--no-first-run",
                                     "--disable-background-networking",
                                     "--host-resolver-rules=MAP * ~NOTFOUND",
                                     "--enable-logging=stderr",
                                     profile,
                                     "--dump-dom",
                                     url,
                                     NULL};
    wd_program_wait(&program, wd_program_start_as(browser(), arguments));
    if (program.code || !strstr(program.out, "</html>")) fail_msg("no page: %s", program.err);
    if (strstr(program.err, "CONSOLE")) fail_msg("the page complains: %s", program.err);
}

static void a_browser_shows_one_sheet(void **state)
{
    (void)state;
    if (!browser()) wd_test_skip("there is no Chromium");
    wd_program_run(&program, "report", wd_test_path("one"));
    wd_program_succeeded(&program);
    show(wd_test_path("one/report.html"));
    assert_has(program.out, "id=\"at\" for=\"step\">8</output>");
    assert_has(program.out, "<figure data-step=\"8\"><figcaption>");
    assert_has(program.out, "<figure data-step=\"2\" hidden=\"\">");
    assert_has(program.out, "aria-valuetext=\"step 8\"");
    assert_has(program.out, " ago)</span>");
}

/* The page of a run that has not ended: metrics.jsonl alone has what was measured. */
static void a_browser_shows_device_memory(void **state)
{
    (void)state;
    wd_err err;
    json_t *run;
    if (!browser()) wd_test_skip("there is no Chromium");
    wd_test_ok(wd_json_load(&run, wd_test_path("devices/run.json"), &err), &err);
    assert_int_equal(json_object_del(json_object_get(run, "memory"), "devices_measured"), 0);
    wd_test_ok(wd_json_save(run, wd_test_path("devices/run.json"), &err), &err);
    json_decref(run);
    wd_program_run(&program, "report", wd_test_path("devices"));
    wd_program_succeeded(&program);
    show(wd_test_path("devices/report.html"));
    assert_device_memory(program.out, "sim:0");
    assert_device_memory(program.out, "sim:1");
}

static void a_browser_shows_two_runs(void **state)
{
    (void)state;
    if (!browser()) wd_test_skip("there is no Chromium");
    wd_program_run(&program, "report", wd_test_path("one"), wd_test_path("two"), "--out",
                   wd_test_path("both.html"));
    wd_program_succeeded(&program);
    show(wd_test_path("both.html"));
    assert_has(program.out, "<h1>one, two</h1>");
    assert_has(program.out, "<code>weight_decay</code>");
    const char *one = strstr(program.out, "<figure data-step=\"8\"><figcaption>");
    assert_non_null(one); /* the newest sheet of both is shown */
    assert_non_null(strstr(one + 1, "<figure data-step=\"8\"><figcaption>"));
}

static void put_losses(const char *run, int steps)
{
    char text[8192], path[WD_PATH_MAX];
    size_t used = 0;
    wd_err err;
    wd_test_ok(wd_folder_make(wd_test_path(run), &err), &err);
    for (int i = 1; i <= steps; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "{\"step\": %d, \"loss\": %d}\n",
                                 i, 100 + i);
    wd_test_ok(wd_path_join(path, wd_test_path(run), "metrics.jsonl", &err), &err);
    wd_test_ok(wd_file_write(path, text, used, &err), &err);
}

/* The pointer near the right end of a curve, where the first run has ended long ago. */
static void the_pointer_shows_the_longer_run(void **state)
{
    (void)state;
    static const char script[] =
        "<script>(function(){var svg=document.querySelector('.chart svg[data-x]'),"
        "r=svg.getBoundingClientRect();svg.dispatchEvent(new PointerEvent('pointermove',"
        "{clientX:r.left+r.width*.95,clientY:r.top+50}))})()</script>";
    char *text;
    wd_err err;
    if (!browser()) wd_test_skip("there is no Chromium");
    put_losses("short", 10);
    put_losses("longer", 100);
    const char *page = wd_test_path("lengths.html");
    wd_program_run(&program, "report", wd_test_path("short"), wd_test_path("longer"), "--out",
                   page);
    wd_program_succeeded(&program);
    char *both = read_page(page);
    const size_t bytes = strlen(both) + sizeof script;
    wd_test_ok(wd_alloc((void **)&text, bytes, 1, "a page", &err), &err);
    snprintf(text, bytes, "%s%s", both, script);
    wd_test_ok(wd_file_write(page, text, strlen(text), &err), &err);
    wd_free(text);
    wd_free(both);
    show(page);
    assert_has(program.out, "id=\"tip\"");
    const char *tip = strstr(program.out, "<div id=\"tip\"");
    assert_has(tip, ">step 9");
    assert_has(tip, "longer: 19");
    assert_null(strstr(tip, "short: 1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_leaves_its_page),
        cmocka_unit_test(device_memory_is_shown),
        cmocka_unit_test(the_page_can_be_made_later),
        cmocka_unit_test(an_evaluation_is_of_its_student),
        cmocka_unit_test(a_page_can_be_left_out),
        cmocka_unit_test(a_run_goes_on_without_its_page),
        cmocka_unit_test(a_plan_that_is_none_of_a_run_stays),
        cmocka_unit_test(only_the_runs_own_page_reloads_itself),
        cmocka_unit_test(what_is_wrong_is_said),
        cmocka_unit_test(a_browser_shows_one_sheet),
        cmocka_unit_test(a_browser_shows_device_memory),
        cmocka_unit_test(a_browser_shows_two_runs),
        cmocka_unit_test(the_pointer_shows_the_longer_run),
    };
    return cmocka_run_group_tests(tests, make_runs, NULL);
}
