/* Tests of chords: which there are, in which order, and what their weights add up to. */
#include "testing.h"

#include <math.h>
#include <stdlib.h>

#include "train/targets/chord.h"

static wd_trajectory_options options_of(int64_t slots, int64_t steps, int64_t student_steps)
{
    return (wd_trajectory_options){.seed = 5,
                                   .slots = slots,
                                   .steps = steps,
                                   .student_steps = student_steps,
                                   .prompts = 37,
                                   .flow_shift = 3.0,
                                   .num_train_timesteps = 1000,
                                   .integer_timesteps = true};
}

/* Walks the rounds target by target, and finds each chord by its number when its block ends. */
static void check_numbers(wd_trajectory_options o)
{
    const int64_t length = o.steps / o.student_steps;
    int64_t number = 0, target = 0;
    for (int64_t round = 0; round < 4 * o.steps; round++) {
        assert_int_equal(wd__chord_first(&o, round), number);
        for (int64_t slot = 0; slot < o.slots; slot++) {
            if (slot % o.steps > round) continue;
            const wd_target_info t = wd__trajectory_target(&o, target);
            assert_int_equal(wd__trajectory_number(&o, round, slot), target++);
            if ((t.step + 1) % length) continue;
            const wd_chord c = wd__chord_at(&o, number++);
            assert_int_equal(c.round, round);
            assert_int_equal(c.slot, slot);
            assert_int_equal(c.length, length);
            assert_int_equal(c.target[length - 1], target - 1);
        }
    }
    assert_true(number > 0);
}

static void numbers_agree_with_rounds(void **state)
{
    (void)state;
    static const int64_t slots[] = {1, 3, 13, 16, 64}, steps[] = {4, 6, 12, 16};
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < 4; k++)
            for (int64_t s = 1; s <= steps[k]; s++)
                if (steps[k] % s == 0) check_numbers(options_of(slots[i], steps[k], s));
}

/* The chord's end, reached by the weights, is where the trajectory's Euler steps lead. */
static void a_chord_leads_where_its_block_leads(void **state)
{
    (void)state;
    const wd_trajectory_options o = options_of(13, 12, 3);
    for (int64_t number = 0; number < 200; number++) {
        const wd_chord c = wd__chord_at(&o, number);
        const wd_target_info begin = wd__trajectory_target(&o, c.target[0]);
        const wd_target_info end = wd__trajectory_target(&o, c.target[c.length - 1]);
        double steps = 0, slope = 0, sum = 0;
        for (int64_t i = 0; i < c.length; i++) {
            const wd_target_info t = wd__trajectory_target(&o, c.target[i]);
            const double v = sin((double)(7 * number + i)); /* any velocity */
            assert_int_equal(t.serial, begin.serial);
            assert_int_equal(t.step, begin.step + i);
            steps += ((double)t.sigma_next - (double)t.sigma) * v;
            slope += (double)c.weight[i] * v;
            sum += (double)c.weight[i];
        }
        assert_int_equal(begin.step % c.length, 0);
        assert_float_equal(sum, 1, 1e-6);
        assert_float_equal(slope * ((double)end.sigma_next - (double)begin.sigma), steps, 1e-6);
    }
}

/* Weights are in the ratio of the steps' sizes, and 1 on average over a trajectory. */
static void weights_follow_the_sizes_of_steps(void **state)
{
    (void)state;
    const wd_trajectory_options o = options_of(16, 8, 4);
    const double sizes[] = {0.1, 0.15, 0.25, 0.5}; /* of sigma 1, 0.9, 0.75, 0.5, 0: shift 3 */
    for (int64_t number = 0; number < 200; number++) {
        const wd_target_info begin = wd__chord_begin(&o, number);
        assert_float_equal(wd__chord_loss_weight(&o, &begin), 4 * sizes[begin.step / 2], 1e-6);
    }
    const wd_trajectory_options one = options_of(16, 8, 1);
    const wd_target_info begin = wd__chord_begin(&one, 3);
    assert_float_equal(wd__chord_loss_weight(&one, &begin), 1, 0);
}

/* Blocks begin at the noise levels at which a student of so many steps samples. */
static void blocks_begin_on_the_students_grid(void **state)
{
    (void)state;
    const wd_trajectory_options o = options_of(8, 16, 4);
    static const double u[] = {1, 0.75, 0.5, 0.25};
    for (int64_t number = 0; number < 100; number++) {
        const wd_chord c = wd__chord_at(&o, number);
        const wd_target_info t = wd__trajectory_target(&o, c.target[0]);
        const double at = u[t.step / 4], sigma = 3 * at / (1 + 2 * at);
        assert_float_equal(t.sigma, sigma, 1e-6);
    }
}

/* A student of more steps than chords has the same chords as one of so many steps, and trains at
 * the noise levels of its own steps, each of them about as often. */
