/* metrics.jsonl is cut back on resume. */
#include "testing.h"

#include <sys/stat.h>
#include <unistd.h>

#include "train/loop/metrics.h"

static wd_metrics_row row(int64_t step)
{
    return (wd_metrics_row){.step = step,
                            .loss = 1.0 / (double)step,
                            .grad_norm = step == 3 ? NAN : 0.5,
                            .lr = 1e-3,
                            .samples = 16 * step,
                            .targets = 64,
                            .phase = "chord",
                            .seconds = 0.1 * (double)step,
                            .steps_per_s = 10,
                            .memory_bytes = 4096};
}

static void write_rows(const char *folder, int64_t resume_step, int64_t last)
{
    wd_err err;
    wd_metrics *metrics;
    wd_test_ok(wd__metrics_open(&metrics, folder, resume_step, &err), &err);
    for (int64_t step = resume_step + 1; step <= last; step++) {
        wd_metrics_row r = row(step);
        wd_test_ok(wd__metrics_write(metrics, &r, &err), &err);
    }
    wd__metrics_close(metrics);
}

static char *read_all(const char *folder, const char *name, size_t *bytes)
{
    char path[WD_PATH_MAX], *text;
    wd_err err;
    wd_test_ok(wd_path_join(path, folder, name, &err), &err);
    wd_test_ok(wd_file_read(&text, bytes, path, 1 << 20, &err), &err);
    return text;
}

static void test_rows(void **state)
{
    (void)state;
    const char *folder = wd_test_folder();
    size_t whole_bytes, bytes;
    write_rows(folder, 0, 6);
    char *whole = read_all(folder, "metrics.jsonl", &whole_bytes);
    const char *third = "{\"step\": 3, \"loss\": 0.33333333333333331, \"grad_norm\": null, "
                        "\"lr\": 0.001, \"samples\": 48, \"targets\": 64, \"phase\": \"chord\", "
                        "\"seconds\": 0.3, \"steps_per_s\": 10, \"memory_bytes\": 4096}\n";
    assert_non_null(strstr(whole, third));

    /* A kill left half a line, and the run goes on from the checkpoint of step 4. Also where that
     * line would be of a step that is kept. */
    char path[WD_PATH_MAX], *resumed = NULL;
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    for (int64_t kept = 6; kept >= 3; kept -= 3) {
        write_rows(folder, kept, kept);
        FILE *file = fopen(path, "a");
        fprintf(file, "{\"step\": %d, \"lo", (int)kept + 1);
        fclose(file);
        write_rows(folder, 4, 6);
        wd_free(resumed);
        resumed = read_all(folder, "metrics.jsonl", &bytes);
        if (kept == 6) assert_string_equal(resumed, whole);
        assert_null(strstr(resumed, "\"lo{"));
        assert_int_equal(resumed[bytes - 1], '\n');
    }

    write_rows(folder, 0, 2); /* a new run in the same folder */
    wd_free(resumed);
    resumed = read_all(folder, "metrics.jsonl", &bytes);
    assert_int_equal(strncmp(resumed, whole, bytes), 0);
    assert_true(bytes < whole_bytes);
    wd_free(resumed);
    wd_free(whole);
}

/* The row of a step after which the student was validated; and a line of its own, where the row is
 * there already. Both are of their step when a run is resumed. */
static void test_validation(void **state)
{
    (void)state;
    wd_err err;
    wd_metrics *metrics;
    size_t bytes;
    char folder[WD_PATH_MAX];
    const wd_validation_result found = {
        .step = 3, .error = 0.5, .levels = 2, .sigma = {1, 0.25}, .by_level = {0.75, NAN}};
    wd_metrics_row r = row(3);
    r.validation = &found;
    wd_test_ok(wd_path_join(folder, wd_test_folder(), "validated", &err), &err);
    wd_test_ok(wd_folder_make(folder, &err), &err);
    wd_test_ok(wd__metrics_open(&metrics, folder, 0, &err), &err);
    wd_test_ok(wd__metrics_write(metrics, &r, &err), &err);
    wd_test_ok(wd__metrics_write_validation(metrics, &found, &err), &err);
    wd__metrics_close(metrics);
    write_rows(folder, 3, 3);
    char *text = read_all(folder, "metrics.jsonl", &bytes);
    static const char said[] = "\"validation_error\": 0.5, \"validation_error_by_level\": "
                               "[{\"sigma\": 1, \"error\": 0.75}, {\"sigma\": 0.25, \"error\": "
                               "null}]";
    const char *first = strstr(text, said), *second = first ? strstr(first + 1, said) : NULL;
    assert_true(first && second);
    assert_non_null(strstr(text, "\"phase\": \"chord\", \"validation_error\""));
    assert_non_null(strstr(first, "], \"seconds\": 0.3"));
    assert_non_null(strstr(text, "\n{\"step\": 3, \"validation_error\""));
    assert_string_equal(second + sizeof said - 1, "}\n");
    wd_free(text);
}

