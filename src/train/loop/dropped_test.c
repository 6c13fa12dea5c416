/* What the training loop makes of steps that are dropped, because their loss is not finite: which
 * checkpoints it writes and keeps, and how the run ends. The losses are this test's. */
#include "harness/trainer.h"

static int64_t dropped[STEPS]; /* results of these steps, from 0, have no finite loss */
static int drops;
static int64_t spoiled_step = -1; /* a value of a buffer is spoiled with the result of this step */
static wd_params_buffer spoiled;

wd_step_result __real_wd_stepper_take_result(wd_stepper *stepper);
wd_step_result __wrap_wd_stepper_take_result(wd_stepper *stepper);

wd_step_result __wrap_wd_stepper_take_result(wd_stepper *stepper)
{
    wd_step_result result = __real_wd_stepper_take_result(stepper);
    for (int i = 0; i < drops; i++)
        if (dropped[i] == result.step) result.loss = NAN;
    if (result.step == spoiled_step) wd__stepper_params(stepper)->buffer[spoiled][7] = INFINITY;
    return result;
}

/* A run with a checkpoint after every `interval` steps, of which `keep` are kept. */
static wd_status train(wd_trainer_result *result, const char *run, int64_t interval, int keep,
                       wd_err *err)
{
    wd_trainer_options options = small_run();
    options.checkpoint_interval = interval;
    options.keep_checkpoints = keep;
    options.stepper.optimizer.alpha = 5; /* AdEMAMix, for its slow moments */
    options.stepper.optimizer.beta3 = 0.99;
    return run_into(result, run, &options, err);
}

static void a_checkpoint_waits_for_a_step_that_is_taken(void **state)
{
    (void)state;
    wd_err err = {0};
    wd_trainer_result result;
    dropped[0] = 3; /* the fourth step */
    dropped[1] = 4;
    drops = 2;
    wd_test_ok(train(&result, "waits", 2, STEPS, &err), &err);
    static const bool expected[STEPS + 1] = {[2] = true, [6] = true, [8] = true};
    for (int64_t step = 0; step <= STEPS; step++)
        assert_int_equal(has_checkpoint("waits", step), expected[step]);
    assert_int_equal(result.steps, STEPS);
    assert_true(isfinite(result.loss));

    dropped[0] = 1; /* no checkpoint is due when a step is taken again */
    drops = 1;
    wd_test_ok(train(&result, "late", 2, STEPS, &err), &err);
    static const bool late[STEPS + 1] = {[3] = true, [4] = true, [6] = true, [8] = true};
    for (int64_t step = 0; step <= STEPS; step++)
        assert_int_equal(has_checkpoint("late", step), late[step]);
}

/* The newest checkpoint may be of weights that no step can be taken from: the one before it stays
 * until one was. */
static void a_run_that_diverges_keeps_a_checkpoint_that_was_good(void **state)
{
    (void)state;
    char path[WD_PATH_MAX];
    wd_err err = {0};
    wd_trainer_result result;
    for (drops = 0; drops < 4; drops++) dropped[drops] = 4 + drops;
    wd_test_refused(train(&result, "diverges", 2, 1, &err), &err, WD_NOT_FINITE,
                    "not finite at the last 4 of 8 steps");
    assert_non_null(strstr(err.message, "/diverges/checkpoints/step-00000002 with a lower one"));
    for (int64_t step = 0; step <= STEPS; step++)
        assert_int_equal(has_checkpoint("diverges", step), step == 2 || step == 4);
    assert_false(wd_path_exists(path_of(path, "diverges", "/model_index.json")));

    drops = 0;
    wd_test_ok(train(&result, "good", 2, 1, &err), &err);
    for (int64_t step = 0; step <= STEPS; step++)
        assert_int_equal(has_checkpoint("good", step), step == STEPS);
}

static void a_last_step_that_is_dropped_is_an_error(void **state)
{
    (void)state;
    char path[WD_PATH_MAX];
    wd_err err = {0};
    wd_trainer_result result;
    dropped[0] = STEPS - 1;
    drops = 1;
    wd_test_refused(train(&result, "last", 0, 1, &err), &err, WD_NOT_FINITE,
                    "not finite at the last 1 of 8 steps");
    assert_false(wd_path_exists(path_of(path, "last", "/checkpoints")));
    assert_false(wd_path_exists(path_of(path, "last", "/model_index.json")));
}

/* Where the buffer is used by steps they are dropped; else nothing but the checkpoint has it. */
static void a_student_that_is_not_finite_is_not_saved(void **state)
{
    (void)state;
    static const struct {
        const char *run, *what;
        wd_params_buffer buffer;
    } cases[] = {{"weights", "student weights are not finite", WD_PARAMS_P},
                 {"first", "student first moments are not finite", WD_PARAMS_M},
                 {"second", "student second moments are not finite", WD_PARAMS_V},
                 {"slow", "student slow moments are not finite", WD_PARAMS_SLOW},
                 {"average", "student EMA are not finite", WD_PARAMS_EMA}};
    wd_err err = {0};
    wd_trainer_result result;
    drops = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[WD_PATH_MAX];
        spoiled_step = 4;
        spoiled = cases[i].buffer;
        wd_test_refused(train(&result, cases[i].run, 2, 1, &err), &err, WD_NOT_FINITE,
                        cases[i].what);
        for (int64_t step = 0; step <= STEPS; step++)
            assert_int_equal(has_checkpoint(cases[i].run, step), step == 4);
        assert_false(wd_path_exists(path_of(path, cases[i].run, "/model_index.json")));
    }
    spoiled_step = -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_checkpoint_waits_for_a_step_that_is_taken),
        cmocka_unit_test(a_run_that_diverges_keeps_a_checkpoint_that_was_good),
        cmocka_unit_test(a_last_step_that_is_dropped_is_an_error),
        cmocka_unit_test(a_student_that_is_not_finite_is_not_saved),
    };
    return cmocka_run_group_tests(tests, open_teacher, NULL);
}
