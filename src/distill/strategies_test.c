/* One seed, one student: wherever the teacher lives, on however many devices, in whatever window
 * and micro-batches, read however far ahead. On wan-tiny, both experts, after three passes of its
 * trajectories. */
#include "testing.h"

#include "core/random.h"
#include "distill/machine.h"
#include "student/init.h"
#include "teacher/strategy.h"
#include "teacher/teacher_size.h"

enum { LATENT = 4, TEXT = 6, SLOTS = 6, TRAJECTORY = 3, STEPS = 3 * TRAJECTORY * SLOTS / 3 };

static void text_of(void *context, void *out, int64_t prompt, wd_dtype dtype)
{
    float rows[TEXT * 96] = {0};
    (void)context;
    wd_random_normal(rows, (TEXT - 2) * 96,
                     (wd_random){.stream = WD_RANDOM_TEST, .index = (uint64_t)(prompt + 1)}, 0);
    for (int i = 0; i < TEXT * 96; i++)
        if (dtype == WD_F32)
            ((float *)out)[i] = rows[i];
        else
            ((uint16_t *)out)[i] = wd_f32_to_bf16(rows[i]);
}

static wd_machine_options options_of(const wd_pipeline *teacher)
{
    wd_machine_options o = {
        .teacher = teacher,
        .student = teacher->dit,
        .teacher_dtype = WD_BF16,
        .student_dtype = WD_F32,
        .latent_height = LATENT,
        .latent_width = LATENT,
        .text_tokens = TEXT,
        .text_repeat = 3,
        .trajectory = {.seed = 9,
                       .slots = SLOTS,
                       .steps = TRAJECTORY,
                       .prompts = 5,
                       .flow_shift = 3,
                       .num_train_timesteps = 1000,
                       .integer_timesteps = true},
        .reuse = 1,
        .replay = 10,
        .window = SLOTS,
        .micro_batch = SLOTS,
        .guidance_scale = {2, 3},
        .batch = 3,
        .accumulation = 1,
        .ema = true,
        .optimizer = wd_optimizer_defaults(),
        .text = text_of,
    };
    o.student.layers = 2;
    return o;
}

/* ---- a machine with devices ---- */

enum { DEVICES_MAX = 4 };

/* Simulated devices, the first of which has the student, and the processor; or that alone. */
typedef struct rig {
    wd_device *sim[DEVICES_MAX], *processor;
    wd_queue *queue[DEVICES_MAX + 1]; /* the teacher's, of the placement's devices */
    wd_queue *student, *home, *host;
    wd_site site;
} rig;

static void open_rig(rig *r, int sims, double link)
{
    wd_err err;
    *r = (rig){.site = {.devices = sims + 1,
                        .host_bytes = SIZE_MAX,
                        .disk_bytes_per_s = 1e9,
                        .batches = SLOTS}};
    wd_test_ok(wd_device_open_cpu(&r->processor, 2, &err), &err);
    wd_test_ok(wd_queue_open(&r->host, r->processor, &err), &err);
    for (int d = 0; d < sims; d++) {
        const wd_sim_options o = {.number = d, .bytes = 1 << 28, .link_bytes_per_s = link};
        wd_test_ok(wd_device_open_sim(&r->sim[d], &o, &err), &err);
        wd_test_ok(wd_queue_open(&r->queue[d], r->sim[d], &err), &err);
        r->site.device[d] =
            (wd_site_device){.bytes = SIZE_MAX / 2, .flops_per_s = 1e9, .link_bytes_per_s = 1e9};
    }
    r->queue[sims] = r->host;
    r->site.device[sims] =
        (wd_site_device){.bytes = SIZE_MAX / 2, .flops_per_s = 1e9, .reads_host = true};
    r->student = r->home = r->host;
    if (!sims) return;
    wd_test_ok(wd_queue_open(&r->student, r->sim[0], &err), &err);
    wd_test_ok(wd_queue_open(&r->home, r->sim[0], &err), &err);
}

static void close_rig(rig *r)
{
    int sims = r->site.devices - 1;
    if (sims) wd_queue_close(r->student), wd_queue_close(r->home);
    for (int d = 0; d < sims; d++) {
        wd_queue_close(r->queue[d]);
        assert_int_equal(wd_device_bytes(r->sim[d]), 0);
        wd_device_close(r->sim[d]);
    }
    wd_queue_close(r->host);
    assert_int_equal(wd_device_bytes(r->processor), 0);
    wd_device_close(r->processor);
}

/* ---- runs ---- */

typedef struct outcome {
    float *weights; /* P, then EMA; to free */
    int64_t count;
    double loss[STEPS];
} outcome;

