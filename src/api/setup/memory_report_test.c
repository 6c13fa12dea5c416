/* The memory of a rank that the watch reports, and what run.json keeps of it. The watch's is read
 * every two seconds while the rank trains, so reading it must be fast. */
#include "api/setup/memory_report.h"

#include "testing.h"

#include <stdio.h>
#include <string.h>

#include "io/json/json.h"

enum { MEMINFO, STATUS, SMAPS_ROLLUP, FILES };
static const char *const file[FILES] = {"/proc/meminfo", "/proc/self/status",
                                        "/proc/self/smaps_rollup"};
static int opened[FILES];

FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode);

FILE *__wrap_fopen(const char *path, const char *mode)
{
    for (int i = 0; i < FILES; i++) opened[i] += !strcmp(path, file[i]);
    return __real_fopen(path, mode);
}

static int count_lines(const char *text)
{
    int n = 0;
    for (; *text; text++) n += *text == '\n';
    return n;
}

/* Host memory is read once for all devices, and page tables never, since that takes long if there
 * is much memory. */
static void the_host_is_looked_at_once(void **state)
{
    (void)state;
    wd_err err = {0};
    wd_devices devices;
    static wd_watch_note note;
    wd_test_ok(wd_devices_open(&devices, "sim:3x8MiB", 1, &err), &err);
    wd_memory_witness witness = {.devices = &devices, .sharers = 2};
    memset(opened, 0, sizeof opened);
    wd_memory_report_note(&witness, &note);
    assert_int_equal(opened[MEMINFO], 1);
    assert_in_range(opened[STATUS], 1, 2);
    assert_int_equal(opened[SMAPS_ROLLUP], 0);
    assert_int_equal(count_lines(note.memory), devices.count);
    assert_non_null(strstr(note.memory, "sim:2: allocated "));
    wd_devices_close(&devices);
}

static void a_rank_without_devices_says_what_it_has(void **state)
{
    (void)state;
    static wd_watch_note note;
    memset(opened, 0, sizeof opened);
    wd_memory_report_note(NULL, &note);
    assert_int_equal(opened[MEMINFO], 1);
    assert_int_equal(opened[SMAPS_ROLLUP], 0);
    assert_memory_equal(note.memory, "host memory: reserved ", 22);
}

static json_int_t added_peak(const json_t *run, const char *device)
{
    const json_t *memory = json_object_get(run, "memory");
    assert_int_equal(json_integer_value(json_object_get(memory, "bytes_peak")), 7);
    const json_t *peaks = json_object_get(memory, "devices_measured");
    assert_int_equal(json_object_size(peaks), 2); /* the processor's pool is host memory */
    return json_integer_value(json_object_get(peaks, device));
}

/* The peak of what was allocated, which is freed by then. */
static void measured_peaks_are_added(void **state)
{
    (void)state;
    wd_err err = {0};
    wd_devices devices;
    void *block;
    json_t *run = json_pack("{s:{s:i}}", "memory", "bytes_peak", 7);
    wd_test_ok(wd_devices_open(&devices, "sim:2x8MiB", 1, &err), &err);
    wd_test_ok(wd_device_alloc(&block, devices.device[0], 4096, "a block", &err), &err);
    wd_device_free(devices.device[0], block);
    wd_test_ok(wd_memory_report_add(run, "run.json", &devices, &err), &err);
    assert_int_equal(added_peak(run, "sim:0"), 4096);
    assert_int_equal(added_peak(run, "sim:1"), 0);
    json_object_clear(run);
    wd_test_refused(wd_memory_report_add(run, "run.json", &devices, &err), &err, WD_BAD_FORMAT,
                    "expected an object \"memory\"");
    json_decref(run);
    wd_devices_close(&devices);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_host_is_looked_at_once),
        cmocka_unit_test(measured_peaks_are_added),
        cmocka_unit_test(a_rank_without_devices_says_what_it_has),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
