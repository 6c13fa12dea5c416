/* Requests to a run: they are taken once, none is lost, and nothing else is read or followed. */
#include "testing.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/output/request.h"

static int folder = -1;

static int open_folder(void **state)
{
    (void)state;
    folder = open(wd_test_folder(), O_RDONLY | O_DIRECTORY);
    return folder < 0;
}

static const char *path_of(const char *name)
{
    static char path[2][256];
    static int next;
    char *out = path[next++ % 2];
    snprintf(out, sizeof *path, "%s/%s", wd_test_folder(), name);
    return out;
}

static void put(const char *text)
{
    wd_err err;
    wd_test_ok(wd_file_write(path_of(".wandistiller-request"), text, strlen(text), &err), &err);
}

static bool is_there(const char *name)
{
    struct stat is;
    return !lstat(path_of(name), &is);
}

static void requests_are_taken_once(void **state)
{
    (void)state;
    wd_err err;
    assert_int_equal(wd_request_take(folder), 0);
    wd_test_ok(wd_request_leave(wd_test_folder(), WD_REQUEST_SAVE, &err), &err);
    wd_test_ok(wd_request_leave(wd_test_folder(), WD_REQUEST_SAMPLE, &err), &err);
    assert_int_equal(wd_request_take(folder), WD_REQUEST_SAVE | WD_REQUEST_SAMPLE);
    assert_int_equal(wd_request_take(folder), 0);
    assert_false(is_there(".wandistiller-request") || is_there(".wandistiller-request-taken"));
    wd_test_ok(wd_request_leave(wd_test_folder(), WD_REQUEST_STOP, &err), &err);
    wd_request_forget(folder);
    assert_int_equal(wd_request_take(folder), 0);
    wd_test_refused(wd_request_leave(path_of("none"), WD_REQUEST_STOP, &err), &err, WD_IO, "none");
}

static void names_are_those_of_the_command(void **state)
{
    (void)state;
    assert_int_equal(wd_request_find("sample"), WD_REQUEST_SAMPLE);
    assert_int_equal(wd_request_find("save"), WD_REQUEST_SAVE);
    assert_int_equal(wd_request_find("stop"), WD_REQUEST_STOP);
    assert_int_equal(wd_request_find("stop "), 0);
}

/* Whatever has the name is removed, and obeyed only if it is a file of requests. */
static void other_things_are_no_requests(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "\n", "halt\n", "stop now\n", "save\nhalt\n"};
    char long_text[600];
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        put(texts[i]);
        assert_int_equal(wd_request_take(folder), 0);
        assert_false(is_there(".wandistiller-request"));
    }
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = 0;
    put(long_text);
    assert_int_equal(wd_request_take(folder), 0);
    wd_err err;
    wd_test_ok(wd_file_write(path_of("target"), "stop\n", 5, &err), &err);
    assert_int_equal(symlink(path_of("target"), path_of(".wandistiller-request")), 0);
    assert_int_equal(wd_request_take(folder), 0); /* a link is not followed */
    assert_false(is_there(".wandistiller-request"));
    assert_true(is_there("target"));
    assert_int_equal(symlink(path_of("target"), path_of(".wandistiller-request")), 0);
    wd_test_ok(wd_request_leave(wd_test_folder(), WD_REQUEST_SAVE, &err), &err);
    assert_int_equal(wd_request_take(folder), WD_REQUEST_SAVE); /* and is replaced itself */
    char *text;
    size_t bytes;
    wd_test_ok(wd_file_read(&text, &bytes, path_of("target"), 64, &err), &err);
    assert_string_equal(text, "stop\n");
    wd_free(text);
    assert_int_equal(mkfifo(path_of(".wandistiller-request"), 0600), 0);
    assert_int_equal(wd_request_take(folder), 0); /* it does not wait for a writer */
    assert_false(is_there(".wandistiller-request"));
    assert_int_equal(mkdir(path_of(".wandistiller-request"), 0700), 0);
    assert_int_equal(wd_request_take(folder), 0);
    assert_true(is_there(".wandistiller-request")); /* a folder stays */
    assert_int_equal(rmdir(path_of(".wandistiller-request")), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_are_taken_once),
        cmocka_unit_test(names_are_those_of_the_command),
        cmocka_unit_test(other_things_are_no_requests),
    };
    return cmocka_run_group_tests(tests, open_folder, NULL);
}
