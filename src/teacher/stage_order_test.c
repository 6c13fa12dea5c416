/* The order in which streamed stages come: sweep after sweep, ahead of what is announced, and the
 * same numbers on all ranks. */
#include "teacher/stage_order.h"

#include "testing.h"

enum { EXPERTS = 2, STAGES = 3 };

static const wd_sweep_experts none, first = {1, 1}, second = {2, 2}, both = {3, 3};

/* The middle stage of the first expert stays where it is. */
static wd_stage_order *opened(void)
{
    static wd_placement p = {.experts = EXPERTS, .stages = STAGES, .buffers = 1};
    const wd_placed_part part = {&p, WD_HOME_HOST, 0};
    wd_err err;
    wd_stage_order *order;
    for (int i = 0; i < EXPERTS * STAGES; i++)
        p.place[i / STAGES][i % STAGES].home = i == 1 ? WD_HOME_DEVICE : WD_HOME_HOST;
    wd_test_ok(wd_stage_order_open(&order, &part, false, &err), &err);
    return order;
}

static void assert_next(wd_stage_order *order, int64_t number, int expert, int stage, bool wanted)
{
    wd_stage_turn turn;
    assert_true(wd_stage_order_next(&turn, order, WD_FOLLOWER_BRINGS));
    assert_int_equal(turn.number, number);
    assert_int_equal(turn.expert, expert);
    assert_int_equal(turn.stage, stage);
    assert_int_equal(turn.wanted, wanted);
}

/* Those of the sweep, then the first ones of the sweep that is expected, which are not repeated
 * when it is announced. */
static void experts_and_stages_come_in_order(void **state)
{
    (void)state;
    wd_stage_order *order = opened();
    wd_stage_order_add(order, both, second);
    assert_next(order, 0, 0, 0, true);
    assert_next(order, 1, 0, 2, true);
    for (int s = 0; s < STAGES; s++) assert_next(order, 2 + s, 1, s, true);
    assert_next(order, 5, 1, 0, true);
    assert_next(order, 6, 1, 1, true);
    wd_stage_order_add(order, second, none);
    assert_true(wd_stage_order_wants(order, 5));
    assert_next(order, 7, 1, 2, true);
    wd_stage_order_close(order);
}

/* What was expected and does not come is not wanted, nor read, whether it was taken before or not.
 */
static void another_sweep_than_was_expected(void **state)
{
    (void)state;
    wd_stage_turn turn;
    wd_stage_order *order = opened();
    wd_stage_order_add(order, first, second);
    assert_next(order, 0, 0, 0, true);
    assert_next(order, 1, 0, 2, true);
    assert_next(order, 2, 1, 0, true);
    assert_true(wd_stage_order_wants(order, 2));
    wd_stage_order_add(order, first, none);
    assert_false(wd_stage_order_wants(order, 2));
    assert_true(wd_stage_order_next(&turn, order, WD_FOLLOWER_BRINGS));
    assert_int_equal(turn.number, 3);
    assert_false(turn.wanted || turn.read);
    assert_next(order, 4, 0, 0, true);
    assert_next(order, 5, 0, 2, true);
    wd_stage_order_close(order);
}

/* A rank that has passed over stages of which it expected no state gets them once all ranks forget
 * the expected sweep. */
static void a_share_that_grows(void **state)
{
    (void)state;
    wd_stage_order *order = opened();
    wd_stage_order_add(order, first, (wd_sweep_experts){.all = 2, .own = 0});
    assert_next(order, 0, 0, 0, true);
    assert_next(order, 1, 0, 2, true);
    assert_next(order, 2, 1, 0, false);
    assert_next(order, 3, 1, 1, false);
    wd_stage_order_add(order, none, none);
    wd_stage_order_add(order, second, none);
    for (int s = 0; s < STAGES; s++) assert_next(order, 4 + s, 1, s, true);
    wd_stage_order_close(order);
}

/* A stage that other ranks use, and this one does not, has its number all the same. */
static void stages_of_other_ranks(void **state)
{
    (void)state;
    wd_stage_order *order = opened();
    wd_stage_order_add(order, (wd_sweep_experts){.all = 3, .own = 2}, none);
    assert_next(order, 0, 0, 0, false);
    assert_next(order, 1, 0, 2, false);
    assert_next(order, 2, 1, 0, true);
    wd_stage_order_close(order);
}

/* Numbers rise, and places come round, for many more sweeps than there is room for. */
static void many_sweeps(void **state)
{
    (void)state;
    int64_t number = 0;
    wd_stage_order *order = opened();
    for (int sweep = 0; sweep < 1000; sweep++) {
        wd_stage_order_add(order, sweep % 2 ? second : first, none);
        for (int s = 0; s < STAGES; s++)
            if (sweep % 2 || s != 1) assert_next(order, number++, sweep % 2, s, true);
    }
    wd_stage_order_close(order);
}

static void whoever_waits_goes_on(void **state)
{
    (void)state;
    wd_stage_turn turn;
    wd_stage_order *order = opened();
    wd_stage_order_add(order, first, none);
    wd_stage_order_leave(order);
    assert_false(wd_stage_order_next(&turn, order, WD_FOLLOWER_BRINGS));
    wd_stage_order_close(order);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_and_stages_come_in_order),
        cmocka_unit_test(another_sweep_than_was_expected),
        cmocka_unit_test(a_share_that_grows),
        cmocka_unit_test(stages_of_other_ranks),
        cmocka_unit_test(many_sweeps),
        cmocka_unit_test(whoever_waits_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
