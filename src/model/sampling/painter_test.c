/* A painter on cpu and guard: batches and padding change no picture, the trace is that of the
 * solver's steps, progress counts all batches, and what fails changes nothing. */
#include "failing.h"

#include "dev/ops.h"
#include "model/sampling/painter.h"

enum { EACH = 6, PICTURES = 5, STEPS = 3 };

typedef wd_status open_fn(wd_device **out, int threads, wd_err *err);

/* A painter whose velocity is half the latents, and which may fail at a call. */
typedef struct drawing {
    wd_device *device;
    wd_queue *queue;
    wd_schedule schedule;
    int64_t rows;    /* pictures that the model computes */
    int64_t calls;   /* of velocity, in all */
    int64_t fail_at; /* the call that fails; 0: none */
} drawing;

static wd_status half_of_latents(void *context, float *velocity, const float *latents,
                                 float timestep, wd_err *err)
{
    drawing *d = context;
    (void)timestep;
    if (++d->calls == d->fail_at) return wd_fail(err, WD_INTERRUPTED, "stopped");
    wd_combine_args args = {
        .y = velocity, .x = {latents}, .factor = {0.5f}, .terms = 1, .count = d->rows * EACH};
    wd_op_combine(d->queue, &args);
    return WD_OK;
}

static void open(drawing *d, open_fn *open_device)
{
    const wd_scheduler_config config = {
        .kind = WD_SCHEDULER_EULER, .num_train_timesteps = 1000, .flow_shift = 3};
    *d = (drawing){0};
    assert_int_equal(open_device(&d->device, 1, NULL), WD_OK);
    assert_int_equal(wd_queue_open(&d->queue, d->device, NULL), WD_OK);
    assert_int_equal(wd_schedule_open(&d->schedule, &config, STEPS, NULL), WD_OK);
}

static void close(drawing *d)
{
    assert_int_equal(wd_device_bytes(d->device), 0);
    wd_schedule_close(&d->schedule);
    wd_queue_close(d->queue);
    wd_device_close(d->device);
}

static wd_painter painter_of(drawing *d, int64_t batch, bool padded)
{
    return (wd_painter){.queue = d->queue,
                        .schedule = &d->schedule,
                        .velocity = half_of_latents,
                        .context = d,
                        .model_dtype = WD_F32,
                        .each = EACH,
                        .pictures = PICTURES,
                        .batch = batch,
                        .padded = padded,
                        .task = "drawing"};
}

/* Draws all pictures from the noise of seed 7. */
static void draw_all(float *latents, drawing *d, int64_t batch, bool padded)
{
    wd_painter painter = painter_of(d, batch, padded);
    wd_sampler_noise(latents, 7, 0, PICTURES, EACH);
    for (int64_t first = 0; first < PICTURES; first += batch) {
        const int64_t left = PICTURES - first, count = left < batch ? left : batch;
        d->rows = padded ? batch : count;
        assert_int_equal(wd_painter_run(&painter, latents + first * EACH, NULL, first, count, NULL),
                         WD_OK);
    }
}

static void on_cpu_and_guard(void (*check)(drawing *d))
{
    open_fn *const devices[] = {wd_device_open_cpu, wd_device_open_guard};
    for (int i = 0; i < 2; i++) {
        drawing d;
        open(&d, devices[i]);
        check(&d);
        close(&d);
    }
}

static void check_batches(drawing *d)
{
    float together[PICTURES * EACH], noise[PICTURES * EACH], latents[PICTURES * EACH];
    draw_all(together, d, PICTURES, false);
    wd_sampler_noise(noise, 7, 0, PICTURES, EACH);
    for (int64_t k = 0; k < PICTURES * EACH; k++) assert_true(together[k] != noise[k]);
    for (int64_t batch = 1; batch <= PICTURES + 1; batch++) {
        for (int padded = 0; padded < 2; padded++) {
            draw_all(latents, d, batch, padded);
            assert_memory_equal(latents, together, sizeof together);
        }
    }
}

static void batches_and_padding_change_no_picture(void **state)
{
    (void)state;
    on_cpu_and_guard(check_batches);
}

/* The noise of a picture depends on the seed and its number alone. */
static void noise_is_that_of_the_picture(void **state)
{
    float all[PICTURES * EACH], one[EACH], other[EACH];
    (void)state;
    wd_sampler_noise(all, 7, 0, PICTURES, EACH);
    wd_sampler_noise(one, 7, 3, 1, EACH);
    wd_sampler_noise(other, 8, 3, 1, EACH);
    assert_memory_equal(one, all + 3 * EACH, sizeof one);
    assert_memory_not_equal(one, other, sizeof one);
    assert_memory_not_equal(one, all, sizeof one);
}

