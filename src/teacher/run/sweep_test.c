/* Tests of the sweep on wan-tiny, both experts: the window, the micro-batch and the device never
 * change a velocity; a stage is acquired once per sweep and expert; memory is as planned. */
#include "aborts.h"
#include "core/random.h"
#include "harness/acquires.h"
#include "placements.h"
#include "teacher/plan/placement_bytes.h"
#include "teacher/run/residency.h"
#include "teacher/run/sweep.h"
#include "teacher_copy.h"

enum { STATES = 11, LATENT = 8, TEXT = 24, STATE_COUNT = 16 * LATENT * LATENT };

typedef struct setup {
    wd_pipeline pipeline;
    wd_device *device;
    wd_queue *queue;
    wd_residency *residency;
    float *latents, *velocity; /* device */
} setup;

/* A made-up embedding per prompt: rows behind the 9th are padding. */
static void text_of(void *context, void *out, int64_t prompt, wd_dtype dtype)
{
    const setup *s = context;
    int64_t dim = s->pipeline.dit.text_dim;
    static float rows[TEXT * 96];
    wd_random key = {.seed = 1, .stream = WD_RANDOM_TEST, .index = (uint64_t)(prompt + 100)};
    memset(rows, 0, sizeof rows);
    wd_random_normal(rows, 9 * dim, key, 0);
    for (int64_t i = 0; i < TEXT * dim; i++) {
        if (dtype == WD_F32) {
            ((float *)out)[i] = rows[i];
        } else {
            ((uint16_t *)out)[i] = wd_f32_to_bf16(rows[i]);
        }
    }
}

static void open_residency(setup *s, wd_dtype storage, wd_home home)
{
    wd_err err = {0};
    const wd_placement p = wd_test_all_in(&s->pipeline, home);
    wd_test_ok(wd_residency_open_placed(&s->residency, &s->pipeline, &p, storage, &s->queue,
                                        s->queue, NULL, &err),
               &err);
}

static void open_setup(setup *s, wd_dtype storage, bool guard, wd_home home)
{
    wd_err err = {0};
    *s = (setup){0};
    if (wd_pipeline_open(&s->pipeline, WD_SOURCE_DIR "/models/wan-tiny", &err) ||
        (guard ? wd_device_open_guard(&s->device, 0, &err)
               : wd_device_open_cpu(&s->device, 0, &err)) ||
        wd_queue_open(&s->queue, s->device, &err))
        fail_msg("%s", err.message);
    open_residency(s, storage, home);
    size_t bytes = STATES * STATE_COUNT * sizeof(float);
    assert_int_equal(wd_device_alloc((void **)&s->latents, s->device, bytes, "test", &err), WD_OK);
    assert_int_equal(wd_device_alloc((void **)&s->velocity, s->device, bytes, "test", &err), WD_OK);
    static float noise[STATES * STATE_COUNT];
    wd_random_normal(noise, STATES * STATE_COUNT, (wd_random){.seed = 2, .stream = WD_RANDOM_TEST},
                     0);
    wd_queue_copy_and_wait(s->queue, s->latents, noise, bytes);
    wd_queue_wait(s->queue);
}

static void close_setup(setup *s)
{
    wd_device_free(s->device, s->latents);
    wd_device_free(s->device, s->velocity);
    wd_residency_close(s->residency);
    wd_queue_close(s->queue);
    wd_device_close(s->device);
}

static wd_sweep_options options_of(const setup *s, wd_dtype dtype, int64_t window, int64_t micro)
{
    return (wd_sweep_options){.config = s->pipeline.dit,
                              .dtype = dtype,
                              .frames = 1,
                              .height = LATENT,
                              .width = LATENT,
                              .text_tokens = TEXT,
                              .window_max = window,
                              .micro_batch = micro,
                              .boundary_timestep = 875,
                              .guidance_scale = {2.0, 3.0},
                              .text = text_of,
                              .text_context = (void *)(uintptr_t)s};
}

