/* Many ranks, one student: the same samples in each step, gradients added in the order that is
 * documented. On wan-tiny; ranks are threads of this process, each with its own device. */
#include "distill/plan.h"
#include "distill/ranks_harness.h"
#include "student/init.h"

enum { STEPS = 4, KEPT = 4 };

/* What a rank ends with. */
typedef struct outcome {
    float *kept; /* P, M, V, EMA; to free */
    int64_t count;
    double loss[STEPS], norm[STEPS];
    int64_t sent; /* on the lane of gradients */
    int64_t share;
} outcome;

typedef struct part {
    pthread_t thread;
    wd_comm *comm;
    const wd_machine_options *options;
    opener *open;
    outcome out;
} part;

static wd_pipeline teacher;

static void keep(outcome *out, const wd_machine *m)
{
    static const wd_params_buffer kept[KEPT] = {WD_PARAMS_P, WD_PARAMS_M, WD_PARAMS_V,
                                                WD_PARAMS_EMA};
    void *to;
    out->count = m->params.count;
    HARNESS_CHECK(wd_alloc(&to, KEPT * (size_t)out->count, sizeof(float), "kept", NULL) == WD_OK);
    out->kept = to;
    for (int i = 0; i < KEPT; i++)
        wd_queue_copy(m->queue, out->kept + i * out->count, m->params.buffer[kept[i]],
                      (size_t)out->count * sizeof(float));
    wd_queue_wait(m->queue);
}

static void take_results(outcome *out, wd_machine *m, int leave)
{
    while (wd_machine_results_pending(m) > leave) {
        const wd_step_result r = wd_machine_take_result(m);
        out->loss[r.step] = r.loss;
        out->norm[r.step] = r.grad_norm;
    }
}

/* One rank's run; its memory is as planned, and no step but the first allocates. */
static void *run_part(void *context)
{
    part *p = context;
    wd_device *device;
    wd_queue *queue;
    wd_residency *residency;
    wd_machine m;
    wd_memory_plan plan = {0};
    size_t planned = 0;
    wd_machine_options o = *p->options;
    o.comm = p->comm;
    HARNESS_CHECK(p->open(&device, p->comm->rank, NULL) == WD_OK);
    HARNESS_CHECK(wd_queue_open(&queue, device, NULL) == WD_OK);
    const int64_t host_before = wd_memory_held();
    const wd_devices devices = {.count = 1,
                                .device = {device},
                                .teacher = {queue},
                                .student = queue,
                                .home = queue,
                                .host = queue};
    const wd_placement all = {.experts = wd_teacher_experts(o.teacher),
                              .stages = wd_dit_stages(&o.teacher->dit),
                              .slots = 2};
    HARNESS_CHECK(wd_plan_machine(&plan, &o, &(wd_samples_options){0}, &devices, &all, NULL) ==
                  WD_OK);
    HARNESS_CHECK(wd_residency_open_placed(&residency, o.teacher, &all, o.teacher_dtype,
                                           devices.teacher, queue, o.comm, NULL) == WD_OK);
    const wd_machine_teacher where = {residency, &all, devices.teacher, queue};
    HARNESS_CHECK(wd_machine_open(&m, &o, &where, queue, NULL) == WD_OK);
    HARNESS_CHECK(wd_student_init(&m.params, o.teacher, wd_student_expert(o.teacher), NULL, queue,
                                  NULL) == WD_OK);
    wd_optimizer_start_ema(&m.optimizer, queue);
    int64_t held = 0, allocs = 0;
    for (int64_t step = 0; step < STEPS; step++) {
        HARNESS_CHECK(wd_machine_step(&m, step, 1e-3, NULL) == WD_OK);
        take_results(&p->out, &m, 1);
        if (step) HARNESS_CHECK(held == wd_memory_held());
        if (step) HARNESS_CHECK(allocs == wd_device_alloc_count(device));
        held = wd_memory_held();
        allocs = wd_device_alloc_count(device);
    }
    take_results(&p->out, &m, 0);
    for (int i = 0; i < plan.items; i++)
        if (plan.item[i].phase == WD_PLAN_TRAINING) planned += plan.item[i].bytes;
    HARNESS_CHECK(planned == wd_device_bytes(device) + (size_t)(wd_memory_held() - host_before));
    p->out.sent = p->comm->sent[WD_LANE_GRADIENTS];
    if (m.reduce) p->out.share = wd_pieces_share(wd_reduce_pieces(m.reduce), p->comm->rank);
    keep(&p->out, &m);
    wd_machine_close(&m);
    wd_residency_close(residency);
    wd_queue_close(queue);
    HARNESS_CHECK(wd_device_bytes(device) == 0);
    wd_device_close(device);
    wd_comm_close(p->comm);
    return NULL;
}

