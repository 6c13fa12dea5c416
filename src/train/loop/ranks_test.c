/* Many ranks, one student: the same samples in each step, gradients added in the order that is
 * documented. On wan-tiny; ranks are threads of this process, each with its own device. With
 * WD_STANDIN_GPUS these are GPUs that the stand-in driver shows. */
#include "dev/ops.h"
#include "harness/ranks.h"
#include "job/launch/rank_peers.h"
#include "tiny_teacher.h"
#include "train/loop/stepper_impl.h"

enum { STEPS = 4, KEPT = 5 };

#ifdef WD_STANDIN_GPUS
enum {
    DEVICE_BOOKS = 16384
}; /* bytes of the host's, in which GPUs keep shapes that they have met */
#else
enum { DEVICE_BOOKS = 0 };
#endif

/* What a rank ends with. */
typedef struct outcome {
    float *kept; /* P, M, V, SLOW if there is one, EMA; to free */
    int64_t count;
    double loss[STEPS], norm[STEPS];
    int64_t sent; /* on the lane of gradients, by the steps */
    int64_t share, islands, chunks;
} outcome;

typedef struct part {
    rank_thread at;
    const wd_stepper_options *options;
    const char *devices;
    bool direct; /* gradients go from device to device */
    outcome out;
} part;

static void keep(outcome *out, wd_stepper *m)
{
    static const wd_params_buffer kept[KEPT] = {WD_PARAMS_P, WD_PARAMS_M, WD_PARAMS_V,
                                                WD_PARAMS_SLOW, WD_PARAMS_EMA};
    void *to;
    out->count = wd__stepper_params(m)->count;
    HARNESS_OK(wd_alloc(&to, KEPT * (size_t)out->count, sizeof(float), "kept", err));
    memset(to, 0, KEPT * (size_t)out->count * sizeof(float));
    out->kept = to;
    for (int i = 0; i < KEPT; i++) {
        if (!wd__stepper_params(m)->buffer[kept[i]]) continue;
        wd_params_collect(wd__stepper_params(m), kept[i], m->queue);
        wd_queue_copy_and_wait(m->queue, out->kept + i * out->count,
                               wd_params_whole(wd__stepper_params(m), kept[i]),
                               (size_t)out->count * sizeof(float));
        wd_queue_wait(m->queue);
    }
}

/* Gradients of the largest stage, in fp32. */
static int64_t stage_bytes(const wd_params *p)
{
    int64_t most = 0, first, count;
    for (int stage = 0; stage < wd_dit_stages(&p->config); stage++) {
        wd__params_stage_range(&first, &count, p, stage);
        most = count > most ? count : most;
    }
    return 4 * most;
}

/* What is shared, in 8 bits or on the host takes the bytes of the device that params.h says. */
static void check_bytes(const wd_params *p)
{
    const bool bf16 = p->dtype == WD_BF16;
    const int64_t n = p->pieces.ranks ? p->share : p->count;
    const int64_t moments = wd_params_is_in_8_bits(p, WD_PARAMS_M) ? 2 * (n + n / 32 * 2) : 8 * n;
    const int64_t slow = p->buffer[WD_PARAMS_SLOW] ? 4 * n : 0;
    const int64_t aside = moments + slow + (bf16 ? 6 : 4) * n; /* EMA, and remainders of weights */
    const int64_t narrow = wd__params_grad_type(p) == WD_BF16 ? 2 * p->count - stage_bytes(p) : 0;
    const int64_t whole = bf16 ? 6 * p->count + 4 * p->islands_count - narrow : 8 * p->count;
    const bool ema_on_host = wd_params_is_on_host(p, WD_PARAMS_EMA);
    const int64_t there =
        wd_params_is_on_host(p, WD_PARAMS_M) ? 0 : aside - (ema_on_host ? 4 * n : 0);
    HARNESS_CHECK((int64_t)wd_params_bytes(p) == whole + there);
}

static void take_results(outcome *out, wd_stepper *m, int leave)
{
    while (wd_stepper_results_pending(m) > leave) {
        const wd_step_result r = wd_stepper_take_result(m);
        out->loss[r.step] = r.loss;
        out->norm[r.step] = r.grad_norm;
    }
}

