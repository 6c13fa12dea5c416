/* metrics.jsonl is cut back on resume, event files parse back with the checksums that TensorBoard
 * computes, the progress line says what it shall. */
#include "distill/metrics.h"

#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/memory.h"
#include "distill/tensorboard.h"
#include "io/file.h"

static int make_folder(void **state)
{
    char name[] = "/tmp/wd-metrics-XXXXXX";
    if (!mkdtemp(name)) return -1;
    *state = strdup(name);
    return 0;
}

static int remove_folder(void **state)
{
    wd_status status = wd_folder_remove(*state, NULL);
    free(*state);
    return status != WD_OK;
}

static void must(wd_status status, const wd_err *err)
{
    if (status != WD_OK) fail_msg("%s", err->message);
}

static wd_metrics_row row(int64_t step)
{
    return (wd_metrics_row){.step = step,
                            .loss = 1.0 / (double)step,
                            .grad_norm = step == 3 ? NAN : 0.5,
                            .lr = 1e-3,
                            .samples = 16 * step,
                            .targets = 64,
                            .seconds = 0.1 * (double)step,
                            .steps_per_s = 10};
}

static void write_rows(const char *folder, int64_t resume_step, int64_t last)
{
    wd_err err;
    wd_metrics *metrics;
    must(wd_metrics_open(&metrics, folder, resume_step, &err), &err);
    for (int64_t step = resume_step + 1; step <= last; step++) {
        wd_metrics_row r = row(step);
        must(wd_metrics_write(metrics, &r, &err), &err);
    }
    wd_metrics_close(metrics);
}

static char *read_all(const char *folder, const char *name, size_t *bytes)
{
    char path[WD_PATH_MAX], *text;
    wd_err err;
    must(wd_path_join(path, folder, name, &err), &err);
    must(wd_file_read(&text, bytes, path, 1 << 20, &err), &err);
    return text;
}

static void test_rows(void **state)
{
    const char *folder = *state;
    size_t whole_bytes, bytes;
    write_rows(folder, 0, 6);
    char *whole = read_all(folder, "metrics.jsonl", &whole_bytes);
    const char *third = "{\"step\": 3, \"loss\": 0.33333333333333331, \"grad_norm\": null, "
                        "\"lr\": 0.001, \"samples\": 48, \"targets\": 64, \"seconds\": 0.3, "
                        "\"steps_per_s\": 10}\n";
    assert_non_null(strstr(whole, third));

    /* A kill left half a line; the run goes on from the checkpoint of step 4. */
    char path[WD_PATH_MAX];
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    FILE *file = fopen(path, "a");
    fputs("{\"step\": 7, \"lo", file);
    fclose(file);
    write_rows(folder, 4, 6);
    char *resumed = read_all(folder, "metrics.jsonl", &bytes);
    assert_string_equal(resumed, whole);

    write_rows(folder, 0, 2); /* a new run in the same folder */
    wd_free(resumed);
    resumed = read_all(folder, "metrics.jsonl", &bytes);
    assert_int_equal(strncmp(resumed, whole, bytes), 0);
    assert_true(bytes < whole_bytes);
    wd_free(resumed);
    wd_free(whole);
}

static void test_unwritable(void **state)
{
    (void)state;
    wd_err err;
    wd_metrics *metrics;
    assert_int_equal(wd_metrics_open(&metrics, "/dev/null/x", 0, &err), WD_IO);
    assert_non_null(strstr(err.message, "/dev/null/x"));
}

/* ---- event files ---- */

static void test_crc(void **state)
{
    (void)state;
    unsigned char zeros[32] = {0}, ones[32]; /* RFC 3720, B.4 */
    memset(ones, 0xff, sizeof ones);
    assert_int_equal(wd_crc32c(zeros, 32), 0x8a9136aau);
    assert_int_equal(wd_crc32c(ones, 32), 0x62a8ab43u);
    assert_int_equal(wd_crc32c("123456789", 9), 0xe3069283u);
    assert_int_equal(wd_crc32c_masked("123456789", 9), 0xc78ab0e5u);
}

typedef struct cursor {
    const unsigned char *at, *end;
} cursor;

static uint64_t take_fixed(cursor *c, int bytes)
{
    uint64_t v = 0;
    assert_true(c->end - c->at >= bytes);
    for (int i = 0; i < bytes; i++) v |= (uint64_t)*c->at++ << (8 * i);
    return v;
}

static uint64_t take_varint(cursor *c)
{
    uint64_t v = 0;
    for (int shift = 0;; shift += 7) {
        unsigned char byte = (unsigned char)take_fixed(c, 1);
        v |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) return v;
    }
}

/* The next field of a message: its number, its value or, for bytes, a cursor over them. */
static unsigned take_field(cursor *c, uint64_t *value, cursor *bytes)
{
    uint64_t key = take_varint(c);
    switch (key & 7) {
    case 0: *value = take_varint(c); break;
    case 1: *value = take_fixed(c, 8); break;
    case 5: *value = take_fixed(c, 4); break;
    case 2: {
        uint64_t count = take_varint(c);
        assert_true(count <= (uint64_t)(c->end - c->at));
        *bytes = (cursor){c->at, c->at + count};
        c->at += count;
        break;
    }
    default: fail_msg("wire type %d", (int)(key & 7));
    }
    return (unsigned)(key >> 3);
}

