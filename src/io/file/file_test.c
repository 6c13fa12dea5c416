/* Tests of file writing: whole or not at all, and errors that name path and reason. All files of a
 * model in many shards are known by name. */
#include "testing.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/file/file.h"
#include "io/json/json.h"
#include "json_failing.h"

static const char *in_folder(char path[WD_PATH_MAX], const char *name)
{
    wd_err err;
    wd_test_ok(wd_path_join(path, wd_test_folder(), name, &err), &err);
    return path;
}

/* The number of entries of a folder without "." and "..". */
static int entries_of(const char *folder)
{
    int n = -2;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    while (readdir(dir)) n++;
    closedir(dir);
    return n;
}

static void joins_paths(void **state)
{
    (void)state;
    wd_err err;
    char path[WD_PATH_MAX], long_name[WD_PATH_MAX];
    wd_test_ok(wd_path_join(path, "a/", "b", &err), &err);
    assert_string_equal(path, "a/b");
    wd_test_ok(wd_path_join(path, "a", "b", &err), &err);
    assert_string_equal(path, "a/b");
    wd_test_ok(wd_path_join(path, "", "b", &err), &err);
    assert_string_equal(path, "b");
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    wd_test_refused(wd_path_join(path, "a", long_name, &err), &err, WD_INVALID_ARGUMENT, "4097");
}

static void tells_what_is_inside(void **state)
{
    (void)state;
    wd_err err;
    char a[WD_PATH_MAX], b[WD_PATH_MAX], link[WD_PATH_MAX];
    in_folder(a, "outer");
    wd_test_ok(wd_folder_make(in_folder(b, "outer/inner"), &err), &err);
    wd_test_ok(wd_folder_make(in_folder(link, "outer-2"), &err), &err);
    assert_true(wd_path_is_inside(a, a) && wd_path_is_inside(b, a) && wd_path_is_inside(b, "/"));
    assert_false(wd_path_is_inside(a, b) || wd_path_is_inside(link, a));
    assert_true(wd_path_is_inside(in_folder(b, "outer/not/yet/"), a));
    assert_true(wd_path_is_inside(in_folder(b, "outer-2/../outer/x"), a));
    assert_false(wd_path_is_inside(in_folder(b, "not-yet"), a));
    assert_false(wd_path_is_inside(a, in_folder(b, "not-yet")));
    assert_int_equal(symlink(a, in_folder(link, "outer-3")), 0);
    assert_true(wd_path_is_inside(in_folder(b, "outer-3/x"), a));
    assert_true(wd_path_is_inside("no-such-name", ".") && !wd_path_is_inside("no-such-name", a));
}

static void writes_reads_copies_hashes(void **state)
{
    (void)state;
    wd_err err;
    char a[WD_PATH_MAX], b[WD_PATH_MAX], hash[33], *text;
    size_t bytes;
    wd_test_ok(wd_folder_make(in_folder(a, "deep/er/folder"), &err), &err);
    wd_test_ok(wd_folder_make(a, &err), &err);
    in_folder(a, "deep/er/folder/a");
    in_folder(b, "deep/b");
    wd_test_ok(wd_file_write(a, "first", 5, &err), &err);
    wd_test_ok(wd_file_write(a, "second", 6, &err), &err);
    wd_test_ok(wd_file_copy(b, a, &err), &err);
    wd_test_ok(wd_file_read(&text, &bytes, b, 6, &err), &err);
    assert_int_equal(bytes, 6);
    assert_string_equal(text, "second");
    wd_free(text);
    wd_test_refused(wd_file_read(&text, &bytes, b, 5, &err), &err, WD_BAD_FORMAT, "6 bytes long");
    wd_test_ok(wd_file_write(a, "", 0, &err), &err);
    wd_test_ok(wd_file_hash(hash, a, &err), &err);
    assert_string_equal(hash, "99aa06d3014798d86001c324468d497f"); /* XXH3-128 of nothing */
    assert_int_equal(entries_of(in_folder(a, "deep")), 2);
    assert_true(wd_path_is_folder(a) && !wd_path_is_folder(b) && wd_path_exists(b));
    wd_test_ok(wd_folder_remove(a, &err), &err);
    assert_false(wd_path_exists(a));
    wd_test_ok(wd_folder_remove(a, &err), &err);
}