/* All states, `window` at a time. */
static void run_all(setup *s, wd_sweep *sweep, int64_t window)
{
    static const float timestep[STATES] = {999, 12, 875, 874, 500, 960, 300, 999, 700, 880, 150};
    wd_err err = {0};
    for (int64_t first = 0; first < STATES; first += window) {
        int64_t prompt[STATES], count = STATES - first < window ? STATES - first : window;
        for (int64_t i = 0; i < count; i++) prompt[i] = (first + i) % 4;
        const wd_window w = {.count = count,
                             .queue = s->queue,
                             .latents = s->latents + first * STATE_COUNT,
                             .velocity = s->velocity + first * STATE_COUNT,
                             .timestep = timestep + first,
                             .prompt = prompt};
        if (wd_sweep_run(sweep, &w, &err)) fail_msg("%s", err.message);
    }
    wd_queue_wait(s->queue);
}

/* The same with a sweep of its own; out [STATES, STATE_COUNT] host. Returns acquires. */
static int64_t run(setup *s, float *out, wd_dtype dtype, int64_t window, int64_t micro)
{
    wd_err err = {0};
    wd_sweep *sweep;
    wd_sweep_options options = options_of(s, dtype, window, micro);
    if (wd_sweep_open(&sweep, &options, s->residency, &s->queue, &err)) fail_msg("%s", err.message);
    const int64_t before = acquires_seen;
    run_all(s, sweep, window);
    wd_queue_copy_and_wait(s->queue, out, s->velocity, STATES * STATE_COUNT * sizeof(float));
    wd_queue_wait(s->queue);
    wd_sweep_close(sweep);
    return acquires_seen - before;
}

static void check_windows(wd_dtype storage)
{
    static float all[STATES * STATE_COUNT], some[STATES * STATE_COUNT];
    wd_dtype compute = wd_teacher_compute_dtype(storage);
    setup s;
    open_setup(&s, storage, false, WD_HOME_DEVICE);
    run(&s, all, compute, STATES, STATES);
    const int64_t cut[][2] = {{1, 1}, {3, 2}, {5, 5}, {STATES, 4}};
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++) {
        memset(some, 0, sizeof some);
        run(&s, some, compute, cut[i][0], cut[i][1]);
        assert_memory_equal(some, all, sizeof all);
    }
    close_setup(&s);
}

static void window_never_changes_a_velocity_f32(void **state)
{
    (void)state;
    check_windows(WD_F32);
}

static void window_never_changes_a_velocity_bf16(void **state)
{
    (void)state;
    check_windows(WD_BF16);
}

static void window_never_changes_a_velocity_f16(void **state)
{
    (void)state;
    check_windows(WD_F16);
}

static void one_acquire_per_stage_and_expert(void **state)
{
    (void)state;
    static float out[STATES * STATE_COUNT];
    setup s;
    open_setup(&s, WD_BF16, false, WD_HOME_DEVICE);
    const wd_placement *p = &wd_residency_info_of(s.residency)->placement;
    const int64_t stages = p->stages;
    assert_int_equal(p->experts, 2);
    assert_int_equal(run(&s, out, WD_BF16, STATES, STATES), 2 * stages);
    assert_int_equal(run(&s, out, WD_BF16, STATES, 1), 2 * stages);
    close_setup(&s);
}

/* Nothing but kernels and copies touches device memory, and copied weights give the same bits as
 * weights read in place. */
static void guarded_memory_gives_the_same_bits(void **state)
{
    (void)state;
    static float open[STATES * STATE_COUNT], guarded[STATES * STATE_COUNT];
    const wd_dtype storage[] = {WD_F32, WD_BF16, WD_F16};
    for (int i = 0; i < 3; i++) {
        setup s;
        wd_dtype compute = wd_teacher_compute_dtype(storage[i]);
        open_setup(&s, storage[i], false, WD_HOME_DEVICE);
        run(&s, open, compute, 4, 3);
        close_setup(&s);
        open_setup(&s, storage[i], true, WD_HOME_DEVICE);
        run(&s, guarded, compute, 4, 3);
        close_setup(&s);
        assert_memory_equal(open, guarded, sizeof open);
    }
}