typedef struct event {
    int64_t step, status;
    float value;
    char tag[256], version[32];
    double wall_time;
} event;

static void copy_text(char *out, size_t out_bytes, cursor bytes)
{
    size_t count = (size_t)(bytes.end - bytes.at);
    assert_true(count < out_bytes);
    memcpy(out, bytes.at, count);
    out[count] = '\0';
}

static void parse_value(event *e, cursor c)
{
    uint64_t v;
    cursor bytes;
    while (c.at < c.end) {
        unsigned field = take_field(&c, &v, &bytes);
        uint32_t bits = (uint32_t)v;
        if (field == 1) copy_text(e->tag, sizeof e->tag, bytes);
        else if (field == 2) memcpy(&e->value, &bits, sizeof bits);
        else fail_msg("Value has no field %u", field);
    }
}

static event parse_event(cursor c)
{
    event e = {0};
    uint64_t v;
    cursor bytes, inner;
    while (c.at < c.end) {
        switch (take_field(&c, &v, &bytes)) {
        case 1: memcpy(&e.wall_time, &v, sizeof v); break;
        case 2: e.step = (int64_t)v; break;
        case 3: copy_text(e.version, sizeof e.version, bytes); break;
        case 5:
            assert_int_equal(take_field(&bytes, &v, &inner), 1);
            parse_value(&e, inner);
            break;
        case 7:
            assert_int_equal(take_field(&bytes, &v, &inner), 1);
            e.status = (int64_t)v;
            break;
        default: fail();
        }
    }
    return e;
}

static event take_record(cursor *c)
{
    const unsigned char *begin = c->at;
    uint64_t count = take_fixed(c, 8);
    assert_int_equal(take_fixed(c, 4), wd_crc32c_masked(begin, 8));
    assert_true(count <= (uint64_t)(c->end - c->at));
    cursor data = {c->at, c->at + count};
    c->at += count;
    assert_int_equal(take_fixed(c, 4), wd_crc32c_masked(data.at, count));
    return parse_event(data);
}

static void test_events(void **state)
{
    const char *folder = *state;
    wd_err err;
    wd_tensorboard *board;
    must(wd_tensorboard_open(&board, folder, 21, &err), &err);
    must(wd_tensorboard_scalar(board, "train/loss", 0.125, 300, &err), &err);
    must(wd_tensorboard_scalar(board, "lr", -3, 301, &err), &err);
    char tag[300];
    memset(tag, 'x', sizeof tag);
    tag[299] = '\0';
    assert_int_equal(wd_tensorboard_scalar(board, tag, 0, 1, &err), WD_INVALID_ARGUMENT);
    tag[255] = '\0';
    must(wd_tensorboard_scalar(board, tag, INFINITY, INT64_MAX, &err), &err);
    wd_tensorboard_close(board);

    DIR *dir = opendir(folder);
    struct dirent *entry;
    size_t bytes = 0;
    char *file = NULL;
    while ((entry = readdir(dir))) {
        if (!strncmp(entry->d_name, "events.out.tfevents.", 20)) {
            assert_null(file);
            file = read_all(folder, entry->d_name, &bytes);
        }
    }
    closedir(dir);
    cursor c = {(unsigned char *)file, (unsigned char *)file + bytes};
    event e = take_record(&c);
    assert_string_equal(e.version, "brain.Event:2");
    assert_true(e.wall_time > 1.6e9);
    e = take_record(&c);
    assert_int_equal(e.step, 21);
    assert_int_equal(e.status, 1);
    e = take_record(&c);
    assert_string_equal(e.tag, "train/loss");
    assert_int_equal(e.step, 300);
    assert_true(e.value == 0.125f);
    e = take_record(&c);
    assert_string_equal(e.tag, "lr");
    assert_true(e.value == -3 && e.step == 301);
    e = take_record(&c);
    assert_string_equal(e.tag, tag);
    assert_true(isinf(e.value) && e.step == INT64_MAX);
    assert_ptr_equal(c.at, c.end);
    wd_free(file);
}

/* ---- progress ---- */

static void test_progress(void **state)
{
    (void)state;
    char text[128];
    wd_progress p = {.step = 120, .steps = 2000, .loss = 0.03121, .steps_per_s = 8.44,
                     .seconds_left = 224.2, .memory_bytes = 412345678};
    assert_string_equal(wd_progress_text(text, sizeof text, &p),
                        "step  120/2000  loss 0.03121  8.44 steps/s  ETA 3:44  memory 412 MB");
    p = (wd_progress){.step = 7, .loss = 2, .steps_per_s = 0.051, .seconds_left = 7384,
                      .memory_bytes = 23456789012};
    assert_string_equal(wd_progress_text(text, sizeof text, &p),
                        "step 7  loss 2  0.051 steps/s  ETA 2:03:04  memory 23.5 GB");
    p.seconds_left = -1;
    assert_non_null(strstr(wd_progress_text(text, sizeof text, &p), "ETA --:--"));
    assert_int_equal(strlen(wd_progress_text(text, 10, &p)), 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_rows, make_folder, remove_folder),
        cmocka_unit_test(test_unwritable),
        cmocka_unit_test(test_crc),
        cmocka_unit_test_setup_teardown(test_events, make_folder, remove_folder),
        cmocka_unit_test(test_progress),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