/* One rank's run; its memory is as planned, and no step but the first allocates. */
static void *run_part(void *context)
{
    part *p = context;
    rank_stepper r;
    size_t planned = 0;
    wd_stepper_options o = *p->options;
    const wd_placement all = whole_on_first(o.teacher);
    const wd_comm *comm = o.comm = p->at.comm;
    char why[WD_RANK_PEERS_TEXT];
    HARNESS_OK(wd_devices_open(&r.devices, p->devices, 1, err));
    if (p->direct) HARNESS_OK(wd_rank_peers_open(o.comm, why, r.devices.device[0], NULL, 0, err));
    HARNESS_CHECK(!comm->peers == !p->direct);
    const int64_t host_before = wd_memory_held();
    open_stepper(&r, &o, &all);
    wd_stepper *m = r.stepper;
    check_bytes(wd__stepper_params(m));
    const int64_t sent = comm->sent[WD_LANE_GRADIENTS];
    int64_t held = 0, allocs = 0;
    for (int64_t step = 0; step < STEPS; step++) {
        HARNESS_OK(wd_stepper_step(m, &(wd_step){.number = step, .lr = 1e-3}, err));
        take_results(&p->out, m, 1);
        if (step) HARNESS_CHECK(held == wd_memory_held());
        if (step) HARNESS_CHECK(allocs == device_allocations(&r));
        held = wd_memory_held();
        allocs = device_allocations(&r);
    }
    take_results(&p->out, m, 0);
    check_peaks(&r);
    for (int i = 0; i < r.plan.items; i++)
        if (r.plan.item[i].phase == WD_MEMORY_TRAINING) planned += r.plan.item[i].bytes;
    for (int i = 0; i < r.devices.count; i++) planned -= wd_device_bytes(r.devices.device[i]);
    HARNESS_CHECK((size_t)(wd_memory_held() - host_before) - planned <= DEVICE_BOOKS);
    p->out.sent = comm->sent[WD_LANE_GRADIENTS] - sent;
    if (comm->ranks > 1 || o.deterministic_reduce) {
        const wd_pieces pieces = wd__params_pieces(wd__stepper_params(m), comm->ranks);
        p->out.share = wd_pieces_share(&pieces, comm->rank);
    }
    p->out.chunks = (p->out.share + WD_SUM_CHUNK - 1) / WD_SUM_CHUNK;
    p->out.islands = o.shard_optimizer ? wd__stepper_params(m)->islands_count : 0;
    keep(&p->out, m);
    wd_rank_peers_close(o.comm);
    close_stepper(&r);
    return NULL;
}

static void assert_same(const outcome *a, const outcome *b)
{
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->loss, b->loss, sizeof a->loss);
    assert_memory_equal(a->norm, b->norm, sizeof a->norm);
    assert_memory_equal(a->kept, b->kept, KEPT * (size_t)a->count * sizeof(float));
}

/* As documented: of each rank, or, of islands, whose parts are nobody's equal shares, of all. */
static void check_sent(const part *all, const wd_stepper_options *options, int ranks)
{
    const int64_t rounds = options->deterministic_reduce ? options->accumulation : 1;
    const int64_t others = ranks - 1, compute = options->student_dtype == WD_BF16 ? 2 : 4;
    const int64_t gradient = options->gradients == WD_BF16 ? 2 : 4;
    int64_t sent = 0, expected = others * 4 * all[0].out.islands;
    for (int r = 0; r < ranks; r++) {
        const outcome *o = &all[r].out;
        const int64_t weights = compute * o->share + 8 * o->chunks;
        const int64_t step = gradient * rounds * (o->count - o->share) +
                             others * (options->shard_optimizer ? weights : gradient * o->share);
        if (!o->islands) assert_int_equal(o->sent, STEPS * step);
        expected += step;
        sent += o->sent;
    }
    assert_int_equal(sent, STEPS * expected);
}

