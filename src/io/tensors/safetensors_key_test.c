/* The key of a set of weights: which changes it detects, and how few pages it reads. */
#include "io/tensors/safetensors.h"

#include "sparse.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { PAGE = 4096, MIB = 1 << 20, TENSORS = 4, SAMPLES = 1024 };

static const char path[] = "key.safetensors";

/* Writes a sparse file of 128 MiB. */
static void write_hole(int64_t columns)
{
    wd_tensor_spec spec[TENSORS];
    for (int i = 0; i < TENSORS; i++) {
        spec[i] = (wd_tensor_spec){.ndim = 2, .dim = {8 * MIB / columns, columns}};
        snprintf(spec[i].name, sizeof spec[i].name, "w%d", i);
    }
    const wd_tensor_table table = {.spec = spec, .count = TENSORS};
    wd_test_sparse_file(path, &table, 0, 1, WD_F32, NULL);
}

static void key_of(char key[WD_SAFETENSORS_KEY_MAX], const char *more)
{
    wd_err err;
    wd_safetensors *set;
    wd_test_ok(wd_safetensors_open(&set, path, &err), &err);
    wd_safetensors_key(key, set, more);
    wd_safetensors_close(set);
}

static void write_byte(off_t at)
{
    const int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "x", 1, at), 1);
    close(fd);
}

static void it_tells_weights_apart(void **state)
{
    (void)state;
    char first[WD_SAFETENSORS_KEY_MAX], other[WD_SAFETENSORS_KEY_MAX];
    struct stat info;
    write_hole(1024);
    key_of(first, "");
    assert_int_equal(strlen(first), WD_SAFETENSORS_KEY_MAX - 1);
    key_of(other, "");
    assert_string_equal(first, other);
    key_of(other, "more");
    assert_string_not_equal(first, other);
    write_hole(2048);
    key_of(other, "");
    assert_string_not_equal(first, other);

    write_hole(1024);
    assert_int_equal(stat(path, &info), 0);
    write_byte(info.st_size - TENSORS * 32 * (off_t)MIB); /* the first value of all */
    key_of(other, "");
    assert_string_not_equal(first, other);
}

/* Pages of the file that are in memory. */
static size_t resident(void)
{
    struct stat info;
    const int fd = open(path, O_RDONLY);
    assert_int_equal(fstat(fd, &info), 0);
    const size_t bytes = (size_t)info.st_size, pages = (bytes + PAGE - 1) / PAGE;
    void *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    unsigned char *in = malloc(pages);
    assert_int_equal(mincore(map, bytes, in), 0);
    size_t count = 0;
    for (size_t i = 0; i < pages; i++) count += in[i] & 1;
    free(in);
    munmap(map, bytes);
    close(fd);
    return count;
}

/* The kernel must not read ahead around each hashed page of a teacher of 60 GB: that would take
 * seconds and fill the page cache. */
static void it_reads_no_more_than_it_hashes(void **state)
{
    (void)state;
    char key[WD_SAFETENSORS_KEY_MAX];
    write_hole(1024);
    assert_true(resident() < 16);
    key_of(key, "");
    assert_in_range(resident(), 1, 2 * (SAMPLES + TENSORS) + 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_tells_weights_apart),
        cmocka_unit_test(it_reads_no_more_than_it_hashes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
