/* A run on a disk that is full, that becomes full, or that cannot be written to. A disk that is too
 * small is refused at the start; one that becomes full costs checkpoints, which are missing, and
 * only a student that cannot be written is an error. Earlier checkpoints are whole, and the run
 * goes on once there is room. The disk is a small tmpfs of this test's own name space: where none
 * can be made, the test is skipped and says why. */
#include "runs.h"

#include <errno.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

static wd_program program;
static char disk[256];

#define RUN(out)                                                                                   \
    "train", "--teacher_path", teacher, "--data_path", wd_test_path("prompts.txt"),                \
        "--student_config", wd_test_path("student.json"), "--output_dir", out, "--cache_dir",      \
        wd_test_path("cache"), "--height", "32", "--width", "32", "--batch_size", "2",             \
        "--trajectories", "4", "--trajectory_steps", "4", "--guidance_scale", "2", "--lr", "1e-3", \
        "--num_steps", "8", "--checkpoint_interval", "2", "--keep_checkpoints", "9", "--seed", "3"

/* A limit of the size of files (`ulimit -f`) is an error that names the file, too, not a signal. */
static void a_limit_of_file_sizes_is_an_error(void **state)
{
    (void)state;
    struct rlimit files;
    const char *out = wd_test_path("limited");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &files), 0);
    const rlim_t before = files.rlim_cur;
    files.rlim_cur = 1 << 20;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &files), 0); /* which the program inherits */
    wd_program_run(&program, RUN(out));
    files.rlim_cur = before;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &files), 0);
    wd_program_refused(&program, WD_IO, strerror(EFBIG));
    assert_non_null(strstr(program.err, "limited/checkpoints/"));
}

/* Weights that a command writes for itself lie below TMPDIR: where they find no room the error says
 * so. */
static void temporary_weights_without_room_name_tmpdir(void **state)
{
    (void)state;
    struct rlimit files;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &files), 0);
    const rlim_t before = files.rlim_cur;
    files.rlim_cur = 1 << 20;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &files), 0);
    wd_program_run(&program, "eval", "--teacher", teacher, "--quantisation", "int8", "--prompts",
                   wd_test_path("prompts.txt"), "--count", "1");
    files.rlim_cur = before;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &files), 0);
    wd_program_refused(&program, WD_IO, strerror(EFBIG));
    assert_non_null(strstr(program.err, "of quantised weights will be written to "));
    assert_non_null(strstr(program.err, "; set TMPDIR to a folder with room for "));
}

enum { FILES = 1000 };

/* Mounts a disk of so many bytes and files, or changes the one that is there. */
static int mount_disk(size_t bytes, size_t files, unsigned long flags)
{
    char size[64];
    snprintf(size, sizeof size, "size=%zu,nr_inodes=%zu", bytes, files);
    return mount("wandistiller-test", disk, "tmpfs", flags, size);
}

static void unmount(void)
{
    umount2(disk, MNT_DETACH);
}

/* Says why, and skips the test, where this user may not mount. */
static void open_disk_for(size_t bytes, size_t files)
{
    static bool is_open;
    const bool root = geteuid() == 0;
    wd_err err;
    snprintf(disk, sizeof disk, "%s", wd_test_path("disk"));
    if (is_open) {
        assert_int_equal(mount_disk(bytes, files, MS_REMOUNT), 0);
        return;
    }
    wd_test_ok(wd_folder_make(disk, &err), &err);
    if (unshare(root ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER) ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) || mount_disk(bytes, files, 0)) {
        char why[128];
        snprintf(why, sizeof why, "no tmpfs can be mounted: %s", strerror(errno));
        wd_test_skip(why);
    }
    is_open = true;
    atexit(unmount);
}

static void open_disk(size_t bytes)
{
    open_disk_for(bytes, FILES);
}

static size_t used_files(void)
{
    struct statvfs now;
    assert_int_equal(statvfs(disk, &now), 0);
    return now.f_files - now.f_ffree;
}