/* The same run by `ranks`, each with its own of `devices` [ranks]; what one of them has all have.
 */
static outcome run_on(const wd_stepper_options *options, int ranks, const char *const *devices,
                      bool direct)
{
    part all[RANKS_MAX] = {0};
    wd_stepper_options o = *options;
    o.accumulation = MICRO_BATCHES / ranks;
    for (int r = 0; r < ranks; r++) {
        all[r].options = &o;
        all[r].devices = devices[r];
        all[r].direct = direct;
    }
    run_ranks(all, sizeof *all, ranks, run_part);
    if (ranks > 1 && !(o.trajectory.on_policy_share > 0)) check_sent(all, &o, ranks);
    for (int r = 0; r < ranks; r++) {
        if (!r) continue;
        assert_same(&all[0].out, &all[r].out);
        wd_free(all[r].out.kept);
    }
    for (int i = 0; i < STEPS; i++) assert_true(all[0].out.loss[i] > 0 && all[0].out.norm[i] > 0);
    return all[0].out;
}

#ifdef WD_STANDIN_GPUS
#include "standin/driver.h"
#include "standin/nccl.h"

static const char *const gpus[RANKS_MAX] = {"cuda:0", "cuda:1", "cuda:2", "cuda:3"};

/* By NCCL: what it is by way of host memory, or, of one micro-batch after the other, of one rank,
 * to the bit; in the memory that is planned. */
static void go_directly(const wd_stepper_options *options, int ranks)
{
    static uint64_t seed = 40;
    wd_standin_options standin = WD_STANDIN_DEFAULTS;
    standin.devices = RANKS_MAX;
    standin.nccl = true;
    standin.seed = seed++;
    wd_standin_install_all(&standin);
    outcome direct = run_on(options, ranks, gpus, true);
    outcome other = run_on(options, options->deterministic_reduce ? 1 : ranks, gpus, false);
    assert_same(&direct, &other);
    wd_free(direct.kept);
    wd_free(other.kept);
    assert_int_equal(wd_standin_nccl_open(), 0);
    assert_int_equal(wd_standin_remove(), 0);
}

static void gradients_go_directly(void **state)
{
    (void)state;
    wd_stepper_options options = small_stepper(&teacher);
    go_directly(&options, 4);
    options.deterministic_reduce = true;
    go_directly(&options, 2);
}

static void shares_go_directly(void **state)
{
    (void)state;
    wd_stepper_options options = small_stepper(&teacher);
    options.shard_optimizer = true;
    options.student_dtype = WD_BF16;
    go_directly(&options, 2);
    options.gradients = WD_BF16;
    go_directly(&options, MICRO_BATCHES);
}
#else
static outcome run(const wd_stepper_options *options, int ranks, const char *devices)
{
    const char *const same[RANKS_MAX] = {devices, devices, devices, devices};
    return run_on(options, ranks, same, false);
}

/* Under deterministic_reduce 1, 2 and 4 ranks are the same to the bit; with BF16 gradients are in
 * it, too. */
static void ranks_change_nothing(wd_dtype dtype)
{
    const char *const devices[] = {CPU, SIM, SLOW_SIM};
    wd_stepper_options options = small_stepper(&teacher);
    options.student_dtype = dtype;
    options.gradients = dtype;
    options.deterministic_reduce = true;
    outcome one = run(&options, 1, CPU);
    for (int i = 0; i < 3; i++)
        for (int ranks = 1; ranks <= RANKS_MAX; ranks *= 2) {
            outcome other = run(&options, ranks, devices[i]);
            assert_same(&one, &other);
            wd_free(other.kept);
        }
    wd_free(one.kept);
}

static void ranks_change_nothing_f32(void **state)
{
    (void)state;
    ranks_change_nothing(WD_F32);
}

static void ranks_change_nothing_bf16(void **state)
{
    (void)state;
    ranks_change_nothing(WD_BF16);
}