static void names_what_cannot_be_done(void **state)
{
    (void)state;
    wd_err err;
    char a[WD_PATH_MAX], b[WD_PATH_MAX], *text;
    size_t bytes;
    in_folder(a, "none/x");
    wd_test_refused(wd_file_write(a, "x", 1, &err), &err, WD_NOT_FOUND,
                    "none/x: cannot be written");
    wd_test_refused(wd_file_read(&text, &bytes, a, 9, &err), &err, WD_NOT_FOUND, "No such file");
    wd_test_refused(wd_file_copy(in_folder(b, "c"), a, &err), &err, WD_NOT_FOUND, "none/x");
    wd_test_refused(wd_file_read(&text, &bytes, wd_test_folder(), 9, &err), &err, WD_IO,
                    "a folder");
    wd_test_ok(wd_file_write(in_folder(a, "plain"), "x", 1, &err), &err);
    wd_test_refused(wd_folder_make(in_folder(b, "plain/sub"), &err), &err, WD_IO, "plain");
    wd_test_refused(wd_file_write(wd_test_folder(), "x", 1, &err), &err, WD_IO,
                    "cannot be written");
    in_folder(a, "pipe");
    assert_int_equal(mkfifo(a, 0600), 0);
    wd_test_refused(wd_file_read(&text, &bytes, a, 9, &err), &err, WD_IO, "pipe");
    if (geteuid()) { /* root may write anywhere */
        wd_test_ok(wd_folder_make(in_folder(a, "locked"), &err), &err);
        assert_int_equal(chmod(a, 0500), 0);
        wd_test_refused(wd_file_write(in_folder(a, "locked/x"), "x", 1, &err), &err, WD_IO,
                        "choose a folder");
    }
    wd_test_refused(wd_file_write("/proc/x", "x", 1, &err), &err, WD_NOT_FOUND, "/proc/x");
}

/* A write that stops half way leaves the old file, and no temporary one. */
static void full_disk_leaves_the_old_file(void **state)
{
    (void)state;
    wd_err err;
    char folder[WD_PATH_MAX], path[WD_PATH_MAX], *text;
    size_t bytes;
    static char big[1 << 20];
    wd_test_ok(wd_folder_make(in_folder(folder, "full"), &err), &err);
    wd_test_ok(wd_file_write(in_folder(path, "full/x"), "old", 3, &err), &err);
    struct rlimit old_limit, limit;
    getrlimit(RLIMIT_FSIZE, &old_limit);
    limit = old_limit;
    limit.rlim_cur = 4096;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    wd_status status = wd_file_write(path, big, sizeof big, &err);
    setrlimit(RLIMIT_FSIZE, &old_limit);
    wd_test_refused(status, &err, WD_IO, "full/x: cannot be written: File too large");
    assert_int_equal(entries_of(folder), 1);
    wd_test_ok(wd_file_read(&text, &bytes, path, 9, &err), &err);
    assert_string_equal(text, "old");
    wd_free(text);
}

static void json_limits(void **state)
{
    (void)state;
    wd_err err;
    json_t *json;
    char deep[200], path[WD_PATH_MAX];
    memset(deep, '[', 100);
    memset(deep + 100, ']', 100);
    wd_test_refused(wd_json_parse(&json, deep, 200, "deep", &err), &err, WD_BAD_FORMAT,
                    "64 levels");
    wd_test_ok(wd_json_parse(&json, deep + 36, 128, "deep", &err), &err);
    json_decref(json);
    const char brackets[] =
        "[\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\\\"[[[[[\"]";
    wd_test_ok(wd_json_parse(&json, brackets, sizeof brackets - 1, "text", &err), &err);
    json_decref(json);
    const char twice[] = "{\"a\": 1,\n \"a\": 2}";
    wd_test_refused(wd_json_parse(&json, twice, sizeof twice - 1, "twice", &err), &err,
                    WD_BAD_FORMAT, "twice: not the JSON expected, line 2");
    json = json_pack("{s[ii]sfss}", "b", 1, 2, "a", 0.1, "c", "\xc3\xa9");
    in_folder(path, "saved.json");
    wd_test_ok(wd_json_save(json, path, &err), &err);
    json_t *again;
    wd_test_ok(wd_json_load(&again, path, &err), &err);
    assert_true(json_equal(json, again));
    json_decref(json);
    json_decref(again);
}