/* What devices have held stands behind host memory. */
static void test_devices(void **state)
{
    (void)state;
    wd_err err;
    wd_metrics *metrics;
    size_t bytes;
    char folder[WD_PATH_MAX];
    const wd_device_peak peak[] = {{"cuda:0", 12345}, {"cuda:1", 0}};
    wd_metrics_row r = row(1);
    r.device = peak;
    r.devices = 2;
    wd_test_ok(wd_path_join(folder, wd_test_folder(), "devices", &err), &err);
    wd_test_ok(wd_folder_make(folder, &err), &err);
    wd_test_ok(wd__metrics_open(&metrics, folder, 0, &err), &err);
    wd_test_ok(wd__metrics_write(metrics, &r, &err), &err);
    wd__metrics_close(metrics);
    char *text = read_all(folder, "metrics.jsonl", &bytes);
    assert_non_null(strstr(text, "\"memory_bytes\": 4096, \"device_memory_bytes\": "
                                 "{\"cuda:0\": 12345, \"cuda:1\": 0}}\n"));
    wd_free(text);
}

/* As many noise levels as there can be, with as many digits. */
static void test_long_rows(void **state)
{
    (void)state;
    wd_err err;
    wd_metrics *metrics;
    size_t bytes;
    char folder[WD_PATH_MAX];
    wd_validation_result found = {.step = 1, .error = 1.0 / 3, .levels = WD_RESULT_LEVELS_MAX};
    for (int i = 0; i < WD_RESULT_LEVELS_MAX; i++) {
        found.sigma[i] = 1e-30 / (i + 3);
        found.by_level[i] = -1e-300 / (i + 3);
    }
    wd_metrics_row r = row(1);
    r.validation = &found;
    wd_test_ok(wd_path_join(folder, wd_test_folder(), "levels", &err), &err);
    wd_test_ok(wd_folder_make(folder, &err), &err);
    wd_test_ok(wd__metrics_open(&metrics, folder, 0, &err), &err);
    wd_test_ok(wd__metrics_write(metrics, &r, &err), &err);
    wd__metrics_close(metrics);
    write_rows(folder, 1, 1); /* keeps it */
    char *text = read_all(folder, "metrics.jsonl", &bytes);
    assert_non_null(strstr(text, "\"steps_per_s\": 10, \"memory_bytes\": 4096}\n"));
    wd_free(text);
}

static void test_unwritable(void **state)
{
    (void)state;
    wd_err err;
    wd_metrics *metrics;
    assert_int_equal(wd__metrics_open(&metrics, "/dev/null/x", 0, &err), WD_IO);
    assert_non_null(strstr(err.message, "/dev/null/x"));
}

static void is_refused(const char *name, const char *expected)
{
    wd_err err;
    wd_metrics *metrics;
    char folder[WD_PATH_MAX];
    wd_test_ok(wd_path_join(folder, wd_test_folder(), name, &err), &err);
    wd_test_refused(wd__metrics_open(&metrics, folder, 4, &err), &err, WD_IO, expected);
}

/* The path of metrics.jsonl in a new folder. */
static const char *new_place(const char *name)
{
    static char path[WD_PATH_MAX];
    wd_err err;
    char folder[WD_PATH_MAX];
    wd_test_ok(wd_path_join(folder, wd_test_folder(), name, &err), &err);
    wd_test_ok(wd_folder_make(folder, &err), &err);
    wd_test_ok(wd_path_join(path, folder, "metrics.jsonl", &err), &err);
    return path;
}

/* What somebody else put there is neither emptied nor waited for. */
static void test_not_ours(void **state)
{
    (void)state;
    char victim[WD_PATH_MAX], *text;
    size_t bytes;
    wd_err err;
    wd_test_ok(wd_path_join(victim, wd_test_folder(), "victim", &err), &err);
    wd_test_ok(wd_file_write(victim, "mine\n", 5, &err), &err);
    assert_int_equal(symlink(victim, new_place("link")), 0);
    is_refused("link", "metrics.jsonl: expected a file, found a symbolic link");
    wd_test_ok(wd_file_read(&text, &bytes, victim, 100, &err), &err);
    assert_string_equal(text, "mine\n");
    wd_free(text);
    assert_int_equal(mkfifo(new_place("pipe"), 0600), 0);
    is_refused("pipe", "metrics.jsonl: expected a file, found a device or pipe");
}

/* Lines of any length that are not ours are cut off, and ours around the border of what is read at
 * a time are kept. */
static void test_long_files(void **state)
{
    (void)state;
    enum { ROWS = 300, MORE = 40000 };
    wd_err err;
    size_t whole_bytes, bytes;
    char folder[WD_PATH_MAX];
    const char *path = new_place("long");
    wd_test_ok(wd_path_join(folder, wd_test_folder(), "long", &err), &err);
    write_rows(folder, 0, ROWS);
    char *whole = read_all(folder, "metrics.jsonl", &whole_bytes);
    assert_true(whole_bytes > 32 << 10);
    FILE *file = fopen(path, "a");
    for (int i = 0; i < MORE; i++) fputc('x', file);
    fprintf(file, "\n{\"step\": 1, \"loss\": 1}\n");
    fclose(file);
    write_rows(folder, ROWS, ROWS);
    char *kept = read_all(folder, "metrics.jsonl", &bytes);
    assert_string_equal(kept, whole);
    wd_free(kept);
    wd_free(whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),       cmocka_unit_test(test_validation),
        cmocka_unit_test(test_devices),    cmocka_unit_test(test_long_rows),
        cmocka_unit_test(test_unwritable), cmocka_unit_test(test_not_ours),
        cmocka_unit_test(test_long_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