/* Else sums of fp32 differ as their order does; the same ranks give the same bits. */
static void ranks_change_little(void **state)
{
    (void)state;
    const wd_stepper_options options = small_stepper(&teacher);
    outcome one = run(&options, 1, CPU);
    for (int ranks = 2; ranks <= RANKS_MAX; ranks *= 2) {
        outcome first = run(&options, ranks, CPU), again = run(&options, ranks, SLOW_SIM);
        assert_same(&first, &again);
        for (int i = 0; i < STEPS; i++) {
            assert_true(fabs(first.loss[i] - one.loss[i]) <= 1e-5 * one.loss[i]);
            assert_true(fabs(first.norm[i] - one.norm[i]) <= 1e-5 * one.norm[i]);
        }
        assert_true(wd_test_rel_error(first.kept, one.kept, one.count) <= 1e-5);
        wd_free(first.kept);
        wd_free(again.kept);
    }
    wd_free(one.kept);
}

/* Where each rank keeps its share alone: what it is where each keeps all, to the bit. */
static void shares_change_nothing(void **state)
{
    (void)state;
    const char *const devices[] = {CPU, SLOW_SIM};
    static const wd_state_place places[8] = {[2] = WD_STATE_ON_HOST,
                                             [3] = WD_STATE_EMA_ON_HOST,
                                             [6] = WD_STATE_EMA_ON_HOST,
                                             [7] = WD_STATE_ON_HOST};
    for (int n = 0; n < 8; n++) {
        const int i = n % 4;
        wd_stepper_options options = small_stepper(&teacher);
        options.student_dtype = i % 2 ? WD_BF16 : WD_F32;
        options.gradients = n > 4 ? options.student_dtype : WD_F32;
        options.deterministic_reduce = i / 2;
        options.optimizer.decay = 0.1; /* ranges of two kinds */
        options.optimizer.moments_in_8_bits = n / 4;
        options.optimizer.alpha = i % 2 && n < 4 ? 5 : 0;
        options.optimizer.beta3 = 0.99;
        for (int ranks = 2; ranks <= RANKS_MAX; ranks *= 2) {
            if (ranks < MICRO_BATCHES && !wd_stepper_may_accumulate(&options)) continue;
            options.shard_optimizer = false;
            outcome whole = run(&options, ranks, CPU);
            options.shard_optimizer = true;
            options.place = places[n]; /* in host memory: of simulated devices */
            outcome shared = run(&options, ranks, devices[i / 2]);
            options.place = WD_STATE_ON_DEVICE;
            assert_same(&whole, &shared);
            wd_free(whole.kept);
            wd_free(shared.kept);
        }
    }
}

/* A snapshot is of the whole student, of which each rank keeps a share. */
static void snapshots_of_shares_are_whole(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        wd_stepper_options options = small_stepper(&teacher);
        options.student_dtype = options.gradients = i ? WD_BF16 : WD_F32;
        options.deterministic_reduce = i; /* only so are gradients in bf16 added up */
        learn_chords(&options, 2);
        options.trajectory.on_policy_share = 1;
        options.trajectory.on_policy_end = 1;
        options.trajectory.on_policy_every = 2;
        options.reuse = 1;
        outcome whole = run(&options, 2, CPU);
        options.shard_optimizer = true;
        outcome shared = run(&options, 2, i ? SLOW_SIM : CPU);
        options.place = i ? WD_STATE_ON_HOST : WD_STATE_EMA_ON_HOST;
        outcome on_host = run(&options, 2, SLOW_SIM);
        assert_same(&whole, &shared);
        assert_same(&whole, &on_host);
        wd_free(whole.kept);
        wd_free(shared.kept);
        wd_free(on_host.kept);
    }
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifdef WD_STANDIN_GPUS
        cmocka_unit_test(gradients_go_directly),
        cmocka_unit_test(shares_go_directly),
#else
        cmocka_unit_test(ranks_change_nothing_f32),
        cmocka_unit_test(ranks_change_nothing_bf16),
        cmocka_unit_test(ranks_change_little),
        cmocka_unit_test(shares_change_nothing),
        cmocka_unit_test(snapshots_of_shares_are_whole),
#endif
    };
    return cmocka_run_group_tests(tests, open_teacher, NULL);
}
