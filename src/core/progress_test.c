/* Progress: the text of a line, when it is reported, and to which function. */
#include "testing.h"

#include <unistd.h>

#include "core/log.h"
#include "core/progress.h"

static wd_progress heard;
static int times;
static char line[256];

static void hear(void *context, const wd_progress *progress)
{
    (void)context;
    heard = *progress;
    times++;
}

static void read_line(void *context, wd_log_level level, const char *message)
{
    (void)context;
    assert_int_equal(level, WD_LOG_INFO);
    snprintf(line, sizeof line, "%s", message);
}

static void lines_say_what_there_is(void **state)
{
    (void)state;
    char text[160];
    wd_progress p = {.what = "training",
                     .unit = "step",
                     .done = 120,
                     .total = 2000,
                     .loss = 0.03121,
                     .validation_error = NAN,
                     .rate = 8.44,
                     .seconds_left = 224.2};
    assert_string_equal(
        wd__progress_text(text, sizeof text, &p, 412345678),
        "training: step  120/2000  loss 0.03121  8.44 steps/s  ETA 3:44  memory 412 MB");
    p.validation_error = 0.2134;
    assert_non_null(strstr(wd__progress_text(text, sizeof text, &p, 0),
                           "  loss 0.03121  validation 0.2134  8.44 steps/s"));
    p = (wd_progress){.what = "encoding prompts",
                      .unit = "prompt",
                      .done = 7,
                      .loss = NAN,
                      .validation_error = NAN,
                      .rate = 0.05,
                      .seconds_left = 7384};
    assert_string_equal(wd__progress_text(text, sizeof text, &p, 23456789012),
                        "encoding prompts: prompt 7  20 s/prompt  ETA 2:03:04  memory 23.5 GB");
    p.rate = p.seconds_left = NAN;
    assert_string_equal(wd__progress_text(text, sizeof text, &p, 0),
                        "encoding prompts: prompt 7  -- prompts/s  ETA --:--");
    assert_int_equal(strlen(wd__progress_text(text, 10, &p, 0)), 9);
}

static void what_was_done_before_is_no_speed(void **state)
{
    (void)state;
    times = 0;
    wd_progress_to(hear, NULL);
    wd_progress_task part = wd_progress_begin("training", "step", 900, 1000);
    wd_progress_at(&part, 900);
    assert_true(isnan(heard.rate) && isnan(heard.seconds_left));
    part.begun -= 50; /* seconds */
    wd_progress_at(&part, 950);
    assert_int_equal(times, 3); /* the beginning is told, too */
    assert_int_equal(heard.done, 950);
    assert_in_range(1000 * heard.rate, 990, 1000); /* 50 steps in 50 seconds and a bit */
    assert_in_range(heard.seconds_left, 49, 51);
    part.seconds_max = 60;
    wd_progress_at(&part, 950);
    assert_in_range(heard.seconds_left, 9, 10); /* time ends it before its steps do */
    wd_progress_to(NULL, NULL);
}

static void lines_become_rarer(void **state)
{
    (void)state;
    wd_log_to(read_line, NULL, WD_LOG_INFO);
    wd_progress_task part = wd_progress_begin("loading", "block", 0, 100);
    wd_progress_at(&part, 1);
    assert_string_equal(line, ""); /* no part of less than a second has one */
    part.begun -= 2, part.said -= 2;
    wd_progress_at(&part, 2);
    assert_non_null(strstr(line, "loading: block   2/100"));
    *line = 0;
    part.begun -= 600, part.said = part.begun + 600 - 5;
    wd_progress_at(&part, 3);
    assert_string_equal(line, ""); /* after ten minutes: every ten seconds */
    part.said -= 10;
    wd_progress_at(&part, 4);
    assert_non_null(strstr(line, "loading: block   4/100"));
    *line = 0;
    wd_progress_to(hear, NULL); /* a function takes the place of the log */
    part.said -= 100;
    wd_progress_at(&part, 5);
    assert_string_equal(line, "");
    assert_int_equal(heard.done, 5);
    times = 0;
    wd_log_as_rank(1);
    wd_progress_at(&part, 6);
    wd_log_as_rank(0);
    assert_int_equal(times, 0);
    wd_progress_to(NULL, NULL);
    wd_log_to(NULL, NULL, WD_LOG_INFO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_say_what_there_is),
        cmocka_unit_test(what_was_done_before_is_no_speed),
        cmocka_unit_test(lines_become_rarer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
