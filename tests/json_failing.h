/* Tests of jansson's failed allocations: each fails in turn, first alone, and then with all later
 * ones. (tests/failing.h does the same for the program's own.) */
#ifndef WD_TESTS_JSON_FAILING_H
#define WD_TESTS_JSON_FAILING_H

#include <jansson.h>

#include "testing.h"

static int wd_test_json_blocks_left_;
static bool wd_test_json_none_later_;

static void *wd_test_json_block_(size_t bytes)
{
    const int left = wd_test_json_blocks_left_--;
    return !left || (wd_test_json_none_later_ && left < 0) ? NULL : malloc(bytes);
}

/* Fails unless the attempt, which frees what it makes, says WD_OUT_OF_MEMORY whichever allocation
 * of jansson fails, of which there are at least `least`, and is well where none does. */
static inline void wd_test_json_failing(wd_status (*attempt)(wd_err *err), int least)
{
    for (int later = 0; later < 2; later++) {
        bool failed = true;
        int n = 0;
        for (; failed; n++) {
            wd_err err = {0};
            wd_test_json_blocks_left_ = n;
            wd_test_json_none_later_ = later;
            json_set_alloc_funcs(wd_test_json_block_, free);
            const wd_status status = attempt(&err);
            json_set_alloc_funcs(malloc, free);
            failed = wd_test_json_blocks_left_ < 0;
            if (status != (failed ? WD_OUT_OF_MEMORY : WD_OK))
                fail_msg("allocation %d fails: \"%s\": %s", n + 1, wd_status_text(status),
                         err.message);
        }
        if (n <= least) fail_msg("jansson allocates %d times, expected %d or more", n - 1, least);
    }
}

#endif
