/* Tests of the reduction of gradients: sums in the documented order, bit for bit, on devices that
 * do things later than they are told, for any number of ranks; what is sent is as documented. */
#include "failing.h"

#include <pthread.h>

#include "core/random.h"
#include "dist/comm_harness.h"
#include "dist/reduce.h"

enum { RANKS_MAX = 6, ROUNDS_MAX = 4, STEPS = 3, PARTS = 5 };

typedef wd_status opener(wd_device **out, int rank, wd_err *err);

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

/* What all ranks do. */
typedef struct job {
    int64_t count, align, bucket;
    int ranks, hosts, rounds;
    bool in_blocks, by_round, scatter;
    opener *open;
} job;

typedef struct part {
    pthread_t thread;
    const job *job;
    wd_comm *comm;
} part;

/* Elements of a micro-batch's gradient. */
static void gradient(float *out, const job *j, int step, int micro)
{
    wd_random_normal(out, j->count,
                     (wd_random){.stream = WD_RANDOM_TEST, .index = (uint64_t)(step * 100 + micro)},
                     0);
}

static float *floats(int64_t count)
{
    void *out;
    HARNESS_CHECK(wd_alloc(&out, (size_t)count, sizeof(float), "a test", NULL) == WD_OK);
    return out;
}

/* What a rank brings to the reduction of a round; without by_round it has added its rounds. */
static void contribution(float *out, const job *j, int step, int round, int rank)
{
    gradient(out, j, step, round * j->ranks + rank);
}

static void add(float *sum, const float *one, int64_t count, bool first)
{
    for (int64_t i = 0; i < count; i++) sum[i] = first ? one[i] : sum[i] + one[i];
}

/* The sum in the documented order: of a host's ranks, and then of these sums; with by_round, and
 * where ranks of hosts do not follow one another, there are no hosts. */
static float *expected(const job *j, int step)
{
    const int hosts = j->by_round || !j->in_blocks ? 1 : j->hosts, near = j->ranks / hosts;
    float *sum = floats(j->count), *of_host = floats(j->count), *one = floats(j->count);
    for (int round = 0; round < j->rounds; round++)
        for (int host = 0; host < hosts; host++) {
            float *to = hosts > 1 ? of_host : sum;
            for (int r = 0; r < near; r++) {
                contribution(one, j, step, round, host * near + r);
                add(to, one, j->count, r == 0 && (hosts > 1 || round == 0));
            }
            if (hosts > 1) add(sum, of_host, j->count, host == 0);
        }
    wd_free(one);
    wd_free(of_host);
    return sum;
}

/* A backward pass: from the end to the start, in parts of unequal size, each reported. */
static void backward(wd_reduce *reduce, float *data, const float *from, const job *j,
                     wd_queue *queue)
{
    int64_t end = j->count;
    for (int i = PARTS - 1; i >= 0; i--) {
        const int64_t first = j->count * i * i / (PARTS * PARTS);
        wd_queue_copy(queue, data + first, from + first, (size_t)(end - first) * sizeof *data);
        wd_reduce_ready(reduce, first);
        end = first;
    }
}

static void check_own(const wd_reduce *reduce, int rank, const float *got, const float *want)
{
    const wd_pieces *p = wd_reduce_pieces(reduce);
    for (int64_t b = 0; b < wd_pieces_buckets(p); b++) {
        const wd_range own = wd_pieces_piece(p, b, rank);
        for (int64_t i = own.first; i < own.end; i++) HARNESS_CHECK(got[i] == want[i]);
    }
}

/* Each rank has made its own pieces anew: after that all have all of them. */
static void gather(wd_reduce *reduce, float *data, float *host, const job *j, int rank,
                   wd_queue *queue)
{
    const wd_pieces *p = wd_reduce_pieces(reduce);
    const size_t bytes = (size_t)j->count * sizeof *host;
    for (int64_t i = 0; i < j->count; i++) host[i] = -1;
    for (int64_t b = 0; b < wd_pieces_buckets(p); b++) {
        const wd_range own = wd_pieces_piece(p, b, rank);
        for (int64_t i = own.first; i < own.end; i++) host[i] = (float)i;
    }
    wd_queue_copy_and_wait(queue, data, host, bytes);
    wd_reduce_gather(reduce, data, sizeof *data, queue);
    wd_queue_copy_and_wait(queue, host, data, bytes);
    wd_queue_wait(queue);
    for (int64_t i = 0; i < j->count; i++) HARNESS_CHECK(host[i] == (float)i);
    uint16_t *half = (uint16_t *)host;
    for (int64_t i = 0; i < j->count; i++) half[i] = 7;
    for (int64_t b = 0; b < wd_pieces_buckets(p); b++) {
        const wd_range own = wd_pieces_piece(p, b, rank);
        for (int64_t i = own.first; i < own.end; i++) half[i] = (uint16_t)(i * 3);
    }
    wd_queue_copy_and_wait(queue, data, half, bytes / 2);
    wd_reduce_gather(reduce, data, sizeof *half, queue);
    wd_queue_copy_and_wait(queue, half, data, bytes / 2);
    wd_queue_wait(queue);
    for (int64_t i = 0; i < j->count; i++) HARNESS_CHECK(half[i] == (uint16_t)(i * 3));
}

