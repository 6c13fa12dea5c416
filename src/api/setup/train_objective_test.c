/* --trajectory_sigmas: what is read, what is refused, which flow shift follows; and that the stock
 * samplers' grids are those of the student, by their own formulas. */
#include "testing.h"

#include <math.h>

#include "api/setup/train_objective.h"
#include "model/sampling/schedule.h"

static void lists_are_read(void **state)
{
    (void)state;
    wd_err err;
    float sigma[WD_TRAJECTORY_SIGMAS_MAX];
    int64_t count;
    wd_test_ok(wd__trajectory_sigmas_parse(sigma, &count, "1,0.9375,0.8333,0.625", &err), &err);
    assert_int_equal(count, 4);
    assert_true(sigma[0] == 1 && sigma[1] == 0.9375f && sigma[2] == 0.8333f && sigma[3] == 0.625f);
    wd_test_ok(wd__trajectory_sigmas_parse(sigma, &count, "1000,937.5,833.3,625", &err), &err);
    assert_int_equal(count, 4);
    assert_true(sigma[0] == 1 && sigma[1] == 0.9375f && sigma[3] == 0.625f);
    wd_test_ok(wd__trajectory_sigmas_parse(sigma, &count, "1", &err), &err);
    assert_int_equal(count, 1);
    static const char *const refused[] = {"",    "1,",        "0.9,0.5", "1,0.5,0.5", "1,0.5,0.6",
                                          "1,0", "1,-1",      "1;0.5",   "1,nan",     "1,0.5x",
                                          "a",   "1000,1000", "999,500", "1,,0.5",    "inf,1"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        assert_int_equal(wd__trajectory_sigmas_parse(sigma, &count, refused[i], &err),
                         WD_INVALID_ARGUMENT);
        assert_non_null(strstr(err.message, "--trajectory_sigmas: expected up to 64"));
    }
    char many[4 * WD_TRAJECTORY_SIGMAS_MAX + 8 * WD_TRAJECTORY_SIGMAS_MAX] = "1";
    for (int i = 1; i <= WD_TRAJECTORY_SIGMAS_MAX; i++) {
        const size_t used = strlen(many);
        snprintf(many + used, sizeof many - used, ",%.4f", 1 - i / 100.0);
    }
    assert_int_equal(wd__trajectory_sigmas_parse(sigma, &count, many, &err), WD_INVALID_ARGUMENT);
}

static void the_shift_follows(void **state)
{
    (void)state;
    wd_err err;
    const float sigma[] = {1, 0.9375f, 0.8333f, 0.625f};
    for (int64_t steps = 1; steps <= 4; steps *= 2) {
        double shift = NAN;
        wd_test_ok(wd__trajectory_sigmas_shift(&shift, sigma, 4, steps, &err), &err);
        if (steps == 1)
            assert_true(isnan(shift));
        else
            assert_float_equal(shift, 5, 5e-3); /* 0.8333 has four digits */
        shift = 5;
        wd_test_ok(wd__trajectory_sigmas_shift(&shift, sigma, 4, steps, &err), &err);
    }
    double shift = 3;
    assert_int_equal(wd__trajectory_sigmas_shift(&shift, sigma, 4, 4, &err), WD_INVALID_ARGUMENT);
    assert_non_null(
        strstr(err.message, "chord 2 of 4 (--student_steps, or --chords) begins at 0.9375"));
    const float uneven[] = {1, 0.9f, 0.5f, 0.1f};
    shift = NAN;
    assert_int_equal(wd__trajectory_sigmas_shift(&shift, uneven, 4, 4, &err), WD_INVALID_ARGUMENT);
    const float extreme[][2] = {{1, 0.9999999f}, {1, 1e-30f}, {1, 0.0005f}};
    for (size_t i = 0; i < sizeof extreme / sizeof *extreme; i++) {
        shift = NAN;
        wd_test_refused(wd__trajectory_sigmas_shift(&shift, extreme[i], 2, 2, &err), &err,
                        WD_INVALID_ARGUMENT, "expected 0.01 to 1000");
    }
}

/* ComfyUI's `simple` scheduler takes every (1000 / steps)-th of the 1000 sigmas of
 * ModelSamplingSD3, the largest first, and 0: sigma(t) = shift t / (1 + (shift - 1) t) at t = i /
 * 1000. Where the steps divide 1000 these are the noise levels at which the student's blocks begin.
 * `euler` steps along the velocity from one to the next, as UniPC of order 1 does. */
static double comfyui_simple(int64_t steps, int64_t n, double shift)
{
    enum { LEVELS = 1000 };
    const double stride = (double)LEVELS / (double)steps;
    const double t = (double)(LEVELS - (int64_t)((double)n * stride)) / LEVELS;
    return shift * t / (1 + (shift - 1) * t);
}

static void comfyui_samples_at_the_same_levels(void **state)
{
    (void)state;
    static const double shifts[] = {1, 3, 5, 8};
    static const int64_t student_steps[] = {1, 2, 4, 5, 8};
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 5; k++) {
            const int64_t steps = student_steps[k];
            const wd_trajectory_options o = {.slots = 1,
                                             .steps = 2 * steps,
                                             .student_steps = steps,
                                             .prompts = 1,
                                             .flow_shift = shifts[i],
                                             .num_train_timesteps = 1000};
            for (int64_t n = 0; n < steps; n++)
                assert_float_equal(wd__trajectory_target(&o, 2 * n).sigma,
                                   comfyui_simple(steps, n, shifts[i]), 1e-6);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_are_read),
        cmocka_unit_test(the_shift_follows),
        cmocka_unit_test(comfyui_samples_at_the_same_levels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