static void assert_same(const outcome *a, const outcome *b)
{
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->loss, b->loss, sizeof a->loss);
    assert_memory_equal(a->norm, b->norm, sizeof a->norm);
    assert_memory_equal(a->kept, b->kept, KEPT * (size_t)a->count * sizeof(float));
}

static void check_sent(const outcome *o, const wd_machine_options *options, int ranks)
{
    const int64_t exchanged = options->deterministic_reduce ? options->accumulation : 1;
    assert_int_equal(o->sent,
                     STEPS * (4 * exchanged * (o->count - o->share) + 4 * (ranks - 1) * o->share));
}

/* The same run by `ranks`; what one of them has all have. */
static outcome run(const wd_machine_options *options, int ranks, opener *open)
{
    wd_err err = {0};
    wd_comm *comm[RANKS_MAX];
    part all[RANKS_MAX] = {0};
    wd_machine_options o = *options;
    o.accumulation = MICRO_BATCHES / ranks;
    wd_test_ok(wd_comm_open_threads(comm, ranks, &err), &err);
    for (int r = 0; r < ranks; r++) {
        all[r].comm = comm[r];
        all[r].options = &o;
        all[r].open = open;
        assert_int_equal(pthread_create(&all[r].thread, NULL, run_part, &all[r]), 0);
    }
    for (int r = 0; r < ranks; r++) pthread_join(all[r].thread, NULL);
    for (int r = 0; r < ranks; r++) {
        if (ranks > 1) check_sent(&all[r].out, &o, ranks);
        if (!r) continue;
        assert_same(&all[0].out, &all[r].out);
        wd_free(all[r].out.kept);
    }
    for (int i = 0; i < STEPS; i++) assert_true(all[0].out.loss[i] > 0 && all[0].out.norm[i] > 0);
    return all[0].out;
}

static int open_teacher(void **state)
{
    (void)state;
    wd_err err;
    return wd_pipeline_open(&teacher, WD_SOURCE_DIR "/models/wan-tiny", &err) != WD_OK;
}

/* Under deterministic_reduce 1, 2 and 4 ranks are the same to the bit. */
static void ranks_change_nothing(wd_dtype dtype)
{
    opener *const open[] = {open_cpu, open_sim, open_slow_sim};
    wd_machine_options options = options_of(&teacher);
    options.student_dtype = dtype;
    options.deterministic_reduce = true;
    outcome one = run(&options, 1, open_cpu);
    for (int i = 0; i < 3; i++)
        for (int ranks = 1; ranks <= RANKS_MAX; ranks *= 2) {
            outcome other = run(&options, ranks, open[i]);
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
    const wd_machine_options options = options_of(&teacher);
    outcome one = run(&options, 1, open_cpu);
    for (int ranks = 2; ranks <= RANKS_MAX; ranks *= 2) {
        outcome first = run(&options, ranks, open_cpu), again = run(&options, ranks, open_slow_sim);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_change_nothing_f32),
        cmocka_unit_test(ranks_change_nothing_bf16),
        cmocka_unit_test(ranks_change_little),
    };
    return cmocka_run_group_tests(tests, open_teacher, NULL);
}
