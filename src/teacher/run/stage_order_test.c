/* The order in which streamed stages come: sweep after sweep, ahead of what is announced, and the
 * same numbers on all ranks. */
#include "teacher/run/stage_order.h"

#include "aborts.h"
#include "testing.h"

enum { EXPERTS = 2, STAGES = 3 };

static const wd_sweep_experts none, first = {1, 1}, second = {2, 2}, both = {3, 3};

/* The middle stage of the first expert stays where it is. */
static wd_stage_order opened(void)
{
    static wd_placement p = {.experts = EXPERTS, .stages = STAGES, .buffers = 1};
    const wd_placed_stages part = {&p, WD_HOME_HOST, 0};
    wd_err err;
    wd_stage_order order;
    for (int i = 0; i < EXPERTS * STAGES; i++)
        p.place[i / STAGES][i % STAGES].home = i == 1 ? WD_HOME_DEVICE : WD_HOME_HOST;
    wd_test_ok(wd__stage_order_open(&order, &part, &err), &err);
    return order;
}

static void assert_turn(const wd_stage_order *order, int64_t number, int expert, int stage,
                        bool wanted)
{
    const wd_stage_turn *turn = wd__stage_order_at(order, number);
    assert_true(number < order->end);
    assert_int_equal(turn->number, number);
    assert_int_equal(turn->expert, expert);
    assert_int_equal(turn->stage, stage);
    assert_int_equal(turn->wanted, wanted);
}

/* The stages of the sweep come first, then the first ones of the sweep that is expected, which are
 * not repeated when it is announced. */
static void experts_and_stages_come_in_order(void **state)
{
    (void)state;
    wd_stage_order order = opened();
    wd__stage_order_add(&order, both, second);
    assert_turn(&order, 0, 0, 0, true);
    assert_turn(&order, 1, 0, 2, true);
    for (int s = 0; s < STAGES; s++) assert_turn(&order, 2 + s, 1, s, true);
    assert_int_equal(order.announced, 5);
    assert_turn(&order, 5, 1, 0, true);
    assert_turn(&order, 6, 1, 1, true);
    assert_int_equal(order.end, 7);
    wd__stage_order_add(&order, second, none);
    assert_turn(&order, 7, 1, 2, true);
    assert_int_equal(order.announced, 8);
    assert_int_equal(order.end, 8);
    wd__stage_order_close(&order);
}

/* The turns of an expected sweep that does not take place stay, and those of the sweep follow. */
static void another_sweep_than_was_expected(void **state)
{
    (void)state;
    wd_stage_order order = opened();
    wd__stage_order_add(&order, first, second);
    assert_turn(&order, 0, 0, 0, true);
    assert_turn(&order, 1, 0, 2, true);
    wd__stage_order_add(&order, first, none);
    assert_turn(&order, 2, 1, 0, true);
    assert_turn(&order, 3, 1, 1, true);
    assert_turn(&order, 4, 0, 0, true);
    assert_turn(&order, 5, 0, 2, true);
    assert_int_equal(order.end, 6);
    wd__stage_order_close(&order);
}

/* A rank that has passed over stages of which it expected no state gets them once all ranks forget
 * the expected sweep. */
static void a_share_that_changes(void **state)
{
    (void)state;
    wd_stage_order order = opened();
    wd__stage_order_add(&order, first, (wd_sweep_experts){.all = 2, .own = 0});
    assert_turn(&order, 0, 0, 0, true);
    assert_turn(&order, 1, 0, 2, true);
    assert_turn(&order, 2, 1, 0, false);
    assert_turn(&order, 3, 1, 1, false);
    wd__stage_order_add(&order, none, none);
    wd__stage_order_add(&order, second, none);
    for (int s = 0; s < STAGES; s++) assert_turn(&order, 4 + s, 1, s, true);
    wd__stage_order_close(&order);
}

static void change_unforgotten(void *context)
{
    wd__stage_order_add(context, second, none);
}

static void a_share_must_not_change_unforgotten(void **state)
{
    (void)state;
    wd_stage_order order = opened();
    wd__stage_order_add(&order, first, (wd_sweep_experts){.all = 2, .own = 0});
    wd_test_aborts(change_unforgotten, &order, "was announced where 0 were expected");
    wd__stage_order_close(&order);
}

/* A stage that other ranks use, and this one does not, has its number all the same. */
static void stages_of_other_ranks(void **state)
{
    (void)state;
    wd_stage_order order = opened();
    wd__stage_order_add(&order, (wd_sweep_experts){.all = 3, .own = 2}, none);
    assert_turn(&order, 0, 0, 0, false);
    assert_turn(&order, 1, 0, 2, false);
    assert_turn(&order, 2, 1, 0, true);
    wd__stage_order_close(&order);
}

/* Numbers rise, and places come round, for many more sweeps than there is room for. */
static void many_sweeps(void **state)
{
    (void)state;
    int64_t number = 0;
    wd_stage_order order = opened();
    for (int sweep = 0; sweep < 1000; sweep++) {
        assert_true(wd__stage_order_has_room(&order, number));
        wd__stage_order_add(&order, sweep % 2 ? second : first, none);
        for (int s = 0; s < STAGES; s++)
            if (sweep % 2 || s != 1) assert_turn(&order, number++, sweep % 2, s, true);
    }
    wd__stage_order_close(&order);
}

/* As long as there is room, no turn from `number` on is lost. */
static void turns_are_kept_while_there_is_room(void **state)
{
    (void)state;
    const int64_t number = 3;
    wd_stage_order order = opened();
    wd__stage_order_add(&order, both, both);
    while (wd__stage_order_has_room(&order, number)) {
        wd__stage_order_add(&order, both, both);
        assert_turn(&order, number, 1, 1, true);
    }
    assert_true(order.announced > 2 * EXPERTS * STAGES);
    assert_true(wd__stage_order_has_room(&order, order.end));
    wd__stage_order_close(&order);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_and_stages_come_in_order),
        cmocka_unit_test(another_sweep_than_was_expected),
        cmocka_unit_test(a_share_that_changes),
        cmocka_unit_test(a_share_must_not_change_unforgotten),
        cmocka_unit_test(stages_of_other_ranks),
        cmocka_unit_test(many_sweeps),
        cmocka_unit_test(turns_are_kept_while_there_is_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
