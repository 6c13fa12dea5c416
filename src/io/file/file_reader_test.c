/* Ranges of files are read repeatedly, and the page cache keeps none of their pages. */
#include "io/file/file_reader.h"

#include "testing.h"

#include "core/clock.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BYTES = 1 << 20 };

static char path[128];
static unsigned char content[BYTES], got[BYTES];

static int write_file(void **state)
{
    (void)state;
    wd_err err = {0};
    for (int i = 0; i < BYTES; i++) content[i] = (unsigned char)(i * 31 + i / 255);
    snprintf(path, sizeof path, "%s/file", wd_test_folder());
    wd_test_ok(wd_file_write(path, content, BYTES, &err), &err); /* flushed: no page is dirty */
    return 0;
}

static void ranges(void **state)
{
    (void)state;
    wd_err err = {0};
    wd_file_reader *reader;
    wd_test_ok(wd_file_reader_open(&reader, &err), &err);
    static const size_t range[][2] = {{0, 1}, {4095, 3}, {7, 100000}, {BYTES - 5, 5}, {0, BYTES}};
    for (int i = 0; i < 5; i++) {
        memset(got, 0, sizeof got);
        wd_test_ok(wd_file_reader_read(reader, got, path, range[i][0], range[i][1], &err), &err);
        assert_memory_equal(got, content + range[i][0], range[i][1]);
    }
    wd_file_reader_close(reader);
}

/* A slower disk delivers the same bytes, and no sooner than it could. */
static void slower(void **state)
{
    (void)state;
    wd_err err = {0};
    wd_file_reader *reader;
    const double begun_s = wd_clock_s();
    wd_file_reader_bytes_per_s = 20.0 * BYTES;
    wd_test_ok(wd_file_reader_open(&reader, &err), &err);
    memset(got, 0, sizeof got);
    wd_test_ok(wd_file_reader_read(reader, got, path, 0, BYTES, &err), &err);
    assert_memory_equal(got, content, BYTES);
    assert_true(wd_clock_s() - begun_s >= 0.05);
    wd_file_reader_bytes_per_s = 0;
    wd_file_reader_close(reader);
}

static size_t pages_cached(void)
{
    static unsigned char in[BYTES / 4096];
    size_t count = 0;
    int fd = open(path, O_RDONLY);
    void *map = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);
    assert_int_equal(mincore(map, BYTES, in), 0);
    for (size_t i = 0; i < sizeof in; i++) count += in[i] & 1;
    munmap(map, BYTES);
    close(fd);
    return count;
}

static void page_cache_stays_empty(void **state)
{
    (void)state;
    wd_err err = {0};
    wd_file_reader *reader;
    if (!pages_cached()) wd_test_skip("mincore sees no page cache for files in /tmp");
    wd_test_ok(wd_file_reader_open(&reader, &err), &err);
    wd_test_ok(wd_file_reader_read(reader, got, path, 0, BYTES, &err), &err);
    assert_in_range(pages_cached(), 0, 8);
    wd_file_reader_close(reader);
}

/* Ranges that begin and end anywhere, the last page of a file, which is short, among them. */
static void whole_pages(void **state)
{
    (void)state;
    wd_err err = {0};
    wd_file_reader *reader;
    static const size_t range[][2] = {{0, 1},       {4095, 3},      {7, 100000},
                                      {8192, 4096}, {BYTES - 5, 5}, {0, BYTES}};
    char *room = aligned_alloc(WD_READ_PAGE, wd_file_reader_room(BYTES) + WD_READ_PAGE);
    assert_non_null(room);
    wd_test_ok(wd_file_reader_open(&reader, &err), &err);
    for (int i = 0; i < 6; i++)
        for (int aligned = 0; aligned < 2; aligned++) {
            const size_t offset = range[i][0], bytes = range[i][1];
            char *at = room + (aligned ? 0 : 64), *guard = at + wd_file_reader_room(bytes);
            memset(at, 0, wd_file_reader_room(bytes));
            *guard = 77;
            wd_test_ok(wd_file_reader_read_pages(reader, at, path, offset, bytes, &err), &err);
            assert_memory_equal(wd_file_reader_place(at, offset), content + offset, bytes);
            assert_int_equal(*guard, 77);
        }
    wd_test_refused(wd_file_reader_read_pages(reader, room, path, BYTES - 4, 5, &err), &err, WD_IO,
                    "the file ends");
    wd_file_reader_close(reader);
    free(room);
}

/* What is read as whole pages does not come by way of the page cache. */
static void page_cache_is_not_used(void **state)
{
    (void)state;
    wd_err err = {0};
    wd_file_reader *reader;
    const int fd = open(path, O_RDONLY), direct = open(path, O_RDONLY | O_DIRECT);
    char *room = aligned_alloc(WD_READ_PAGE, wd_file_reader_room(BYTES));
    assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    const size_t before = pages_cached();
    close(fd);
    if (direct < 0) wd_test_skip("the file system of /tmp has no O_DIRECT");
    close(direct);
    wd_test_ok(wd_file_reader_open(&reader, &err), &err);
    wd_test_ok(wd_file_reader_read_pages(reader, room, path, 4096, BYTES / 2, &err), &err);
    assert_int_equal(pages_cached(), before);
    wd_file_reader_close(reader);
    free(room);
}

static void errors(void **state)
{
    (void)state;
    wd_err err = {0};
    wd_file_reader *reader;
    wd_test_ok(wd_file_reader_open(&reader, &err), &err);
    wd_test_refused(wd_file_reader_read(reader, got, path, BYTES - 4, 5, &err), &err, WD_IO,
                    "the file ends");
    wd_test_refused(wd_file_reader_read(reader, got, "/nowhere/x", 0, 1, &err), &err, WD_IO,
                    "/nowhere/x");
    wd_file_reader_close(reader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(page_cache_stays_empty),
        cmocka_unit_test(page_cache_is_not_used),
        cmocka_unit_test(ranges),
        cmocka_unit_test(slower),
        cmocka_unit_test(whole_pages),
        cmocka_unit_test(errors),
    };
    return cmocka_run_group_tests(tests, write_file, NULL);
}
