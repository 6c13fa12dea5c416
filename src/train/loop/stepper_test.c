/* Tests of the stepper of a step, on wan-tiny with both experts: one stream of samples whatever the
 * window, the threads and the device; memory as planned, none allocated by a steady-state step. */
#include "harness/acquires.h"
#include "harness/stepper.h"
#include "tiny_teacher.h"
#include "train/loop/memory_plan.h"
#include "train/loop/stepper_impl.h"
#include "train/network/init.h"
#include "train/targets/chord.h"

enum { STEPS = 8 };

static wd_stepper_options options_of(const wd_pipeline *pipeline)
{
    wd_stepper_options o = small_stepper(pipeline);
    o.text_repeat = PADDED - TEXT + 1;
    o.batch = 3;
    o.accumulation = 2;
    return o;
}

typedef struct outcome {
    float *weights; /* P, then EMA; to free */
    int64_t count;
    double loss[STEPS], norm[STEPS];
    int64_t steady_allocs; /* of host and device, after the first steps */
    size_t planned, measured;
    int64_t acquires;
    int64_t targets; /* once the first step is launched */
} outcome;

typedef wd_status opener(wd_device **out, int threads, wd_err *err);

/* As fast as it goes. */
static wd_status open_sim(wd_device **out, int threads, wd_err *err)
{
    (void)threads;
    return wd_device_open_sim(out, &(wd_sim_options){.bytes = 1 << 30}, err);
}

/* So slow that whoever does not wait for a copy or a kernel comes too early. */
static wd_status open_slow_sim(wd_device **out, int threads, wd_err *err)
{
    (void)threads;
    const wd_sim_options options = {
        .bytes = 1 << 30, .link_bytes_per_s = 50e6, .flops_per_s = {3e9, 3e9}};
    return wd_device_open_sim(out, &options, err);
}

/* The device for all, by one queue. */
static wd_devices one_device(wd_device *device, wd_queue *queue)
{
    return (wd_devices){.count = 1,
                        .device = {device},
                        .teacher = {queue},
                        .student = queue,
                        .home = queue,
                        .host = queue};
}

/* Lets the stepper go on in its second phase. */
static void enter_second(wd_stepper *m, const wd_stepper_options *run, int64_t step)
{
    wd_err err;
    const wd_stepper_options second =
        wd__stepper_of_phase(run, &(wd_phase_begin){.phase = 1, .step = step}, 0);
    while (wd_stepper_results_pending(m)) wd_stepper_take_result(m);
    wd_test_ok(wd__stepper_enter_phase(m, &second, &err), &err);
}

