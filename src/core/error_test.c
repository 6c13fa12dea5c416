/* WD_REQUIRE guards release builds, too: see core/error.h. */
#include "core/error.h"

#include "aborts.h"

static void require_too_much(void *context)
{
    const int count = 9;
    (void)context;
    WD_REQUIRE(count == 9, "not said");
    WD_REQUIRE(count <= 8, "%d of at most 8 places", count);
}

static void a_broken_requirement_says_so_and_aborts(void **state)
{
    (void)state;
    wd_test_aborts(require_too_much, NULL, "9 of at most 8 places");
    wd_test_aborts(require_too_much, NULL, "wandistiller: internal error at ");
    wd_test_aborts(require_too_much, NULL, "error_test.c:");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_broken_requirement_says_so_and_aborts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
