/* Tests of failed allocations: each allocation fails in turn, first alone, and then with all later
 * ones. */
#ifndef WD_TESTS_FAILING_H
#define WD_TESTS_FAILING_H

#include "testing.h"

/* One attempt at something that allocates. It frees all its memory, also after a failure. */
typedef wd_status wd_test_attempt(void *context, wd_err *err);

/* Checks the state after an attempt, while no allocation fails. */
typedef void wd_test_check(void *context, wd_status status);

typedef struct wd_test_failing_ {
    wd_test_attempt *attempt;
    wd_test_check *check; /* or NULL */
    void *context;
    bool from_then_on;   /* all later allocations fail, too */
    bool may_do_without; /* an attempt may succeed although an allocation failed */
} wd_test_failing_;

/* Makes one attempt whose `n`-th allocation fails; false: it made fewer allocations. */
static inline bool wd_test_fail_one_(const wd_test_failing_ *f, int64_t n, int64_t *refused)
{
    wd_err err = {0};
    const char *which =
        f->from_then_on ? "allocation %lld and all later ones fail" : "allocation %lld fails";
    char at[80];
    snprintf(at, sizeof at, which, (long long)n);
    const int64_t calls = wd__alloc_count(), held = wd_memory_held();
    if (f->from_then_on)
        wd__alloc_fail_from(n);
    else
        wd__alloc_fail_at(n);
    const wd_status status = f->attempt(f->context, &err);
    wd__alloc_fail_at(0);
    const bool reached = wd__alloc_count() - calls >= n;
    const bool may_be_well = !reached || f->may_do_without;
    if (status != WD_OUT_OF_MEMORY && !(status == WD_OK && may_be_well))
        fail_msg("%s: the attempt ended with \"%s\": %s", at, wd_status_text(status), err.message);
    if (status != WD_OK && !reached) fail_msg("%s: no memory before that: %s", at, err.message);
    if (wd_memory_held() != held)
        fail_msg("%s: %lld bytes are held that were not held before", at,
                 (long long)(wd_memory_held() - held));
    if (f->check) f->check(f->context, status);
    *refused += status != WD_OK;
    return reached;
}

/* Makes attempts in which allocation n fails, where n grows by `1 + n / stride` (stride 0: by 1),
 * until an attempt makes fewer allocations. */
static inline void wd_test_fail_all_(const wd_test_failing_ *f, int64_t stride, int64_t least)
{
    int64_t n = 1, refused = 0;
    while (wd_test_fail_one_(f, n, &refused)) n += 1 + (stride ? n / stride : 0);
    if (n <= least)
        fail_msg("the attempt made %lld allocations, expected %lld or more", (long long)n - 1,
                 (long long)least);
    if (!refused) fail_msg("no failing allocation was said to be one");
}

/* Fails unless the attempt makes at least `least` allocations, ends with WD_OUT_OF_MEMORY whichever
 * of them fails, alone or with all later ones, and always frees all memory of this thread. */
static inline void wd_test_failing_allocations(wd_test_attempt *attempt, wd_test_check *check,
                                               void *context, int64_t least)
{
    for (int from_then_on = 0; from_then_on < 2; from_then_on++)
        wd_test_fail_all_(&(wd_test_failing_){attempt, check, context, from_then_on, false}, 0,
                          least);
}

/* Tests a whole job with thousands of allocations: each of the first `stride` fails in turn, later
 * ones at growing distances. The job may succeed if it does not need the memory. */
static inline void wd_test_failing_job(wd_test_attempt *attempt, void *context, int64_t stride,
                                       int64_t least)
{
    for (int from_then_on = 0; from_then_on < 2; from_then_on++)
        wd_test_fail_all_(&(wd_test_failing_){attempt, NULL, context, from_then_on, true}, stride,
                          least);
}

#endif
