/* Tests of the reduction of gradients: sums in the documented order, bit for bit, on devices that
 * do things later than they are told, for any number of ranks; what is sent is as documented. With
 * WD_STANDIN_GPUS on GPUs that the stand-in driver shows, directly from one to another. */
#include "harness/reduce.h"

#ifdef WD_STANDIN_GPUS
#include "dev/cuda.h"
#include "sanitized.h"
#include "standin/driver.h"
#include "standin/nccl.h"

enum { EACH = WD_TEST_SANITIZED ? 5 : 1 }; /* of so many jobs one: to open a GPU takes long there */

static wd_status open_gpu(wd_device **out, int rank, wd_err *err)
{
    return wd_device_open_cuda(out, rank, err);
}

/* Runs a job on GPUs, by way of host memory or directly, with streams in an order drawn anew. */
static void run_on_gpus(const job *base, bool direct)
{
    static uint64_t seed;
    job j = *base;
    wd_standin_options options = WD_STANDIN_DEFAULTS;
    options.devices = RANKS_MAX;
    options.nccl = true;
    options.seed = seed++;
    wd_standin_install_all(&options);
    j.direct = direct && j.ranks > 1;
    j.open = open_gpu;
    run(&j);
    if (j.direct) assert_true(wd_standin_nccl_count().exchanges > j.ranks);
    assert_int_equal(wd_standin_nccl_open(), 0);
    assert_int_equal(wd_standin_remove(), 0);
}

/* Sums are those of the documented order, which is that of other devices, too. */
static void sums_on_gpus(void **state)
{
    (void)state;
    static const job jobs[] = {
        {.count = 5003, .align = 32, .bucket = 1024, .ranks = 2, .hosts = 1, .in_blocks = true},
        {.count = 2003, .align = 1, .bucket = 333, .ranks = 3, .hosts = 3, .in_blocks = true},
        {.count = 31, .align = 1, .bucket = 4, .ranks = 4, .hosts = 2, .in_blocks = true},
        {.count = 4096, .align = 256, .bucket = 4096, .ranks = 6, .hosts = 3, .in_blocks = true},
        {.count = 1000, .align = 8, .bucket = 400, .ranks = 6, .hosts = 2},
        {.count = 3, .align = 1, .bucket = 2, .ranks = 6, .hosts = 1, .in_blocks = true}};
    for (size_t i = 0; i < 4 * sizeof jobs / sizeof *jobs; i += EACH) {
        job j = jobs[i / 4];
        j.scatter = i & 1;
        j.by_round = i & 2;
        j.rounds = j.by_round ? 3 : 1;
        j.type = i % 3 ? WD_F32 : WD_BF16;
        run_on_gpus(&j, true);
        if (i % 7 == 0) run_on_gpus(&j, false);
    }
}
#else

static wd_status open_cpu(wd_device **out, int rank, wd_err *err)
{
    (void)rank;
    return wd_device_open_cpu(out, 1, err);
}

static wd_status open_guard(wd_device **out, int rank, wd_err *err)
{
    (void)rank;
    return wd_device_open_guard(out, 1, err);
}

/* So slow that whoever does not wait for a copy comes too early; every rank at its own pace. */
static wd_status open_sim(wd_device **out, int rank, wd_err *err)
{
    const wd_sim_options sim = {
        .number = rank, .bytes = 1 << 24, .link_bytes_per_s = 5e6 * (1 + rank)};
    return wd_device_open_sim(out, &sim, err);
}

/* Odd sizes; buckets of one element, of a few, of all; fewer elements than ranks. Ranks of one
 * host, of several, and one on each. */
static void run_sizes(const job *base)
{
    static const int machines[][3] = {/* ranks, hosts, in blocks */
                                      {1, 1, 1}, {2, 1, 1}, {4, 1, 1}, {3, 3, 1},
                                      {4, 2, 0}, {4, 2, 1}, {6, 2, 1}, {6, 3, 1}};
    static const int64_t size[][3] = {/* count, align, bucket */
                                      {5003, 32, 1024}, {2003, 1, 333}, {4096, 256, 4096},
                                      {31, 1, 1},       {3, 1, 2},      {1, 8, 8}};
    for (size_t m = 0; m < sizeof machines / sizeof *machines; m++)
        for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
            job j = *base;
            j.ranks = machines[m][0];
            j.hosts = machines[m][1];
            j.in_blocks = machines[m][2];
            j.count = size[i][0];
            j.align = size[i][1];
            j.bucket = size[i][2];
            run(&j);
        }
}

