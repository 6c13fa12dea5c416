/* For tests of the reduction of gradients: jobs of ranks that are threads, whose sums are compared
 * with the documented order, bit for bit, and what they send with what is documented. */
#ifndef WD_TESTS_HARNESS_REDUCE_H
#define WD_TESTS_HARNESS_REDUCE_H

#include "failing.h"

#include <pthread.h>

#include "core/random.h"
#include "harness/comm.h"
#include "job/comm/reduce.h"
#include "job/launch/rank_peers.h"

enum { RANKS_MAX = 6, ROUNDS_MAX = 4, STEPS = 3, PARTS = 5 };

typedef wd_status opener(wd_device **out, int rank, wd_err *err);

/* What all ranks do. */
typedef struct job {
    int64_t count, align, bucket;
    int ranks, hosts, rounds;
    wd_dtype type; /* of gradients: F32 or BF16 */
    bool in_blocks, by_round, scatter, direct;
    opener *open;
} job;

typedef struct part {
    pthread_t thread;
    const job *job;
    wd_comm *comm;
} part;

static inline void round_all(float *x, const job *j)
{
    for (int64_t i = 0; j->type == WD_BF16 && i < j->count; i++)
        x[i] = wd_bf16_to_f32(wd_f32_to_bf16(x[i]));
}

/* Elements of a micro-batch's gradient, as values of its type. */
static inline void gradient(float *out, const job *j, int step, int micro)
{
    wd_random_normal(out, j->count,
                     (wd_random){.stream = WD_RANDOM_TEST, .index = (uint64_t)(step * 100 + micro)},
                     0);
    round_all(out, j);
}

/* x [count], from F32 to the gradients' type or back, in place. */
static inline void convert(void *x, const job *j, bool back)
{
    float value;
    uint16_t bits;
    if (j->type == WD_F32) return;
    for (int64_t k = 0; k < j->count; k++) {
        const int64_t i = back ? j->count - 1 - k : k;
        char *wide = (char *)x + 4 * i, *narrow = (char *)x + 2 * i;
        memcpy(&value, wide, sizeof value);
        memcpy(&bits, narrow, sizeof bits);
        if (back) value = wd_bf16_to_f32(bits);
        bits = wd_f32_to_bf16(value);
        memcpy(back ? wide : narrow, back ? (void *)&value : &bits, back ? 4 : 2);
    }
}

static inline float *floats(int64_t count)
{
    void *out;
    HARNESS_CHECK(wd_alloc(&out, (size_t)count, sizeof(float), "a test", NULL) == WD_OK);
    return out;
}

/* What a rank brings to the reduction of a round; without by_round it has added its rounds. */
static inline void contribution(float *out, const job *j, int step, int round, int rank)
{
    gradient(out, j, step, round * j->ranks + rank);
}

static inline void add(float *sum, const float *one, int64_t count, bool first)
{
    for (int64_t i = 0; i < count; i++) sum[i] = first ? one[i] : sum[i] + one[i];
}

/* The sum in the documented order: of a host's ranks, and then of these sums, which are rounded;
 * with by_round, and where ranks of hosts do not follow one another, there are no hosts. */
static inline float *expected(const job *j, int step)
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
            if (hosts > 1) round_all(of_host, j);
            if (hosts > 1) add(sum, of_host, j->count, host == 0);
        }
    round_all(sum, j);
    wd_free(one);
    wd_free(of_host);
    return sum;
}

/* A backward pass: from the end to the start, in parts of unequal size, each reported. */
static inline void backward(wd_reduce *reduce, char *data, const void *from, const job *j,
                            wd_queue *queue)
{
    const size_t each = wd_dtype_bytes(j->type);
    int64_t end = j->count;
    for (int i = PARTS - 1; i >= 0; i--) {
        const int64_t first = j->count * i * i / (PARTS * PARTS);
        wd_queue_copy(queue, data + (size_t)first * each, (const char *)from + (size_t)first * each,
                      (size_t)(end - first) * each);
        wd_reduce_ready(reduce, first);
        end = first;
    }
}

