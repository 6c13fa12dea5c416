/* Curves from metrics.jsonl: they are exact while they are short, keep extremes when they are not,
 * and wrong lines change nothing. */
#include "testing.h"

#include <sys/stat.h>
#include <unistd.h>

#include "report/metrics_file.h"

static char path[128];

static void write_text(const char *text, const char *mode)
{
    snprintf(path, sizeof path, "%s/metrics.jsonl", wd_test_folder());
    FILE *file = fopen(path, mode);
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static wd_metrics_file *opened(void)
{
    wd_err err;
    wd_metrics_file *f;
    wd_test_ok(wd__metrics_file_open(&f, &err), &err);
    return f;
}

static void read_again(wd_metrics_file *f)
{
    wd_err err;
    wd_test_ok(wd__metrics_file_read(f, path, &err), &err);
}

static void a_short_curve_is_exact(void **state)
{
    (void)state;
    wd_curve c = {0};
    for (int i = 0; i < WD_CURVE_BINS; i++) wd__curve_add(&c, i, 0.5 * i);
    assert_int_equal(c.count, WD_CURVE_BINS);
    assert_int_equal(c.per_bin, 1);
    for (int i = 0; i < c.count; i++) {
        assert_true(wd__curve_bin_step(&c.bin[i]) == i);
        assert_true(wd__curve_bin_mean(&c.bin[i]) == 0.5 * i);
    }
}

static void a_long_curve_keeps_extremes(void **state)
{
    (void)state;
    enum { VALUES = 100000 };
    wd_curve c = {0};
    double low, high, sum = 0;
    int64_t count = 0;
    for (int i = 0; i < VALUES; i++) wd__curve_add(&c, i, i == 12345 ? 7 : i == 99998 ? -3 : i % 2);
    assert_in_range(c.count, WD_CURVE_BINS / 2, WD_CURVE_BINS);
    wd__curve_range(&low, &high, &c);
    assert_true(low == -3 && high == 7);
    for (int i = 0; i < c.count; i++) {
        assert_true(!i || c.bin[i].first > c.bin[i - 1].last);
        assert_true(c.bin[i].first <= wd__curve_bin_step(&c.bin[i]));
        assert_true(c.bin[i].last >= wd__curve_bin_step(&c.bin[i]));
        count += c.bin[i].count;
        sum += c.bin[i].sum;
    }
    assert_int_equal(count, VALUES);
    assert_true(sum == VALUES / 2 + 7 - 1 - 3); /* 12345 is odd, 99998 is even */
    wd_curve huge = {0};
    for (int i = 0; i < 2 * WD_CURVE_BINS; i++) wd__curve_add(&huge, i, 1.7e308);
    assert_true(wd__curve_bin_mean(&huge.bin[0]) == 1.7e308);
}

static void rows_become_curves(void **state)
{
    (void)state;
    write_text("{\"step\": 1, \"loss\": 2.5, \"grad_norm\": null, \"lr\": 1e-3, \"samples\": 16, "
               "\"targets\": 4, \"phase\": \"chord\", \"seconds\": 0.5, \"steps_per_s\": 2, "
               "\"memory_bytes\": 1000, \"unknown\": [1, {\"a\": \"b\"}]}\n"
               "\n"
               "{\"step\": 2, \"loss\": 1.5}\n"
               "{\"step\": 2, \"validation_error\": 0.75, \"validation_error_by_level\": "
               "[{\"sigma\": 1, \"error\": 0.5}, {\"sigma\": 0.25, \"error\": null}]}\n"
               "{\"step\": 3, \"lo",
               "w");
    wd_metrics_file *f = opened();
    read_again(f);
    assert_int_equal(f->rows, 3);
    assert_int_equal(f->wrong, 0); /* the last line is not whole yet */
    assert_int_equal(f->dropped, 1);
    assert_int_equal(f->figure[WD_FIGURE_LOSS].count, 2);
    assert_int_equal(f->figure[WD_FIGURE_GRAD_NORM].count, 0);
    assert_true(f->figure[WD_FIGURE_MEMORY].newest == 1000);
    assert_true(f->step == 2 && f->samples == 16 && f->targets == 4 && f->seconds == 0.5);
    assert_true(wd__metrics_file_loss(f) == 2);
    assert_true(f->best_validation == 0.75 && f->best_step == 2);
    assert_int_equal(f->levels, 1);
    assert_true(f->level[0]->sigma == 1 && f->level[0]->curve.newest == 0.5);
    write_text("ss\": 0.5, \"validation_error\": 1}\n"
               "{\"step\": 4, \"loss\": null, \"grad_norm\": null}\n",
               "a");
    read_again(f);
    assert_int_equal(f->rows, 5);
    assert_int_equal(f->dropped, 2);
    assert_true(f->step == 4 && f->figure[WD_FIGURE_LOSS].newest == 0.5);
    assert_true(f->best_validation == 0.75 && f->figure[WD_FIGURE_VALIDATION].newest == 1);
    wd__metrics_file_close(f);
}

static void wrong_lines_are_counted(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "not json",
        "[1, 2]",
        "{}",
        "{\"loss\": 1}",
        "{\"step\": -1, \"loss\": 1}",
        "{\"step\": 1.5, \"loss\": 1}",
        "{\"step\": 1e300, \"loss\": 1}",
        "{\"step\": \"9\", \"loss\": 1}",
        "{\"step\": 9, \"loss\": \"1\"}",
        "{\"step\": 9, \"loss\": 1e999}",
        "{\"step\": 9, \"loss\": 1, \"loss\": 2}",
        "{\"step\": 9, \"loss\": 1} trailing",
        "{\"step\": 9, \"samples\": [], \"loss\": 1}",
        "{\"step\": 9, \"loss\": 1, \"validation_error_by_level\": 3}",
        "{\"step\": 9, \"loss\": 1, \"validation_error_by_level\": [{\"error\": 1}]}",
        "{\"step\": 9, \"loss\": 1, \"validation_error_by_level\": [1]}",
        "{\"step\": 4, \"loss\": 1}", /* goes back */
        "{\"step\": 9, \"loss\": 1, \"phase\": \"\xff\"}",
    };
    const int64_t count = sizeof wrong / sizeof *wrong;
    write_text("{\"step\": 5, \"loss\": 3}\n", "w");
    for (int64_t i = 0; i < count; i++) {
        write_text(wrong[i], "a");
        write_text("\n", "a");
    }
    write_text("{\"step\": 6, \"loss\": 1}\n", "a");
    wd_metrics_file *f = opened();
    read_again(f);
    if (f->wrong != count) fail_msg("%d wrong lines of %d were seen", (int)f->wrong, (int)count);
    assert_int_equal(f->rows, 2);
    assert_true(f->step == 6 && wd__metrics_file_loss(f) == 2);
    wd__metrics_file_close(f);
}

