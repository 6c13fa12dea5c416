/* Tests of shares by themselves: what the ranks keep is, together, all of it once; openings that
 * fail leave nothing. What is trained with shares is tested in train/loop/ranks_test.c. */
#include "failing.h"

#include "tiny_teacher.h"
#include "train/network/shard.h"

enum { RANKS = 3 };

/* What a rank has of a shared student. */
typedef struct part {
    wd_params params;
    wd_reduce *reduce;
    wd_shard *shard;
} part;

static wd_status open_part(part *p, wd_dtype dtype, wd_comm *comm, wd_device *device, wd_err *err)
{
    *p = (part){0};
    const wd_params_options params = {.names = &wd_params_student,
                                      .config = &teacher.dit,
                                      .dtype = dtype,
                                      .kinds = WD_PARAMS_TRAINED | WD_PARAMS_WITH_EMA,
                                      .rank = comm->rank,
                                      .ranks = comm->ranks};
    WD_TRY(wd_params_open_with(&p->params, &params, device, err));
    const wd_reduce_options options = {.comm = comm, .pieces = p->params.pieces, .scatter = true};
    WD_TRY(wd_reduce_open(&p->reduce, &options, device, err));
    return wd__shard_open(&p->shard, &p->params, p->reduce, comm, err);
}

static void close_part(part *p)
{
    wd__shard_close(p->shard);
    wd_reduce_close(p->reduce);
    wd_params_close(&p->params);
}

static void shares_are_all_of_it_once(void **state)
{
    (void)state;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        wd_err err = {0};
        wd_comm *comm[RANKS];
        wd_device *device;
        part parts[RANKS];
        int64_t shares = 0;
        wd_test_ok(wd_device_open_cpu(&device, 1, &err), &err);
        wd_test_ok(wd_comm_open_threads(comm, RANKS, &err), &err);
        for (int r = 0; r < RANKS; r++) {
            wd_test_ok(open_part(&parts[r], bf16 ? WD_BF16 : WD_F32, comm[r], device, &err), &err);
            shares += parts[r].params.share;
        }
        const wd_params *p = &parts[0].params;
        assert_int_equal(shares, p->count);
        assert_int_equal(wd__params_is_packed(p, WD_PARAMS_P), bf16);
        assert_true(wd__params_is_packed(p, WD_PARAMS_M) && wd__params_is_packed(p, WD_PARAMS_EMA));
        assert_false(wd__params_is_packed(p, WD_PARAMS_G));
        assert_ptr_equal(wd_params_whole(p, WD_PARAMS_M), p->buffer[WD_PARAMS_G]);
        assert_null(wd_params_tensor(p, WD_PARAMS_M, 0).data); /* no view of what is packed */
        assert_int_equal(p->islands_count > 0, bf16);
        for (int r = 0; r < RANKS; r++) close_part(&parts[r]);
        for (int r = 0; r < RANKS; r++) wd_comm_close(comm[r]);
        assert_int_equal(wd_device_bytes(device), 0);
        wd_device_close(device);
    }
}

static wd_status open_and_close(void *comm, wd_err *err)
{
    wd_device *device;
    part p;
    WD_TRY(wd_device_open_cpu(&device, 1, err));
    const wd_status status = open_part(&p, WD_BF16, comm, device, err);
    close_part(&p);
    assert_int_equal(wd_device_bytes(device), 0);
    wd_device_close(device);
    return status;
}

static void opening_fails_cleanly(void **state)
{
    (void)state;
    wd_err err = {0};
    wd_comm *comm[RANKS];
    wd_test_ok(wd_comm_open_threads(comm, RANKS, &err), &err);
    wd_test_failing_allocations(open_and_close, NULL, comm[1], 30);
    for (int r = 0; r < RANKS; r++) wd_comm_close(comm[r]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_are_all_of_it_once),
        cmocka_unit_test(opening_fails_cleanly),
    };
    return cmocka_run_group_tests(tests, open_teacher, NULL);
}
