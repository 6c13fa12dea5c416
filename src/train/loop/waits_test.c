/* While a step is launched nobody waits for a device: it is launched whole while the device is
 * still at the step before, for whose loss the caller waits between steps. On wan-tiny, on a
 * simulated device that is much slower than the launch.
 *
 * Linked with --wrap=wd_event_wait and --wrap=wd_queue_wait, so that waits are seen here. */
#include "harness/stepper.h"

#include "tiny_teacher.h"
#include "train/network/init.h"

enum { STEPS = 8, FIRST = 2 };

static struct {
    bool launching;
    int in_steps, between; /* waits that took time */
} seen;

static void see(void)
{
    if (seen.launching)
        seen.in_steps++;
    else
        seen.between++;
}

void __real_wd_event_wait(wd_event *event);
void __wrap_wd_event_wait(wd_event *event);

void __wrap_wd_event_wait(wd_event *event)
{
    if (!wd_event_is_done(event)) see();
    __real_wd_event_wait(event);
}

void __real_wd_queue_wait(wd_queue *queue);
void __wrap_wd_queue_wait(wd_queue *queue);

void __wrap_wd_queue_wait(wd_queue *queue)
{
    see();
    __real_wd_queue_wait(queue);
}

static void run_steps(const wd_stepper_options *o)
{
    wd_err err;
    wd_device *device;
    wd_queue *queue[3];
    wd_residency *residency;
    wd_stepper *m = NULL;
    const wd_sim_options slow = {
        .bytes = 1 << 30, .link_bytes_per_s = 50e6, .flops_per_s = {3e9, 3e9}};
    const wd_placement all = {.experts = wd_teacher_experts(&teacher),
                              .stages = wd_dit_stages(&teacher.dit),
                              .buffers = 2};
    wd_test_ok(wd_device_open_sim(&device, &slow, &err), &err);
    for (int i = 0; i < 3; i++) wd_test_ok(wd_queue_open(&queue[i], device, &err), &err);
    wd_test_ok(wd_residency_open_placed(&residency, &teacher, &all, o->teacher_dtype, &queue[1],
                                        NULL, NULL, &err),
               &err);
    const wd_stepper_teacher where = {residency, &all, &queue[1], queue[2]};
    wd_test_ok(wd_stepper_open(&m, o, &where, queue[0], &err), &err);
    wd_test_ok(wd_stepper_begin(m, &err), &err);
    for (int64_t step = 0; step < STEPS; step++) {
        if (step == FIRST) seen.in_steps = seen.between = 0;
        seen.launching = true;
        wd_test_ok(wd_stepper_step(m, &(wd_step){.number = step, .lr = 1e-3}, &err), &err);
        seen.launching = false;
        while (wd_stepper_results_pending(m) > 1) wd_stepper_take_result(m);
    }
    const int in_steps = seen.in_steps, between = seen.between;
    while (wd_stepper_results_pending(m)) wd_stepper_take_result(m);
    wd_stepper_close(m);
    wd_residency_close(residency);
    for (int i = 0; i < 3; i++) wd_queue_close(queue[i]);
    wd_device_close(device);
    assert_int_equal(in_steps, 0);
    assert_int_equal(between, STEPS - FIRST); /* else the launch was never ahead */
}

static void steps_are_launched_without_waiting(void **state)
{
    (void)state;
    for (int accumulation = 1; accumulation <= WD_BATCHES_UNDER_WAY / 2; accumulation++) {
        wd_stepper_options o = small_stepper(&teacher);
        o.accumulation = accumulation;
        run_steps(&o);
        o.micro_batch = 3; /* up to three micro-batches of a sweep's two experts */
        run_steps(&o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_launched_without_waiting),
    };
    return cmocka_run_group_tests_name("waits", tests, open_teacher, NULL);
}