static void samples_lie_at_the_students_steps(void **state)
{
    (void)state;
    enum { CHORDS = 4, STEPS = 20, EACH = STEPS / CHORDS, SAMPLES = 20000 };
    const wd_trajectory_options few = options_of(16, 8, CHORDS);
    wd_trajectory_options o = options_of(16, 8, STEPS);
    o.chords = CHORDS;
    int64_t count[STEPS] = {0};
    for (int64_t number = 0; number < SAMPLES; number++) {
        const wd_target_info begin = wd__chord_begin(&o, number);
        const wd_chord a = wd__chord_at(&o, number), b = wd__chord_at(&few, number);
        assert_memory_equal(a.target, b.target, sizeof a.target);
        assert_memory_equal(a.weight, b.weight, sizeof a.weight);
        assert_float_equal(wd__chord_loss_weight(&o, &begin), wd__chord_loss_weight(&few, &begin),
                           0);
        assert_float_equal(wd__chord_point_of(&few, &begin, number).dt, 0, 0);
        const wd_chord_point at = wd__chord_point_of(&o, &begin, number);
        int step = -1;
        for (int i = 0; i < EACH; i++) {
            const int64_t before = begin.step / 2 * EACH + i;
            const double u = 1 - (double)before / STEPS, sigma = 3 * u / (1 + 2 * u);
            if (fabs((double)begin.sigma + (double)at.dt - sigma) > 1e-6) continue;
            assert_float_equal(at.timestep, fmin(floor(1000 * (double)(float)sigma), 999), 0);
            step = (int)before;
        }
        assert_true(step >= 0);
        count[step]++;
    }
    /* 5 standard deviations of a twentieth of 20,000 are 155 */
    for (int i = 0; i < STEPS; i++) assert_true(labs((long)count[i] - SAMPLES / STEPS) <= 155);
}

/* Checks what chord `number` has of the other trajectory of its pair: all that is needed is made
 * before. Returns how many targets are needed. */
static int64_t check_pair(const wd_trajectory_options *o, int64_t number)
{
    const wd_chord c = wd__chord_at(o, number);
    const int64_t twin = wd__trajectory_twin(o, c.slot);
    const int64_t needed = wd__stream_targets(o, number + 1, 1);
    const wd_target_info begin = wd__chord_begin(o, number);
    const wd_target_info last = wd__trajectory_target(o, c.target[c.length - 1]);
    assert_int_equal(wd__trajectory_twin(o, twin), c.slot);
    const float squares = begin.sigma * begin.sigma + last.sigma_next * last.sigma_next;
    assert_float_equal(c.gain, (float)o->diversity_gain * squares / 2, 1e-6);
    assert_float_equal(c.sigma, begin.sigma, 0);
    for (int64_t i = 0; i < c.length; i++) {
        const int64_t other = wd__trajectory_number(o, c.round - c.length + 1 + i, twin);
        const wd_target_info a = wd__trajectory_target(o, c.target[i]);
        const wd_target_info b = wd__trajectory_target(o, other);
        assert_int_equal(b.slot, twin);
        assert_int_equal(b.pair, a.pair);
        assert_int_equal(b.prompt, a.prompt);
        assert_int_equal(b.step, a.step);
        assert_float_equal(b.sigma, a.sigma, 0);
        assert_true(a.second == (a.serial > b.serial) && b.second != a.second);
        assert_int_equal(c.twin[i], other);
        assert_true(c.target[i] < needed && other < needed);
    }
    return needed;
}

static void pairs_have_the_same_prompt(void **state)
{
    (void)state;
    wd_trajectory_options o = options_of(32, 8, 4);
    o.diversity_gain = 0.2;
    o.serial_first = 1000;
    for (int64_t steps = 1; steps <= 8; steps *= 2) {
        int64_t seconds = 0, most = 0;
        o.student_steps = steps;
        for (int64_t number = 0; number < 400; number++) {
            const int64_t needed = check_pair(&o, number);
            assert_true(needed >= most);
            most = needed;
            seconds += wd__chord_begin(&o, number).second;
        }
        assert_true(seconds > 150 && seconds < 250);
    }
    /* pairs are numbered without gaps, so the first epoch has each prompt once */
    int64_t seen[37] = {0};
    o.serial_first = 0;
    for (int64_t target = 0; target < 2000; target++) {
        const wd_target_info t = wd__trajectory_target(&o, target);
        if (t.step == 0 && !t.second && t.pair < 37) seen[t.prompt]++;
    }
    for (int i = 0; i < 37; i++) assert_int_equal(seen[i], 1);
    o.diversity_gain = 0;
    assert_float_equal(wd__chord_at(&o, 300).gain, 0, 0);
    for (int64_t target = 0; target < 200; target++)
        assert_int_equal(wd__trajectory_target(&o, target).pair,
                         wd__trajectory_target(&o, target).serial);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_agree_with_rounds),
        cmocka_unit_test(a_chord_leads_where_its_block_leads),
        cmocka_unit_test(weights_follow_the_sizes_of_steps),
        cmocka_unit_test(blocks_begin_on_the_students_grid),
        cmocka_unit_test(samples_lie_at_the_students_steps),
        cmocka_unit_test(pairs_have_the_same_prompt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