static void run(outcome *out, const wd_stepper_options *options, opener *open, int threads)
{
    wd_err err;
    wd_device *device;
    wd_queue *queue;
    wd_residency *residency;
    wd_stepper *m = NULL;
    wd_memory_plan plan = {0};
    *out = (outcome){0};
    wd_test_ok(open(&device, threads, &err), &err);
    wd_test_ok(wd_queue_open(&queue, device, &err), &err);
    const int64_t host_before = wd_memory_held();
    const wd_devices devices = one_device(device, queue);
    const wd_placement all = {.experts = wd_teacher_experts(options->teacher),
                              .stages = wd_dit_stages(&options->teacher->dit),
                              .buffers = 2};
    wd_test_ok(
        wd_memory_plan_stepper(&plan, options, &(wd_samples_options){0}, &devices, &all, &err),
        &err);
    wd_test_ok(wd_residency_open_placed(&residency, options->teacher, &all, options->teacher_dtype,
                                        devices.teacher, queue, NULL, &err),
               &err);
    const wd_stepper_teacher where = {residency, &all, devices.teacher, queue};
    const wd_stepper_options first = wd__stepper_of_phase(options, &(wd_phase_begin){0}, 0);
    wd_test_ok(wd_stepper_open(&m, &first, &where, queue, &err), &err);
    wd_test_ok(wd_stepper_begin(m, &err), &err);
    int64_t allocs = 0;
    const int64_t acquires_before = acquires_seen;
    for (int64_t step = 0; step < STEPS; step++) {
        if (step == 1 && options->phases.count) enter_second(m, options, step);
        if (step == 2) allocs = wd__alloc_count() + wd__device_alloc_count(device);
        wd_test_ok(wd_stepper_step(m, &(wd_step){.number = step, .lr = 1e-3}, &err), &err);
        if (step == 0) out->targets = wd__stepper_targets(m);
        while (wd_stepper_results_pending(m) > (step + 1 < STEPS)) {
            wd_step_result r = wd_stepper_take_result(m);
            out->loss[r.step] = r.loss;
            out->norm[r.step] = r.grad_norm;
        }
    }
    out->steady_allocs = wd__alloc_count() + wd__device_alloc_count(device) - allocs;
    for (int i = 0; i < plan.items; i++)
        if (plan.item[i].phase == WD_MEMORY_TRAINING) out->planned += plan.item[i].bytes;
    out->measured = wd_device_bytes(device) + (size_t)(wd_memory_held() - host_before);
    out->acquires = acquires_seen - acquires_before;
    out->count = 2 * wd__stepper_params(m)->count;
    wd_test_ok(wd_alloc((void **)&out->weights, (size_t)out->count, 4, "weights", &err), &err);
    size_t bytes = (size_t)wd__stepper_params(m)->count * 4;
    wd_params_collect(wd__stepper_params(m), WD_PARAMS_P, queue);
    wd_queue_copy_and_wait(queue, out->weights, wd_params_whole(wd__stepper_params(m), WD_PARAMS_P),
                           bytes);
    wd_queue_copy_and_wait(queue, out->weights + wd__stepper_params(m)->count,
                           wd__stepper_params(m)->buffer[WD_PARAMS_EMA], bytes);
    wd_queue_wait(queue);
    wd_stepper_close(m);
    wd_residency_close(residency);
    wd_queue_close(queue);
    assert_int_equal(wd_device_bytes(device), 0);
    wd_device_close(device);
}

static void assert_same(const outcome *a, const outcome *b)
{
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->loss, b->loss, sizeof a->loss);
    assert_memory_equal(a->norm, b->norm, sizeof a->norm);
    assert_memory_equal(a->weights, b->weights, (size_t)a->count * 4);
}

/* A run with `options` on that device is `whole`, bit for bit; it fetches weights more often. */
static void check_one(const outcome *whole, const wd_stepper_options *options, opener *open,
                      int threads, bool fetches_more)
{
    outcome other;
    run(&other, options, open, threads);
    if (fetches_more) assert_true(other.acquires > whole->acquires);
    assert_same(whole, &other);
    wd_free(other.weights);
}

/* Cuts of a round's work: window, micro-batch. */
static const int64_t cuts[][2] = {{1, 1}, {4, 3}};

/* What the student learns: velocities, in fp32; chords, half of them on-policy, in bf16; chords of
 * pairs; chords of pairs that are whole trajectories. */
enum { LEARN_VELOCITIES, LEARN_CHORDS, LEARN_PAIRS, LEARN_WHOLE_PAIRS, KINDS };

static wd_stepper_options cut_options(int kind, int cut)
{
    wd_stepper_options options = options_of(&teacher);
    options.student_dtype = kind == LEARN_VELOCITIES ? WD_F32 : WD_BF16;
    if (kind >= LEARN_PAIRS) pair_trajectories(&options);
    if (kind == LEARN_WHOLE_PAIRS) learn_chords(&options, 1);
    if (kind == LEARN_CHORDS || kind == LEARN_PAIRS) {
        learn_chords(&options, 2);
        options.trajectory.on_policy_share = 0.5;
        options.trajectory.on_policy_end = 1;
        options.trajectory.on_policy_every = 3;
    }
    if (cut < 0) return options;
    options.window = cuts[cut][0];
    options.micro_batch = cuts[cut][1];
    return options;
}

