/* Tests of the stream of states: counts, coverage, and that numbers and rounds agree. */
#include "testing.h"

#include "train/targets/source.h"

static const wd_trajectory_options options = {.seed = 5,
                                              .slots = 13,
                                              .steps = 6,
                                              .prompts = 37,
                                              .flow_shift = 3.0,
                                              .num_train_timesteps = 1000,
                                              .integer_timesteps = true};

/* Walks the rounds as a trainer does, and finds each target by its number. */
static void numbers_agree_with_rounds(void **state)
{
    (void)state;
    int64_t number = 0, last_serial[13], last_step[13];
    memset(last_serial, -1, sizeof last_serial);
    for (int64_t round = 0; round < 40; round++) {
        assert_int_equal(wd_trajectory_first_target(&options, round), number);
        for (int64_t slot = 0; slot < options.slots; slot++) {
            if (slot % options.steps > round) continue;
            wd_target_info t = wd__trajectory_target(&options, number++);
            assert_int_equal(t.round, round);
            assert_int_equal(t.slot, slot);
            assert_int_equal(t.serial % options.slots, slot);
            if (last_serial[slot] < 0 || last_step[slot] == options.steps - 1) {
                assert_int_equal(t.step, 0);
                assert_true(t.serial != last_serial[slot]);
                assert_true(t.sigma == 1.0f && t.timestep == 999.0f);
            } else {
                assert_int_equal(t.serial, last_serial[slot]);
                assert_int_equal(t.step, last_step[slot] + 1);
            }
            assert_true(t.sigma_next < t.sigma && t.sigma_next >= 0);
            assert_true((t.sigma_next == 0) == (t.step == options.steps - 1));
            last_serial[slot] = t.serial;
            last_step[slot] = t.step;
        }
    }
}

static void sigmas_continue(void **state)
{
    (void)state;
    for (int64_t n = wd_trajectory_first_target(&options, 20);; n++) {
        wd_target_info t = wd__trajectory_target(&options, n);
        if (t.round > 20) break;
        if (t.step == options.steps - 1) continue;
        wd_target_info next = wd__trajectory_target(&options, n + options.slots);
        assert_true(next.sigma == t.sigma_next);
    }
}

static void every_epoch_has_every_prompt(void **state)
{
    (void)state;
    int order_differs = 0;
    for (int64_t epoch = 0; epoch < 5; epoch++) {
        bool seen[37] = {false};
        for (int64_t i = 0; i < 37; i++) {
            int64_t p = wd__trajectory_prompt(&options, epoch * 37 + i);
            assert_in_range(p, 0, 36);
            assert_false(seen[p]);
            seen[p] = true;
            order_differs += p != wd__trajectory_prompt(&options, i);
        }
    }
    assert_true(order_differs > 37);
    wd_trajectory_options one = options;
    one.prompts = 1;
    assert_int_equal(wd__trajectory_prompt(&one, 12345), 0);
}

static void rounds_hold_all_noise_levels(void **state)
{
    (void)state;
    wd_trajectory_options o = options;
    o.slots = 64;
    o.steps = 16;
    int64_t first = wd_trajectory_first_target(&o, 100);
    int per_step[16] = {0};
    for (int64_t i = 0; i < 64; i++) per_step[wd__trajectory_target(&o, first + i).step]++;
    for (int i = 0; i < 16; i++) assert_int_equal(per_step[i], 4);
}

static void stream_uses_targets_evenly(void **state)
{
    (void)state;
    enum { TARGETS = 4000, REUSE = 3, REPLAY = 200 };
    static int used[TARGETS];
    memset(used, 0, sizeof used);
    for (int64_t s = 0; s < TARGETS * REUSE; s++) {
        int64_t t = wd__stream_target(&options, s, REUSE, REPLAY);
        assert_true(t >= 0 && t <= wd__stream_target_last(s + 1, REUSE));
        assert_true(t >= s / REUSE - REPLAY);
        used[t]++;
    }
    double sum = 0;
    for (int i = REPLAY; i < TARGETS - REPLAY; i++) {
        assert_true(used[i] >= 1); /* each is new once */
        sum += used[i];
    }
    assert_true(fabs(sum / (TARGETS - 2 * REPLAY) - REUSE) < 0.05);
}

static void experts_of_targets(void **state)
{
    (void)state;
    uint8_t *expert;
    int64_t rounds, low = 0;
    assert_int_equal(wd_trajectory_experts(&expert, &rounds, &options, 875, NULL), WD_OK);
    assert_int_equal(rounds, options.steps);
    for (int64_t i = 0; i < rounds * options.slots; i++) {
        const int64_t target = wd_trajectory_first_target(&options, options.steps) + i;
        assert_int_equal(expert[i], wd__trajectory_target(&options, target).timestep < 875);
        low += expert[i];
    }
    assert_in_range(low, 1, rounds * options.slots - 1);
    wd_free(expert);
}

static wd_status check_saved(const char *key, json_t *value, wd_err *err)
{
    const wd_source_options o = {
        .trajectory = options, .reuse = 4, .replay = 64, .step_samples = 8};
    json_t *saved =
        json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f}", "objective", "trajectory",
                  "round", 9, "seed", 5, "trajectories", 13, "trajectory_steps", 6, "prompts", 37,
                  "target_reuse", 4, "replay_targets", 64, "step_samples", 8, "flow_shift", 3.0);
    if (key) assert_int_equal(json_object_set_new(saved, key, value), 0);
    const wd_status status = wd_source_trajectory.check_saved(&o, saved, err);
    json_decref(saved);
    return status;
}

static void a_stream_goes_on_only_as_it_was_begun(void **state)
{
    (void)state;
    wd_err err;
    static const char *const keys[] = {"seed",         "trajectories", "trajectory_steps",
                                       "prompts",      "target_reuse", "replay_targets",
                                       "step_samples", "flow_shift"};
    wd_test_ok(check_saved(NULL, NULL, &err), &err);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        wd_test_refused(check_saved(keys[i], json_integer(7), &err), &err, WD_MISMATCH,
                        "is to be resumed with");
    wd_test_refused(check_saved("objective", json_string("x"), &err), &err, WD_MISMATCH, "x");
    wd_test_refused(check_saved("round", json_integer(-1), &err), &err, WD_BAD_FORMAT, "round");
    wd_test_refused(check_saved("round", json_integer(INT64_MAX / 4), &err), &err, WD_BAD_FORMAT,
                    "\"round\": expected an integer from 0 to 1099511627776");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_agree_with_rounds),
        cmocka_unit_test(sigmas_continue),
        cmocka_unit_test(every_epoch_has_every_prompt),
        cmocka_unit_test(rounds_hold_all_noise_levels),
        cmocka_unit_test(stream_uses_targets_evenly),
        cmocka_unit_test(experts_of_targets),
        cmocka_unit_test(a_stream_goes_on_only_as_it_was_begun),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
