/* Tests of the figures of `eval` against values worked out by hand. */
#include "testing.h"

#include <math.h>

#include "api/jobs/eval_report.h"

static void a_mean_has_its_error(void **state)
{
    (void)state;
    wd_tally t = {0};
    assert_true(wd__tally_mean(&t) == 0 && wd__tally_error(&t) == 0);
    wd__tally_add(&t, 2);
    assert_true(wd__tally_mean(&t) == 2 && wd__tally_error(&t) == 0);
    wd__tally_add(&t, 4);
    wd__tally_add(&t, 9); /* mean 5, deviations -3 -1 4: variance 13 */
    assert_true(fabs(wd__tally_mean(&t) - 5) < 1e-12);
    assert_true(fabs(wd__tally_error(&t) - sqrt(13.0 / 3)) < 1e-12);
    wd__tally_add(&t, INFINITY); /* identical pictures */
    assert_true(isnan(wd__tally_error(&t)));
}

static void noise_has_decibels(void **state)
{
    (void)state;
    assert_true(fabs(wd__psnr_db(0.01) - 20) < 1e-12);
    assert_true(isinf(wd__psnr_db(0)));
}

static void correlation_takes_no_account_of_brightness(void **state)
{
    (void)state;
    const float a[] = {1, 2, 4}, brighter[] = {3, 5, 9}, constant[] = {2, 2, 2};
    const float opposite[] = {-1, -2, -4};
    assert_true(fabs(wd__correlation(a, brighter, 3) - 1) < 1e-12);
    assert_true(fabs(wd__correlation(a, opposite, 3) + 1) < 1e-12);
    assert_true(wd__correlation(a, constant, 3) == 0);
}

/* Two prompts of two values, three seeds. Distances of the first prompt's pictures, squared: 1, 4,
 * 1; of the second's: 0, 9, 9. Over 3 pairs of 2 values: 6 / 6 and 18 / 6. */
static void diversity_is_the_distance_of_pairs(void **state)
{
    (void)state;
    wd_err err;
    wd_diversity d;
    const float first[] = {0, 0, 5, 1}, second[] = {1, 0, 5, 1}, third[] = {2, 0, 5, 4};
    wd_test_ok(wd__diversity_open(&d, 2, 2, &err), &err);
    wd__diversity_add(&d, first);
    assert_true(wd__diversity_distance(&d) == 0);
    wd__diversity_add(&d, second);
    wd__diversity_add(&d, third);
    assert_true(fabs(wd__diversity_distance(&d) - (1 + sqrt(3)) / 2) < 1e-6);
    wd__diversity_close(&d);
}

/* A checkerboard has details of 2 pixels alone; with fields of 2 pixels it has those of 4. */
static void details_have_sizes(void **state)
{
    (void)state;
    enum { SIDE = 8 };
    wd_err err;
    for (int size = 0; size < WD_DETAIL_SIZES; size++) {
        float picture[2][SIDE * SIDE];
        wd_details d = {0}, blurred = {0};
        for (int i = 0; i < SIDE * SIDE; i++) {
            picture[0][i] = ((i / SIDE >> size) + (i % SIDE >> size)) % 2 ? 0.75f : 0.25f;
            picture[1][i] = 0.5f + 0.5f * (picture[0][i] - 0.5f);
        }
        wd_test_ok(wd__details_add(&d, picture[0], 1, SIDE, SIDE, &err), &err);
        for (int k = 0; k < WD_DETAIL_SIZES; k++)
            assert_true(fabs(d.energy[k] - (k == size ? SIDE * SIDE / 16.0 : 0)) < 1e-12);
        wd_test_ok(wd__details_add(&blurred, picture[1], 1, SIDE, SIDE, &err), &err);
        assert_true(fabs(blurred.energy[size] / d.energy[size] - 0.25) < 1e-12);
        wd_test_ok(wd__details_add(&blurred, picture[0], 2, SIDE, SIDE, &err), &err);
        assert_true(fabs(blurred.energy[size] / d.energy[size] - 1.5) < 1e-12);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mean_has_its_error),
        cmocka_unit_test(noise_has_decibels),
        cmocka_unit_test(correlation_takes_no_account_of_brightness),
        cmocka_unit_test(details_have_sizes),
        cmocka_unit_test(diversity_is_the_distance_of_pairs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