static size_t used_bytes(void)
{
    struct statvfs now;
    assert_int_equal(statvfs(disk, &now), 0);
    return (now.f_blocks - now.f_bfree) * now.f_frsize;
}

/* How many checkpoints of RUN a folder has. */
static int checkpoints_in(const char *folder)
{
    int count = 0;
    for (int step = 2; step <= 8; step += 2) {
        char path[WD_PATH_MAX];
        snprintf(path, sizeof path, "%s/checkpoints/step-%08d", folder, step);
        count += wd_path_exists(path);
    }
    return count;
}

static void a_run_goes_on_where_the_disk_is_full(void **state)
{
    (void)state;
    const char *whole = wd_test_path("disk/whole"), *out = wd_test_path("disk/out");
    wd_err err;
    open_disk(1 << 30);
    wd_program_run(&program, RUN(whole));
    wd_program_succeeded(&program);
    const char *saved = wd_test_path("whole");
    const char *copy[] = {"-r", whole, saved, NULL};
    wd_program_wait(&program, wd_program_start_as("cp", copy));
    wd_program_succeeded(&program);
    const size_t bytes = used_bytes(), all = used_files();
    wd_test_ok(wd_folder_remove(whole, &err), &err);
    const size_t before = used_bytes();
    int lost = 0, removed = 0;
    open_disk(bytes / 2);
    wd_program_run(&program, RUN(out));
    wd_program_refused(&program, WD_DOES_NOT_FIT, "disk: its file system has ");
    assert_non_null(strstr(program.err, "--keep_checkpoints 1: "));
    assert_int_equal(used_bytes(), before);
    /* a plan counts bytes, and not how many files a disk has room for: on this one it fills up on
     * the way. What is written last then has the room of all checkpoints but one */
    for (size_t share = 1; share < 8; share++) {
        wd_test_ok(wd_folder_remove(out, &err), &err);
        open_disk_for(1 << 30, all * share / 8);
        wd_program_run(&program, RUN(out));
        if (program.code) wd_program_refused(&program, WD_IO, strerror(ENOSPC));
        assert_non_null(strstr(program.err, strerror(ENOSPC)));
        assert_non_null(strstr(program.err, out)); /* names the file */
        assert_int_equal(wd_path_exists(wd_test_path("disk/out/model_index.json")), !program.code);
        lost += program.code != 0;
        removed += strstr(program.err, "was removed to make room") != NULL;
        const int left = checkpoints_in(out);
        assert_true(left >= (share > 4));
        if (program.code || !wd_path_exists(wd_test_path("disk/out/checkpoints/step-00000008")))
            assert_in_range(left, 0, 1);
    }
    assert_in_range(lost, 1, 7); /* students, which are all that ends a run */
    assert_in_range(removed, 1, 7);
    open_disk(1 << 30);
    wd_program_run(&program, RUN(out), "--resume", "auto");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, "going on from"));
    assert_same_weights(saved, out);
    json_t *x = metrics(saved), *y = metrics(out);
    assert_int_equal(json_array_size(x), 8);
    assert_true(json_equal(x, y));
    json_decref(x);
    json_decref(y);
}

static void a_disk_that_is_read_only_is_refused_at_the_start(void **state)
{
    (void)state;
    const char *out = wd_test_path("disk/read-only");
    wd_err err;
    open_disk(1 << 30);
    wd_test_ok(wd_folder_make(out, &err), &err);
    assert_int_equal(mount_disk(1 << 30, FILES, MS_REMOUNT | MS_RDONLY), 0);
    wd_program_run(&program, RUN(out));
    assert_int_equal(mount_disk(1 << 30, FILES, MS_REMOUNT), 0);
    wd_program_refused(&program, WD_IO, out);
    assert_null(strstr(program.err, "student: ")); /* before anything was planned */
}

/* The student is whole without its other forms, of which none is half there; they are written once
 * there is room. */
