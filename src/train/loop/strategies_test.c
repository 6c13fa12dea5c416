/* One seed, one student: wherever the teacher lives, on however many devices, in whatever window
 * and micro-batches, read however far ahead. On wan-tiny, both experts, after three passes of its
 * trajectories. */
#include "harness/stepper.h"

#include "teacher/plan/stage_layout.h"
#include "teacher/plan/strategy.h"
#include "tiny_teacher.h"
#include "train/loop/memory_plan.h"
#include "train/network/init.h"

#ifdef WD_STANDIN_GPUS
enum { PASSES = 1, WAYS = 1, THREADS = 1 }; /* kernels for GPUs are slow on the host */
#else
enum { PASSES = 3, WAYS = 2, THREADS = 2 };
#endif
enum { SLOTS = 6, TRAJECTORY = 3, STEPS = PASSES * TRAJECTORY * SLOTS / 3 };

static wd_stepper_options options_of(const wd_pipeline *pipeline)
{
    wd_stepper_options o = small_stepper(pipeline);
    o.trajectory.steps = TRAJECTORY;
    o.reuse = 1;
    o.batch = 3;
    return o;
}

/* ---- what is tested: simulated devices, or GPUs that the stand-in driver shows ---- */

#ifdef WD_STANDIN_GPUS
#include "standin/driver.h"

static const char *const lists[WAYS] = {"cuda:0,1"};
static const char alone[] = "cuda:0";
static const wd_strategy strategy_alone = WD_STRATEGY_gpu, first = WD_STRATEGY_gpu;
static const bool has_three = false; /* devices */

static int open_gpus(void **state)
{
    wd_standin_options options = WD_STANDIN_DEFAULTS;
    options.devices = 4;
    options.seed = 20;
    wd_standin_install_all(&options);
    return open_teacher(state);
}

static int close_gpus(void **state)
{
    (void)state;
    return wd_standin_remove();
}

/* Of a GPU's driver: allocations, and copies that the host waits for. */
static int64_t driver_stops(void)
{
    const wd_standin_counts c = wd_standin_count();
    return c.allocations + c.host_allocations + c.synchronous_copies;
}
#else
static const char *const lists[WAYS] = {"sim:3x256MiB", "sim:4x256MiB@link=200MB/s"};
static const char alone[] = "cpu";
static const wd_strategy strategy_alone = WD_STRATEGY_cpu, first = WD_STRATEGY_cpu;
static const bool has_three = true;

static int64_t driver_stops(void)
{
    return 0;
}
#endif

/* ---- a stepper with devices ---- */

typedef struct rig {
    wd_devices devices;
    wd_cluster cluster;
} rig;

/* `list`: as --devices says it. */
static void open_rig(rig *r, const char *list)
{
    wd_err err;
    wd_test_ok(wd_devices_open(&r->devices, list, THREADS, &err), &err);
    r->cluster = (wd_cluster){.devices = r->devices.count,
                              .host_bytes = SIZE_MAX,
                              .disk_bytes_per_s = 1e9,
                              .batches = SLOTS};
    for (int d = 0; d < r->devices.count; d++)
        r->cluster.device[d] = (wd_cluster_device){.bytes = SIZE_MAX / 2,
                                                   .flops_per_s = {1e9, 1e9},
                                                   .link_bytes_per_s = 1e9,
                                                   .reads_host = d == r->devices.processor};
}

/* Of a queue that the teacher does not use. */
static size_t student_workspace(const wd_devices *d)
{
    return d->student == d->teacher[0] ? 0 : wd_queue_workspace_bytes(d->student);
}

static void close_rig(rig *r)
{
    for (int d = 0; d < r->devices.count; d++)
        assert_int_equal(wd_device_bytes(r->devices.device[d]) -
                             wd_queue_workspace_bytes(r->devices.teacher[d]) -
                             (d ? 0 : student_workspace(&r->devices)),
                         0);
    wd_devices_close(&r->devices);
}

/* ---- runs ---- */

typedef struct outcome {
    float *weights; /* P, then EMA; to free */
    int64_t count;
    double loss[STEPS];
} outcome;

