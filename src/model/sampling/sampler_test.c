/* The loop and the solvers against diffusers: schedules.json (a velocity that depends on the
 * latents) and solvers.json (orders, forms, bf16; recorded velocities), on cpu and guard. */
#include "failing.h"

#include <jansson.h>

#include "dev/ops.h"
#include "model/sampling/sampler.h"

enum { N = 8 };

/* fp32 sums of at most six products, the coefficients of which are rounded once. */
static const double tolerance = 2e-6;

typedef wd_status open_fn(wd_device **out, int threads, wd_err *err);

typedef struct run {
    wd_queue *queue;
    float *slope;           /* device: cos(0), cos(1), ... */
    const json_t *velocity; /* or recorded ones */
    const json_t *trace;
    int64_t step;
    char what[128];
} run;

static void values(float *out, const json_t *list, int64_t i)
{
    const json_t *row = json_array_get(list, (size_t)i);
    for (size_t k = 0; k < N; k++) out[k] = (float)json_number_value(json_array_get(row, k));
}

static wd_status velocity_of(void *context, float *velocity, const float *latents, float timestep,
                             wd_err *err)
{
    run *r = context;
    (void)err;
    if (r->velocity) {
        float host[N];
        values(host, r->velocity, r->step);
        wd_queue_copy_and_wait(r->queue, velocity, host, sizeof host);
        wd_queue_wait(r->queue);
    } else {
        wd_combine_args args = {.y = velocity,
                                .x = {latents, r->slope},
                                .factor = {0.5f, 1e-4f * timestep},
                                .terms = 2,
                                .count = N};
        wd_op_combine(r->queue, &args);
    }
    return WD_OK;
}

static wd_status compare(void *context, int64_t step, const float *latents, wd_err *err)
{
    run *r = context;
    (void)err;
    r->step = step;
    float found[N], expected[N];
    wd_queue_copy_and_wait(r->queue, found, latents, sizeof found);
    wd_queue_wait(r->queue);
    if (json_is_null(json_array_get(r->trace, (size_t)step))) {
        /* NaN in diffusers (bh1's step to sigma 0); our result must be finite. */
        for (int k = 0; k < N; k++) assert_true(isfinite(found[k]));
        return WD_OK;
    }
    values(expected, r->trace, step);
    double difference = 0, norm = 0;
    for (int k = 0; k < N; k++) {
        difference += pow((double)found[k] - (double)expected[k], 2);
        norm += pow((double)expected[k], 2);
    }
    if (!(sqrt(difference) <= tolerance * sqrt(norm)))
        fail_msg("%s, step %d: relative difference %.3g", r->what, (int)step,
                 sqrt(difference / norm));
    return WD_OK;
}

static wd_scheduler_config config_of(const json_t *one)
{
    const char *type = json_string_value(json_object_get(one, "solver_type"));
    const json_t *order = json_object_get(one, "solver_order");
    const json_t *final = json_object_get(one, "lower_order_final");
    wd_scheduler_config config = {
        .kind = strstr(json_string_value(json_object_get(one, "scheduler")), "Euler")
                    ? WD_SCHEDULER_EULER
                    : WD_SCHEDULER_UNIPC,
        .num_train_timesteps = 1000,
        .flow_shift = json_number_value(json_object_get(one, "shift")),
        .solver_order = order ? json_integer_value(order) : 2,
        .bh1 = type && !strcmp(type, "bh1"),
        .lower_order_final = !final || json_is_true(final),
        .predict_x0 = true,
        .final_sigma_zero = true};
    size_t i;
    json_t *step;
    json_array_foreach(json_object_get(one, "disable_corrector"), i, step)
        config.disable_corrector |= UINT64_C(1) << json_integer_value(step);
    return config;
}