/* The run of that kind on the processor, uncut, which is made once and kept. */
static const outcome *whole_of(int kind)
{
    static outcome whole[KINDS];
    const wd_stepper_options options = cut_options(kind, -1);
    if (!whole[kind].weights) run(&whole[kind], &options, wd_device_open_cpu, 2);
    return &whole[kind];
}

static void window_and_threads_change_nothing(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        wd_stepper_options options = cut_options(kind, -1);
        const outcome *whole = whole_of(kind);
        for (int i = 0; i < STEPS; i++) assert_true(whole->loss[i] > 0 && whole->norm[i] > 0);
        check_one(whole, &options, wd_device_open_cpu, 1, false);
        for (int cut = 0; cut < 2; cut++) {
            options = cut_options(kind, cut);
            check_one(whole, &options, wd_device_open_cpu, 2, true);
        }
    }
}

static void device_changes_nothing(void **state)
{
    (void)state;
    opener *const others[] = {open_sim, open_slow_sim};
    for (int kind = 0; kind < KINDS; kind++) {
        wd_stepper_options options = cut_options(kind, -1);
        const outcome *whole = whole_of(kind);
        for (int i = 0; i < 2; i++) check_one(whole, &options, others[i], 2, false);
        for (int cut = 0; cut < 2; cut++) {
            options = cut_options(kind, cut);
            check_one(whole, &options, open_slow_sim, 2, true);
        }
    }
}

/* The guard device changes the access to all its memory twice for every kernel, which takes a
 * hundred times as long as the kernels: with WD_TEST_GUARDED every kind is tried, else one that has
 * pairs, chords and on-policy blocks. */
static void only_the_device_touches_its_memory(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        if (kind != LEARN_PAIRS && !getenv("WD_TEST_GUARDED")) continue;
        const wd_stepper_options options = cut_options(kind, -1);
        check_one(whole_of(kind), &options, wd_device_open_guard, 2, false);
    }
}

/* Wherever in the ring of targets a round lies: weights that stream come once for it. */
static void a_round_is_one_sweep(void **state)
{
    (void)state;
    wd_pipeline one = teacher;
    one.boundary_ratio = 0;
    wd_stepper_options options = options_of(&one);
    options.replay = 3; /* a ring of three rounds */
    outcome got;
    run(&got, &options, wd_device_open_cpu, 2);
    const int64_t last = (STEPS * options.batch * options.accumulation - 1) / options.reuse;
    int64_t rounds = 0;
    while (wd_trajectory_first_target(&options.trajectory, rounds) <= last) rounds++;
    assert_int_equal(got.acquires, rounds * wd_dit_stages(&one.dit));
    wd_free(got.weights);
}

/* What a step's batches and the next one's need is made, and no more: the rest of a round is made
 * beside the steps that follow. */
static void targets_are_made_a_step_ahead(void **state)
{
    (void)state;
    wd_stepper_options options = options_of(&teacher);
    options.batch = 2; /* four targets for two steps, of rounds that end after two and six */
    options.window = options.micro_batch = 1;
    outcome got;
    run(&got, &options, wd_device_open_cpu, 2);
    const int64_t samples = 2 * wd_stepper_step_samples(&options);
    assert_int_equal(got.targets, wd__stream_target_last(samples, options.reuse) + 1);
    wd_free(got.weights);
}

/* A stepper on a processor that has all of the teacher. */
typedef struct opened {
    wd_device *device;
    wd_queue *queue;
    wd_residency *residency;
    wd_stepper *m;
} opened;

