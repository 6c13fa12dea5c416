/* Compares tables with those of diffusers (tests/fixtures/schedules.json), and tests refused ones.
 */
#include "failing.h"

#include <jansson.h>

#include "model/sampling/schedule.h"

static wd_scheduler_config unipc(double shift)
{
    return (wd_scheduler_config){.kind = WD_SCHEDULER_UNIPC,
                                 .num_train_timesteps = 1000,
                                 .flow_shift = shift,
                                 .solver_order = 2,
                                 .lower_order_final = true,
                                 .predict_x0 = true,
                                 .final_sigma_zero = true};
}

static void tables_are_those_of_diffusers(void **state)
{
    (void)state;
    json_t *all = json_load_file(WD_SOURCE_DIR "/tests/fixtures/schedules.json", 0, NULL);
    assert_int_equal(json_array_size(all), 8);
    size_t index;
    json_t *one;
    json_array_foreach(all, index, one)
    {
        const char *kind = json_string_value(json_object_get(one, "scheduler"));
        wd_scheduler_config config = unipc(json_number_value(json_object_get(one, "shift")));
        const bool euler = strstr(kind, "Euler");
        if (euler) config.kind = WD_SCHEDULER_EULER;
        const int64_t steps = json_integer_value(json_object_get(one, "steps"));
        wd_schedule s;
        assert_int_equal(wd_schedule_open(&s, &config, steps, NULL), WD_OK);
        const json_t *sigmas = json_object_get(one, "sigmas");
        const json_t *timesteps = json_object_get(one, "timesteps");
        assert_int_equal(json_array_size(sigmas), steps + 1);
        for (int64_t i = 0; i <= steps; i++) {
            float expected = (float)json_number_value(json_array_get(sigmas, (size_t)i));
            if (s.sigma[i] != expected)
                fail_msg("%s, %d steps: sigma %d: expected %.9g, found %.9g", kind, (int)steps,
                         (int)i, (double)expected, (double)s.sigma[i]);
        }
        for (int64_t i = 0; i < steps; i++) {
            float expected = (float)json_number_value(json_array_get(timesteps, (size_t)i));
            if (s.timestep[i] != expected)
                fail_msg("%s, %d steps: timestep %d: expected %.9g, found %.9g", kind, (int)steps,
                         (int)i, (double)expected, (double)s.timestep[i]);
        }
        wd_schedule_close(&s);
    }
    json_decref(all);
}

/* A student of chords learns at the noise levels u = 1, 3/4, 1/2, 1/4 of four steps, shifted. The
 * table of so few steps has these to a thousandth. */
static void few_steps_are_even_ones(void **state)
{
    (void)state;
    const wd_scheduler_config config = unipc(3);
    wd_schedule s;
    assert_int_equal(wd_schedule_open(&s, &config, 4, NULL), WD_OK);
    for (int i = 0; i <= 4; i++)
        assert_float_equal(s.sigma[i], wd_flow_shift(1 - i / 4.0, 3), 1e-3);
    wd_schedule_close(&s);
}

static void last_sigma_may_stay_above_zero(void **state)
{
    (void)state;
    wd_scheduler_config config = unipc(3);
    config.final_sigma_zero = false;
    wd_schedule s;
    assert_int_equal(wd_schedule_open(&s, &config, 4, NULL), WD_OK);
    assert_true(s.sigma[4] == s.sigma[3] && s.sigma[4] > 0.5f);
    wd_schedule_close(&s);
}

static void refuses(wd_scheduler_config config, int64_t steps, wd_status status, const char *word)
{
    wd_schedule s;
    wd_err err = {0};
    assert_int_equal(wd_schedule_open(&s, &config, steps, &err), status);
    if (!strstr(err.message, word)) fail_msg("\"%s\" lacks \"%s\"", err.message, word);
}

static void unusable_values_are_refused_by_name(void **state)
{
    (void)state;
    refuses(unipc(3), 0, WD_INVALID_ARGUMENT, "steps: expected 1 to 1000, found 0");
    refuses(unipc(3), 1001, WD_INVALID_ARGUMENT, "found 1001");
    refuses(unipc(0), 4, WD_INVALID_ARGUMENT, "flow_shift");
    refuses(unipc(NAN), 4, WD_INVALID_ARGUMENT, "flow_shift");
    wd_scheduler_config config = unipc(3);
    config.solver_order = 4;
    refuses(config, 4, WD_UNSUPPORTED, "solver_order is 4, expected 1 to 3");
    config = unipc(3);
    config.predict_x0 = false;
    refuses(config, 4, WD_UNSUPPORTED, "predict_x0");
    config = unipc(3);
    config.num_train_timesteps = 3;
    refuses(config, 4, WD_INVALID_ARGUMENT, "num_train_timesteps is 3");
}

static wd_status open_and_close(void *config, wd_err *err)
{
    wd_schedule s;
    WD_TRY(wd_schedule_open(&s, config, 4, err));
    wd_schedule_close(&s);
    return WD_OK;
}

static void allocations_that_fail_leak_nothing(void **state)
{
    (void)state;
    wd_scheduler_config config = unipc(3);
    wd_test_failing_allocations(open_and_close, NULL, &config, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_are_those_of_diffusers),
        cmocka_unit_test(few_steps_are_even_ones),
        cmocka_unit_test(last_sigma_may_stay_above_zero),
        cmocka_unit_test(unusable_values_are_refused_by_name),
        cmocka_unit_test(allocations_that_fail_leak_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
