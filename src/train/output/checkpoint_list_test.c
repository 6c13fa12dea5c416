/* Which checkpoint is the newest and which ones stay, with damaged ones among them; and that a kill
 * at any step of a replacement leaves a whole one, where two names cannot be exchanged at once. */
#include "train/output/checkpoint_list.h"

#include <dirent.h>
#include <errno.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/json/json.h"
#include "student_fixture.h"
#include "train/output/checkpoint_folder.h"
#include "train/output/replace_folder.h"

extern char **environ;

/* ---- a file system, and a kill ---- */

enum { KILLED = 9 };

static int no_exchange;  /* errno of an exchange, where it is not possible; 0: it is */
static int no_rename;    /* errno of every rename; 0: none */
static int changes_left; /* of names, until this process ends itself before the next; 0: never */

int __real_renameat2(int, const char *, int, const char *, unsigned);
int __real_rename(const char *, const char *);
int __real_remove(const char *);
int __wrap_renameat2(int, const char *, int, const char *, unsigned);
int __wrap_rename(const char *, const char *);
int __wrap_remove(const char *);

static void count_change(void)
{
    if (changes_left && !--changes_left) _exit(KILLED);
}

int __wrap_renameat2(int from_folder, const char *from, int to_folder, const char *to,
                     unsigned flags)
{
    if (no_exchange) {
        errno = no_exchange;
        return -1;
    }
    count_change();
    return __real_renameat2(from_folder, from, to_folder, to, flags);
}

int __wrap_rename(const char *from, const char *to)
{
    if (no_rename) {
        errno = no_rename;
        return -1;
    }
    count_change();
    return __real_rename(from, to);
}

int __wrap_remove(const char *path)
{
    count_change();
    return __real_remove(path);
}

/* ---- folders ---- */

static const char *new_folder(void)
{
    static char path[128];
    static int n;
    snprintf(path, sizeof path, "%s/%d", wd_test_folder(), n++);
    return path;
}

/* A small checkpoint that says `note`. */
static void write_step(const char *folder, int64_t step, const char *note)
{
    wd_err err;
    bench b = bench_on(wd_device_open_cpu, 1);
    wd_params p;
    const wd_dit_config config = small_config();
    wd_test_ok(wd_params_open(&p, &config, WD_F32, 0, b.device, &err), &err);
    fill_buffer(&b, &p, WD_PARAMS_P, (uint64_t)step, 1, 0);
    json_t *run = json_pack("{s:s}", "note", note);
    wd_test_ok(wd_checkpoint_write(folder, step, ONLY(&p), run, b.queue, &err), &err);
    json_decref(run);
    wd_params_close(&p);
    bench_close(&b);
}

static void damage(const char *folder, int64_t step)
{
    wd_err err;
    char path[WD_PATH_MAX], file[WD_PATH_MAX];
    wd_test_ok(wd_checkpoint_folder_path(path, folder, "", step, &err), &err);
    wd_test_ok(wd_path_join(file, path, "state.safetensors", &err), &err);
    assert_int_equal(truncate(file, 3000), 0);
}

static bool is_there(const char *folder, const char *name)
{
    wd_err err;
    char path[WD_PATH_MAX];
    wd_test_ok(wd_path_join(path, folder, name, &err), &err);
    return wd_path_exists(path);
}

static int entries_of(const char *folder)
{
    int n = -2; /* . and .. */
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    while (readdir(dir)) n++;
    closedir(dir);
    return n;
}

/* The newest checkpoint's step; `note`, if not NULL: what it must say. */
static int64_t latest(const char *folder, const char *note)
{
    wd_err err;
    wd_checkpoint c;
    wd_test_ok(wd_checkpoint_open_latest(&c, folder, &err), &err);
    const int64_t step = c.step;
    if (note) assert_string_equal(json_string_value(json_object_get(c.run, "note")), note);
    wd_checkpoint_close(&c);
    return step;
}

/* ---- the list ---- */

