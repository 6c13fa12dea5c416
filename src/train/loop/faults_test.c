/* A run when calls of the system fail: metrics and sheets are missing, and training goes on; a
 * checkpoint that cannot be written ends the run, and the one before it is whole. */
#include "faults.h"

#include <dirent.h>
#include <jansson.h>

#include "core/log.h"
#include "harness/trainer.h"
#include "train/loop/metrics.h"
#include "train/loop/tensorboard.h"

/* ---- metrics ---- */

enum { ROWS = 6 };

typedef struct rows {
    char folder[128];
    bool written[ROWS + 1]; /* by step, from 1 */
    int64_t failed;
} rows;

/* As the trainer does it: after a row that could not be written come the others. */
static wd_status attempt_rows(void *context, wd_err *err)
{
    rows *r = context;
    wd_metrics *metrics;
    wd_status worst = WD_OK;
    memset(r->written, 0, sizeof r->written);
    WD_TRY(wd__metrics_open(&metrics, r->folder, 0, err));
    for (int64_t step = 1; step <= ROWS; step++) {
        wd_err why = {0};
        const wd_metrics_row row = {.step = step, .loss = 1.0 / (double)step, .grad_norm = 0.5};
        const wd_status status = wd__metrics_write(metrics, &row, &why);
        r->written[step] = status == WD_OK;
        if (worst == WD_OK && status != WD_OK) *err = why;
        if (worst == WD_OK) worst = status;
    }
    wd__metrics_close(metrics);
    return worst;
}

static char *read_file(const char *folder, const char *name, size_t *bytes)
{
    char path[WD_PATH_MAX], *text;
    wd_err err;
    wd_test_ok(wd_path_join(path, folder, name, &err), &err);
    wd_test_ok(wd_file_read(&text, bytes, path, 1 << 20, &err), &err);
    return text;
}

/* Whole lines, of all rows that were said to be written, in order. */
static void check_lines(const rows *r)
{
    size_t bytes;
    char *text = read_file(r->folder, "metrics.jsonl", &bytes), *line = text, *end;
    bool found[ROWS + 1] = {false};
    int64_t before = 0;
    for (; (end = strchr(line, '\n')); line = end + 1) {
        json_t *row = json_loadb(line, (size_t)(end - line), 0, NULL);
        const int64_t step = json_integer_value(json_object_get(row, "step"));
        assert_true(step > before && step <= ROWS);
        found[before = step] = true;
        json_decref(row);
    }
    assert_int_equal(*line, 0);
    for (int step = 1; step <= ROWS; step++) assert_true(found[step] || !r->written[step]);
    wd_free(text);
}

static uint64_t number(const char *at, int bytes)
{
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++) v |= (uint64_t)(unsigned char)at[i] << (8 * i);
    return v;
}

/* Whole records, each with the checksums that TensorBoard computes. Returns how many. */
static int check_records(const char *folder, const char *name)
{
    size_t bytes, at = 0;
    int count = 0;
    char *data = read_file(folder, name, &bytes);
    for (; at < bytes; count++) {
        assert_true(bytes - at >= 16);
        const uint64_t length = number(data + at, 8);
        assert_true(length <= bytes - at - 16);
        assert_int_equal(number(data + at + 8, 4), wd__crc32c_masked(data + at, 8));
        assert_int_equal(number(data + at + 12 + length, 4),
                         wd__crc32c_masked(data + at + 12, length));
        at += length + 16;
    }
    wd_free(data);
    return count;
}

/* All event files of the folder, which are then removed. Returns their records. */
static int check_events(const char *folder)
{
    int records = 0;
    struct dirent *item;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    while ((item = readdir(dir))) {
        char path[WD_PATH_MAX];
        wd_err err;
        if (strncmp(item->d_name, "events.", 7)) continue;
        records += check_records(folder, item->d_name);
        wd_test_ok(wd_path_join(path, folder, item->d_name, &err), &err);
        assert_int_equal(unlink(path), 0);
    }
    closedir(dir);
    return records;
}