static opened open_stepper(const wd_stepper_options *options)
{
    wd_err err;
    opened o = {0};
    wd_test_ok(wd_device_open_cpu(&o.device, 2, &err), &err);
    wd_test_ok(wd_queue_open(&o.queue, o.device, &err), &err);
    const wd_placement all = {.experts = wd_teacher_experts(&teacher),
                              .stages = wd_dit_stages(&teacher.dit),
                              .buffers = 2};
    wd_test_ok(wd_residency_open_placed(&o.residency, &teacher, &all, options->teacher_dtype,
                                        &o.queue, o.queue, NULL, &err),
               &err);
    const wd_stepper_teacher where = {o.residency, &all, &o.queue, o.queue};
    wd_test_ok(wd_stepper_open(&o.m, options, &where, o.queue, &err), &err);
    return o;
}

static void close_stepper(opened *o)
{
    wd_stepper_close(o->m);
    wd_residency_close(o->residency);
    wd_queue_close(o->queue);
    wd_device_close(o->device);
}

/* Chords lead from one block's begin to the next one's, which is where the teacher's steps lead. */
static void chords_lead_from_block_to_block(void **state)
{
    (void)state;
    enum { CHORDS = 60, COUNT = 16 * LATENT * LATENT };
    wd_err err;
    static float latents[CHORDS][COUNT], chord[CHORDS][COUNT];
    int compared = 0;
    wd_stepper_options options = options_of(&teacher);
    learn_chords(&options, 2);
    options.reuse = options.batch = options.accumulation = 1;
    const wd_trajectory_options *t = &options.trajectory;
    opened o = open_stepper(&options);
    for (int64_t i = 0; i < CHORDS; i++) {
        wd_batch batch;
        wd_test_ok(wd_source_prepare(o.m->source, i + 1, &err), &err);
        wd_source_fill(o.m->source, &batch, i, 1);
        wd_queue_copy_and_wait(o.queue, latents[i], batch.latents, sizeof latents[i]);
        wd_queue_copy_and_wait(o.queue, chord[i], batch.target, sizeof chord[i]);
    }
    for (int64_t i = 0; i < CHORDS; i++) {
        const wd_chord from = wd__chord_at(t, i);
        const wd_target_info begin = wd__trajectory_target(t, from.target[0]);
        for (int64_t k = i + 1; k < CHORDS; k++) {
            const wd_target_info next = wd__trajectory_target(t, wd__chord_at(t, k).target[0]);
            if (next.serial != begin.serial) continue;
            for (int j = 0; j < COUNT; j++)
                assert_float_equal(latents[k][j],
                                   latents[i][j] + (next.sigma - begin.sigma) * chord[i][j], 1e-4);
            compared++;
        }
    }
    assert_true(compared > CHORDS / 3);
    close_stepper(&o);
}

/* A checkpoint whose number of rounds or first step of the phase is not that of its steps is
 * refused: its targets are not those that the next samples need. */
static void a_damaged_round_is_refused(void **state)
{
    (void)state;
    enum { SAVED = 3 };
    wd_err err;
    char path[WD_PATH_MAX];
    wd_checkpoint_tensors tensors;
    json_t *run;
    const wd_stepper_options options = options_of(&teacher);
    opened o = open_stepper(&options);
    wd_test_ok(wd_stepper_begin(o.m, &err), &err);
    for (int64_t step = 0; step < SAVED; step++) {
        const bool pauses = step + 1 == SAVED;
        wd_test_ok(
            wd_stepper_step(o.m, &(wd_step){.number = step, .lr = 1e-3, .pauses = pauses}, &err),
            &err);
        wd_stepper_take_result(o.m);
    }
    wd_test_ok(wd__stepper_save(o.m, &run, &tensors, &err), &err);
    json_t *stream = json_object_get(run, "stream");
    const json_int_t round = json_integer_value(json_object_get(stream, "round"));
    const json_int_t rounds[] = {round, 0, round - 1, round + 3, (json_int_t)1 << 40};
    for (int i = 0; i < 5; i++) {
        wd_checkpoint checkpoint;
        json_object_set_new(stream, "round", json_integer(rounds[i]));
        wd_test_ok(wd_checkpoint_write(wd_test_folder(), SAVED, &tensors, run, o.queue, &err),
                   &err);
        wd_test_ok(wd_path_join(path, wd_test_folder(), "step-00000003", &err), &err);
        wd_test_ok(wd_checkpoint_open(&checkpoint, path, &err), &err);
        opened again = open_stepper(&options);
        const wd_status status = wd__stepper_load(again.m, &checkpoint, &err);
        assert_int_equal(status, i ? WD_BAD_FORMAT : WD_OK);
        if (i) assert_non_null(strstr(err.message, "it is damaged"));
        close_stepper(&again);
        wd_checkpoint_close(&checkpoint);
    }
    json_decref(run);
    close_stepper(&o);
}

