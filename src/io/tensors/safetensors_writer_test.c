/* Tests of the safetensors writer: what it writes is read back, and a failure leaves nothing.
 *
 * Linked with --wrap=fallocate. */
#include "failing.h"
#include "json_failing.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/file/file.h"

static const wd_safetensors_item items[] = {
    {"wide", WD_F32, 2, {3, 700000}}, {"empty", WD_F32, 2, {0, 4}},
    {"scalar", WD_I64, 0, {0}},       {"quote \" \\ \xc3\xa9", WD_BF16, 1, {5}},
    {"odd", WD_U8, 1, {3}},
};
enum { ITEMS = sizeof items / sizeof *items, DATA_BYTES = 3 * 700000 * 4 + 8 + 10 + 3 };

static void in_folder(char path[WD_PATH_MAX], const char *name)
{
    wd_err err;
    wd_test_ok(wd_path_join(path, wd_test_folder(), name, &err), &err);
}

static int entries(void)
{
    int n = -2;
    DIR *dir = opendir(wd_test_folder());
    while (readdir(dir)) n++;
    closedir(dir);
    return n;
}

static unsigned char *make_data(void)
{
    unsigned char *data = malloc(DATA_BYTES);
    for (size_t i = 0; i < DATA_BYTES; i++) data[i] = (unsigned char)(i * 2654435761u >> 13);
    return data;
}

static void reads_back_what_it_wrote(void **state)
{
    (void)state;
    wd_err err;
    char path[WD_PATH_MAX];
    wd_safetensors_writer *writer;
    wd_safetensors *set;
    unsigned char *data = make_data();
    static const size_t chunks[] = {DATA_BYTES, 1, 65537, 5 << 20};
    const char *const metadata[] = {"format", "pt", "note", "a \"b\"", NULL};
    in_folder(path, "w.safetensors");
    for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++) {
        wd_test_ok(wd_safetensors_create(&writer, path, items, ITEMS, metadata, &err), &err);
        for (size_t at = 0; at < DATA_BYTES; at += chunks[c]) {
            size_t n = DATA_BYTES - at < chunks[c] ? DATA_BYTES - at : chunks[c];
            wd_test_ok(wd_safetensors_put(writer, data + at, n, &err), &err);
        }
        wd_test_ok(wd_safetensors_finish(writer, &err), &err);
        assert_int_equal(entries(), 1);
        wd_test_ok(wd_safetensors_open(&set, path, &err), &err);
        assert_int_equal(wd_safetensors_count(set), ITEMS);
        size_t at = 0;
        for (int i = 0; i < ITEMS; i++) {
            const wd_safetensors_entry *e = wd_safetensors_find(set, items[i].name);
            assert_non_null(e);
            assert_int_equal(e->tensor.dtype, items[i].dtype);
            assert_int_equal(e->tensor.ndim, items[i].ndim);
            size_t bytes = wd_tensor_bytes(&e->tensor);
            assert_memory_equal(e->tensor.data, data + at, bytes);
            if (i == 0) assert_int_equal(e->file_offset % 64, 0);
            assert_false(e->unaligned);
            at += bytes;
        }
        assert_string_equal(wd_safetensors_metadata(set, "note"), "a \"b\"");
        wd_safetensors_close(set);
    }
    assert_int_equal(remove(path), 0);
    free(data);
}

static void an_abandoned_file_leaves_nothing(void **state)
{
    (void)state;
    wd_err err;
    char path[WD_PATH_MAX];
    wd_safetensors_writer *writer;
    in_folder(path, "w.safetensors");
    wd_test_ok(wd_safetensors_create(&writer, path, items, ITEMS, NULL, &err), &err);
    wd_test_ok(wd_safetensors_put(writer, "abc", 3, &err), &err);
    wd_safetensors_abandon(writer);
    assert_int_equal(entries(), 0);
    wd_test_ok(wd_safetensors_create(&writer, path, items, ITEMS, NULL, &err), &err);
    wd_test_refused(wd_safetensors_finish(writer, &err), &err, WD_INTERNAL, "0 of 8400021 bytes");
    assert_int_equal(entries(), 0);
    const wd_safetensors_item one = {"a", WD_U8, 1, {2}}, twice[] = {one, one};
    wd_test_ok(wd_safetensors_create(&writer, path, &one, 1, NULL, &err), &err);
    wd_test_refused(wd_safetensors_put(writer, "abc", 3, &err), &err, WD_INTERNAL, "more data");
    wd_safetensors_abandon(writer);
    wd_test_refused(wd_safetensors_create(&writer, path, twice, 2, NULL, &err), &err, WD_INTERNAL,
                    "twice");
    const wd_safetensors_item huge = {"a", WD_F32, 2, {INT64_MAX, INT64_MAX}};
    wd_test_refused(wd_safetensors_create(&writer, path, &huge, 1, NULL, &err), &err, WD_INTERNAL,
                    "impossible shape");
    in_folder(path, "none/w.safetensors");
    wd_test_refused(wd_safetensors_create(&writer, path, items, ITEMS, NULL, &err), &err,
                    WD_NOT_FOUND, "none/w.safetensors");
    assert_int_equal(entries(), 0);
}

static int reserving; /* errno of the next calls of fallocate; 0: none */

int __real_fallocate(int fd, int mode, off_t at, off_t bytes);
int __wrap_fallocate(int fd, int mode, off_t at, off_t bytes);