static void run_one(const json_t *one, wd_device *device)
{
    const wd_scheduler_config config = config_of(one);
    const char *dtype = json_string_value(json_object_get(one, "dtype"));
    const int64_t steps = json_integer_value(json_object_get(one, "steps"));
    run r = {.velocity = json_object_get(one, "velocity"), .trace = json_object_get(one, "trace")};
    if (!json_is_array(r.velocity)) r.velocity = NULL;
    snprintf(r.what, sizeof r.what, "%s, %d steps, order %d, %s, %s, %s",
             json_string_value(json_object_get(one, "scheduler")), (int)steps,
             (int)config.solver_order, config.bh1 ? "bh1" : "bh2", dtype ? dtype : "float32",
             wd_device_name(device));
    wd_schedule schedule;
    float *latents, host[N];
    assert_int_equal(wd_schedule_open(&schedule, &config, steps, NULL), WD_OK);
    assert_int_equal(wd_queue_open(&r.queue, device, NULL), WD_OK);
    assert_int_equal(wd_device_alloc((void **)&r.slope, device, sizeof host, "slope", NULL), WD_OK);
    assert_int_equal(wd_device_alloc((void **)&latents, device, sizeof host, "x", NULL), WD_OK);
    for (int k = 0; k < N; k++) host[k] = cosf((float)k);
    wd_queue_copy_and_wait(r.queue, r.slope, host, sizeof host);
    wd_queue_wait(r.queue);
    values(host, r.trace, 0);
    wd_queue_copy_and_wait(r.queue, latents, host, sizeof host);
    const wd_dtype model_dtype = dtype && !strcmp(dtype, "bfloat16") ? WD_BF16 : WD_F32;
    assert_int_equal(wd_sampler_run(latents, N, &schedule, model_dtype, velocity_of, &r, compare,
                                    &r, r.queue, NULL),
                     WD_OK);
    assert_int_equal(r.step, steps);
    wd_device_free(device, r.slope);
    wd_device_free(device, latents);
    wd_queue_close(r.queue);
    wd_schedule_close(&schedule);
    assert_int_equal(wd_device_bytes(device), 0);
}

static void run_file(const char *path, size_t count)
{
    open_fn *const open[] = {wd_device_open_cpu, wd_device_open_guard};
    json_t *all = json_load_file(path, 0, NULL);
    assert_int_equal(json_array_size(all), count);
    for (int d = 0; d < 2; d++) {
        wd_device *device;
        assert_int_equal(open[d](&device, 1, NULL), WD_OK);
        size_t index;
        json_t *one;
        json_array_foreach(all, index, one) run_one(one, device);
        wd_device_close(device);
    }
    json_decref(all);
}

static void steps_are_those_of_diffusers(void **state)
{
    (void)state;
    run_file(WD_SOURCE_DIR "/tests/fixtures/schedules.json", 8);
}

static void orders_forms_and_dtypes_are_those_of_diffusers(void **state)
{
    (void)state;
    run_file(WD_SOURCE_DIR "/tests/fixtures/solvers.json", 11);
}

static wd_status stop_at_two(void *context, int64_t step, const float *latents, wd_err *err)
{
    (void)latents;
    *(int64_t *)context = step;
    return step == 2 ? wd_fail(err, WD_INTERRUPTED, "stopped") : WD_OK;
}

static wd_status zero_velocity(void *context, float *velocity, const float *latents, float timestep,
                               wd_err *err)
{
    (void)latents, (void)timestep, (void)err;
    wd_fill_args args = {.to = velocity, .type = WD_F32, .count = N};
    wd_op_fill(context, &args);
    return WD_OK;
}

/* A schedule, and latents on a device's queue. */
typedef struct sampling {
    wd_device *device;
    wd_queue *queue;
    wd_schedule schedule;
    float *latents;
} sampling;

static wd_status sample_once(void *context, wd_err *err)
{
    sampling *s = context;
    const size_t bytes = wd_device_bytes(s->device);
    const wd_status status = wd_sampler_run(s->latents, N, &s->schedule, WD_F32, zero_velocity,
                                            s->queue, NULL, NULL, s->queue, err);
    assert_int_equal(wd_device_bytes(s->device), bytes);
    return status;
}

static void who_looks_may_stop_and_failures_leak_nothing(void **state)
{
    (void)state;
    const wd_scheduler_config config = {
        .kind = WD_SCHEDULER_EULER, .num_train_timesteps = 1000, .flow_shift = 3};
    sampling s;
    assert_int_equal(wd_device_open_cpu(&s.device, 1, NULL), WD_OK);
    assert_int_equal(wd_queue_open(&s.queue, s.device, NULL), WD_OK);
    assert_int_equal(wd_device_alloc((void **)&s.latents, s.device, 32, "x", NULL), WD_OK);
    assert_int_equal(wd_schedule_open(&s.schedule, &config, 5, NULL), WD_OK);
    const size_t bytes = wd_device_bytes(s.device);
    int64_t seen = -1;
    wd_status status = wd_sampler_run(s.latents, N, &s.schedule, WD_F32, zero_velocity, s.queue,
                                      stop_at_two, &seen, s.queue, NULL);
    assert_int_equal(status, WD_INTERRUPTED);
    assert_int_equal(seen, 2);
    assert_int_equal(wd_device_bytes(s.device), bytes);
    wd_test_failing_allocations(sample_once, NULL, &s, 1);
    wd_schedule_close(&s.schedule);
    wd_device_free(s.device, s.latents);
    wd_queue_close(s.queue);
    wd_device_close(s.device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_those_of_diffusers),
        cmocka_unit_test(orders_forms_and_dtypes_are_those_of_diffusers),
        cmocka_unit_test(who_looks_may_stop_and_failures_leak_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
