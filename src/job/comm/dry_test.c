/* The communicator of dry runs counts like the others, and its operations never wait. */
#include "job/comm/comm.h"

#include "testing.h"

static void counts_and_never_waits(void **state)
{
    (void)state;
    wd_err err;
    wd_comm *comm;
    const wd_comm like = {.rank = 1, .ranks = 4, .hosts = 2, .host_ranks = 2, .host_rank = 1};
    const size_t at[] = {0, 8, 16, 24, 32};
    int64_t word[4] = {1, 2, 3, 4};
    wd_test_ok(wd_comm_open_dry(&comm, &like, &err), &err);
    wd_comm_wait(comm, wd_comm_gather_all(comm, WD_LANE_TARGETS, word, at, NULL));
    assert_int_equal(comm->sent[WD_LANE_TARGETS], 3 * 8);
    assert_int_equal(word[0], 1);
    wd_comm_wait(comm, wd_comm_receive(comm, WD_LANE_ACTIVATIONS, word, 8, 2));
    wd_comm_wait(comm, wd__comm_exchange(comm, WD_LANE_GRADIENTS, word, at, word, at, NULL));
    assert_int_equal(comm->sent[WD_LANE_GRADIENTS], 3 * 8);
    wd_comm_barrier(comm);
    wd_comm_close(comm);
}

/* Records of the other ranks are those of this one. */
static void the_others_agree(void **state)
{
    (void)state;
    wd_err err;
    wd_comm *comm;
    const wd_comm like = {.rank = 2, .ranks = 3, .hosts = 1, .host_ranks = 3, .host_rank = 2};
    const size_t at[] = {0, 8, 16, 24};
    int64_t word[3] = {0, 0, 7};
    wd_test_ok(wd_comm_open_dry(&comm, &like, &err), &err);
    wd_comm_wait(comm, wd_comm_gather_all(comm, WD_LANE_CONTROL, word, at, NULL));
    for (int r = 0; r < 3; r++) assert_int_equal(word[r], 7);
    wd_comm_close(comm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_and_never_waits),
        cmocka_unit_test(the_others_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
