/* A file contains whole records only, also when the disk is full in the middle of one. */
#include "io/file/record_file.h"

#include <signal.h>
#include <sys/resource.h>

#include "testing.h"

static void assert_has(const char *path, const char *expected)
{
    char *text;
    size_t bytes;
    wd_err err;
    wd_test_ok(wd_file_read(&text, &bytes, path, 1 << 20, &err), &err);
    assert_string_equal(text, expected);
    wd_free(text);
}

static wd_status put(wd_record_file *file, const char *record, wd_err *err)
{
    return wd_record_file_write(file, record, strlen(record), err);
}

/* Limits the length of files. A write beyond the limit writes the bytes that fit, and then fails.
 */
static void limit(rlim_t bytes)
{
    struct rlimit is;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &is), 0);
    is.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &is), 0);
}

static void a_record_without_room_is_left_out(void **state)
{
    (void)state;
    char path[WD_PATH_MAX];
    wd_record_file file;
    wd_err err = {0};
    wd_test_ok(wd_path_join(path, wd_test_folder(), "records", &err), &err);
    wd_test_ok(wd_record_file_open(&file, path, &err), &err);
    wd_test_ok(put(&file, "first\n", &err), &err);
    signal(SIGXFSZ, SIG_IGN);
    limit(10);
    wd_test_refused(put(&file, "second\n", &err), &err, WD_IO, "records: cannot be written");
    assert_has(path, "first\n");
    wd_test_ok(put(&file, "3rd\n", &err), &err);
    limit(RLIM_INFINITY);
    wd_test_ok(put(&file, "fourth\n", &err), &err);
    assert_has(path, "first\n3rd\nfourth\n");
    wd_record_file_close(&file);

    wd_test_ok(wd_record_file_open(&file, path, &err), &err);
    wd_test_ok(put(&file, "fifth\n", &err), &err);
    assert_has(path, "first\n3rd\nfourth\nfifth\n");
    wd_record_file_close(&file);
}

static void a_file_that_cannot_be_opened_is_named(void **state)
{
    (void)state;
    wd_record_file file;
    wd_err err = {0};
    wd_test_refused(wd_record_file_open(&file, wd_test_folder(), &err), &err, WD_IO,
                    wd_test_folder());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_record_without_room_is_left_out),
        cmocka_unit_test(a_file_that_cannot_be_opened_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