/* Every pool's peak is the planned one, whatever else was in it before. */
static void check_peaks(const wd_memory_plan *plan, const wd_devices *devices)
{
    for (int d = 0; d < devices->count; d++)
        if (d != devices->processor)
            assert_int_equal(wd_device_bytes_peak(devices->device[d]),
                             wd_memory_plan_peak(plan, d));
}

/* Allocations so far, of host and devices, and copies that GPUs' hosts waited for. */
static int64_t allocations(const wd_devices *devices)
{
    int64_t n = wd__alloc_count() + driver_stops();
    for (int d = 0; d < devices->count; d++) n += wd__device_alloc_count(devices->device[d]);
    return n;
}

/* On devices of its own, so that peaks are of this run. */
static void run(outcome *out, const wd_stepper_options *options, const char *list,
                const wd_placement *p)
{
    rig r;
    wd_err err;
    wd_stepper *m = NULL;
    wd_memory_plan plan = {0};
    wd_residency *residency;
    *out = (outcome){0};
    open_rig(&r, list);
    wd_queue *student = r.devices.student;
    wd_test_ok(
        wd_memory_plan_stepper(&plan, options, &(wd_samples_options){0}, &r.devices, p, &err),
        &err);
    wd_test_ok(wd_residency_open_placed(&residency, options->teacher, p, options->teacher_dtype,
                                        r.devices.teacher, r.devices.host, NULL, &err),
               &err);
    const wd_stepper_teacher where = {residency, p, r.devices.teacher, r.devices.home};
    wd_test_ok(wd_stepper_open(&m, options, &where, student, &err), &err);
    wd_test_ok(wd_stepper_begin(m, &err), &err);
    int64_t allocs = 0;
    for (int64_t step = 0; step < STEPS; step++) {
        if (step == STEPS / 2) allocs = allocations(&r.devices);
        wd_test_ok(wd_stepper_step(m, &(wd_step){.number = step, .lr = 1e-3}, &err), &err);
        while (wd_stepper_results_pending(m) > (step + 1 < STEPS)) {
            wd_step_result result = wd_stepper_take_result(m);
            out->loss[result.step] = result.loss;
        }
    }
    assert_int_equal(allocations(&r.devices), allocs); /* a steady-state step makes none */
    check_peaks(&plan, &r.devices);
    wd_params *params = wd__stepper_params(m);
    static const wd_params_buffer read[] = {WD_PARAMS_P, WD_PARAMS_EMA};
    out->count = 2 * params->count;
    wd_test_ok(wd_alloc((void **)&out->weights, (size_t)out->count, 4, "weights", &err), &err);
    for (int i = 0; i < 2; i++) {
        wd_params_collect(params, read[i], student);
        wd_queue_copy_and_wait(student, out->weights + i * params->count,
                               wd_params_whole(params, read[i]), (size_t)params->count * 4);
    }
    wd_queue_wait(student);
    wd_stepper_close(m);
    wd_residency_close(residency);
    close_rig(&r);
}

static void assert_same(outcome *a, const outcome *b)
{
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->loss, b->loss, sizeof a->loss);
    assert_memory_equal(a->weights, b->weights, (size_t)a->count * 4);
    wd_free(a->weights);
}

static wd_teacher_size size_of(wd_dtype storage)
{
    wd_err err;
    wd_teacher_size size;
    const wd_teacher_files files[2] = {{.dtype = WD_F32}, {.dtype = WD_F32}};
    wd_test_ok(wd_teacher_size_of(&size, &teacher.dit, 2, files, storage, &err), &err);
    for (int s = 0; s < size.stages; s++) size.flops[s] = 1;
    return size;
}

static wd_placement placed(wd_strategy strategy, const wd_teacher_size *size, const char *list)
{
    rig r;
    wd_err err;
    wd_placement p;
    open_rig(&r, list);
    wd_test_ok(wd_strategy_place(&p, strategy, size, &r.cluster, 0, &err), &err);
    close_rig(&r);
    return p;
}

/* The student that the processor or one GPU makes alone, everything in one window. */
static outcome expected(wd_stepper_options options)
{
    outcome out;
    const wd_teacher_size size = size_of(options.teacher_dtype);
    const wd_placement p = placed(strategy_alone, &size, alone);
    options.window = options.micro_batch = SLOTS;
    run(&out, &options, alone, &p);
    for (int i = 0; i < STEPS; i++) assert_true(out.loss[i] > 0);
    return out;
}

