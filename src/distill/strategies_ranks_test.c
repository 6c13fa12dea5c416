/* One seed, one student: wherever the teacher lives, shared by however many ranks. Under
 * deterministic_reduce its weights, losses and EMA are those of one rank, bit for bit; pools peak
 * where the plan says, and no step allocates. On wan-tiny, both experts, after three passes of its
 * trajectories; ranks are threads, on devices so slow that who does not wait comes too early. */
#include "core/memory.h"
#include "distill/plan.h"
#include "distill/ranks_harness.h"
#include "student/init.h"
#include "teacher/strategy.h"
#include "teacher/teacher_size.h"

enum { STEPS = 18, STEADY = STEPS / 2 };

static const char *const slow = "sim:1x256MiB@link=200MB/s,compute=20GFLOP/s";

static wd_pipeline teacher;

typedef struct demand {
    wd_machine_options machine;
    const char *devices;
    int ranks;
    wd_strategy strategy;
} demand;

typedef struct part {
    pthread_t thread;
    wd_comm *comm;
    const demand *of;
    float *weights; /* P, EMA; to free */
    int64_t count;
    double loss[STEPS];
} part;

static wd_placement placement_of(const demand *of, const wd_devices *d)
{
    wd_teacher_size size;
    wd_placement p;
    const wd_teacher_files files[2] = {{.dtype = WD_F32}, {.dtype = WD_F32}};
    wd_site site = {
        .ranks = of->ranks, .devices = d->count, .host_bytes = SIZE_MAX, .batches = 6};
    for (int i = 0; i < d->count; i++)
        site.device[i] = (wd_site_device){
            .bytes = SIZE_MAX / 2, .flops_per_s = 1, .reads_host = i == d->processor};
    HARNESS_CHECK(wd_teacher_size_of(&size, &teacher.dit, 2, files, of->machine.teacher_dtype,
                                     NULL) == WD_OK);
    for (int s = 0; s < size.stages; s++) size.flops[s] = 1;
    HARNESS_CHECK(
        wd_strategy_place(&p, of->strategy, &size, &site, of->ranks > 1, NULL) == WD_OK);
    return p;
}

static int64_t allocations(const wd_devices *d)
{
    int64_t n = 0;
    for (int i = 0; i < d->count; i++) n += wd_device_alloc_count(d->device[i]);
    return n;
}

static void take_results(part *p, wd_machine *m, int leave)
{
    while (wd_machine_results_pending(m) > leave) {
        const wd_step_result r = wd_machine_take_result(m);
        p->loss[r.step] = r.loss;
    }
}

static void run_steps(part *p, wd_machine *m, const wd_devices *d)
{
    int64_t allocs = 0, held = 0;
    for (int64_t step = 0; step < STEPS; step++) {
        HARNESS_CHECK(wd_machine_step(m, step, 1e-3, NULL) == WD_OK);
        take_results(p, m, 1);
        if (step < STEADY) continue;
        if (step > STEADY) HARNESS_CHECK(allocs == allocations(d) && held == wd_memory_held());
        allocs = allocations(d);
        held = wd_memory_held();
    }
    take_results(p, m, 0);
}

static void keep_weights(part *p, const wd_machine *m)
{
    const size_t bytes = (size_t)m->params.count * sizeof(float);
    void *to;
    HARNESS_CHECK(wd_alloc(&to, 2, bytes, "weights", NULL) == WD_OK);
    p->weights = to;
    p->count = m->params.count;
    wd_queue_copy(m->queue, p->weights, m->params.buffer[WD_PARAMS_P], bytes);
    wd_queue_copy(m->queue, p->weights + p->count, m->params.buffer[WD_PARAMS_EMA], bytes);
    wd_queue_wait(m->queue);
}