static void forms_that_find_no_room(void **state)
{
    (void)state;
    const char *out = wd_test_path("disk/forms"), *other = wd_test_path("disk/other");
    wd_err err;
    open_disk(1 << 30);
    const size_t before = used_bytes();
    wd_program_run(&program, RUN(other));
    wd_program_succeeded(&program);
    const size_t one = used_bytes() - before;
    wd_test_ok(wd_folder_remove(other, &err), &err);
    open_disk(used_bytes() + one + (512 << 10)); /* too little for 1.4 MB of bfloat16 */
    wd_program_run(&program, RUN(out), "--export", "comfyui");
    wd_program_refused(&program, WD_IO, strerror(ENOSPC));
    assert_non_null(strstr(program.err, "forms is complete, and convert can write its other"));
    assert_true(wd_path_exists(wd_test_path("disk/forms/model_index.json")));
    assert_false(wd_path_exists(wd_test_path("disk/forms/comfyui")));
    assert_false(wd_path_exists(wd_test_path("disk/forms/.tmp-comfyui")));
    open_disk(1 << 30);
    wd_program_run(&program, RUN(out), "--resume", "auto", "--export", "comfyui");
    wd_program_succeeded(&program);
    assert_true(wd_path_exists(wd_test_path("disk/forms/comfyui/student.safetensors")));
}

/* The file of quantised weights, 2.5 MB, is counted before anything is written. */
static void quantised_weights_that_find_no_room(void **state)
{
    (void)state;
    const char *out = wd_test_path("quantised"), *cache = wd_test_path("disk/weights");
    open_disk(1 << 30);
    const size_t used = used_bytes();
    open_disk(used + (2 << 20));
    wd_program_run(&program, RUN(out), "--teacher_dtype", "int8", "--cache_dir", cache);
    wd_program_refused(&program, WD_DOES_NOT_FIT, "disk: its file system has ");
    assert_non_null(strstr(program.err, "--cache_dir DIR on another disk: "));
    assert_int_equal(used_bytes(), used);
    open_disk(1 << 30);
    wd_program_run(&program, RUN(out), "--teacher_dtype", "int8", "--cache_dir", cache);
    wd_program_succeeded(&program);
}

/* A folder of targets whose disk is too small is refused; where the disk becomes full on the way
 * the run goes on, and what is stored can be trained from. */
static void targets_that_find_no_room(void **state)
{
    (void)state;
    const char *out = wd_test_path("storing"), *store = wd_test_path("disk/targets");
    const char *read = wd_test_path("reading");
    wd_err err;
    open_disk(1 << 30);
    wd_test_ok(wd_folder_remove(wd_test_path("disk/forms"), &err), &err);
    const size_t used = used_bytes(), files = used_files();
    open_disk(used + (8 << 10)); /* 13 KiB of targets */
    wd_program_run(&program, RUN(out), "--save_targets", store);
    wd_program_refused(&program, WD_DOES_NOT_FIT, "disk: its file system has ");
    assert_non_null(strstr(program.err, "--save_targets DIR on another disk: "));
    assert_int_equal(used_bytes(), used);
    open_disk_for(1 << 30, files + 4); /* a folder, two files and the first of the targets' */
    wd_program_run(&program, RUN(out), "--save_targets", store);
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, "no more targets are stored: the store ends before"));
    assert_non_null(strstr(program.err, store)); /* names the file */
    open_disk(1 << 30);
    wd_program_run(&program, RUN(read), "--targets", store);
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, "goes round again"));
    wd_program_run(&program, RUN(out), "--save_targets", store, "--resume", "auto", "--num_steps",
                   "12");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, "with which this run goes on: no more targets are stored"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_limit_of_file_sizes_is_an_error),
        cmocka_unit_test(temporary_weights_without_room_name_tmpdir),
        cmocka_unit_test(a_run_goes_on_where_the_disk_is_full),
        cmocka_unit_test(forms_that_find_no_room),
        cmocka_unit_test(quantised_weights_that_find_no_room),
        cmocka_unit_test(targets_that_find_no_room),
        cmocka_unit_test(a_disk_that_is_read_only_is_refused_at_the_start),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