static void names_say_their_step(void **state)
{
    (void)state;
    assert_int_equal(wd__checkpoint_folder_step("step-00000020"), 20);
    assert_int_equal(wd__checkpoint_folder_step("step-123456789"), 123456789);
    assert_int_equal(wd__checkpoint_folder_step(".old-step-00000020"), 20);
    static const char *const others[] = {"step-", "step-latest", "step-20.png",
                                         "20",    "step-00 1",   ".tmp-step-00000020",
                                         "",      ".old-"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_int_equal(wd__checkpoint_folder_step(others[i]), -1);
}

static void pruning_keeps_the_newest(void **state)
{
    (void)state;
    wd_err err;
    const char *folder = new_folder();
    const int64_t steps[] = {5, 100000000, 7, 99999999};
    char path[256];
    for (int i = 0; i < 4; i++) write_step(folder, steps[i], "");
    snprintf(path, sizeof path, "%s/step-latest", folder); /* not ours: stays */
    assert_int_equal(mkdir(path, 0777), 0);
    snprintf(path, sizeof path, "%s/.tmp-step-00000008", folder);
    assert_int_equal(mkdir(path, 0777), 0);
    wd_test_ok(wd_checkpoint_prune(folder, 2, 0, &err), &err);
    assert_int_equal(entries_of(folder), 3);
    assert_true(is_there(folder, "step-100000000") && is_there(folder, "step-99999999"));
    assert_true(is_there(folder, "step-latest"));
    assert_int_equal(latest(folder, NULL), 100000000);
}

/* The oldest is removed until one whole checkpoint is left; damaged ones stay. */
static void the_oldest_makes_room(void **state)
{
    (void)state;
    static const int64_t removed[] = {2, 3, -1, -1};
    wd_err err;
    int64_t step;
    const char *folder = new_folder();
    for (step = 1; step <= 5; step++) write_step(folder, step, "");
    damage(folder, 1);
    damage(folder, 5);
    for (int i = 0; i < 4; i++) {
        wd_test_ok(wd_checkpoint_remove_oldest(&step, folder, 6, &err), &err);
        assert_int_equal(step, removed[i]);
    }
    assert_int_equal(entries_of(folder), 3);
    assert_int_equal(latest(folder, NULL), 4);
    wd_test_ok(wd_checkpoint_remove_oldest(&step, new_folder(), 0, &err), &err);
    assert_int_equal(step, -1);
}

/* Two whole ones are asked for, and two stay; damaged ones are not counted, and not removed. */
static void pruning_counts_whole_ones(void **state)
{
    (void)state;
    wd_err err;
    const char *folder = new_folder();
    for (int64_t step = 1; step <= 6; step++) write_step(folder, step, "");
    damage(folder, 1);
    damage(folder, 4);
    damage(folder, 5);
    for (int i = 0; i < 2; i++) {
        wd_test_ok(wd_checkpoint_prune(folder, 2, 6, &err), &err);
        assert_int_equal(entries_of(folder), 5);
        assert_false(is_there(folder, "step-00000002"));
    }
    wd_test_ok(wd_checkpoint_prune(folder, 1, 6, &err), &err);
    assert_int_equal(entries_of(folder), 4);
    assert_false(is_there(folder, "step-00000003"));
    assert_int_equal(latest(folder, NULL), 6);
}

static void damaged_ones_alone_are_an_error(void **state)
{
    (void)state;
    wd_err err;
    wd_checkpoint c;
    const char *folder = new_folder();
    wd_test_refused(wd_checkpoint_open_latest(&c, folder, &err), &err, WD_NOT_FOUND, folder);
    write_step(folder, 1, "");
    write_step(folder, 2, "");
    damage(folder, 2);
    assert_int_equal(latest(folder, NULL), 1);
    damage(folder, 1);
    wd_test_refused(wd_checkpoint_open_latest(&c, folder, &err), &err, WD_BAD_FORMAT,
                    "is damaged: step-00000002, step-00000001 (");
    assert_non_null(strstr(err.message, "step-00000002/state.safetensors"));
    assert_non_null(strstr(err.message, folder));
}

/* ---- kills ---- */

/* The victim: writes a checkpoint of step 20, once or twice, and may end itself at a change. */
static int write_twice(const char *folder, const char *first, const char *second, int changes)
{
    no_exchange = EINVAL;
    if (*first) write_step(folder, 20, first);
    changes_left = changes;
    write_step(folder, 20, second);
    return 0;
}

/* Whether the victim came to its end. */
static bool run_victim(const char *folder, const char *first, const char *second, int changes)
{
    char number[16];
    int status;
    pid_t pid;
    snprintf(number, sizeof number, "%d", changes);
    char *const argv[] = {"victim", (char *)folder, (char *)first, (char *)second, number, NULL};
    assert_int_equal(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status)) assert_int_equal(WEXITSTATUS(status), KILLED);
    return WEXITSTATUS(status) == 0;
}

