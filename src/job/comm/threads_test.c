/* Tests of ranks that are threads, and of the one rank of a run without any. */
#include "aborts.h"
#include "failing.h"

#include <pthread.h>

#include "harness/comm.h"

typedef struct part {
    pthread_t thread;
    wd_comm *comm;
    wd_device *device;
} part;

static void *run_part(void *context)
{
    part *p = context;
    harness_all(p->comm, p->device);
    wd_comm_close(p->comm);
    return NULL;
}

static void ranks_talk(int ranks)
{
    wd_err err = {0};
    wd_comm *comm[HARNESS_RANKS_MAX];
    part all[HARNESS_RANKS_MAX];
    wd_test_ok(wd_comm_open_threads(comm, ranks, &err), &err);
    for (int r = 0; r < ranks; r++) {
        const wd_sim_options sim = {.number = r, .bytes = 1 << 20, .link_bytes_per_s = 1e6};
        assert_int_equal(comm[r]->rank, r);
        assert_int_equal(comm[r]->host_ranks, ranks);
        all[r].comm = comm[r];
        wd_test_ok(wd_device_open_sim(&all[r].device, &sim, &err), &err);
        assert_int_equal(pthread_create(&all[r].thread, NULL, run_part, &all[r]), 0);
    }
    for (int r = 0; r < ranks; r++) {
        pthread_join(all[r].thread, NULL);
        wd_device_close(all[r].device);
    }
}

static void one_rank_talks_to_itself(void **state)
{
    (void)state;
    ranks_talk(1);
}

static void several_ranks_talk(void **state)
{
    (void)state;
    ranks_talk(2);
    ranks_talk(5);
}

static void what_is_sent_is_counted(void **state)
{
    (void)state;
    wd_err err = {0};
    wd_comm *comm;
    const size_t at[2] = {0, 8};
    char data[8] = {0}, other[8];
    wd_test_ok(wd_comm_open_single(&comm, &err), &err);
    wd_comm_wait(comm, wd__comm_exchange(comm, WD_LANE_GRADIENTS, other, at, data, at, NULL));
    assert_int_equal(comm->sent[WD_LANE_GRADIENTS], 0); /* nobody else is there */
    assert_string_equal(comm->name, "single");
    wd_comm_close(comm);
}

static wd_status open_and_close(void *context, wd_err *err)
{
    (void)context;
    wd_comm *comm[3];
    WD_TRY(wd_comm_open_threads(comm, 3, err));
    for (int r = 0; r < 3; r++) wd_comm_close(comm[r]);
    return WD_OK;
}

static void opening_fails_cleanly(void **state)
{
    (void)state;
    wd_test_failing_allocations(open_and_close, NULL, NULL, 9);
}

typedef enum misuse { SHORT_PART, SHORT_MESSAGE, DESCENDING, NO_RANK } misuse;

/* Rank 0 of two posts an operation that does not fit that of rank 1, or is wrong by itself. */
static void misuse_ranks(void *context)
{
    const misuse what = *(const misuse *)context;
    static char data[16], other[16];
    static const size_t whole[] = {0, 8, 16}, shorter[] = {0, 8, 12}, descending[] = {0, 12, 8};
    wd_comm *comm[2];
    wd_err err;
    if (wd_comm_open_threads(comm, 2, &err) != WD_OK) return;
    switch (what) {
    case SHORT_PART:
        wd__comm_exchange(comm[0], WD_LANE_CONTROL, other, whole, data, shorter, NULL);
        wd__comm_exchange(comm[1], WD_LANE_CONTROL, other, whole, data, whole, NULL);
        break;
    case SHORT_MESSAGE:
        wd_comm_send(comm[0], WD_LANE_CONTROL, data, 4, 1, NULL);
        wd_comm_receive(comm[1], WD_LANE_CONTROL, other, 8, 0);
        break;
    case DESCENDING:
        wd_comm_gather_all(comm[0], WD_LANE_CONTROL, data, descending, NULL);
        break;
    case NO_RANK:
        wd_comm_send(comm[0], WD_LANE_CONTROL, data, 4, 2, NULL);
    }
}

/* Release builds check it, too: the bytes would be copied beyond the end of a buffer. */
static void sizes_that_do_not_fit_end_the_process(void **state)
{
    (void)state;
    static const char *const text[] = {
        "a rank sends 4 bytes where 8 are expected", "a rank sends 4 bytes where 8 are expected",
        "part 1 of an operation's memory begins at byte 12 and ends at byte 8",
        "rank 0 of 2 exchanges a message with rank 2"};
    for (misuse what = SHORT_PART; what <= NO_RANK; what++)
        wd_test_aborts(misuse_ranks, &what, text[what]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_talks_to_itself),
        cmocka_unit_test(several_ranks_talk),
        cmocka_unit_test(what_is_sent_is_counted),
        cmocka_unit_test(sizes_that_do_not_fit_end_the_process),
        cmocka_unit_test(opening_fails_cleanly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
