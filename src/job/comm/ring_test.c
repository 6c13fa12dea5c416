/* Tests of rings of shared buffers: every rank gets all buffers in order, and none hangs because
 * another one fails, leaves or is killed. */
#include "testing.h"

#include "harness/forked.h"
#include "job/comm/ring.h"

enum { RANKS = 4, BUFFERS = 2, BYTES = 10000, ROUNDS = 300, PAGE = 4096, LOOK_US = 1000 };

static unsigned char byte_at(int64_t n, size_t i)
{
    return (unsigned char)(n * 13 + (int64_t)i % 251);
}

/* ---- a rank: the first one fills buffers, all of them read ---- */

typedef struct part {
    wd_ring *ring;
    pthread_t thread;
    wd_comm *comm;
    int64_t fail_at, leave_at; /* fail: of the first rank; leave: of the last rank; < 0: never */
    wd_status status;
    wd_err err;
    int64_t used;
    int *reached; /* shared by processes, or NULL */
} part;

static void *fill_all(void *context)
{
    part *p = context;
    for (int64_t n = 0; n < ROUNDS; n++) {
        if (n == p->fail_at) {
            wd_err why = {0};
            wd_fail(&why, WD_IO, "buffer %d of a test", (int)n);
            wd_ring_fail(p->ring, &why);
            break;
        }
        unsigned char *to = wd_ring_begin_fill(p->ring, n);
        if (!to) break;
        for (size_t i = 0; i < BYTES; i++) to[i] = byte_at(n, i);
        wd_ring_filled(p->ring, n);
    }
    return NULL;
}

static void use_all(part *p)
{
    const bool last = p->comm->rank == p->comm->ranks - 1;
    for (int64_t n = 0; n < ROUNDS; n++) {
        const void *data;
        if (last && n == p->leave_at) break;
        p->status = wd_ring_await(&data, p->ring, n, &p->err);
        if (p->status != WD_OK) break;
        if (n % 7 == p->comm->rank) usleep(100); /* the ranks are late in turn */
        for (size_t i = 0; i < BYTES; i++)
            HARNESS_CHECK(((const unsigned char *)data)[i] == byte_at(n, i));
        wd_ring_done(p->ring, n);
        p->used++;
        if (p->reached) __atomic_add_fetch(p->reached, 1, __ATOMIC_SEQ_CST);
    }
}

static void *run_part(void *context)
{
    part *p = context;
    const bool fills = !p->comm->rank;
    pthread_t filler;
    HARNESS_CHECK(!wd_ring_open(&p->ring, p->comm, BUFFERS, BYTES, "a test", &p->err));
    if (fills) HARNESS_CHECK(!pthread_create(&filler, NULL, fill_all, p));
    use_all(p);
    if (fills) pthread_join(filler, NULL);
    wd_ring_leave(p->ring);
    wd_ring_close(p->ring);
    return NULL;
}

/* ---- threads ---- */

static void run_threads(part *all, part like)
{
    wd_err err = {0};
    wd_comm *comm[RANKS];
    wd_test_ok(wd_comm_open_threads(comm, RANKS, &err), &err);
    for (int r = 0; r < RANKS; r++) {
        all[r] = like;
        all[r].comm = comm[r];
        assert_int_equal(pthread_create(&all[r].thread, NULL, run_part, &all[r]), 0);
    }
    for (int r = 0; r < RANKS; r++) pthread_join(all[r].thread, NULL);
    for (int r = 0; r < RANKS; r++) wd_comm_close(comm[r]);
}

static void all_get_all(void **state)
{
    (void)state;
    part all[RANKS];
    run_threads(all, (part){.fail_at = -1, .leave_at = -1});
    for (int r = 0; r < RANKS; r++) {
        wd_test_ok(all[r].status, &all[r].err);
        assert_int_equal(all[r].used, ROUNDS);
    }
}

static void a_failure_is_everybodys(void **state)
{
    (void)state;
    part all[RANKS];
    run_threads(all, (part){.fail_at = 11, .leave_at = -1});
    for (int r = 0; r < RANKS; r++) {
        wd_test_refused(all[r].status, &all[r].err, WD_IO, "buffer 11");
        assert_int_equal(all[r].used, 11);
    }
}

static void who_leaves_is_not_waited_for(void **state)
{
    (void)state;
    part all[RANKS];
    run_threads(all, (part){.fail_at = -1, .leave_at = 5});
    for (int r = 0; r < RANKS; r++) assert_int_equal(all[r].used, r == RANKS - 1 ? 5 : ROUNDS);
}

/* ---- processes ---- */

static void run_rank(wd_comm *comm, void *context)
{
    part p = {.comm = comm, .fail_at = -1, .leave_at = -1, .reached = context};
    run_part(&p);
    HARNESS_CHECK(p.used == ROUNDS);
}

static int *open_counter(void)
{
    int *counter = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(counter, MAP_FAILED);
    return counter;
}

static void processes_get_all(void **state)
{
    (void)state;
    forked_job job;
    int *used = open_counter();
    forked_start(&job, RANKS, run_rank, used);
    assert_true(forked_end(&job, 0));
    assert_int_equal(*used, RANKS * ROUNDS);
    munmap(used, PAGE);
}

/* Waits in a thread for a buffer that is never filled, because a rank is gone, and leaves. */
static void *await_all(void *context)
{
    use_all(context);
    return NULL;
}

static void leave_when_told(wd_comm *comm, void *context)
{
    int *flags = context;
    pthread_t user, filler;
    part p = {.comm = comm, .fail_at = -1, .leave_at = -1, .reached = &flags[1]};
    HARNESS_CHECK(!wd_ring_open(&p.ring, comm, BUFFERS, BYTES, "a test", &p.err));
    if (comm->rank == comm->ranks - 1)
        for (;;) pause();
    HARNESS_CHECK(!pthread_create(&user, NULL, await_all, &p));
    if (!comm->rank) HARNESS_CHECK(!pthread_create(&filler, NULL, fill_all, &p));
    while (!__atomic_load_n(flags, __ATOMIC_SEQ_CST)) usleep(LOOK_US);
    wd_ring_leave(p.ring);
    pthread_join(user, NULL);
    if (!comm->rank) pthread_join(filler, NULL);
    HARNESS_CHECK(p.used == BUFFERS && p.status == WD_INTERRUPTED);
    wd_ring_close(p.ring);
}

static void a_killed_rank_leaves_nothing_locked(void **state)
{
    (void)state;
    forked_job job;
    int status, *flags = open_counter();
    forked_start(&job, RANKS, leave_when_told, flags);
    while (__atomic_load_n(&flags[1], __ATOMIC_SEQ_CST) < (RANKS - 1) * BUFFERS) usleep(LOOK_US);
    kill(job.pid[RANKS - 1], SIGKILL);
    assert_int_equal(waitpid(job.pid[RANKS - 1], &status, 0), job.pid[RANKS - 1]);
    __atomic_store_n(flags, 1, __ATOMIC_SEQ_CST);
    job.ranks--;
    assert_true(forked_end(&job, 0));
    munmap(flags, PAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_get_all), /* before there are threads */
        cmocka_unit_test(a_killed_rank_leaves_nothing_locked),
        cmocka_unit_test(all_get_all),
        cmocka_unit_test(a_failure_is_everybodys),
        cmocka_unit_test(who_leaves_is_not_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