static wd_status parse(wd_err *err)
{
    static const char text[] =
        "{\"a\": \"a text that is longer than the first buffer of jansson's lexer, which has 16 "
        "bytes, and the second, and the third, and the fourth, and so on\", \"bbbbbbbbbbbbbbbbb\": "
        "[1, 2.5, true, null, \"x\\u00e4\"], \"c\": {\"d\": {}}}";
    json_t *json;
    WD_TRY(wd_json_parse(&json, text, sizeof text - 1, "text", err));
    json_decref(json);
    return WD_OK;
}

/* jansson would call a text invalid, or lose characters of it. */
static void json_without_memory(void **state)
{
    (void)state;
    wd_test_json_failing(parse, 20);
}

/* Of two files for one path that are finished one after the other the first stays; a link to
 * nothing is no file. */
static void first_file_stays(void **state)
{
    (void)state;
    char temporary[2][WD_PATH_MAX], path[WD_PATH_MAX], *text;
    size_t bytes;
    wd_err err;
    in_folder(path, "first");
    for (int linked = 0; linked < 2; linked++) {
        bool is_first[2];
        int fd[2];
        unlink(path);
        if (linked) assert_int_equal(symlink("/nowhere", path), 0);
        for (int i = 0; i < 2; i++) {
            wd_test_ok(wd_file_temporary(&fd[i], temporary[i], path, &err), &err);
            assert_int_equal(write(fd[i], i ? "b" : "a", 1), 1);
            close(fd[i]);
        }
        for (int i = 0; i < 2; i++) {
            wd_test_ok(wd_file_commit_first(&is_first[i], temporary[i], path, &err), &err);
            assert_true(access(temporary[i], F_OK) != 0);
        }
        assert_true(is_first[0] && !is_first[1]);
        wd_test_ok(wd_file_read(&text, &bytes, path, 8, &err), &err);
        assert_string_equal(text, "a");
        wd_free(text);
    }
}

/* A file for scratch has no name from its begin. */
static void scratch_has_no_name(void **state)
{
    (void)state;
    wd_err err;
    int fd;
    char path[WD_PATH_MAX], read_back[4];
    struct stat is;
    in_folder(path, "scratch/x");
    char folder[WD_PATH_MAX];
    wd_test_ok(wd_folder_make(in_folder(folder, "scratch"), &err), &err);
    wd_test_ok(wd_file_scratch(&fd, path, &err), &err);
    assert_int_equal(pwrite(fd, "abcd", 4, 100), 4);
    assert_int_equal(pread(fd, read_back, 4, 100), 4);
    assert_memory_equal(read_back, "abcd", 4);
    assert_true(!fstat(fd, &is) && is.st_nlink == 0);
    assert_int_equal(rmdir(folder), 0);
    close(fd);
    wd_test_refused(wd_file_scratch(&fd, path, &err), &err, WD_NOT_FOUND, "scratch/x");
}

enum { FILES = 5000 };

static void many_files_are_known(void **state)
{
    (void)state;
    static char place[FILES], path[FILES][16];
    char found[64];
    for (int i = 0; i < FILES; i++) {
        snprintf(path[i], sizeof path[i], "shard-%d", i);
        wd_mapped_note(&place[i], 1, path[i]);
    }
    for (int i = 0; i < FILES; i += 499) {
        assert_true(wd_mapped_file_at(found, sizeof found, &place[i]));
        assert_string_equal(found, path[i]);
    }
    for (int i = 0; i < FILES; i++) wd_mapped_forget(&place[i]);
    assert_false(wd_mapped_file_at(found, sizeof found, &place[FILES - 1]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joins_paths),
        cmocka_unit_test(tells_what_is_inside),
        cmocka_unit_test(writes_reads_copies_hashes),
        cmocka_unit_test(names_what_cannot_be_done),
        cmocka_unit_test(full_disk_leaves_the_old_file),
        cmocka_unit_test(first_file_stays),
        cmocka_unit_test(json_limits),
        cmocka_unit_test(json_without_memory),
        cmocka_unit_test(scratch_has_no_name),
        cmocka_unit_test(many_files_are_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
