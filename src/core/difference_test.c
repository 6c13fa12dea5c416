/* Relative errors against values worked out by hand. */
#include "testing.h"

#include <math.h>

#include "core/difference.h"

static void differences_add_up(void **state)
{
    (void)state;
    const float expected[] = {3, 4}, value[] = {3, 1};
    wd_difference all = wd_difference_of(value, expected, 2);
    assert_true(fabs(wd_difference_relative(all) - 0.6) < 1e-12);
    wd_difference_add(&all, wd_difference_of(expected, expected, 2));
    assert_true(fabs(wd_difference_relative(all) - 3 / sqrt(50.0)) < 1e-12);
}

/* Each difference counts alike, however large its values are. */
static void a_mean_is_of_relative_errors(void **state)
{
    (void)state;
    const wd_difference level[] = {{1, 4}, {900, 100}};
    assert_true(fabs(wd_difference_mean_relative(level, 2) - (0.5 + 3) / 2) < 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(differences_add_up),
        cmocka_unit_test(a_mean_is_of_relative_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
