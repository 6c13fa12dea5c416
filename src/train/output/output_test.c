/* A run finds its output folder again after it was moved, and never writes into one that another
 * run has. */
#include "train/output/output.h"

#include <unistd.h>

#include "program.h"

static const wd_pipeline teacher = {.path = WD_SOURCE_DIR "/models/wan-tiny"};

static void lock(wd_output *out, const char *folder)
{
    wd_err err;
    wd_test_ok(wd_output_open(out, folder, &teacher, &err), &err);
    wd_test_ok(wd_output_lock(out, 0, &err), &err);
}

static void assert_locked(const char *folder)
{
    wd_err err;
    wd_output other = {0};
    wd_test_refused(wd_output_open(&other, folder, &teacher, &err), &err, WD_INVALID_ARGUMENT,
                    "another run writes into this folder");
}

static void a_moved_folder_is_found(void **state)
{
    (void)state;
    wd_err err;
    wd_output output;
    char moved[WD_PATH_MAX];
    snprintf(moved, sizeof moved, "%s/two words", wd_test_folder());
    lock(&output, wd_test_path("first"));
    wd_test_ok(wd_output_follow(&output, &err), &err);
    assert_string_equal(output.path, wd_test_path("first"));
    assert_int_equal(rename(wd_test_path("first"), moved), 0);
    wd_test_ok(wd_output_follow(&output, &err), &err);
    assert_true(wd_path_exists(output.path) && strstr(output.path, "/two words"));
    assert_locked(moved);
    assert_false(wd_path_exists(wd_test_path("first")));
    wd_output_close(&output);
}

/* The run that is in the folder's place now is another one's. */
static void another_run_may_have_the_old_place(void **state)
{
    (void)state;
    wd_err err;
    wd_output output, other;
    lock(&output, wd_test_path("place"));
    assert_int_equal(rename(wd_test_path("place"), wd_test_path("away")), 0);
    lock(&other, wd_test_path("place"));
    wd_test_ok(wd_output_follow(&output, &err), &err);
    assert_non_null(strstr(output.path, "/away"));
    wd_test_ok(wd_output_follow(&other, &err), &err);
    assert_string_equal(other.path, wd_test_path("place"));
    wd_output_close(&other);
    wd_output_close(&output);
}

static void a_removed_folder_is_made_anew(void **state)
{
    (void)state;
    wd_err err;
    wd_output output, other;
    lock(&output, wd_test_path("removed"));
    wd_test_ok(wd_folder_remove(wd_test_path("removed"), &err), &err);
    wd_test_ok(wd_output_follow(&output, &err), &err);
    assert_string_equal(output.path, wd_test_path("removed"));
    assert_locked(output.path);
    wd_test_ok(wd_folder_remove(wd_test_path("removed"), &err), &err);
    lock(&other, wd_test_path("removed"));
    wd_test_refused(wd_output_follow(&output, &err), &err, WD_INVALID_ARGUMENT,
                    "another run writes into this folder");
    wd_output_close(&other);
    wd_output_close(&output);
}

static void a_removed_lock_is_taken_again(void **state)
{
    (void)state;
    wd_err err;
    wd_output output, other;
    const char *file = wd_test_path("open/.lock");
    lock(&output, wd_test_path("open"));
    assert_int_equal(unlink(file), 0);
    wd_test_ok(wd_output_follow(&output, &err), &err);
    assert_locked(wd_test_path("open"));
    assert_int_equal(unlink(file), 0);
    lock(&other, wd_test_path("open"));
    wd_test_refused(wd_output_begin(&output, 0, &err), &err, WD_INVALID_ARGUMENT,
                    "another run writes into this folder");
    wd_output_close(&other);
    wd_output_close(&output);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_moved_folder_is_found),
        cmocka_unit_test(another_run_may_have_the_old_place),
        cmocka_unit_test(a_removed_folder_is_made_anew),
        cmocka_unit_test(a_removed_lock_is_taken_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
