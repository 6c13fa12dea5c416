/* One seed, one student: wherever the teacher lives, shared by however many ranks. Under
 * deterministic_reduce its weights, losses and EMA are those of one rank, bit for bit; pools peak
 * where the plan says, and no step allocates. On wan-tiny, both experts, after three passes of its
 * trajectories; ranks are threads, on devices so slow that who does not wait comes too early, or
 * with a GPU each that the stand-in driver shows. */
#include "harness/ranks.h"
#include "job/launch/rank_peers.h"
#include "train/loop/stepper_impl.h"

#ifdef WD_STANDIN_GPUS
#include "standin/driver.h"

/* Kernels for GPUs are slow on the host. */
enum { STEPS = 4, MOST_RANKS = 2 };
static const wd_strategy strategy_alone = WD_STRATEGY_gpu;

static void name_devices(char out[64], int ranks, int rank)
{
    (void)ranks;
    snprintf(out, 64, "cuda:%d", rank);
}

static void install_gpus(void)
{
    wd_standin_options options = WD_STANDIN_DEFAULTS;
    options.devices = MOST_RANKS;
    options.seed = 20;
    options.nccl = true;
    wd_standin_install_all(&options);
}

static int remove_gpus(void)
{
    return wd_standin_remove();
}
#else
enum { STEPS = 18, MOST_RANKS = RANKS_MAX };
static const wd_strategy strategy_alone = WD_STRATEGY_cpu;

static void name_devices(char out[64], int ranks, int rank)
{
    (void)rank;
    snprintf(out, 64, "%s", ranks == 1 ? CPU : "sim:1x256MiB@link=200MB/s,compute=20GFLOP/s");
}

static void install_gpus(void) {}

static int remove_gpus(void)
{
    return 0;
}
#endif

enum { STEADY = STEPS / 2 };

static wd_pipeline teacher;

typedef struct demand {
    wd_stepper_options stepper;
    int ranks;
    wd_strategy strategy;
    bool direct; /* gradients go from GPU to GPU by NCCL */
} demand;

typedef struct part {
    rank_thread at;
    const demand *demand;
    float *weights; /* P, EMA; to free */
    int64_t count;
    double loss[STEPS];
} part;

static size_t most_of(const wd_teacher_size *size)
{
    size_t all = 0;
    for (int e = 0; e < size->experts; e++)
        for (int s = 0; s < size->stages; s++) all += size->stage[e][s].device;
    return all / 4 * 3;
}

static wd_placement placement_of(const demand *wanted, const wd_devices *d)
{
    wd_placement p;
    const wd_teacher_size size = size_of(&teacher, wanted->stepper.teacher_dtype);
    wd_cluster cluster = cluster_of(d, wanted->ranks);
    const bool fills = wanted->strategy == WD_STRATEGY_sequential;
    if (fills) cluster.device[0].bytes = most_of(&size); /* not all, so that others have the rest */
    HARNESS_OK(wd_strategy_place(&p, wanted->strategy, &size, &cluster, wanted->ranks > 1, err));
    if (fills) HARNESS_CHECK(wd_placed_computes(&p, 0) && wd_placed_computes(&p, d->count));
    return p;
}

static void take_results(part *p, wd_stepper *m, int leave)
{
    while (wd_stepper_results_pending(m) > leave) {
        const wd_step_result r = wd_stepper_take_result(m);
        p->loss[r.step] = r.loss;
    }
}

static void run_steps(part *p, rank_stepper *r)
{
    int64_t allocs = 0, held = 0;
    for (int64_t step = 0; step < STEPS; step++) {
        HARNESS_OK(wd_stepper_step(r->stepper, &(wd_step){.number = step, .lr = 1e-3}, err));
        take_results(p, r->stepper, 1);
        if (step < STEADY) continue;
        if (step > STEADY)
            HARNESS_CHECK(allocs == device_allocations(r) && held == wd_memory_held());
        allocs = device_allocations(r);
        held = wd_memory_held();
    }
    take_results(p, r->stepper, 0);
}

static void keep_weights(part *p, const wd_stepper *m)
{
    const size_t bytes = (size_t)wd__stepper_params(m)->count * sizeof(float);
    void *to;
    HARNESS_OK(wd_alloc(&to, 2, bytes, "weights", err));
    p->weights = to;
    p->count = wd__stepper_params(m)->count;
    wd_params_collect(wd__stepper_params(m), WD_PARAMS_P, m->queue);
    wd_queue_copy_and_wait(m->queue, p->weights,
                           wd_params_whole(wd__stepper_params(m), WD_PARAMS_P), bytes);
    wd_queue_copy_and_wait(m->queue, p->weights + p->count,
                           wd__stepper_params(m)->buffer[WD_PARAMS_EMA], bytes);
    wd_queue_wait(m->queue);
}

static void open_peers(const part *p, const wd_devices *d)
{
    char why[WD_RANK_PEERS_TEXT];
    wd_comm *comm = p->at.comm;
    if (!p->demand->direct) return;
    HARNESS_OK(wd_rank_peers_open(comm, why, d->device[0], NULL, 0, err));
    HARNESS_CHECK(comm->peers);
}