static inline void check_own(const wd_reduce *reduce, int rank, const float *got, const float *want)
{
    const wd_pieces *p = wd__reduce_pieces(reduce);
    for (int64_t b = 0; b < wd_pieces_buckets(p); b++) {
        const wd_range own = wd_pieces_piece(p, b, rank);
        for (int64_t i = own.first; i < own.end; i++) HARNESS_CHECK(got[i] == want[i]);
    }
}

/* Each rank has made its own pieces anew: after that all have all of them. */
static inline void gather(wd_reduce *reduce, float *data, float *host, const job *j, int rank,
                          wd_queue *queue)
{
    const wd_pieces *p = wd__reduce_pieces(reduce);
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

static inline void check_sent(const wd_reduce *reduce, const wd_comm *comm, const job *j)
{
    const wd_pieces *p = wd__reduce_pieces(reduce);
    const int near = j->ranks / j->hosts;
    const int64_t own = wd_pieces_share(p, comm->rank);
    const int64_t exchanged = (j->by_round ? j->rounds : 1) * (j->count - own);
    int64_t gathered = (j->ranks - 1) * own;
    if (j->in_blocks && j->hosts > 1 && near > 1) {
        int64_t alike = 0; /* of the ranks that are this one on their hosts */
        for (int h = 0; h < j->hosts; h++) alike += wd_pieces_share(p, h * near + comm->host_rank);
        gathered = (j->hosts - 1) * own + (near - 1) * alike;
    }
    const int64_t each = (int64_t)wd_dtype_bytes(j->type);
    const int64_t step = each * (exchanged + (j->scatter ? 0 : gathered));
    HARNESS_CHECK(comm->sent[WD_LANE_GRADIENTS] == STEPS * step);
}

/* Makes the ranks' devices peers where the job is of such. */
static inline void open_peers(const job *j, wd_comm *comm, wd_device *device)
{
    char why[WD_RANK_PEERS_TEXT];
    if (!j->direct) return;
    HARNESS_CHECK(wd_rank_peers_open(comm, why, device, NULL, 0, NULL) == WD_OK);
    HARNESS_CHECK(comm->peers);
}

static inline void *run_part(void *context)
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
    HARNESS_CHECK(j->open(&device, rank, NULL) == WD_OK);
    open_peers(j, p->comm, device);
    const wd_reduce_options options = {
        .comm = p->comm,
        .pieces = {.count = j->count, .align = j->align, .bucket = j->bucket, .ranks = j->ranks},
        .type = j->type,
        .by_round = j->by_round,
        .scatter = j->scatter};
    HARNESS_CHECK(wd_queue_open(&queue, device, NULL) == WD_OK);
    HARNESS_CHECK(wd_device_alloc(&data, device, bytes, "gradients", NULL) == WD_OK);
    HARNESS_CHECK(wd_reduce_open(&reduce, &options, device, NULL) == WD_OK);
    for (int i = 0; i < ROUNDS_MAX; i++)
        HARNESS_CHECK(wd_host_alloc((void **)&from[i], device, bytes, "a contribution", NULL) ==
                      WD_OK);
    const int64_t allocs = wd__device_alloc_count(device), held = wd_memory_held();
    for (int step = 0; step < STEPS; step++) {
        wd_queue_wait(queue);
        for (int round = 0; round < j->rounds; round++) {
            contribution(from[round], j, step, round, rank);
            convert(from[round], j, false);
            wd_reduce_begin(reduce, data,
                            (round ? 0u : WD_ROUND_FIRST) |
                                (round + 1 < j->rounds ? 0u : WD_ROUND_LAST),
                            queue);
            backward(reduce, data, from[round], j, queue);
            wd_reduce_finish(reduce);
        }
        wd_queue_copy_and_wait(queue, got, data, bytes);
        wd_queue_wait(queue);
        convert(got, j, true);
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
    HARNESS_CHECK(wd__device_alloc_count(device) == allocs);
    wd_reduce_close(reduce);
    for (int i = 0; i < ROUNDS_MAX; i++) wd_host_free(device, from[i]);
    wd_free(got);
    wd_device_free(device, data);
    wd_queue_close(queue);
    wd_rank_peers_close(p->comm);
    wd_device_close(device);
    wd_comm_close(p->comm);
    return NULL;
}

static inline void run(const job *j)
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

#endif