/* A placement with all of it: three devices, host memory and disk on two, experts apart. */
static wd_placement mixed(const wd_teacher_size *size)
{
    static const wd_stage_placement places[] = {
        {WD_HOME_DEVICE, 2}, {WD_HOME_HOST, 0},   {WD_HOME_DISK, 1}, {WD_HOME_DEVICE, 1},
        {WD_HOME_DISK, 0},   {WD_HOME_DEVICE, 0}, {WD_HOME_HOST, 0}};
    const wd_cluster cluster = {.devices = 3};
    wd_placement p = wd_placement_begin(size, &cluster);
    for (int e = 0; e < 2; e++)
        for (int s = 0; s < p.stages; s++) p.place[e][s] = places[(size_t)(s + 3 * e) % 7];
    return p;
}

static void check_strategies(wd_dtype storage)
{
    static const int64_t cut[][2] = {{SLOTS, 2}, {4, 1}};
    wd_stepper_options options = options_of(&teacher);
    options.teacher_dtype = storage;
    outcome want = expected(options), got;
    const wd_teacher_size size = size_of(storage);
    for (int k = 0; k < WAYS; k++) {
        const char *list = lists[k];
        options.window = cut[k][0];
        options.micro_batch = cut[k][1];
        for (int i = first; i < WD_STRATEGY_auto; i++) {
            if (i == WD_STRATEGY_custom && !has_three) continue;
            wd_placement p =
                i == WD_STRATEGY_custom ? mixed(&size) : placed((wd_strategy)i, &size, list);
            p.buffers = 2 + k;
            options.place = (wd_state_place)((k + i) % 3);
            run(&got, &options, list, &p);
            assert_same(&got, &want);
        }
    }
    wd_free(want.weights);
}

static void strategies_change_nothing_f32(void **state)
{
    (void)state;
    check_strategies(WD_F32);
}

#ifndef WD_STANDIN_GPUS
static void strategies_change_nothing_bf16(void **state)
{
    (void)state;
    check_strategies(WD_BF16);
}

static void strategies_change_nothing_f16(void **state)
{
    (void)state;
    check_strategies(WD_F16);
}

/* From the files, by the processor or one GPU alone. */
static void one_device_streams_from_disk(void **state)
{
    (void)state;
    wd_stepper_options options = options_of(&teacher);
    outcome want = expected(options), got;
    const wd_teacher_size size = size_of(WD_BF16);
    const wd_placement p = placed(WD_STRATEGY_disk, &size, alone);
    options.window = 4;
    run(&got, &options, alone, &p);
    assert_same(&got, &want);
    wd_free(want.weights);
}

/* Micro-batches of the first expert come back to a device, on which all of them wait for a stage
 * that streams; the other expert's only pass there. No one gets the place of one that waits. */
static void who_waits_keeps_its_place(void **state)
{
    (void)state;
    wd_stepper_options options = options_of(&teacher);
    outcome want = expected(options), got;
    const wd_teacher_size size = size_of(WD_F32);
    const wd_cluster cluster = {.devices = 3};
    wd_placement p = wd_placement_begin(&size, &cluster);
    for (int e = 0; e < 2; e++)
        for (int s = 0; s < p.stages; s++) p.place[e][s] = (wd_stage_placement){WD_HOME_DEVICE, 1};
    p.place[0][0].device = p.place[0][2].device = p.place[1][0].device = 0;
    p.place[0][3].home = WD_HOME_HOST;
    options.window = SLOTS;
    options.micro_batch = 1;
    run(&got, &options, "sim:2x256MiB", &p);
    assert_same(&got, &want);
    wd_free(want.weights);
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strategies_change_nothing_f32),
#ifndef WD_STANDIN_GPUS
        cmocka_unit_test(strategies_change_nothing_bf16),
        cmocka_unit_test(strategies_change_nothing_f16),
        cmocka_unit_test(one_device_streams_from_disk),
        cmocka_unit_test(who_waits_keeps_its_place),
#endif
    };
#ifdef WD_STANDIN_GPUS
    return cmocka_run_group_tests(tests, open_gpus, close_gpus);
#else
    return cmocka_run_group_tests(tests, open_teacher, NULL);
#endif
}
