/* The line of progress on a terminal. */
#include "testing.h"

#include "cli/cli.h"

static void lines_fit_the_terminal(void **state)
{
    (void)state;
    char text[256];
    wd_progress p = {.what = "training",
                     .unit = "step",
                     .done = 450,
                     .total = 1000,
                     .loss = 0.01234,
                     .validation_error = NAN,
                     .rate = 3.1,
                     .seconds_left = 177,
                     .seconds = 145};
    assert_string_equal(wd_cli_progress_text(text, sizeof text, 80, &p),
                        "training [####------]  45%  step 450/1000  loss 0.01234  3.1 "
                        "steps/s  2:57 left");
    assert_string_equal(wd_cli_progress_text(text, sizeof text, 70, &p),
                        "training  step 450/1000  loss 0.01234  3.1 steps/s  2:57 left");
    for (int columns = 1; columns < 200; columns++)
        assert_in_range(strlen(wd_cli_progress_text(text, sizeof text, columns, &p)), 0,
                        columns - 1);
    assert_int_equal(strlen(wd_cli_progress_text(text, 20, 80, &p)), 19);
    char unit[400] = "";
    memset(unit, 'u', sizeof unit - 1);
    p.unit = unit; /* figures that do not fit are cut, too */
    assert_in_range(strlen(wd_cli_progress_text(text, sizeof text, 200, &p)), 100, 199);
}

static void unknown_figures_are_left_out(void **state)
{
    (void)state;
    char text[256];
    wd_progress p = {.what = "decoding",
                     .unit = "picture",
                     .done = 0,
                     .total = 8,
                     .loss = NAN,
                     .validation_error = NAN,
                     .rate = NAN,
                     .seconds_left = NAN};
    assert_string_equal(wd_cli_progress_text(text, sizeof text, 50, &p),
                        "decoding [--------------------]   0%  picture 0/8");
    p.done = p.total;
    assert_string_equal(wd_cli_progress_text(text, sizeof text, 50, &p),
                        "decoding [####################] 100%  picture 8/8");
    p.done = 2 * p.total; /* the bar must not exceed its width */
    assert_string_equal(wd_cli_progress_text(text, sizeof text, 50, &p), "decoding  picture 16/8");
    p = (wd_progress){.what = "training",
                      .unit = "step",
                      .done = 7,
                      .loss = 2,
                      .validation_error = NAN,
                      .rate = 0.02,
                      .seconds = 400,
                      .seconds_left = 3600}; /* a time limit ends it */
    assert_string_equal(wd_cli_progress_text(text, sizeof text, 70, &p),
                        "training [#-----------]  10%  step 7  loss 2  50 s/step  1:00:00 left");
    p.seconds_left = NAN; /* not known */
    assert_string_equal(wd_cli_progress_text(text, sizeof text, 70, &p),
                        "training  step 7  loss 2  50 s/step");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_fit_the_terminal),
        cmocka_unit_test(unknown_figures_are_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