static void run(outcome *out, const wd_machine_options *options, rig *r, const wd_placement *p)
{
    wd_err err;
    wd_machine m;
    wd_residency *residency;
    *out = (outcome){0};
    wd_test_ok(wd_residency_open_placed(&residency, options->teacher, p, options->teacher_dtype,
                                        r->queue, r->host, &err),
               &err);
    const wd_machine_teacher where = {residency, p, r->queue, r->home};
    wd_test_ok(wd_machine_open(&m, options, &where, r->student, &err), &err);
    wd_test_ok(wd_student_init(&m.params, options->teacher, wd_student_expert(options->teacher),
                               NULL, r->student, &err),
               &err);
    wd_optimizer_start_ema(&m.optimizer, r->student);
    for (int64_t step = 0; step < STEPS; step++) {
        wd_test_ok(wd_machine_step(&m, step, 1e-3, &err), &err);
        while (wd_machine_results_pending(&m) > (step + 1 < STEPS)) {
            wd_step_result result = wd_machine_take_result(&m);
            out->loss[result.step] = result.loss;
        }
    }
    out->count = 2 * m.params.count;
    wd_test_ok(wd_alloc((void **)&out->weights, (size_t)out->count, 4, "weights", &err), &err);
    size_t bytes = (size_t)m.params.count * 4;
    wd_queue_copy(r->student, out->weights, m.params.buffer[WD_PARAMS_P], bytes);
    wd_queue_copy(r->student, out->weights + m.params.count, m.params.buffer[WD_PARAMS_EMA], bytes);
    wd_queue_wait(r->student);
    wd_machine_close(&m);
    wd_residency_close(residency);
}

static void assert_same(outcome *a, const outcome *b)
{
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->loss, b->loss, sizeof a->loss);
    assert_memory_equal(a->weights, b->weights, (size_t)a->count * 4);
    wd_free(a->weights);
}

static wd_pipeline teacher;

static int open_teacher(void **state)
{
    (void)state;
    wd_err err;
    return wd_pipeline_open(&teacher, WD_SOURCE_DIR "/models/wan-tiny", &err) != WD_OK;
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

/* The student that a machine without devices makes, everything in one window. */
static outcome expected(wd_machine_options options)
{
    rig r;
    outcome out;
    wd_err err;
    wd_placement p;
    const wd_teacher_size size = size_of(options.teacher_dtype);
    options.window = options.micro_batch = SLOTS;
    open_rig(&r, 0, 0);
    wd_test_ok(wd_strategy_place(&p, WD_STRATEGY_cpu, &size, &r.site, 0, &err), &err);
    run(&out, &options, &r, &p);
    close_rig(&r);
    for (int i = 0; i < STEPS; i++) assert_true(out.loss[i] > 0);
    return out;
}

/* A placement with all of it: three devices, host memory and disk on two, experts apart. */
static wd_placement mixed(const wd_teacher_size *size, const wd_site *site)
{
    static const wd_place places[] = {{WD_HOME_DEVICE, 2}, {WD_HOME_HOST, 0}, {WD_HOME_DISK, 1},
                                      {WD_HOME_DEVICE, 1}, {WD_HOME_DISK, 0}, {WD_HOME_DEVICE, 0},
                                      {WD_HOME_HOST, 0}};
    wd_placement p = wd_placement_begin(size, site);
    for (int e = 0; e < 2; e++)
        for (int s = 0; s < p.stages; s++) p.place[e][s] = places[(size_t)(s + 3 * e) % 7];
    return p;
}

static void check_strategies(wd_dtype storage)
{
    static const int64_t cut[][2] = {{SLOTS, 2}, {4, 1}};
    wd_machine_options options = options_of(&teacher);
    options.teacher_dtype = storage;
    outcome want = expected(options), got;
    for (int k = 0; k < 2; k++) {
        rig r;
        wd_teacher_size size = size_of(storage);
        open_rig(&r, k ? 4 : 3, k ? 200e6 : 0);
        options.window = cut[k][0];
        options.micro_batch = cut[k][1];
        for (int i = 0; i < WD_STRATEGY_auto; i++) {
            wd_err err;
            wd_placement p;
            if (i == WD_STRATEGY_custom)
                p = mixed(&size, &r.site);
            else
                wd_test_ok(wd_strategy_place(&p, (wd_strategy)i, &size, &r.site, 1, &err), &err);
            p.slots = 2 + k;
            run(&got, &options, &r, &p);
            assert_same(&got, &want);
        }
        close_rig(&r);
    }
    wd_free(want.weights);
}

static void strategies_change_nothing_f32(void **state)
{
    (void)state;
    check_strategies(WD_F32);
}

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

/* Without devices: from the files, by the processor. */
static void a_processor_streams_from_disk(void **state)
{
    (void)state;
    rig r;
    wd_err err;
    wd_placement p;
    wd_machine_options options = options_of(&teacher);
    outcome want = expected(options), got;
    const wd_teacher_size size = size_of(WD_BF16);
    open_rig(&r, 0, 0);
    options.window = 4;
    wd_test_ok(wd_strategy_place(&p, WD_STRATEGY_disk, &size, &r.site, 0, &err), &err);
    run(&got, &options, &r, &p);
    assert_same(&got, &want);
    close_rig(&r);
    wd_free(want.weights);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strategies_change_nothing_f32),
        cmocka_unit_test(strategies_change_nothing_bf16),
        cmocka_unit_test(strategies_change_nothing_f16),
        cmocka_unit_test(a_processor_streams_from_disk),
    };
    return cmocka_run_group_tests(tests, open_teacher, NULL);
}