static void *run_part(void *context)
{
    part *p = context;
    char list[64];
    rank_stepper r;
    wd_stepper_options o = p->demand->stepper;
    o.comm = p->at.comm;
    o.accumulation = MICRO_BATCHES / p->demand->ranks;
    name_devices(list, p->demand->ranks, p->at.comm->rank);
    HARNESS_OK(wd_devices_open(&r.devices, list, 1, err));
    open_peers(p, &r.devices);
    const wd_placement placement = placement_of(p->demand, &r.devices);
    open_stepper(&r, &o, &placement);
    run_steps(p, &r);
    check_peaks(&r);
    keep_weights(p, r.stepper);
    wd_rank_peers_close(p->at.comm);
    close_stepper(&r);
    return NULL;
}

static void assert_same(const part *a, const part *b)
{
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->loss, b->loss, sizeof a->loss);
    assert_memory_equal(a->weights, b->weights, 2 * (size_t)a->count * sizeof(float));
}

/* What one of the ranks has all have. */
static part run(const demand *wanted)
{
    part all[RANKS_MAX];
    for (int r = 0; r < wanted->ranks; r++) all[r] = (part){.demand = wanted};
    run_ranks(all, sizeof *all, wanted->ranks, run_part);
    for (int r = 1; r < wanted->ranks; r++) {
        assert_same(&all[0], &all[r]);
        wd_free(all[r].weights);
    }
    return all[0];
}

static part want;

static wd_stepper_options options_of(void)
{
    wd_stepper_options o = small_stepper(&teacher);
    o.reuse = 1;
    o.batch = 1;
    o.micro_batch = 2;
    o.deterministic_reduce = true;
    return o;
}

/* Chords of two steps, half of them of trajectories that the student leads. */
static wd_stepper_options on_policy(wd_stepper_options o, bool paired)
{
    learn_chords(&o, 2);
    if (paired) pair_trajectories(&o);
    o.trajectory.on_policy_share = 0.5;
    o.trajectory.on_policy_end = 1;
    o.trajectory.on_policy_every = 4;
    return o;
}

static int open_all(void **state)
{
    (void)state;
    wd_err err;
    if (wd_pipeline_open(&teacher, WD_SOURCE_DIR "/models/wan-tiny", &err) != WD_OK) return 1;
    install_gpus();
    want = run(&(demand){options_of(), 1, strategy_alone, false});
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    wd_free(want.weights);
    return remove_gpus();
}

static void check(wd_strategy strategy, bool direct, const part *expected)
{
    for (int ranks = 2; ranks <= MOST_RANKS; ranks *= 2) {
        const part got = run(&(demand){options_of(), ranks, strategy, direct});
        assert_same(&got, expected);
        wd_free(got.weights);
    }
}

/* Each rank makes all steps of on-policy trajectories, also from states that others evaluate. */
static void on_policy_trajectories_change_nothing(void **state)
{
    (void)state;
    static const wd_strategy strategies[] = {WD_STRATEGY_gpu, WD_STRATEGY_balanced};
    for (int paired = 0; paired < 2; paired++) {
        demand wanted = {on_policy(options_of(), paired), 1, strategy_alone, false};
        const part alone = run(&wanted);
        wanted.ranks = 2;
        for (int i = 0; i < 2; i++) {
            wanted.strategy = strategies[i];
            const part got = run(&wanted);
            assert_same(&got, &alone);
            wd_free(got.weights);
        }
        wd_free(alone.weights);
    }
}

#define X(name)                                                                                    \
    static void name##_changes_nothing(void **state)                                               \
    {                                                                                              \
        (void)state;                                                                               \
        check(WD_STRATEGY_##name, false, &want);                                                   \
    }
#ifndef WD_STANDIN_GPUS
X(cpu)
#endif
X(sequential)
X(gpu)
X(gpu0)
X(balanced)
X(offload)
X(disk)
#undef X

#ifdef WD_STANDIN_GPUS
/* What the processor computes has other last bits than what a GPU does. */
static void cpu_changes_nothing(void **state)
{
    (void)state;
    part alone = run(&(demand){options_of(), 1, WD_STRATEGY_cpu, false});
    check(WD_STRATEGY_cpu, false, &alone);
    wd_free(alone.weights);
}

static void nccl_changes_nothing(void **state)
{
    (void)state;
    check(WD_STRATEGY_gpu, true, &want);
    check(WD_STRATEGY_balanced, true, &want);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cpu_changes_nothing),
        cmocka_unit_test(sequential_changes_nothing),
        cmocka_unit_test(gpu_changes_nothing),
        cmocka_unit_test(gpu0_changes_nothing),
        cmocka_unit_test(balanced_changes_nothing),
        cmocka_unit_test(offload_changes_nothing),
        cmocka_unit_test(disk_changes_nothing),
        cmocka_unit_test(on_policy_trajectories_change_nothing),
#ifdef WD_STANDIN_GPUS
        cmocka_unit_test(nccl_changes_nothing),
#endif
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