static void checkpointing_changes_nothing(void **state)
{
    (void)state;
    wd_stepper_options options = options_of(&teacher);
    outcome plain, checkpointed;
    run(&plain, &options, wd_device_open_cpu, 2);
    options.checkpointing = true;
    run(&checkpointed, &options, wd_device_open_cpu, 2);
    assert_same(&plain, &checkpointed);
    assert_true(checkpointed.measured < plain.measured);
    wd_free(plain.weights);
    wd_free(checkpointed.weights);
}

/* Velocities for two steps, and then chords. */
static const wd_phases chords_follow = {
    .phase = {{&wd_recipe_velocity, 2, 0.5}, {&wd_recipe_chord, 4, 0.5}}, .count = 2};

static void memory_is_planned_and_steady(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        wd_stepper_options options = options_of(&teacher);
        options.student_dtype = i & 1 ? WD_BF16 : WD_F32;
        options.checkpointing = i & 2;
        options.teacher_dtype = i & 2 ? WD_F16 : WD_BF16;
        if (i & 3) learn_chords(&options, 2);
        if (i & 2) pair_trajectories(&options);
        options.trajectory.on_policy_share = i % 4 ? 0.5 : 0;
        options.trajectory.on_policy_end = 1;
        options.trajectory.on_policy_every = 1;
        if (i & 1) options.phases = chords_follow;
        outcome o;
        run(&o, &options, i & 4 ? open_sim : wd_device_open_cpu, 2);
        assert_int_equal(o.planned, o.measured);
        assert_int_equal(o.steady_allocs, 0);
        wd_free(o.weights);
    }
}

/* Of two ranks, what they have while a checkpoint is written, beyond training. */
static void one_rank_writes(void **state)
{
    (void)state;
    wd_err err;
    wd_device *device;
    wd_queue *queue;
    wd_stepper_options options = options_of(&teacher);
    wd_test_ok(wd_device_open_cpu(&device, 1, &err), &err);
    wd_test_ok(wd_queue_open(&queue, device, &err), &err);
    const wd_devices devices = one_device(device, queue);
    for (int r = 0; r < 2; r++) {
        size_t saving = 0;
        wd_memory_plan plan = {0};
        wd_comm comm = {.rank = r, .ranks = 2, .hosts = 1, .host_rank = r, .host_ranks = 2};
        options.comm = &comm;
        wd_test_ok(
            wd_memory_plan_stepper(&plan, &options, &(wd_samples_options){0}, &devices, NULL, &err),
            &err);
        for (int i = 0; i < plan.items; i++)
            if (plan.item[i].phase == WD_MEMORY_SAVING) saving += plan.item[i].bytes;
        if (r)
            assert_int_equal(saving, 0);
        else
            assert_in_range(saving, 2 << 20, 3 << 20);
    }
    wd_queue_close(queue);
    wd_device_close(device);
}

static void near(const double a[STEPS], const double b[STEPS], double tolerance)
{
    for (int i = 0; i < STEPS; i++)
        if (!(fabs(a[i] - b[i]) <= tolerance * fabs(b[i])))
            fail_msg("step %d: %.9g, but %.9g with all padding", i, a[i], b[i]);
}