static void check_sent(const wd_reduce *reduce, const wd_comm *comm, const job *j)
{
    const wd_pieces *p = wd_reduce_pieces(reduce);
    const int near = j->ranks / j->hosts;
    const int64_t own = wd_pieces_share(p, comm->rank);
    const int64_t exchanged = (j->by_round ? j->rounds : 1) * (j->count - own);
    int64_t gathered = (j->ranks - 1) * own;
    if (j->in_blocks && j->hosts > 1 && near > 1) {
        int64_t alike = 0; /* of the ranks that are this one on their hosts */
        for (int h = 0; h < j->hosts; h++) alike += wd_pieces_share(p, h * near + comm->host_rank);
        gathered = (j->hosts - 1) * own + (near - 1) * alike;
    }
    const int64_t step = 4 * (exchanged + (j->scatter ? 0 : gathered));
    HARNESS_CHECK(comm->sent[WD_LANE_GRADIENTS] == STEPS * step);
}

static void *run_part(void *context)
{
    const part *p = context;
    const job *j = p->job;
    const int rank = p->comm->rank;
    wd_device *device;
    wd_queue *queue;
    wd_reduce *reduce;
    void *data;
    const size_t bytes = (size_t)j->count * sizeof(float);
    float *from[ROUNDS_MAX], *got = floats(j->count);
    const wd_reduce_options options = {
        .comm = p->comm,
        .pieces = {.count = j->count, .align = j->align, .bucket = j->bucket, .ranks = j->ranks},
        .by_round = j->by_round,
        .scatter = j->scatter};
    HARNESS_CHECK(j->open(&device, rank, NULL) == WD_OK);
    HARNESS_CHECK(wd_queue_open(&queue, device, NULL) == WD_OK);
    HARNESS_CHECK(wd_device_alloc(&data, device, bytes, "gradients", NULL) == WD_OK);
    HARNESS_CHECK(wd_reduce_open(&reduce, &options, device, NULL) == WD_OK);
    for (int i = 0; i < ROUNDS_MAX; i++) {
        from[i] = floats(j->count);
        HARNESS_CHECK(wd_host_register(device, from[i], bytes, "a contribution", NULL) == WD_OK);
    }
    const int64_t allocs = wd_device_alloc_count(device), held = wd_memory_held();
    for (int step = 0; step < STEPS; step++) {
        wd_queue_wait(queue);
        for (int round = 0; round < j->rounds; round++) {
            contribution(from[round], j, step, round, rank);
            wd_reduce_begin(reduce, data,
                            (round ? 0u : WD_ROUND_FIRST) |
                                (round + 1 < j->rounds ? 0u : WD_ROUND_LAST),
                            queue);
            backward(reduce, data, from[round], j, queue);
            wd_reduce_finish(reduce);
        }
        wd_queue_copy_and_wait(queue, got, data, bytes);
        wd_queue_wait(queue);
        HARNESS_CHECK(wd_memory_held() == held);
        float *want = expected(j, step);
        if (j->scatter)
            check_own(reduce, rank, got, want);
        else
            HARNESS_CHECK(!memcmp(got, want, bytes));
        wd_free(want);
    }
    check_sent(reduce, p->comm, j);
    gather(reduce, data, got, j, rank, queue);
    HARNESS_CHECK(wd_device_alloc_count(device) == allocs);
    wd_reduce_close(reduce);
    for (int i = 0; i < ROUNDS_MAX; i++) {
        wd_host_unregister(device, from[i]);
        wd_free(from[i]);
    }
    wd_free(got);
    wd_device_free(device, data);
    wd_queue_close(queue);
    wd_device_close(device);
    wd_comm_close(p->comm);
    return NULL;
}

static void run(const job *j)
{
    wd_err err = {0};
    wd_comm *comm[RANKS_MAX];
    part all[RANKS_MAX];
    wd_test_ok(wd_comm_open_threads(comm, j->ranks, &err), &err);
    for (int r = 0; r < j->ranks; r++) {
        const int near = j->ranks / j->hosts;
        comm[r]->hosts = j->hosts;
        comm[r]->host = r / near;
        comm[r]->host_ranks = near;
        comm[r]->host_rank = r % near;
        comm[r]->in_blocks = j->in_blocks;
        all[r] = (part){.job = j, .comm = comm[r]};
        assert_int_equal(pthread_create(&all[r].thread, NULL, run_part, &all[r]), 0);
    }
    for (int r = 0; r < j->ranks; r++) pthread_join(all[r].thread, NULL);
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
                                      {31, 1, 1},        {3, 1, 2},       {1, 8, 8}};
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
                        assert_true(wd_range_count(range) <= wd_pieces_piece_max(&p));
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
    opening o = {.options = {.pieces = wd_pieces_cut(100, 1, 32, 1), .by_round = true}};
    wd_test_ok(wd_comm_open_single(&o.options.comm, &err), &err);
    wd_test_ok(wd_device_open_cpu(&o.device, 1, &err), &err);
    wd_test_failing_allocations(open_and_close, NULL, &o, 20);
    assert_int_equal(wd_device_bytes(o.device), 0);
    wd_device_close(o.device);
    wd_comm_close(o.options.comm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_cover_all),
        cmocka_unit_test(sums_on_the_processor),
        cmocka_unit_test(sums_never_touch_device_memory),
        cmocka_unit_test(sums_wait_for_slow_devices),
        cmocka_unit_test(opening_fails_cleanly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
