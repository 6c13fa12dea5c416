/* A request stops the running job, or, if it comes before, the first job of the process. */
#include "testing.h"

#include "core/stop.h"

static void one_before_any_job_is_for_the_first(void **state)
{
    (void)state;
    assert_true(wd_request_stop());
    wd_stop_begin();
    assert_true(wd_stop_requested());
}

static void one_that_was_for_a_job_is_forgotten_by_the_next(void **state)
{
    (void)state;
    assert_true(wd_stop_requested());
    wd_stop_begin();
    assert_false(wd_stop_requested());
}

static void who_asks_first_tells_the_user(void **state)
{
    (void)state;
    assert_true(wd_request_stop());
    assert_false(wd_request_stop());
    wd__stop_forget();
    wd_stop_as_one_of_many(true);
    assert_false(wd_request_stop());
    wd_stop_as_one_of_many(false);
    wd__stop_forget();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_before_any_job_is_for_the_first),
        cmocka_unit_test(one_that_was_for_a_job_is_forgotten_by_the_next),
        cmocka_unit_test(who_asks_first_tells_the_user),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