static void a_line_may_be_too_long(void **state)
{
    (void)state;
    enum { LONG = 200000 };
    char *line;
    wd_err err;
    wd_test_ok(wd_alloc((void **)&line, LONG + 2, 1, "a line", &err), &err);
    memset(line, 'x', LONG);
    line[LONG] = '\n';
    write_text("{\"step\": 1, \"loss\": 1}\n", "w");
    write_text(line, "a");
    write_text("{\"step\": 2, \"loss\": 2}\n", "a");
    wd_metrics_file *f = opened();
    read_again(f);
    assert_int_equal(f->wrong, 1);
    assert_int_equal(f->rows, 2);
    wd__metrics_file_close(f);
    wd_free(line);
}

static void too_many_levels_are_said(void **state)
{
    (void)state;
    char line[96];
    write_text("", "w");
    for (int i = 0; i <= WD_LEVELS_MAX; i++) {
        snprintf(line, sizeof line,
                 "{\"step\": 1, \"validation_error_by_level\": [{\"sigma\": %d, \"error\": 1}]}\n",
                 i);
        write_text(line, "a");
        wd_metrics_file *f = opened();
        read_again(f);
        assert_int_equal(f->levels, i < WD_LEVELS_MAX ? i + 1 : WD_LEVELS_MAX);
        assert_int_equal(f->more_levels, i == WD_LEVELS_MAX);
        wd__metrics_file_close(f);
    }
}

/* A file that was cut, or another one, is read anew. */
static void another_file_is_read_anew(void **state)
{
    (void)state;
    write_text("{\"step\": 7, \"loss\": 1}\n{\"step\": 8, \"loss\": 1}\n", "w");
    wd_metrics_file *f = opened();
    read_again(f);
    write_text("{\"step\": 3, \"loss\": 4}\n", "w"); /* the same file, shorter */
    read_again(f);
    assert_true(f->rows == 1 && f->step == 3 && wd__metrics_file_loss(f) == 4);
    char other[160];
    snprintf(other, sizeof other, "%s.new", path);
    assert_int_equal(rename(path, other), 0);
    write_text("{\"step\": 1, \"loss\": 5}\n{\"step\": 2, \"loss\": 7}\n", "w");
    read_again(f);
    assert_true(f->rows == 2 && wd__metrics_file_loss(f) == 6);
    wd__metrics_file_close(f);
}

static void only_files_are_read(void **state)
{
    (void)state;
    wd_err err;
    char link[160];
    write_text("{\"step\": 1, \"loss\": 1}\n", "w");
    snprintf(link, sizeof link, "%s/link.jsonl", wd_test_folder());
    assert_int_equal(symlink(path, link), 0);
    wd_metrics_file *f = opened();
    wd_test_refused(wd__metrics_file_read(f, link, &err), &err, WD_IO, "link.jsonl");
    snprintf(link, sizeof link, "%s/none.jsonl", wd_test_folder());
    wd_test_refused(wd__metrics_file_read(f, link, &err), &err, WD_NOT_FOUND, "none.jsonl");
    assert_int_equal(mkfifo(link, 0600), 0);
    wd_test_refused(wd__metrics_file_read(f, link, &err), &err, WD_BAD_FORMAT, "none.jsonl");
    assert_int_equal(f->rows, 0);
    wd__metrics_file_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_short_curve_is_exact),    cmocka_unit_test(a_long_curve_keeps_extremes),
        cmocka_unit_test(rows_become_curves),        cmocka_unit_test(wrong_lines_are_counted),
        cmocka_unit_test(a_line_may_be_too_long),    cmocka_unit_test(too_many_levels_are_said),
        cmocka_unit_test(another_file_is_read_anew), cmocka_unit_test(only_files_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