static void check_rows(void *context, wd_status status)
{
    rows *r = context;
    check_lines(r);
    const int records = check_events(r->folder);
    if (status == WD_OK) assert_int_equal(records, 2 + 4 * ROWS);
    r->failed += status != WD_OK;
}

static void rows_and_records_are_whole(void **state)
{
    (void)state;
    static const wd_fault_call calls[] = {WD_FAULT_open, WD_FAULT_pwrite, WD_FAULT_close};
    wd_err err;
    rows r = {0};
    snprintf(r.folder, sizeof r.folder, "%s/rows", wd_test_folder());
    wd_test_ok(wd_folder_make(r.folder, &err), &err);
    wd_test_ok(attempt_rows(&r, &err), &err);
    check_rows(&r, WD_OK);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        assert_true(wd_fault_each(calls[i], attempt_rows, check_rows, &r) >= 2);
    assert_true(r.failed > ROWS);
}

/* As a read of a broken disk fails: rows that are there must not be taken for missing and cut off.
 */
static void rows_that_cannot_be_read_are_kept(void **state)
{
    (void)state;
    wd_err err;
    rows r = {0};
    wd_metrics *metrics;
    size_t bytes, kept_bytes;
    snprintf(r.folder, sizeof r.folder, "%s/unreadable", wd_test_folder());
    wd_test_ok(wd_folder_make(r.folder, &err), &err);
    wd_test_ok(attempt_rows(&r, &err), &err);
    char *whole = read_file(r.folder, "metrics.jsonl", &bytes);
    wd_fault_arm(WD_FAULT_read, WD_FAULT_ONCE, 1, "metrics.jsonl");
    const wd_status status = wd__metrics_open(&metrics, r.folder, ROWS, &err);
    wd_fault_disarm();
    wd_test_refused(status, &err, WD_IO, "metrics.jsonl: cannot be read: Input/output error");
    char *kept = read_file(r.folder, "metrics.jsonl", &kept_bytes);
    assert_string_equal(kept, whole);
    wd_free(kept);
    wd_free(whole);
}

/* ---- a run ---- */

static int warnings;
static char warning[1024];

static void count_warnings(void *context, wd_log_level level, const char *message)
{
    (void)context;
    if (level != WD_LOG_WARNING) return;
    warnings++;
    snprintf(warning, sizeof warning, "%s", message);
}

static void assert_same_checkpoint(const char *run, const char *other)
{
    static const char file[] = "/checkpoints/step-00000008/state.safetensors";
    char path[WD_PATH_MAX], hash[2][33];
    wd_err err;
    wd_test_ok(wd_file_hash(hash[0], path_of(path, run, file), &err), &err);
    wd_test_ok(wd_file_hash(hash[1], path_of(path, other, file), &err), &err);
    assert_string_equal(hash[0], hash[1]);
}

/* With sheets of one picture. */
static wd_trainer_options run_with_samples(char folder[WD_PATH_MAX], const char *run)
{
    static const char *const prompt[] = {"a cat"};
    wd_trainer_options options = small_run();
    options.sample_interval = 2;
    options.samples = (wd_samples_options){.folder = path_of(folder, run, "/samples"),
                                           .prompt = prompt,
                                           .count = 1,
                                           .steps = 1,
                                           .student_flow_shift = 3};
    return options;
}

/* From the third on no call of this kind goes well, of files whose paths have `only` in them. */
static void train_without(const char *run, wd_fault_call call, const char *only)
{
    char folder[WD_PATH_MAX];
    wd_err err = {0};
    wd_trainer_result result;
    const wd_trainer_options options = run_with_samples(folder, run);
    warnings = 0;
    wd_log_to(count_warnings, NULL, WD_LOG_WARNING);
    wd_fault_arm(call, WD_FAULT_FROM_THEN_ON, 3, only);
    const wd_status status = run_into(&result, run, &options, &err);
    wd_fault_disarm();
    wd_log_to(NULL, NULL, WD_LOG_ERROR);
    wd_test_ok(status, &err);
    assert_true(wd_faults.refused >= 2);
    assert_int_equal(result.steps, STEPS);
    if (warnings != 1) fail_msg("%d warnings, the last is: %s", warnings, warning);
    assert_non_null(strstr(warning, "training goes on"));
    assert_non_null(strstr(warning, only));
}

