/* Tests of the ranks that MPI starts: run by mpirun with several of them, and by itself with one,
 * or, in a build without MPI, with none. */
#include "testing.h"

#include <limits.h>
#include <stdlib.h>

#include "harness/comm.h"
#include "job/comm/comm.h"

#ifdef WD_HAVE_MPI

/* A number from mpirun's environment; `alone` without mpirun. */
static int said(const char *name, int alone)
{
    const char *text = getenv(name);
    return text ? atoi(text) : alone;
}

static wd_comm *comm;

static void every_rank_is_there(void **state)
{
    (void)state;
    wd_err err = {0};
    wd_test_ok(wd_comm_open_mpi(&comm, &err), &err);
    assert_string_equal(comm->name, "mpi");
    const int here = said("OMPI_COMM_WORLD_LOCAL_SIZE", 1);
    assert_int_equal(comm->ranks, said("OMPI_COMM_WORLD_SIZE", 1));
    assert_int_equal(comm->rank, said("OMPI_COMM_WORLD_RANK", 0));
    assert_int_equal(comm->host_rank, said("OMPI_COMM_WORLD_LOCAL_RANK", 0));
    assert_int_equal(comm->host_ranks, here);
    assert_int_equal(comm->hosts, comm->ranks / here); /* each host has as many */
    assert_int_equal(comm->host, comm->rank / here);
    assert_true(comm->in_blocks);
}

static void ranks_talk(void **state)
{
    (void)state;
    wd_err err = {0};
    wd_device *device;
    const wd_sim_options sim = {
        .number = comm->rank, .bytes = 1 << 20, .link_bytes_per_s = 1e5 * (comm->rank + 1)};
    wd_test_ok(wd_device_open_sim(&device, &sim, &err), &err);
    harness_all(comm, device);
    wd_device_close(device);
}

/* Sends more than MPI does at once, in several lanes at a time, and checks every byte. */
static void large_parts_travel(void **state)
{
    (void)state;
    enum { LARGE = 3 << 20 };
    const size_t ranks = (size_t)comm->ranks, me = (size_t)comm->rank;
    size_t at[HARNESS_RANKS_MAX + 1] = {0};
    uint32_t *data[WD_LANES];
    wd_ticket ticket[WD_LANES];
    for (size_t r = 0; r < ranks; r++) at[r + 1] = at[r] + LARGE * sizeof **data;
    for (size_t l = 0; l < WD_LANES; l++) {
        data[l] = calloc(ranks * LARGE, sizeof **data);
        assert_non_null(data[l]);
        for (size_t i = 0; i < LARGE; i++) data[l][me * LARGE + i] = (uint32_t)(i * 7 + me * 3 + l);
        ticket[l] = wd_comm_gather_all(comm, (wd_lane)l, data[l], at, NULL);
    }
    for (size_t l = 0; l < WD_LANES; l++) {
        wd_comm_wait(comm, ticket[l]);
        for (size_t r = 0; r < ranks; r++)
            for (size_t i = 0; i < LARGE; i++)
                HARNESS_CHECK(data[l][r * LARGE + i] == (uint32_t)(i * 7 + r * 3 + l));
        free(data[l]);
    }
}

/* Lowers the limit above which messages are composed of units, instead of sending more than 2 GiB:
 * messages of less than one unit, of whole units, of units and a rest, and those of the harness. */
static void messages_may_be_longer_than_mpi_counts(void **state)
{
    wd_comm_mpi_count_max = 1000;
    const size_t me = (size_t)comm->rank, ranks = (size_t)comm->ranks;
    const size_t parts[] = {999, 1000, 1001, 5000, 12345};
    for (size_t n = 0; n < sizeof parts / sizeof *parts; n++) {
        size_t at[HARNESS_RANKS_MAX + 1] = {0};
        for (size_t r = 0; r < ranks; r++) at[r + 1] = at[r] + parts[n];
        uint8_t *data = calloc(ranks, parts[n]);
        assert_non_null(data);
        for (size_t i = 0; i < parts[n]; i++) data[me * parts[n] + i] = (uint8_t)(i * 7 + me);
        wd_comm_wait(comm, wd_comm_gather_all(comm, WD_LANE_TARGETS, data, at, NULL));
        for (size_t i = 0; i < ranks * parts[n]; i++)
            HARNESS_CHECK(data[i] == (uint8_t)(i % parts[n] * 7 + i / parts[n]));
        free(data);
    }
    ranks_talk(state);
    large_parts_travel(state);
    wd_comm_barrier(comm);
    wd_comm_mpi_count_max = INT_MAX;
}

static void posting_allocates_nothing(void **state)
{
    (void)state;
    const int64_t before = wd__alloc_count();
    for (int i = 0; i < 20; i++) wd_comm_barrier(comm);
    assert_int_equal(wd__alloc_count(), before);
}

static void it_is_entered_once(void **state)
{
    (void)state;
    wd_err err = {0};
    wd_comm *again;
    wd_comm_close(comm);
    wd_test_refused(wd_comm_open_mpi(&again, &err), &err, WD_UNSUPPORTED, "once in a process");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_is_there),
        cmocka_unit_test(ranks_talk),
        cmocka_unit_test(large_parts_travel),
        cmocka_unit_test(messages_may_be_longer_than_mpi_counts),
        cmocka_unit_test(posting_allocates_nothing),
        cmocka_unit_test(it_is_entered_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

static void ranks_are_refused(void **state)
{
    (void)state;
    wd_err err = {0};
    wd_comm *comm;
    wd_test_refused(wd_comm_open_mpi(&comm, &err), &err, WD_UNSUPPORTED, "built without MPI");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