static void check_trace(drawing *d)
{
    float states[STEPS + 1][EACH], velocities[STEPS][EACH], noise[EACH], latents[EACH];
    float *latents_at[STEPS + 1], *velocity_at[STEPS];
    const wd_painter_trace trace = {.latents = latents_at, .velocity = velocity_at};
    for (int i = 0; i <= STEPS; i++) latents_at[i] = states[i];
    for (int i = 0; i < STEPS; i++) velocity_at[i] = velocities[i];
    wd_painter painter = painter_of(d, 1, false);
    d->rows = 1;
    wd_sampler_noise(noise, 7, 2, 1, EACH);
    memcpy(latents, noise, sizeof noise);
    assert_int_equal(wd_painter_run(&painter, latents, &trace, 2, 1, NULL), WD_OK);
    assert_memory_equal(states[0], noise, sizeof noise);
    assert_memory_equal(states[STEPS], latents, sizeof latents);
    for (int i = 0; i < STEPS; i++) {
        const float dt = d->schedule.sigma[i + 1] - d->schedule.sigma[i];
        for (int k = 0; k < EACH; k++) {
            assert_true(velocities[i][k] == 0.5f * states[i][k]);
            assert_float_equal(states[i + 1][k], states[i][k] + dt * velocities[i][k], 1e-6f);
        }
    }
}

static void trace_has_each_step(void **state)
{
    (void)state;
    on_cpu_and_guard(check_trace);
}

typedef struct reports {
    int64_t count, done, total;
} reports;

static void count_reports(void *context, const wd_progress *progress)
{
    reports *r = context;
    assert_string_equal(progress->what, "drawing");
    assert_true(progress->done >= r->done);
    *r = (reports){r->count + 1, progress->done, progress->total};
}

static void progress_counts_all_batches(void **state)
{
    (void)state;
    reports r = {0};
    drawing d;
    float latents[PICTURES * EACH];
    open(&d, wd_device_open_cpu);
    wd_progress_to(count_reports, &r);
    draw_all(latents, &d, 2, false);
    wd_progress_to(NULL, NULL);
    assert_true(r.count >= 3 * STEPS);
    assert_int_equal(r.total, 3 * STEPS); /* batches of 2, 2 and 1 pictures */
    assert_int_equal(r.done, r.total);
    close(&d);
}

static void dry_run_reports_nothing(void **state)
{
    (void)state;
    reports r = {0};
    drawing d;
    float latents[PICTURES * EACH];
    open(&d, wd_device_open_cpu);
    wd_device *processor = d.device;
    wd_queue_close(d.queue);
    assert_int_equal(wd_device_open_dry(&d.device, processor, NULL), WD_OK);
    assert_int_equal(wd_queue_open(&d.queue, d.device, NULL), WD_OK);
    wd_progress_to(count_reports, &r);
    draw_all(latents, &d, 2, false);
    wd_progress_to(NULL, NULL);
    assert_int_equal(d.calls, 3 * STEPS);
    assert_int_equal(r.count, 0);
    close(&d);
    wd_device_close(processor);
}

static void check_failure(drawing *d)
{
    float latents[EACH], noise[EACH];
    wd_err err = {0};
    wd_painter painter = painter_of(d, 1, false);
    d->rows = 1;
    d->fail_at = 2;
    wd_sampler_noise(noise, 7, 0, 1, EACH);
    memcpy(latents, noise, sizeof noise);
    assert_int_equal(wd_painter_run(&painter, latents, NULL, 0, 1, &err), WD_INTERRUPTED);
    assert_string_equal(err.message, "stopped");
    assert_int_equal(d->calls, 2);
    assert_memory_equal(latents, noise, sizeof noise);
    assert_int_equal(wd_device_bytes(d->device), 0);
}

static void failed_velocity_leaves_latents_as_they_were(void **state)
{
    (void)state;
    on_cpu_and_guard(check_failure);
}

static wd_status draw_one(void *context, wd_err *err)
{
    drawing *d = context;
    float latents[EACH] = {0};
    wd_painter painter = painter_of(d, 1, false);
    painter.task = NULL;
    d->rows = 1;
    const wd_status status = wd_painter_run(&painter, latents, NULL, 0, 1, err);
    assert_int_equal(wd_device_bytes(d->device), 0);
    return status;
}

static void failed_allocations_leak_nothing(void **state)
{
    (void)state;
    drawing d;
    open(&d, wd_device_open_cpu);
    assert_int_equal(draw_one(&d, NULL), WD_OK); /* the device keeps its workspace from now on */
    wd_test_failing_allocations(draw_one, NULL, &d, 1);
    close(&d);
}

static void values_that_are_not_finite_are_named(void **state)
{
    (void)state;
    float latents[2 * EACH] = {0};
    wd_err err = {0};
    assert_int_equal(wd_pictures_check(latents, 3, 2, EACH, "latents", "model", &err), WD_OK);
    latents[EACH + 4] = (float)NAN;
    wd_test_refused(wd_pictures_check(latents, 3, 2, EACH, "latents", "model", &err), &err,
                    WD_NOT_FINITE,
                    "model: latents of picture 5: expected finite numbers, found nan at value 4");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_and_padding_change_no_picture),
        cmocka_unit_test(noise_is_that_of_the_picture),
        cmocka_unit_test(trace_has_each_step),
        cmocka_unit_test(progress_counts_all_batches),
        cmocka_unit_test(dry_run_reports_nothing),
        cmocka_unit_test(failed_velocity_leaves_latents_as_they_were),
        cmocka_unit_test(failed_allocations_leak_nothing),
        cmocka_unit_test(values_that_are_not_finite_are_named),
    };
    return cmocka_run_group_tests_name("painter", tests, NULL, NULL);
}
