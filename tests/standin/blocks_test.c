/* The stand-in for a GPU's threads: what it runs, and that mistakes in kernels show. */
#include "aborts.h"

#include "standin/blocks.h"
#include "standin/inside.h"

enum { THREADS = 96, BLOCKS = 6 };

typedef struct job {
    int *out; /* [BLOCKS, THREADS] */
    bool lacks_barrier, forgets_some;
} job;

static unsigned thread_number(void)
{
    wd_standin_index at = wd_standin_thread_index, size = wd_standin_block_size;
    return at.x + size.x * (at.y + size.y * at.z);
}

static unsigned block_number(void)
{
    return wd_standin_block_index.x + 2 * wd_standin_block_index.y;
}

/* out = what the thread after this one has written to shared memory. */
static void take_from_next(const void *args)
{
    const job *a = args;
    int *shared = wd_standin_shared();
    unsigned n = thread_number();
    shared[n] = (int)(1000 * block_number() + n);
    if (a->forgets_some && n == 5) return;
    if (!a->lacks_barrier) wd_standin_barrier();
    a->out[block_number() * THREADS + n] = shared[(n + 1) % THREADS];
}

static const unsigned grid[3] = {2, 3, 1}, block[3] = {16, 3, 2};

static void run(wd_standin_kernel *kernel, wd_standin_order order, const void *args)
{
    wd_standin *standin = wd_standin_open(order, 7);
    wd_standin_run_function(standin, kernel, grid, block, THREADS * sizeof(int), args);
    wd_standin_close(standin);
}

static void barriers_order_threads(void **state)
{
    (void)state;
    for (int order = 0; order < WD_STANDIN_ORDERS; order++) {
        int out[BLOCKS * THREADS] = {0};
        run(take_from_next, (wd_standin_order)order, &(job){.out = out});
        for (int i = 0; i < BLOCKS * THREADS; i++)
            assert_int_equal(out[i], 1000 * (i / THREADS) + (i + 1) % THREADS);
    }
}

/* Without the barrier threads in ascending order find the poison, in descending order what they
 * wait for: results differ. */
static void a_missing_barrier_shows(void **state)
{
    (void)state;
    int out[WD_STANDIN_ORDERS][BLOCKS * THREADS];
    for (int order = 0; order < WD_STANDIN_ORDERS; order++)
        run(take_from_next, (wd_standin_order)order,
            &(job){.out = out[order], .lacks_barrier = true});
    assert_int_equal(out[WD_STANDIN_ASCENDING][0], -1);
    assert_int_equal(out[WD_STANDIN_DESCENDING][0], 1);
    assert_memory_not_equal(out[WD_STANDIN_ASCENDING], out[WD_STANDIN_SHUFFLED], sizeof out[0]);
}

static void forget_some(void *context)
{
    int out[BLOCKS * THREADS];
    (void)context;
    run(take_from_next, WD_STANDIN_ASCENDING, &(job){.out = out, .forgets_some = true});
}

/* out = the sum over the thread's warp, by shuffles. */
static void sum_warps(const void *args)
{
    const job *a = args;
    unsigned n = thread_number();
    uint32_t sum = n;
    if (a->forgets_some && n % 32 == 9) return;
    for (unsigned lane_distance = 16; lane_distance > 0; lane_distance /= 2)
        sum += wd_standin_shuffle(UINT32_MAX, sum, n % 32 ^ lane_distance);
    a->out[block_number() * THREADS + n] = (int)sum;
}

static void shuffles_exchange(void **state)
{
    (void)state;
    for (int order = 0; order < WD_STANDIN_ORDERS; order++) {
        int out[BLOCKS * THREADS] = {0};
        run(sum_warps, (wd_standin_order)order, &(job){.out = out});
        for (int i = 0; i < BLOCKS * THREADS; i++)
            assert_int_equal(out[i], 496 + 32 * 32 * (i % THREADS / 32));
    }
}

static void forget_a_lane(void *context)
{
    int out[BLOCKS * THREADS];
    (void)context;
    run(sum_warps, WD_STANDIN_DESCENDING, &(job){.out = out, .forgets_some = true});
}

/* Shuffles among the threads of one warp, while others wait at a barrier. */
static void wait_for_a_warp(const void *args)
{
    const job *a = args;
    int *shared = wd_standin_shared();
    unsigned n = thread_number();
    if (n < 32) {
        uint32_t last = wd_standin_shuffle(UINT32_MAX, n, 31);
        if (n == 0) shared[0] = (int)last;
    }
    wd_standin_barrier();
    a->out[block_number() * THREADS + n] = shared[0];
}

static void some_shuffle_while_others_wait(void **state)
{
    (void)state;
    for (int order = 0; order < WD_STANDIN_ORDERS; order++) {
        int out[BLOCKS * THREADS] = {0};
        run(wait_for_a_warp, (wd_standin_order)order, &(job){.out = out});
        for (int i = 0; i < BLOCKS * THREADS; i++) assert_int_equal(out[i], 31);
    }
}

static void who_does_not_come_ends_the_process(void **state)
{
    (void)state;
    wd_test_aborts(forget_some, NULL, "1 of 96 threads of a block end without a barrier");
    wd_test_aborts(forget_a_lane, NULL, "31 of the 32 threads of a warp reach a shuffle");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(barriers_order_threads),
        cmocka_unit_test(a_missing_barrier_shows),
        cmocka_unit_test(shuffles_exchange),
        cmocka_unit_test(some_shuffle_while_others_wait),
        cmocka_unit_test(who_does_not_come_ends_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