static void *run_part(void *context)
{
    part *p = context;
    wd_devices d;
    wd_residency *residency;
    wd_machine m;
    wd_memory_plan plan = {0};
    wd_machine_options o = p->of->machine;
    o.comm = p->comm;
    o.accumulation = MICRO_BATCHES / p->of->ranks;
    HARNESS_CHECK(wd_devices_open(&d, p->of->devices, 1, NULL) == WD_OK);
    const wd_placement placement = placement_of(p->of, &d);
    HARNESS_CHECK(wd_plan_machine(&plan, &o, &(wd_samples_options){0}, &d, &placement, NULL) ==
                  WD_OK);
    HARNESS_CHECK(wd_residency_open_placed(&residency, &teacher, &placement, o.teacher_dtype,
                                           d.teacher, d.host, o.comm, NULL) == WD_OK);
    const wd_machine_teacher where = {residency, &placement, d.teacher, d.home};
    HARNESS_CHECK(wd_machine_open(&m, &o, &where, d.student, NULL) == WD_OK);
    HARNESS_CHECK(wd_student_init(&m.params, &teacher, wd_student_expert(&teacher), NULL,
                                  d.student, NULL) == WD_OK);
    wd_optimizer_start_ema(&m.optimizer, d.student);
    run_steps(p, &m, &d);
    for (int i = 0; i < d.count; i++)
        if (i != d.processor)
            HARNESS_CHECK(wd_device_bytes_peak(d.device[i]) == wd_plan_peak(&plan, i));
    keep_weights(p, &m);
    wd_machine_close(&m);
    wd_residency_close(residency);
    close_devices(&d);
    wd_comm_close(p->comm);
    return NULL;
}

static void assert_same(const part *a, const part *b)
{
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->loss, b->loss, sizeof a->loss);
    assert_memory_equal(a->weights, b->weights, 2 * (size_t)a->count * sizeof(float));
}

/* What one of the ranks has all have. */
static part run(const demand *of)
{
    wd_err err = {0};
    wd_comm *comm[RANKS_MAX];
    part all[RANKS_MAX];
    wd_test_ok(wd_comm_open_threads(comm, of->ranks, &err), &err);
    for (int r = 0; r < of->ranks; r++) {
        all[r] = (part){.comm = comm[r], .of = of};
        assert_int_equal(pthread_create(&all[r].thread, NULL, run_part, &all[r]), 0);
    }
    for (int r = 0; r < of->ranks; r++) pthread_join(all[r].thread, NULL);
    for (int r = 1; r < of->ranks; r++) {
        assert_same(&all[0], &all[r]);
        wd_free(all[r].weights);
    }
    return all[0];
}

static part want;

static wd_machine_options options_of(void)
{
    wd_machine_options o = small_machine(&teacher);
    o.reuse = 1;
    o.batch = 1;
    o.micro_batch = 2;
    o.deterministic_reduce = true;
    return o;
}

static int open_all(void **state)
{
    (void)state;
    wd_err err;
    if (wd_pipeline_open(&teacher, WD_SOURCE_DIR "/models/wan-tiny", &err) != WD_OK) return 1;
    want = run(&(demand){options_of(), CPU, 1, WD_STRATEGY_cpu});
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    wd_free(want.weights);
    return 0;
}

static void check(wd_strategy strategy)
{
    for (int ranks = 2; ranks <= RANKS_MAX; ranks *= 2) {
        const part got = run(&(demand){options_of(), slow, ranks, strategy});
        assert_same(&got, &want);
        wd_free(got.weights);
    }
}

#define X(name)                                                                                    \
    static void name##_changes_nothing(void **state)                                               \
    {                                                                                              \
        (void)state;                                                                               \
        check(WD_STRATEGY_##name);                                                                 \
    }
X(cpu)
X(gpu)
X(gpu0)
X(balanced)
X(sequential)
X(offload)
X(disk)
#undef X

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cpu_changes_nothing),        cmocka_unit_test(gpu_changes_nothing),
        cmocka_unit_test(gpu0_changes_nothing),       cmocka_unit_test(balanced_changes_nothing),
        cmocka_unit_test(sequential_changes_nothing), cmocka_unit_test(offload_changes_nothing),
        cmocka_unit_test(disk_changes_nothing),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
