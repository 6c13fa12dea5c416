/* Tests of kernel_case.h and kernels_check.h: a case that fails ends neither its test nor the
 * program, what is printed of it suffices to look for the cause, and after a failure that no launch
 * survives the program begins anew at the next case. The faulty program is this one, started once
 * more with WD_TEST_FAULTY in its environment. */
#include "testing.h"

#include "kernels/matrix_check.h"

enum { ROWS = 4, WIDTH = 6 };

/* ---- the faulty program ---- */

static const tolerance narrow = {1e-6, 0};

/* A product of which expectation and result differ: the arguments change from run to run. */
static void make_product(world *w, void *out, const void *params)
{
    static int runs;
    const bool *faulty = params;
    wd_matmul_args *a = out;
    *a = (wd_matmul_args){.c_type = WD_F32,
                          .a_type = WD_F32,
                          .b_type = WD_F32,
                          .m = ROWS,
                          .n = WIDTH,
                          .k = 1,
                          .lda = 1,
                          .ldb = WIDTH,
                          .ldc = WIDTH,
                          .batch = 1};
    a->c = out_array(w, WD_F32, ROWS * WIDTH, WIDTH, ORDINARY);
    a->a = make_array(w, WD_F32, ROWS, ORDINARY);
    a->b = make_array(w, WD_F32, WIDTH, ORDINARY);
    for (int i = 0; i < ROWS; i++) wd__store(w->array[1].data, WD_F32, i, 1);
    for (int i = 0; i < WIDTH; i++) wd__store(w->array[2].data, WD_F32, i, (float)i);
    if (*faulty && runs++) wd__store(w->array[1].data, WD_F32, 2, 3);
}

static void make_fill(world *w, void *out, const void *params)
{
    const bool *sticks = params;
    if (*sticks) kernel_case_fail("an illegal memory access was encountered");
    if (*sticks) kernel_case_restart();
    *(wd_fill_args *)out = (wd_fill_args){.to = out_array(w, WD_F32, WIDTH, WIDTH, ORDINARY),
                                          .type = WD_F32,
                                          .count = WIDTH,
                                          .value = 1};
}

static void two_of_three_cases_fail(void **state)
{
    (void)state;
    check_matrix(WD_OP_MATMUL, make_product, &(bool){true}, narrow);
    check_matrix(WD_OP_MATMUL, make_product, &(bool){false}, narrow);
    check_kernel(WD_OP_FILL, make_fill, &(bool){true}, narrow);
}

static void no_case_fails(void **state)
{
    (void)state;
    check_kernel(WD_OP_FILL, make_fill, &(bool){false}, narrow);
}

static int run_faulty(void)
{
    const struct CMUnitTest tests[] = {kernel_test(two_of_three_cases_fail),
                                       kernel_test(no_case_fails)};
    return kernel_tests_run(tests);
}

/* ---- what it prints ---- */

static int status_of(char *out, size_t bytes, const char *variables)
{
    char command[WD_PATH_MAX + 64], program[WD_PATH_MAX] = "";
    assert_true(readlink("/proc/self/exe", program, sizeof program - 1) > 0);
    snprintf(command, sizeof command, "%s '%s' 2>&1", variables, program);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    const size_t n = fread(out, 1, bytes - 1, f);
    out[n] = 0;
    return pclose(f);
}

static void failing_cases_are_told(void **state)
{
    (void)state;
    char out[16384];
    assert_int_not_equal(status_of(out, sizeof out, "WD_TEST_FAULTY=1"), 0);
    static const char *const said[] = {
        "case 1 failed: matmul: m 4, n 6, k 1, batch 1, F32 x F32 -> F32",
        /* the third row is three times what was expected, but for its first element, 0 */
        "5 of 24 elements are wrong; the first is [13] = 3, expected 1",
        "[17] = 15, expected 5",
        "array 1 is an input and was changed: 1 of 4 elements have other bits",
        "case 3 failed: fill",
        "an illegal memory access was encountered",
        "the program begins anew at case 4",
        "4 cases, 2 failed",
    };
    const char *at = out;
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        const char *found = strstr(at, said[i]);
        if (!found) fail_msg("\"%s\" is missing, or out of order, in: %s", said[i], out);
        at = found;
    }
    assert_null(strstr(out, "case 2 failed"));
    assert_null(strstr(out, "case 2: "));
}

static void passing_cases_are_told_where_this_is_wanted(void **state)
{
    (void)state;
    char out[16384];
    status_of(out, sizeof out, "WD_TEST_FAULTY=1 WD_TEST_CASES=1");
    assert_non_null(strstr(out, "case 2: matmul: m 4, n 6, k 1, batch 1, F32 x F32 -> F32"));
    assert_non_null(strstr(out, "case 4: fill: F32 [1, 6]: largest error 0 of its tolerance"));
}

/* Elsewhere a wrong array ends the test, as every failed check does. */
static void other_tests_end_at_a_failure(void **state)
{
    (void)state;
    char out[16384];
    assert_int_not_equal(status_of(out, sizeof out, "WD_TEST_FAULTY=2"), 0);
    assert_non_null(strstr(out, "1 of 1 elements are wrong"));
    assert_null(strstr(out, "went on"));
}

static void ends_at_once(void **state)
{
    (void)state;
    float a = 1, b = 2;
    compare_array(&(array){&a, WD_F32, 1, 1, true, false}, &(array){&b, WD_F32, 1, 1, true, false},
                  "one", 0, narrow);
    printf("went on\n");
}

int main(void)
{
    const char *faulty = getenv("WD_TEST_FAULTY");
    const struct CMUnitTest ends[] = {cmocka_unit_test(ends_at_once)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failing_cases_are_told),
        cmocka_unit_test(passing_cases_are_told_where_this_is_wanted),
        cmocka_unit_test(other_tests_end_at_a_failure),
    };
    if (!faulty) return cmocka_run_group_tests(tests, NULL, NULL);
    return *faulty == '1' ? run_faulty() : cmocka_run_group_tests(ends, NULL, NULL);
}
