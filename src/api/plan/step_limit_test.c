/* Limits are far above what the plan predicts, and --step_timeout replaces them. */
#include "api/plan/plan_verdict.h"

#include "testing.h"

static const wd_strategy_plan plan = {.window = 4, .step_seconds = 2, .timeline.sweep_seconds = 5};

/* 10 trajectories in windows of 4: 3 sweeps for a step of each. */
static const wd_trajectory_options velocities = {.slots = 10, .steps = 20};
static const wd_trajectory_options chords = {.slots = 10, .steps = 20, .student_steps = 4};

static void a_step_may_take_ten_times_its_time(void **state)
{
    (void)state;
    const wd_train_options options = wd_train_defaults();
    assert_true(wd_step_limit(&options, &plan) >= 10 * (2 + 5));
}

/* The first chords are of 5 steps of the teacher. */
static void the_first_step_may_make_all_chords(void **state)
{
    (void)state;
    const wd_train_options options = wd_train_defaults();
    const double velocity = wd_step_limit_first(&options, &velocities, &plan);
    const double chord = wd_step_limit_first(&options, &chords, &plan);
    assert_true(velocity >= 3 * 5);
    assert_true(chord >= 5 * 3 * 5);
    assert_true(chord == 5 * velocity);
}

static void a_given_limit_holds(void **state)
{
    (void)state;
    wd_train_options options = wd_train_defaults();
    options.step_timeout = 7;
    assert_true(wd_step_limit(&options, &plan) == 7);
    assert_true(wd_step_limit_first(&options, &chords, &plan) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_may_take_ten_times_its_time),
        cmocka_unit_test(the_first_step_may_make_all_chords),
        cmocka_unit_test(a_given_limit_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
