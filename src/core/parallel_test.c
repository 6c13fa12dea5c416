/* Parallel loops: every index once, in parts of the wanted size, from any thread, nested or not. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/parallel.h"

enum { COUNT = 1000 };

typedef struct visits {
    _Atomic int visits[COUNT], parts;
} visits;

static void visit(int64_t begin, int64_t end, void *context)
{
    visits *v = context;
    atomic_fetch_add(&v->parts, 1);
    for (int64_t i = begin; i < end; i++) atomic_fetch_add(&v->visits[i], 1);
}

static void every_index_once(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 5; threads++)
        for (int64_t n = 0; n <= COUNT; n += 37) {
            visits v = {0};
            wd_parallel_set_threads(threads);
            wd_parallel_for(n, 100, visit, &v);
            for (int64_t i = 0; i < COUNT; i++) assert_int_equal(v.visits[i], i < n);
            assert_true(v.parts <= threads && v.parts <= 1 + n / 100);
        }
}

static void nested_part(int64_t begin, int64_t end, void *context)
{
    for (int64_t i = begin; i < end; i++) wd_parallel_for(COUNT, 1, visit, context);
}

static void loops_nest(void **state)
{
    (void)state;
    visits v = {0};
    wd_parallel_set_threads(3);
    wd_parallel_for(4, 1, nested_part, &v);
    for (int64_t i = 0; i < COUNT; i++) assert_int_equal(v.visits[i], 4);
}

static void *loop_in_thread(void *context)
{
    wd_parallel_set_threads(2);
    for (int i = 0; i < 50; i++) wd_parallel_for(COUNT, 1, visit, context);
    return NULL;
}

static void loops_run_in_any_thread(void **state)
{
    (void)state;
    visits v[2] = {0};
    pthread_t thread[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, loop_in_thread, &v[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < 2; i++)
        for (int64_t j = 0; j < COUNT; j++) assert_int_equal(v[i].visits[j], 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_index_once),
        cmocka_unit_test(loops_nest),
        cmocka_unit_test(loops_run_in_any_thread),
    };
    return cmocka_run_group_tests_name("parallel loops", tests, NULL, NULL);
}