/* What resume finds is whole, and is one of those that were written: "one", "one two". */
static void check_found(const char *folder, const char *written)
{
    wd_err err;
    wd_checkpoint c;
    wd_test_ok(wd_checkpoint_open_latest(&c, folder, &err), &err);
    const char *note = json_string_value(json_object_get(c.run, "note"));
    assert_int_equal(c.step, 20);
    if (!strstr(written, note)) fail_msg("found \"%s\", expected one of %s", note, written);
    wd_checkpoint_close(&c);
}

/* Killed before every change of a name in its turn; then again and again while the next write
 * clears up, until one comes to its end. */
static void a_kill_leaves_a_whole_one(void **state)
{
    (void)state;
    int kills = 0, kills_after = 0;
    for (bool ended = false; !ended;) {
        char folder[128];
        snprintf(folder, sizeof folder, "%s", new_folder());
        ended = run_victim(folder, "one", "two", kills + 1);
        kills += !ended;
        check_found(folder, ended ? "two" : "one two");
        int changes = 1;
        while (!run_victim(folder, "", "three", changes++)) {
            check_found(folder, "one two three");
            kills_after++;
        }
        check_found(folder, "three");
        assert_int_equal(entries_of(folder), 1);
    }
    assert_true(kills > 6 && kills_after > 6 * kills);
}

/* ---- folders that change places ---- */

static void put_text(const char *folder, const char *text)
{
    char path[256];
    wd_err err;
    snprintf(path, sizeof path, "%s/file", folder);
    wd_test_ok(wd_folder_make(folder, &err), &err);
    wd_test_ok(wd_file_write(path, text, strlen(text), &err), &err);
}

static void assert_text(const char *folder, const char *expected)
{
    char path[256], *text;
    size_t bytes;
    wd_err err;
    snprintf(path, sizeof path, "%s/file", folder);
    wd_test_ok(wd_file_read(&text, &bytes, path, 100, &err), &err);
    assert_string_equal(text, expected);
    wd_free(text);
}

static void folders_change_places(void **state)
{
    (void)state;
    wd_err err;
    static const int errors[] = {0, EINVAL, ENOSYS, EOPNOTSUPP, EPERM};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        char a[256], b[256], aside[256];
        const char *folder = new_folder();
        no_exchange = errors[i];
        snprintf(a, sizeof a, "%s/a", folder);
        snprintf(b, sizeof b, "%s/b", folder);
        snprintf(aside, sizeof aside, "%s/.old-a", folder);
        put_text(b, "first");
        wd_test_ok(wd__folder_replace(a, b, &err), &err);
        put_text(b, "second");
        wd_test_ok(wd__folder_replace(a, b, &err), &err);
        assert_text(a, "second");
        assert_int_equal(entries_of(folder), 1);
        wd_test_refused(wd__folder_replace(a, b, &err), &err, WD_IO, a);
        assert_text(a, "second");

        assert_int_equal(rename(a, aside), 0); /* what a kill between two renames leaves */
        wd_test_ok(wd__folder_restore(a, &err), &err);
        assert_text(a, "second");
        put_text(aside, "first");
        wd_test_ok(wd__folder_restore(a, &err), &err);
        assert_text(a, "second");
        assert_int_equal(entries_of(folder), 1);
    }
    no_exchange = 0;
}

/* Where a folder may not be renamed at all, that is said, and the older one stays. */
static void a_refusal_is_said(void **state)
{
    (void)state;
    wd_err err;
    char a[256], b[256];
    const char *folder = new_folder();
    snprintf(a, sizeof a, "%s/a", folder);
    snprintf(b, sizeof b, "%s/b", folder);
    put_text(a, "first");
    put_text(b, "second");
    no_exchange = no_rename = EPERM;
    wd_test_refused(wd__folder_replace(a, b, &err), &err, WD_IO, "Operation not permitted");
    no_exchange = EACCES; /* is never tried in two steps */
    no_rename = 0;
    wd_test_refused(wd__folder_replace(a, b, &err), &err, WD_IO, "Permission denied");
    no_exchange = 0;
    assert_text(a, "first");
    assert_text(b, "second");
    assert_int_equal(entries_of(folder), 2);
}

int main(int argc, char **argv)
{
    if (argc == 5) return write_twice(argv[1], argv[2], argv[3], atoi(argv[4]));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_say_their_step),
        cmocka_unit_test(pruning_keeps_the_newest),
        cmocka_unit_test(the_oldest_makes_room),
        cmocka_unit_test(pruning_counts_whole_ones),
        cmocka_unit_test(damaged_ones_alone_are_an_error),
        cmocka_unit_test(a_kill_leaves_a_whole_one),
        cmocka_unit_test(folders_change_places),
        cmocka_unit_test(a_refusal_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