static void training_goes_on_without_metrics_and_sheets(void **state)
{
    (void)state;
    char folder[WD_PATH_MAX], path[WD_PATH_MAX];
    wd_err err = {0};
    wd_trainer_result result;
    const wd_trainer_options whole = run_with_samples(folder, "whole");
    wd_test_ok(run_into(&result, "whole", &whole, &err), &err);
    assert_true(wd_path_exists(path_of(path, "whole", "/samples/step-00000008.png")));
    train_without("no-metrics", WD_FAULT_pwrite, "metrics.jsonl");
    assert_same_checkpoint("whole", "no-metrics");
    train_without("no-events", WD_FAULT_pwrite, "events.out");
    assert_same_checkpoint("whole", "no-events");
    train_without("no-sheets", WD_FAULT_write, ".png");
    assert_same_checkpoint("whole", "no-sheets");
    assert_false(wd_path_exists(path_of(path, "no-sheets", "/samples/step-00000008.png")));
}

/* A checkpoint that finds no space, whether its space is reserved or it is written: a warning says
 * which is the newest, nothing of it is left, and later ones are written. */
static void a_checkpoint_without_space_is_left_out(void **state)
{
    (void)state;
    static const wd_fault_call call[] = {WD_FAULT_fallocate, WD_FAULT_write, WD_FAULT_write};
    static const char *const only[] = {"step-00000004/", "step-00000004/", "step-00000002/"};
    for (int i = 0; i < 3; i++) {
        char path[WD_PATH_MAX], unfinished[64], name[32];
        wd_err err = {0};
        wd_trainer_result result;
        wd_trainer_options options = small_run();
        const int step = i < 2 ? 4 : 2;
        snprintf(name, sizeof name, "full-%d", i);
        snprintf(unfinished, sizeof unfinished, "/checkpoints/.tmp-step-%08d", step);
        options.checkpoint_interval = 2;
        options.keep_checkpoints = STEPS;
        warnings = 0;
        wd_log_to(count_warnings, NULL, WD_LOG_WARNING);
        wd_fault_arm(call[i], WD_FAULT_FROM_THEN_ON, 1, only[i]);
        const wd_status status = run_into(&result, name, &options, &err);
        wd_fault_disarm();
        wd_log_to(NULL, NULL, WD_LOG_ERROR);
        wd_test_ok(status, &err);
        assert_int_equal(warnings, 1);
        assert_non_null(strstr(warning, "training goes on, and writes the next checkpoint when"));
        assert_non_null(
            strstr(warning, i < 2 ? "newest one is of step 2" : "there is no earlier one"));
        assert_false(wd_path_exists(path_of(path, name, unfinished)));
        for (int s = 2; s <= STEPS; s += 2) assert_int_equal(has_checkpoint(name, s), s != step);
        assert_int_equal(result.saved_step, STEPS);
        assert_same_checkpoint("whole", name);
    }
}

/* The last checkpoint finds no space: the student is written all the same. */
static void a_last_checkpoint_without_space(void **state)
{
    (void)state;
    char path[WD_PATH_MAX];
    wd_err err = {0};
    wd_trainer_result result;
    wd_trainer_options options = small_run();
    options.checkpoint_interval = STEPS - 2;
    warnings = 0;
    wd_log_to(count_warnings, NULL, WD_LOG_WARNING);
    wd_fault_arm(WD_FAULT_write, WD_FAULT_FROM_THEN_ON, 1, "step-00000008/");
    const wd_status status = run_into(&result, "last", &options, &err);
    wd_fault_disarm();
    wd_log_to(NULL, NULL, WD_LOG_ERROR);
    wd_test_ok(status, &err);
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(warning, "the run ends without this checkpoint"));
    assert_int_equal(result.saved_step, STEPS - 2);
    assert_true(wd_path_exists(path_of(path, "last", "/model_index.json")));
    options.resume = path_of(path, "last", "/checkpoints/step-00000006");
    wd_test_ok(run_into(&result, "last", &options, &err), &err);
    assert_same_checkpoint("whole", "last");
}