static void memory_is_as_planned(void **state)
{
    (void)state;
    wd_err err = {0};
    const wd_dtype storage[] = {WD_F32, WD_BF16, WD_F16};
    for (int i = 0; i < 3; i++) {
        setup s;
        wd_device *dry;
        wd_queue *dry_queue;
        wd_residency *planned;
        open_setup(&s, storage[i], false, WD_HOME_DEVICE);
        assert_int_equal(wd_device_open_dry(&dry, s.device, &err), WD_OK);
        assert_int_equal(wd_queue_open(&dry_queue, dry, &err), WD_OK);
        assert_int_equal(
            wd_residency_open_resident(&planned, &s.pipeline, NULL, storage[i], dry_queue, &err),
            WD_OK);
        size_t before = wd_device_bytes(s.device);
        assert_int_equal(before, wd_device_bytes(dry) + 2 * STATES * STATE_COUNT * sizeof(float));
        const wd_residency_info *info = wd_residency_info_of(s.residency);
        assert_int_equal(wd_residency_info_of(planned)->mapped_bytes, info->mapped_bytes);
        wd_sweep_options options = options_of(&s, wd_teacher_compute_dtype(storage[i]), 5, 2);
        wd_cluster cluster = {.devices = 1, .batches = wd_sweep_batches(&options)};
        wd_sweep_need *need = &cluster.device[0].need;
        wd_sweep *sweep;
        wd_test_ok(wd_sweep_need_of(need, &options, dry, wd_device_open_dry, &err), &err);
        for (int k = 0; k < WD_STAGE_KINDS; k++) assert_true(need->flops[k] > 0);
        wd_sweep_device part;
        wd__sweep_devices(&part, 1, &info->placement, cluster.batches);
        wd_test_ok(wd_sweep_open(&sweep, &options, s.residency, &s.queue, &err), &err);
        assert_int_equal(wd_device_bytes(s.device) - before,
                         wd_placed_activations(&part, &cluster.device[0].need) +
                             wd_placed_workspace(&part, &cluster.device[0]));
        size_t full = wd_device_bytes(s.device);
        run_all(&s, sweep, 5);
        assert_int_equal(wd_device_bytes(s.device), full); /* nothing grew */
        wd_sweep_close(sweep);
        wd_residency_close(planned);
        wd_queue_close(dry_queue);
        wd_device_close(dry);
        close_setup(&s);
    }
}

/* What was fitted once is fitted: planner and sweep may both do it. */
static void micro_batches_are_fitted_once(void **state)
{
    (void)state;
    wd_sweep_options o = {.window_max = 400};
    for (int64_t asked = 1; asked <= 500; asked++) {
        const int64_t fitted = o.micro_batch = wd_sweep_fitted(asked, o.window_max);
        assert_true(fitted > 0 && fitted <= asked && fitted <= o.window_max);
        assert_int_equal(wd_sweep_fitted(fitted, o.window_max), fitted);
    }
}

/* Where weights live between sweeps never changes a bit, whatever they are kept in. */
static void residencies_agree(void **state)
{
    (void)state;
    static float all[STATES * STATE_COUNT], some[STATES * STATE_COUNT];
    static const wd_dtype storage[] = {WD_F32, WD_BF16, WD_F16};
    for (int i = 0; i < 3; i++) {
        wd_dtype compute = wd_teacher_compute_dtype(storage[i]);
        setup s;
        open_setup(&s, storage[i], false, WD_HOME_DEVICE);
        int64_t acquires = run(&s, all, compute, 4, 2);
        close_setup(&s);
        for (int k = WD_HOME_HOST; k <= WD_HOME_DISK; k++)
            for (int guard = 0; guard < 2; guard++) {
                open_setup(&s, storage[i], guard, (wd_home)k);
                memset(some, 0, sizeof some);
                assert_int_equal(run(&s, some, compute, 4, 2), acquires);
                assert_memory_equal(all, some, sizeof all);
                close_setup(&s);
            }
    }
}

/* Until a state's next sweep is launched, the event of its velocity is that of no other sweep: who
 * waits for it waits for nothing that came later. */