int __wrap_fallocate(int fd, int mode, off_t at, off_t bytes)
{
    errno = reserving;
    return reserving ? -1 : __real_fallocate(fd, mode, at, bytes);
}

/* EPERM is what sandboxes answer. */
static void space_need_not_be_reserved(void **state)
{
    (void)state;
    static const int errors[] = {EOPNOTSUPP, ENOSYS, EINVAL, EPERM};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        reserving = errors[i];
        reads_back_what_it_wrote(state);
    }
    wd_err err;
    char path[WD_PATH_MAX];
    wd_safetensors_writer *writer;
    in_folder(path, "w.safetensors");
    reserving = ENOSPC;
    wd_test_refused(wd_safetensors_create(&writer, path, items, ITEMS, NULL, &err), &err, WD_IO,
                    "No space left");
    reserving = 0;
    assert_int_equal(entries(), 0);
}

/* A limit on the size of files stands for the full disk. */
static void a_full_disk_is_said_with_the_path(void **state)
{
    (void)state;
    wd_err err;
    char path[WD_PATH_MAX];
    wd_safetensors_writer *writer = NULL;
    struct rlimit old_limit, limit;
    unsigned char *data = make_data();
    in_folder(path, "w.safetensors");
    getrlimit(RLIMIT_FSIZE, &old_limit);
    limit = old_limit;
    limit.rlim_cur = 1 << 20;
    signal(SIGXFSZ, SIG_IGN);
    for (int reserves = 0; reserves < 2; reserves++) {
        reserving = reserves ? 0 : EPERM;
        setrlimit(RLIMIT_FSIZE, &limit);
        wd_status status = wd_safetensors_create(&writer, path, items, ITEMS, NULL, &err);
        if (status == WD_OK) { /* space is not reserved */
            status = wd_safetensors_put(writer, data, DATA_BYTES, &err);
            wd_safetensors_abandon(writer);
        }
        setrlimit(RLIMIT_FSIZE, &old_limit);
        wd_test_refused(status, &err, WD_IO,
                        "w.safetensors: cannot be written (8400021 bytes of data)");
        assert_int_equal(entries(), 0);
    }
    free(data);
}

static wd_status create_and_abandon(void *path, wd_err *err)
{
    wd_safetensors_writer *writer;
    WD_TRY(wd_safetensors_create(&writer, path, items, ITEMS, NULL, err));
    wd_safetensors_abandon(writer);
    return WD_OK;
}

static void survives_every_failing_allocation(void **state)
{
    (void)state;
    char path[WD_PATH_MAX];
    in_folder(path, "w.safetensors");
    wd_test_failing_allocations(create_and_abandon, NULL, path, 3);
    assert_int_equal(entries(), 0);
}

/* As if it were killed: a process ends in the middle of a file. */
static void a_killed_process_leaves_nothing(void **state)
{
    (void)state;
    wd_err err;
    char path[WD_PATH_MAX], name[WD_PATH_MAX];
    wd_safetensors_writer *writer;
    int fd;
    in_folder(path, "k.safetensors");
    if (!wd_file_unnamed(&fd, name, path)) wd_test_skip("this file system has no unnamed files");
    close(fd);
    assert_int_equal(entries(), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        if (wd_safetensors_create_unnamed(&writer, path, items, ITEMS, NULL, &err) == WD_OK)
            (void)wd_safetensors_put(writer, "abc", 3, &err);
        raise(SIGKILL);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(entries(), 0);
    const wd_safetensors_item one = {"a", WD_U8, 1, {3}};
    wd_test_ok(wd_safetensors_create_unnamed(&writer, path, &one, 1, NULL, &err), &err);
    wd_test_ok(wd_safetensors_put(writer, "abc", 3, &err), &err);
    assert_int_equal(entries(), 0);
    wd_test_ok(wd_safetensors_finish(writer, &err), &err);
    assert_int_equal(entries(), 1);
    wd_safetensors *set;
    wd_test_ok(wd_safetensors_open(&set, path, &err), &err);
    assert_memory_equal(wd_safetensors_find(set, "a")->tensor.data, "abc", 3);
    wd_safetensors_close(set);
    assert_int_equal(remove(path), 0);
}

static wd_status write_once(wd_err *err)
{
    static const wd_safetensors_item two[] = {{"a", WD_U8, 3, {1, 1, 1}}, {"b", WD_U8, 0, {0}}};
    static const char *const metadata[] = {"format", "pt", NULL};
    char path[WD_PATH_MAX];
    wd_safetensors_writer *writer;
    WD_TRY(wd_path_join(path, wd_test_folder(), "short.safetensors", err));
    WD_TRY(wd_safetensors_create(&writer, path, two, 2, metadata, err));
    WD_TRY(wd_safetensors_put(writer, "ab", 2, err));
    return wd_safetensors_finish(writer, err);
}

/* A header that lacks a dimension or its metadata is not written. */
static void headers_without_memory(void **state)
{
    (void)state;
    char path[WD_PATH_MAX];
    wd_test_json_failing(write_once, 20);
    in_folder(path, "short.safetensors");
    assert_int_equal(remove(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_back_what_it_wrote),
        cmocka_unit_test(an_abandoned_file_leaves_nothing),
        cmocka_unit_test(a_killed_process_leaves_nothing),
        cmocka_unit_test(headers_without_memory),
        cmocka_unit_test(space_need_not_be_reserved),
        cmocka_unit_test(a_full_disk_is_said_with_the_path),
        cmocka_unit_test(survives_every_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
