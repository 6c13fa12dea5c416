/* exp and tanh of dev/math.h against libm in double, over all of fp32 in steps, in ulps. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "dev/math.h"

/* Distance of `got` from `expected` in units of the latter's last place, denormals included. */
static double ulps(float got, double expected)
{
    if (isnan(expected)) return isnan(got) ? 0 : INFINITY;
    float rounded = (float)expected;
    if (isinf(rounded)) return isinf(got) && (got > 0) == (expected > 0) ? 0 : INFINITY;
    double unit = (double)nextafterf(fabsf(rounded), INFINITY) - fabsf(rounded);
    return fabs(got - expected) / unit;
}

/* The largest error of `f` over every 499th float (9 million). */
static double worst(float (*f)(float), double (*exact)(double))
{
    double most = 0;
    for (uint64_t bits = 0; bits < (uint64_t)1 << 32; bits += 499) {
        float x = float_of((uint32_t)bits);
        double off = ulps(f(x), exact(x));
        if (off > most) most = off;
    }
    return most;
}

static void exp_is_close(void **state)
{
    (void)state;
    double most = worst(exp_f32, exp);
    print_message("exp: %.2f ulp\n", most);
    assert_true(most < 1.1);
}

static void tanh_is_close(void **state)
{
    (void)state;
    double most = worst(tanh_f32, tanh);
    print_message("tanh: %.2f ulp\n", most);
    assert_true(most < 1.5);
}

static void ends_are_right(void **state)
{
    (void)state;
    assert_true(exp_f32(0) == 1 && exp_f32(-0.0f) == 1);
    assert_true(exp_f32(-INFINITY) == 0 && exp_f32(INFINITY) == INFINITY);
    assert_true(exp_f32(88.8f) == INFINITY && exp_f32(-104) == 0);
    assert_true(exp_f32(88.7f) < INFINITY && exp_f32(-103) > 0);
    assert_true(isnan(exp_f32(NAN)) && isnan(tanh_f32(NAN)));
    assert_true(tanh_f32(INFINITY) == 1 && tanh_f32(-INFINITY) == -1);
    assert_true(signbit(tanh_f32(-0.0f)) && tanh_f32(-0.0f) == 0);
    assert_true(gelu_f32(INFINITY) == INFINITY && gelu_f32(1e20f) == 1e20f);
    assert_true(gelu_f32(-1e20f) == 0 && isnan(gelu_f32(NAN)));
    assert_true(gelu_slope_f32(INFINITY) == 1 && gelu_slope_f32(-INFINITY) == 0);
    assert_true(silu_slope_f32(INFINITY) == 1 && fabsf(silu_slope_f32(-INFINITY)) < 1e-37f);
    assert_true(isnan(gelu_slope_f32(NAN)) && isnan(silu_slope_f32(NAN)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_is_close),
        cmocka_unit_test(tanh_is_close),
        cmocka_unit_test(ends_are_right),
    };
    return cmocka_run_group_tests_name("kernel math", tests, NULL, NULL);
}
