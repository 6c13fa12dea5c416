/* Folders that can be written and folders that cannot; a check leaves no file in them. */
#include "io/file/writable.h"

#include <dirent.h>
#include <errno.h>
#include <sys/mman.h>

#include "testing.h"

/* What the file system refuses, as some of FUSE and of the network do. The test is linked with
 * -Wl,--wrap for these calls. */
static bool renames = true, maps = true, maps_shared = true;

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to)
{
    if (renames) return __real_rename(from, to);
    errno = ENOSYS;
    return -1;
}

void *__real_mmap(void *at, size_t bytes, int access, int kind, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t bytes, int access, int kind, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t bytes, int access, int kind, int fd, off_t offset)
{
    if (fd < 0 || (kind & MAP_SHARED ? maps_shared : maps))
        return __real_mmap(at, bytes, access, kind, fd, offset);
    errno = ENODEV;
    return MAP_FAILED;
}

static const char *below(const char *name)
{
    static char path[8][256];
    static int next;
    char *out = path[next++ % 8];
    snprintf(out, sizeof path[0], "%s/%s", wd_test_folder(), name);
    return out;
}

static int entries(const char *path)
{
    int count = 0;
    DIR *folder = opendir(path);
    assert_non_null(folder);
    while (readdir(folder)) count++;
    closedir(folder);
    return count;
}

static void says_yes_and_leaves_nothing(void **state)
{
    (void)state;
    wd_err err;
    const int before = entries(wd_test_folder());
    wd_test_ok(wd_file_check_writable(below("file"), "--out", &err), &err);
    wd_test_ok(wd_folder_check_writable(below("new/deeper"), "--out", &err), &err);
    wd_test_ok(wd_folder_check_writable(below("new/"), "--out", &err), &err);
    wd_test_ok(wd_folder_check_writable(wd_test_folder(), "--out", &err), &err);
    wd_test_ok(wd_folder_check_writable("none-of-this", "--out", &err), &err);
    assert_int_equal(entries(wd_test_folder()), before);
}

static void says_no(void **state)
{
    (void)state;
    wd_err err;
    wd_test_ok(wd_file_write(below("taken"), "x", 1, &err), &err);
    wd_test_refused(wd_file_check_writable(below("none/file"), "--trace", &err), &err, WD_NOT_FOUND,
                    "--trace: ");
    wd_test_refused(wd_file_check_writable(wd_test_folder(), "--trace", &err), &err, WD_IO,
                    "found the folder /tmp/");
    wd_test_refused(wd_file_check_writable("", "--trace", &err), &err, WD_IO, "found nothing");
    wd_test_refused(wd_folder_check_writable(below("taken"), "--out", &err), &err, WD_IO,
                    "taken: is a file, expected a folder");
    wd_test_refused(wd_folder_check_writable(below("taken/x/y"), "--out", &err), &err, WD_IO,
                    "taken: is a file, expected a folder");
    /* nobody, not even root, can create files there */
    wd_test_refused(wd_folder_check_writable("/proc/wandistiller/out", "--out", &err), &err,
                    WD_NOT_FOUND, "--out: /proc/wandistiller: cannot be written");
}

static void other_file_systems(void **state)
{
    (void)state;
    wd_err err;
    const char *folder = wd_test_folder();
    const int before = entries(folder);
    maps_shared = false;
    wd_test_ok(wd_folder_check_writable(folder, "--output_dir", &err), &err);
    maps = false;
    wd_test_refused(wd_folder_check_writable(folder, "--output_dir", &err), &err, WD_IO,
                    "cannot be read back by mmap: No such device");
    maps = maps_shared = true;
    renames = false;
    wd_test_refused(wd_folder_check_writable(folder, "--output_dir", &err), &err, WD_IO,
                    "--output_dir: ");
    renames = true;
    assert_int_equal(entries(folder), before);
}

/* Weights are read where there are no shared maps. */
static void tensors_need_no_shared_map(void **state)
{
    (void)state;
    wd_err err;
    wd_safetensors *set;
    const char *path = below("x.safetensors");
    static const char header[] = "\74\0\0\0\0\0\0\0{\"x\": {\"dtype\": \"U8\", "
                                 "\"shape\": [0], \"data_offsets\": [0, 0]}}";
    wd_test_ok(wd_file_write(path, header, sizeof header - 1, &err), &err);
    maps_shared = false;
    wd_test_ok(wd_safetensors_open(&set, path, &err), &err);
    maps_shared = true;
    assert_non_null(wd_safetensors_find(set, "x"));
    wd_safetensors_close(set);
}

/* Programs go by the ending of a name: one that belongs to something else is refused. A folder that
 * is there may be called as it likes. */
static void endings_of_others_are_refused(void **state)
{
    (void)state;
    static const char *const others[] = {".png", ".pdf", NULL};
    wd_err err;
    assert_true(wd_path_has_ending("a.png", ".png") && wd_path_has_ending("a/b.PNG", ".png"));
    assert_false(wd_path_has_ending("a.pngx", ".png") || wd_path_has_ending("png", ".png"));
    assert_false(wd_path_has_ending(".png", ".png") || wd_path_has_ending("a/.png", ".png"));
    wd_test_ok(wd_path_refuse_endings("a.svg", "--svg", others, "a .svg file", &err), &err);
    wd_test_refused(wd_path_refuse_endings("a.Pdf", "--svg", others, "a .svg file", &err), &err,
                    WD_INVALID_ARGUMENT,
                    "--svg a.Pdf: expected a .svg file, found a name with .pdf");
    wd_test_refused(wd_folder_check_writable(below("s.safetensors"), "--output_dir", &err), &err,
                    WD_INVALID_ARGUMENT, "expected a folder, found a name with .safetensors");
    wd_test_ok(wd_folder_make(below("s.safetensors"), &err), &err);
    wd_test_ok(wd_folder_check_writable(below("s.safetensors"), "--output_dir", &err), &err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_yes_and_leaves_nothing),
        cmocka_unit_test(says_no),
        cmocka_unit_test(other_file_systems),
        cmocka_unit_test(tensors_need_no_shared_map),
        cmocka_unit_test(endings_of_others_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
