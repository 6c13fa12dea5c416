/* Functions of all tests: checks of statuses and errors, a temporary folder, fixtures. */
#ifndef WD_TESTS_TESTING_H
#define WD_TESTS_TESTING_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "core/memory.h"
#include "io/file/file.h"
#include "io/tensors/safetensors.h"

/* Fails the test with the message, unless the status is WD_OK. */
static inline void wd_test_ok(wd_status status, const wd_err *err)
{
    if (status != WD_OK) fail_msg("%s: %s", wd_status_text(status), err->message);
}

/* Checks that both files have the same bytes. */
static inline void wd_test_same_files(const char *a, const char *b)
{
    wd_err err;
    char x[33], y[33];
    wd_test_ok(wd_file_hash(x, a, &err), &err);
    wd_test_ok(wd_file_hash(y, b, &err), &err);
    assert_string_equal(x, y);
}

/* Fails unless the status is the expected one and the message names `text`. */
static inline void wd_test_refused(wd_status status, const wd_err *err, wd_status expected,
                                   const char *text)
{
    if (status != expected || !strstr(err->message, text))
        fail_msg("expected \"%s\" naming \"%s\", got \"%s\": %s", wd_status_text(expected), text,
                 wd_status_text(status), status == WD_OK ? "" : err->message);
}

/* Fails if this process has used more than `seconds` of processor time since `begun`, a value of
 * clock(). Other programs do not count, so a bound a hundred times above the usual time tells
 * linear from quadratic work on any machine. */
static inline void wd_test_processor_time(clock_t begun, double seconds)
{
    const double taken = (double)(clock() - begun) / CLOCKS_PER_SEC;
    if (taken > seconds) fail_msg("%.1f s of processor time, at most %g allowed", taken, seconds);
}

/* Ends a test that this machine or this build cannot run, with a line that tools/report_skips.sh
 * collects. cmocka's skip prints no reason, so it is undefined. */
#undef skip
#define wd_test_skip(why)                                                                          \
    do {                                                                                           \
        printf("not tested here: %s: %s\n", __func__, why);                                        \
        _skip(__FILE__, __LINE__);                                                                 \
    } while (0)

static char wd_test_folder_[64];

static inline void wd_test_folder_remove_(void)
{
    wd_folder_remove(wd_test_folder_, NULL);
}

/* A temporary folder of this process, removed at its end. */
static inline const char *wd_test_folder(void)
{
    if (wd_test_folder_[0]) return wd_test_folder_;
    strcpy(wd_test_folder_, "/tmp/wandistiller-test-XXXXXX");
    if (!mkdtemp(wd_test_folder_)) abort();
    atexit(wd_test_folder_remove_);
    return wd_test_folder_;
}

/* Relative L2 error: norm of the difference over norm of the reference. */
static inline double wd_test_rel_error(const float *got, const float *want, int64_t count)
{
    double difference = 0, reference = 0;
    for (int64_t i = 0; i < count; i++) {
        double d = (double)got[i] - want[i];
        difference += d * d;
        reference += (double)want[i] * want[i];
    }
    if (difference == 0) return 0;
    return reference > 0 ? sqrt(difference / reference) : INFINITY;
}

/* The folder of the sources, with the models and fixtures of tests: that of the build, unless
 * WD_TEST_SOURCE in the environment names another. Only tests that `make gpu-check` runs use it;
 * the others use WD_SOURCE_DIR. */
static inline const char *wd_test_source(void)
{
    const char *said = getenv("WD_TEST_SOURCE");
    return said ? said : WD_SOURCE_DIR;
}

/* Copies tensor `name` of a safetensors file, given by its path below the source folder
 * ("tests/fixtures/umt5/in.safetensors"); F16 and BF16 become F32. The caller frees its data with
 * wd_free. */
static inline wd_tensor wd_test_load(const char *file, const char *name)
{
    char path[WD_PATH_MAX];
    wd_err err;
    wd_safetensors *set;
    void *data;
    wd_test_ok(wd_path_join(path, wd_test_source(), file, &err), &err);
    wd_test_ok(wd_safetensors_open(&set, path, &err), &err);
    const wd_safetensors_entry *entry = wd_safetensors_find(set, name);
    if (!entry) fail_msg("%s: no tensor \"%s\"", path, name);
    wd_tensor t = entry->tensor;
    size_t count = (size_t)wd_tensor_count(&t);
    bool half = t.dtype == WD_F16 || t.dtype == WD_BF16;
    size_t element_bytes = half ? 4 : wd_dtype_bytes(t.dtype);
    wd_test_ok(wd_alloc(&data, count, element_bytes, name, &err), &err);
    if (!half) memcpy(data, t.data, count * element_bytes);
    for (size_t i = 0; half && i < count; i++) {
        uint16_t v;
        memcpy(&v, (const char *)t.data + 2 * i, 2);
        ((float *)data)[i] = t.dtype == WD_F16 ? wd_f16_to_f32(v) : wd_bf16_to_f32(v);
    }
    wd_safetensors_close(set);
    t.data = data;
    t.dtype = half ? WD_F32 : t.dtype;
    return t;
}

#endif
