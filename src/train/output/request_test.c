/* Requests to a run: they are taken once, none is lost, and no link is followed. */
#include "testing.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
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
    assert_false(is_there(".wandistiller-save") || is_there(".wandistiller-sample"));
    for (int i = 0; i < 2; i++)
        wd_test_ok(wd_request_leave(wd_test_folder(), WD_REQUEST_STOP, &err), &err);
    assert_int_equal(wd_request_take(folder), WD_REQUEST_STOP);
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

enum { LEFT = 500, WRITERS = 2 };

/* Starts a process that leaves a request again and again, as soon as it was taken. */
static pid_t leave_many(unsigned request, const char *file)
{
    wd_err err;
    const pid_t pid = fork();
    if (pid) return pid;
    for (int i = 0; i < LEFT; i++) {
        if (wd_request_leave(wd_test_folder(), request, &err) != WD_OK) _exit(1);
        for (int wait = 0; is_there(file); wait++) {
            if (wait == 60000) _exit(2);
            usleep(1000);
        }
    }
    _exit(0);
}

static void none_is_lost(void **state)
{
    (void)state;
    int status, seen[2] = {0}, ended = 0;
    const pid_t one = leave_many(WD_REQUEST_SAMPLE, ".wandistiller-sample");
    const pid_t two = leave_many(WD_REQUEST_SAVE, ".wandistiller-save");
    assert_true(one > 0 && two > 0);
    while (ended < WRITERS) {
        const unsigned found = wd_request_take(folder);
        seen[0] += (found & WD_REQUEST_SAMPLE) != 0;
        seen[1] += (found & WD_REQUEST_SAVE) != 0;
        if (!found && waitpid(-1, &status, WNOHANG) > 0) {
            assert_true(WIFEXITED(status));
            assert_int_equal(WEXITSTATUS(status), 0);
            ended++;
        }
    }
    assert_int_equal(seen[0], LEFT);
    assert_int_equal(seen[1], LEFT);
}

static void links_and_folders_stay(void **state)
{
    (void)state;
    wd_err err;
    wd_test_ok(wd_file_write(path_of("target"), "mine", 4, &err), &err);
    assert_int_equal(symlink(path_of("target"), path_of(".wandistiller-save")), 0);
    wd_test_ok(wd_request_leave(wd_test_folder(), WD_REQUEST_SAVE, &err), &err);
    assert_int_equal(wd_request_take(folder), WD_REQUEST_SAVE);
    assert_false(is_there(".wandistiller-save"));
    char *text;
    size_t bytes;
    wd_test_ok(wd_file_read(&text, &bytes, path_of("target"), 64, &err), &err);
    assert_string_equal(text, "mine");
    wd_free(text);
    assert_int_equal(symlink(path_of("nowhere"), path_of(".wandistiller-save")), 0);
    wd_test_ok(wd_request_leave(wd_test_folder(), WD_REQUEST_SAVE, &err), &err);
    assert_false(is_there("nowhere"));
    assert_int_equal(wd_request_take(folder), WD_REQUEST_SAVE);
    assert_int_equal(mkdir(path_of(".wandistiller-stop"), 0700), 0);
    assert_int_equal(wd_request_take(folder), 0);
    wd_test_refused(wd_request_leave(wd_test_folder(), WD_REQUEST_STOP, &err), &err, WD_IO,
                    ".wandistiller-stop: cannot be written: Is a directory");
    assert_true(is_there(".wandistiller-stop"));
    assert_int_equal(rmdir(path_of(".wandistiller-stop")), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_are_taken_once),
        cmocka_unit_test(names_are_those_of_the_command),
        cmocka_unit_test(none_is_lost),
        cmocka_unit_test(links_and_folders_stay),
    };
    return cmocka_run_group_tests(tests, open_folder, NULL);
}