/* One row of padding that stands for all gives what all of it gives, but for rounding. */
static void padding_costs_nothing(void **state)
{
    (void)state;
    wd_stepper_options options = options_of(&teacher);
    options.teacher_dtype = WD_F32;
    outcome trimmed, padded;
    run(&trimmed, &options, wd_device_open_cpu, 2);
    options.text_tokens = PADDED;
    options.text_repeat = 1;
    options.text_context = &padded;
    run(&padded, &options, wd_device_open_cpu, 2);
    near(trimmed.loss, padded.loss, 1e-5);
    near(trimmed.norm, padded.norm, 1e-4);
    assert_true(trimmed.measured < padded.measured);
    wd_free(trimmed.weights);
    wd_free(padded.weights);
}

static void seed_changes_the_run(void **state)
{
    (void)state;
    wd_stepper_options options = options_of(&teacher);
    outcome a, b;
    run(&a, &options, wd_device_open_cpu, 2);
    options.trajectory.seed++;
    run(&b, &options, wd_device_open_cpu, 2);
    assert_memory_not_equal(a.weights, b.weights, (size_t)a.count * 4);
    wd_free(a.weights);
    wd_free(b.weights);
}

/* Launched behind the first micro-batch of the step before, which is up to four ahead of the
 * device. Of two ranks' eight buckets of gradients two may be on their way when the launch goes on:
 * a quarter of backward is left. */
static void how_far_ahead(void **state)
{
    (void)state;
    wd_comm comm = {.ranks = 2, .hosts = 1, .host_ranks = 2};
    wd_stepper_options o = {.accumulation = 1};
    assert_true(wd_stepper_steps_ahead(&o, 1 << 20) == 2);
    o.accumulation = 16;
    assert_true(wd_stepper_steps_ahead(&o, 1 << 20) == 1.25);
    o.place = WD_STATE_ON_HOST; /* the launch waits for the update */
    assert_true(wd_stepper_steps_ahead(&o, 1 << 20) == 1);
    o.place = WD_STATE_ON_DEVICE;
    o.accumulation = 4;
    assert_true(wd_stepper_steps_ahead(&o, 1 << 20) == 2);
    o.comm = &comm;
    assert_true(wd_stepper_steps_ahead(&o, 1 << 20) == 1);
    o.accumulation = 1;
    assert_true(fabs(wd_stepper_steps_ahead(&o, 1 << 20) - 2.0 / 3 / 4) < 1e-12);
    o.accumulation = 4;
    o.deterministic_reduce = true;
    assert_true(fabs(wd_stepper_steps_ahead(&o, 1 << 20) - (3 + 2.0 / 3 / 4) / 4) < 1e-12);
}

/* With WD_CPU_ISA: only what the instruction set could change. With WD_TEST_GUARDED: only what the
 * guard device sees. */
int main(void)
{
    const struct CMUnitTest numbers[] = {
        cmocka_unit_test(window_and_threads_change_nothing),
        cmocka_unit_test(chords_lead_from_block_to_block),
        cmocka_unit_test(checkpointing_changes_nothing),
        cmocka_unit_test(padding_costs_nothing),
    };
    const struct CMUnitTest others[] = {
        cmocka_unit_test(how_far_ahead),
        cmocka_unit_test(device_changes_nothing),
        cmocka_unit_test(only_the_device_touches_its_memory),
        cmocka_unit_test(a_round_is_one_sweep),
        cmocka_unit_test(a_damaged_round_is_refused),
        cmocka_unit_test(targets_are_made_a_step_ahead),
        cmocka_unit_test(memory_is_planned_and_steady),
        cmocka_unit_test(one_rank_writes),
        cmocka_unit_test(seed_changes_the_run),
    };
    const struct CMUnitTest guarded[] = {
        cmocka_unit_test(only_the_device_touches_its_memory),
    };
    if (getenv("WD_TEST_GUARDED")) return cmocka_run_group_tests(guarded, open_teacher, NULL);
    int failed = cmocka_run_group_tests(numbers, open_teacher, NULL);
    if (!getenv("WD_CPU_ISA")) failed += cmocka_run_group_tests(others, NULL, NULL);
    return failed;
}