static void ends_are_told_apart(void **state)
{
    (void)state;
    enum { APART = 4, WINDOW = 2, EVENTS = (APART + 1) * WINDOW };
    static const float timestep[WINDOW] = {999, 12};
    static const int64_t prompt[WINDOW] = {0, 1};
    wd_event *delivered[EVENTS + WINDOW];
    wd_err err = {0};
    wd_sweep *sweep;
    setup s;
    open_setup(&s, WD_F32, false, WD_HOME_DEVICE);
    wd_sweep_options options = options_of(&s, WD_F32, WINDOW, 1);
    options.sweeps_apart = APART;
    wd_test_ok(wd_sweep_open(&sweep, &options, s.residency, &s.queue, &err), &err);
    for (int first = 0; first < EVENTS + WINDOW; first += WINDOW) {
        const wd_window window = {.count = WINDOW,
                                  .queue = s.queue,
                                  .latents = s.latents,
                                  .velocity = s.velocity,
                                  .timestep = timestep,
                                  .prompt = prompt,
                                  .delivered = delivered + first};
        wd_test_ok(wd_sweep_run(sweep, &window, &err), &err);
    }
    for (int i = 0; i < EVENTS; i++)
        for (int k = 0; k < i; k++) assert_ptr_not_equal(delivered[i], delivered[k]);
    for (int i = 0; i < WINDOW; i++) assert_ptr_equal(delivered[EVENTS + i], delivered[i]);
    wd_sweep_close(sweep);
    close_setup(&s);
}

/* A file that ends early while it is streamed ends the sweep with an error, not the process. */
static void a_file_that_ends_is_an_error(void **state)
{
    (void)state;
    char model[WD_PATH_MAX], file[WD_PATH_MAX + 64];
    setup s;
    wd_err err = {0};
    wd_sweep *sweep;
    const float timestep = 999;
    const int64_t prompt = 0;
    wd_test_copy_teacher(model, "model");
    open_setup(&s, WD_F32, false, WD_HOME_DEVICE);
    wd_residency_close(s.residency);
    wd_test_ok(wd_pipeline_open(&s.pipeline, model, &err), &err);
    open_residency(&s, WD_F32, WD_HOME_DISK);
    snprintf(file, sizeof file, "%s/transformer/diffusion_pytorch_model.safetensors", model);
    assert_int_equal(truncate(file, 1 << 20), 0);
    const wd_sweep_options options = options_of(&s, WD_F32, 1, 1);
    wd_test_ok(wd_sweep_open(&sweep, &options, s.residency, &s.queue, &err), &err);
    const wd_window window = {.count = 1,
                              .queue = s.queue,
                              .latents = s.latents,
                              .velocity = s.velocity,
                              .timestep = &timestep,
                              .prompt = &prompt};
    wd_test_refused(wd_sweep_run(sweep, &window, &err), &err, WD_IO, "the file ends");
    assert_non_null(strstr(err.message, file));
    wd_sweep_close(sweep);
    close_setup(&s);
}

/* A window that is larger than the sweep was opened for would write behind its order of states. */
static void run_too_many(void *context)
{
    setup *s = context;
    wd_err err;
    wd_sweep *sweep;
    const wd_sweep_options options = options_of(s, WD_F32, STATES - 1, 2);
    static const float timestep[STATES];
    static const int64_t prompt[STATES];
    const wd_window window = {.count = STATES,
                              .queue = s->queue,
                              .latents = s->latents,
                              .velocity = s->velocity,
                              .timestep = timestep,
                              .prompt = prompt};
    if (wd_sweep_open(&sweep, &options, s->residency, &s->queue, &err)) return;
    wd_sweep_run(sweep, &window, &err);
}

static void a_window_too_large_ends_the_process(void **state)
{
    (void)state;
    setup s;
    open_setup(&s, WD_F32, false, WD_HOME_DEVICE);
    wd_test_aborts(run_too_many, &s, "a sweep of at most 10 states was given 11");
    close_setup(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(residencies_agree),
        cmocka_unit_test(a_file_that_ends_is_an_error),
        cmocka_unit_test(window_never_changes_a_velocity_f32),
        cmocka_unit_test(window_never_changes_a_velocity_bf16),
        cmocka_unit_test(window_never_changes_a_velocity_f16),
        cmocka_unit_test(one_acquire_per_stage_and_expert),
        cmocka_unit_test(guarded_memory_gives_the_same_bits),
        cmocka_unit_test(micro_batches_are_fitted_once),
        cmocka_unit_test(memory_is_as_planned),
        cmocka_unit_test(ends_are_told_apart),
        cmocka_unit_test(a_window_too_large_ends_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