/* A disk that is full at the end has room once older checkpoints are removed, the oldest first and
 * no more than needed; the newest one stays. */
static void the_end_of_a_run_takes_the_room_of_older_checkpoints(void **state)
{
    (void)state;
    static const struct {
        const char *only;
        wd_fault_how how;
        int warnings, first; /* checkpoint that is left */
        int64_t saved_step;
    } cases[] = {{"step-00000008/", WD_FAULT_ONCE, 1, 4, STEPS},
                 {"step-00000008/", WD_FAULT_FROM_THEN_ON, 3, 6, STEPS - 2},
                 {".tmp-student/", WD_FAULT_ONCE, 1, 4, STEPS}};
    for (int i = 0; i < 3; i++) {
        char path[WD_PATH_MAX], name[32];
        wd_err err = {0};
        wd_trainer_result result;
        wd_trainer_options options = small_run();
        snprintf(name, sizeof name, "ends-%d", i);
        options.checkpoint_interval = 2;
        options.keep_checkpoints = STEPS;
        warnings = 0;
        wd_log_to(count_warnings, NULL, WD_LOG_WARNING);
        wd_fault_arm(WD_FAULT_write, cases[i].how, 1, cases[i].only);
        const wd_status status = run_into(&result, name, &options, &err);
        wd_fault_disarm();
        wd_log_to(NULL, NULL, WD_LOG_ERROR);
        wd_test_ok(status, &err);
        assert_int_equal(warnings, cases[i].warnings);
        assert_non_null(strstr(warning, cases[i].saved_step == STEPS
                                            ? "the checkpoint of step 2, which --keep_checkpoints"
                                            : "the run ends without this checkpoint; the newest"));
        for (int s = 2; s <= STEPS; s += 2)
            assert_int_equal(has_checkpoint(name, s),
                             s >= cases[i].first && s <= cases[i].saved_step);
        assert_int_equal(result.saved_step, cases[i].saved_step);
        assert_true(wd_path_exists(path_of(path, name, "/model_index.json")));
        if (result.saved_step == STEPS) assert_same_checkpoint("whole", name);
    }
}

/* Any other failure says that the disk itself is not well. */
static void a_checkpoint_that_fails_otherwise_ends_the_run(void **state)
{
    (void)state;
    char path[WD_PATH_MAX];
    wd_err err = {0};
    wd_trainer_result result;
    wd_trainer_options options = small_run();
    options.checkpoint_interval = 2;
    wd_fault_arm(WD_FAULT_fsync, WD_FAULT_FROM_THEN_ON, 1, "step-00000004/state.safetensors");
    const wd_status status = run_into(&result, "broken", &options, &err);
    wd_fault_disarm();
    wd_test_refused(status, &err, WD_IO, "/broken/checkpoints/.tmp-step-00000004/state.safe");
    assert_true(has_checkpoint("broken", 2));
    assert_false(has_checkpoint("broken", 4));
    options.resume = path_of(path, "broken", "/checkpoints/step-00000002");
    wd_test_ok(run_into(&result, "broken", &options, &err), &err);
    assert_same_checkpoint("whole", "broken");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_and_records_are_whole),
        cmocka_unit_test(rows_that_cannot_be_read_are_kept),
        cmocka_unit_test(training_goes_on_without_metrics_and_sheets),
        cmocka_unit_test(a_checkpoint_without_space_is_left_out),
        cmocka_unit_test(a_last_checkpoint_without_space),
        cmocka_unit_test(the_end_of_a_run_takes_the_room_of_older_checkpoints),
        cmocka_unit_test(a_checkpoint_that_fails_otherwise_ends_the_run),
    };
    return cmocka_run_group_tests(tests, open_teacher, NULL);
}