static void run_ways(opener *open)
{
    run_sizes(&(job){.rounds = 1, .open = open});
    run_sizes(&(job){.rounds = 1, .scatter = true, .open = open});
    run_sizes(&(job){.rounds = 3, .by_round = true, .open = open});
    run_sizes(&(job){.rounds = 2, .by_round = true, .scatter = true, .open = open});
}

static void sums_on_the_processor(void **state)
{
    (void)state;
    run_ways(open_cpu);
}

/* Gradients in BF16 are added in F32. */
static void sums_of_bf16(void **state)
{
    (void)state;
    run_sizes(&(job){.type = WD_BF16, .rounds = 1, .open = open_cpu});
    run_sizes(&(job){.type = WD_BF16, .rounds = 1, .scatter = true, .open = open_guard});
    run_sizes(&(job){.type = WD_BF16, .rounds = 3, .by_round = true, .open = open_cpu});
    run_sizes(
        &(job){.type = WD_BF16, .rounds = 2, .by_round = true, .scatter = true, .open = open_cpu});
}

static void sums_never_touch_device_memory(void **state)
{
    (void)state;
    run_ways(open_guard);
}

static void sums_wait_for_slow_devices(void **state)
{
    (void)state;
    run_ways(open_sim);
}

/* Every element belongs to one rank; packed places follow one another. */
static void pieces_cover_all(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 7; ranks++)
        for (int64_t count = 1; count < 400; count += 13)
            for (int64_t align = 1; align <= 32; align *= 4) {
                const wd_pieces p = wd_pieces_cut(count, align, 64, ranks);
                int64_t at = 0, packed[7] = {0};
                for (int64_t b = 0; b < wd_pieces_buckets(&p); b++)
                    for (int r = 0; r < ranks; r++) {
                        const wd_range range = wd_pieces_piece(&p, b, r);
                        assert_int_equal(range.first, at);
                        assert_true(range.end >= at && range.end <= count);
                        assert_true(range.end % align == 0 || range.end == count);
                        assert_true(wd_range_count(range) <= wd__pieces_piece_max(&p));
                        assert_int_equal(wd_pieces_packed(&p, b, r), packed[r]);
                        at = range.end;
                        packed[r] += wd_range_count(range);
                    }
                assert_int_equal(at, count);
                for (int r = 0; r < ranks; r++) assert_int_equal(wd_pieces_share(&p, r), packed[r]);
            }
}

typedef struct opening {
    wd_reduce_options options;
    wd_device *device;
} opening;

static wd_status open_and_close(void *context, wd_err *err)
{
    const opening *o = context;
    wd_reduce *reduce;
    WD_TRY(wd_reduce_open(&reduce, &o->options, o->device, err));
    wd_reduce_close(reduce);
    return WD_OK;
}

static void opening_fails_cleanly(void **state)
{
    (void)state;
    wd_err err = {0};
    opening o = {
        .options = {.pieces = wd_pieces_cut(100, 1, 32, 1), .type = WD_BF16, .by_round = true}};
    wd_test_ok(wd_comm_open_single(&o.options.comm, &err), &err);
    wd_test_ok(wd_device_open_cpu(&o.device, 1, &err), &err);
    wd_test_failing_allocations(open_and_close, NULL, &o, 20);
    assert_int_equal(wd_device_bytes(o.device), 0);
    wd_device_close(o.device);
    wd_comm_close(o.options.comm);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifdef WD_STANDIN_GPUS
        cmocka_unit_test(sums_on_gpus),
#else
        cmocka_unit_test(pieces_cover_all),
        cmocka_unit_test(sums_on_the_processor),
        cmocka_unit_test(sums_of_bf16),
        cmocka_unit_test(sums_never_touch_device_memory),
        cmocka_unit_test(sums_wait_for_slow_devices),
        cmocka_unit_test(opening_fails_cleanly),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
